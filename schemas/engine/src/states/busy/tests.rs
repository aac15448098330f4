use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::*;
use crate::states::testing::{events, planned, session};
use crate::states::{Partial, sort_and_merge};

const HOUR: i64 = 3_600_000_000;
const BEGIN: i64 = 1_772_452_800_000_000;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

fn busy(view: &str, rows: &[(String, i64, i64)], parts: u64) -> BusyKeys {
    let plan = std::sync::Arc::new(planned(view));
    let codec = KeyCodec::for_plan(&plan).unwrap();
    let mut partial = Partial::new(plan.clone(), &session()).unwrap();
    let states = RUNTIME.block_on(partial.states("s", &[events(rows)])).unwrap();
    busy_keys(&plan, &codec, &sort_and_merge(&plan, &codec, &states).unwrap(), parts).unwrap()
}

/// Each key's events as its text, in the order of the keys.
fn texts(plan: &str, busy: &BusyKeys) -> Vec<(String, u64)> {
    let codec = KeyCodec::for_plan(&planned(plan)).unwrap();
    let text = |(key, events): &(Vec<u8>, u64)| {
        (codec.decode([key.as_slice()].into_iter()).unwrap()[0].as_string::<i32>().value(0).to_owned(), *events)
    };
    busy.keys.iter().map(text).collect()
}

const BY_MINUTE: &str = "CREATE VIEW v WITH (windows = '1h') AS SELECT k, count(*) AS n, max(x) AS most FROM s WHERE x <> 3 GROUP BY k";
const LINKED: &str = "CREATE VIEW v AS SELECT mine.k, count(DISTINCT theirs.k) AS others FROM s mine JOIN s theirs ON mine.x = theirs.x \
    WHERE mine.k <> theirs.k GROUP BY mine.k";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Over any number of tiles of a key.
    #[test]
    fn the_keys_are_those_with_a_share_of_the_events(
        rows in prop::collection::vec((0u8..12, 0i64..5, 0..48 * HOUR), 0..300),
        parts in 1u64..30,
    ) {
        let rows: Vec<(String, i64, i64)> = rows.into_iter().map(|(key, x, after)| (format!("k{key:02}"), x, BEGIN + after)).collect();
        let found = busy(BY_MINUTE, &rows, parts);
        let mut truth: BTreeMap<String, u64> = BTreeMap::new();
        rows.iter().filter(|(_, x, _)| *x != 3).for_each(|(key, ..)| *truth.entry(key.clone()).or_default() += 1);
        let all: u64 = truth.values().sum();
        truth.retain(|_, events| *events * parts >= all);
        prop_assert_eq!(found.events, all);
        prop_assert_eq!(texts(BY_MINUTE, &found), Vec::from_iter(truth));
    }
}

#[test]
fn of_a_linked_view_the_events_are_those_of_the_nodes_by_which_it_is_asked() {
    let row = |key: &str, x: i64| (key.to_owned(), x, BEGIN);
    let rows = [row("a", 1), row("a", 2), row("a", 2), row("b", 1), row("c", 7)];
    let found = busy(LINKED, &rows, 3);
    let plan = planned(LINKED);
    let codec = KeyCodec::for_plan(&plan).unwrap();
    let nodes = codec.nodes().unwrap();
    let keys: Vec<&[u8]> = found.keys.iter().map(|(key, _)| key.as_slice()).collect();
    let names = nodes.groups_of(&keys).unwrap();
    assert_eq!((found.events, found.keys.len(), found.keys[0].1), (5, 1, 3));
    assert_eq!(names[0].as_string::<i32>().value(0), "a");
}
