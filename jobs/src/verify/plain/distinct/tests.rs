use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use engine::plan::session_config;

use super::*;

const EVENTS: &str = "(VALUES ('a', 'x', 1), ('a', 'x', 2), ('a', 'y', 1), ('a', NULL, 3), ('b', NULL, 1), ('c', '', 2), \
    ('c', 'x', 2), ('d', 'y', 1), ('d', 'y', 2)) AS events(device, label, n)";

#[tokio::test]
async fn texts_are_counted_as_datafusion_counts_them() {
    let counts = "count(DISTINCT label) AS labels, count(DISTINCT label) FILTER (WHERE n > 1) AS few, \
        count(DISTINCT arrow_cast(label, 'Utf8View')) AS views, count(DISTINCT n) AS numbers, count(label) AS present, count(*) AS events";
    for sql in [
        format!("SELECT device, {counts} FROM {EVENTS} GROUP BY device ORDER BY device"),
        format!("SELECT {counts} FROM {EVENTS}"),
        format!("SELECT {counts} FROM {EVENTS} WHERE n > 5"),
    ] {
        let answer = async |session: SessionContext| {
            let rows = session.sql(&sql).await.unwrap().collect().await.unwrap();
            pretty_format_batches(&rows).unwrap().to_string()
        };
        let ours = SessionContext::new_with_config(session_config());
        ours.register_udaf(count());
        assert_eq!(answer(ours).await, answer(SessionContext::new_with_config(session_config())).await, "{sql}");
    }
}

#[test]
fn a_set_begins_small_and_those_of_several_parts_are_merged() {
    let mut parts = [["x", "y", "x"], ["y", "z", "y"]].map(|texts| {
        let mut part = DistinctTexts::default();
        assert!(part.size() < 100, "{}", part.size());
        part.update_batch(&[Arc::new(StringArray::from_iter_values(texts))]).unwrap();
        part
    });
    let mut merged = DistinctTexts::default();
    for part in &mut parts {
        let states: Vec<ArrayRef> = part.state().unwrap().iter().map(|state| state.to_array().unwrap()).collect();
        merged.merge_batch(&states).unwrap();
        assert_eq!(part.evaluate().unwrap(), ScalarValue::Int64(Some(0)), "a state is taken out");
    }
    assert_eq!(merged.evaluate().unwrap(), ScalarValue::Int64(Some(3)));
}
