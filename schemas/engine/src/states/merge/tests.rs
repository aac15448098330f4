use super::*;
use crate::states::Partial;
use crate::states::testing::{events, planned, session};

const MINUTE: Micros = 60_000_000;

/// They are merged by the keys that they have, and rows that are not merged yet by keys that are encoded then.
#[test]
fn sets_merge_into_what_all_their_rows_merge_into() {
    let plan = Arc::new(planned("CREATE VIEW v WITH (windows = '1h') AS SELECT k, count(*) AS n, max(x) AS most FROM s GROUP BY k"));
    let codec = KeyCodec::for_plan(&plan).unwrap();
    let mut partial = Partial::new(plan.clone(), &session()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let states = |first: i64| {
        let rows: Vec<(String, i64, Micros)> = (first..first + 40).map(|at| (format!("k{}", at * 7 % 11), at, at / 5 * MINUTE)).collect();
        runtime.block_on(partial.states("s", &[events(&rows)])).unwrap()
    };
    let batches: Vec<Vec<RecordBatch>> = [0, 20, 35].into_iter().map(states).collect();
    let sets: Vec<StateRows> = batches.iter().map(|batches| sort_and_merge(&plan, &codec, batches).unwrap()).collect();
    let merged = merge_sets(&plan, &codec, &sets.iter().collect::<Vec<_>>()).unwrap();
    let expected = sort_and_merge(&plan, &codec, &batches.concat()).unwrap();
    assert_eq!((merged.batch(), merged.keys()), (expected.batch(), expected.keys()));
    assert!(merge_sets(&plan, &codec, &[]).unwrap().is_empty());
}
