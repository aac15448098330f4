use arrow::array::StringArray;

use super::*;
use crate::harness::{Harness, NOW};

mod seen;

const ALIKE: &str = "CREATE VIEW alike AS SELECT mine.device, count(DISTINCT theirs.device) AS devices FROM payments mine \
    JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device";

#[tokio::test]
async fn a_walk_of_one_key_over_the_budget_of_edges_is_not_answered_at_once() {
    let harness = Harness::filled().await;
    harness.define_view("alike", ALIKE).await;
    let read_view = harness.node.read_view().unwrap();
    let loaded = read_view.view("alike").unwrap();
    let source = StateSource::new(&read_view, loaded, None);
    let linked = Linked { view: &loaded.live, links: loaded.live.plan.links().unwrap() };
    let columns: [ArrayRef; 1] = [Arc::new(StringArray::from(vec!["a"]))];
    let asked = AskedKeys { columns: &columns, encoded: None, keys: 1, t: NOW, wanted: &[0, 1], paths: WantedPaths::default(), kept: None };
    let found = |answers: Option<Answers>| answers.map(|answers| answers.found);
    assert_eq!(found(linked.rows_if_quick(&source, &asked).unwrap()), Some(vec![true]));
    assert_eq!(found(linked.rows_within(2, &source, &asked).unwrap()), None);
    let with_paths = AskedKeys { paths: WantedPaths { most: 1, counted_in: None }, ..asked };
    assert_eq!(found(linked.rows_if_quick(&source, &with_paths).unwrap()), None, "paths are as many as are asked");
}
