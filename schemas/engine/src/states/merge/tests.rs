use super::*;
use crate::states::testing::{events, planned, session};
use crate::states::{Partial, differing};

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

    // In parts of all sizes, down to one for each key.
    for bytes_at_once in [1 << 20, 2_048, 512, 1] {
        let parts = merge_in_parts(&plan, &codec, &sets.iter().collect::<Vec<_>>(), bytes_at_once).unwrap();
        assert!(bytes_at_once < 1 << 20 || parts.len() == 1, "{} parts", parts.len());
        assert!(bytes_at_once > 1 || parts.len() > 5, "{} parts", parts.len());
        let of_key = |key: &[u8]| parts.iter().filter(|part| !part.find(key).is_empty()).count();
        assert!(expected.keys().iter().flatten().all(|key| of_key(key) == 1), "{bytes_at_once}: a key is in several parts");
        let batch = concat_batches(plan.state_schema(), parts.iter().map(StateRows::batch)).unwrap();
        assert_eq!(&batch, expected.batch(), "{bytes_at_once}");
    }
    assert!(merge_in_parts(&plan, &codec, &[], 1).unwrap().iter().all(StateRows::is_empty));
}

/// Collected values are merged only where two sets have the same tile.
#[test]
fn only_rows_that_others_are_merged_with_are_collected_again() {
    let plan =
        Arc::new(planned("CREATE VIEW v WITH (windows = '1h, 2d') AS SELECT k, count(*) AS n, count(DISTINCT x) AS d FROM s GROUP BY k"));
    let codec = KeyCodec::for_plan(&plan).unwrap();
    let mut partial = Partial::new(plan.clone(), &session()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let states = |first: i64| {
        let rows: Vec<(String, i64, Micros)> = (first..first + 100).map(|at| (format!("k{}", at % 7), at % 50, at * MINUTE)).collect();
        runtime.block_on(partial.states("s", &[events(&rows)])).unwrap()
    };
    let batches: Vec<Vec<RecordBatch>> = [0, 95].into_iter().map(states).collect();
    let sets = StateRows::sort_in(RowOrder::ByLevel, &plan, &codec, &batches.concat()).unwrap();
    let groups = number_groups(&sets, |level, tile| (level, tile)).unwrap();
    let several = SeveralRows::worth_it(&plan, &groups).unwrap();
    assert_eq!((several.rows.len(), several.count, groups.first_row.len()), (10, 5, 195));
    let merged = merge_sorted(&plan, &sets).unwrap();
    let mut columns = merged.batch().columns()[..plan.state_offset(StateIndex::EVENTS)].to_vec();
    for (index, state) in plan.states.iter().enumerate() {
        let fields = &sets.batch().columns()[plan.state_columns(StateIndex(index))];
        columns.extend(merged_states(state, fields, &groups.of_row, groups.first_row.len()).unwrap());
    }
    let expected = RecordBatch::try_new(plan.state_schema().clone(), columns).unwrap();
    assert!(differing(&plan, merged.batch(), &expected, |_| true).unwrap().is_empty());
    // Rolled up, most tiles have several rows.
    let minutes = sort_and_merge(&plan, &codec, &batches[0]).unwrap();
    let days = number_groups(&minutes, |_, tile| (Level::Day1.code(), Level::Day1.floor(tile))).unwrap();
    assert!(SeveralRows::worth_it(&plan, &days).is_none());
}

/// Tiles that expired since the sets were rolled up are dropped, whether that is done before they are merged or then.
#[test]
fn rolled_up_sets_merge_into_what_all_their_events_roll_up_to() {
    let plan = Arc::new(planned("CREATE VIEW v WITH (windows = '1h, 2d') AS SELECT k, count(*) AS n, max(x) AS most FROM s GROUP BY k"));
    let codec = KeyCodec::for_plan(&plan).unwrap();
    let mut partial = Partial::new(plan.clone(), &session()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let states = |first: i64| {
        let rows: Vec<(String, i64, Micros)> = (first..first + 400).map(|at| (format!("k{}", at * 7 % 11), at, at * MINUTE)).collect();
        runtime.block_on(partial.states("s", &[events(&rows)])).unwrap()
    };
    let batches: Vec<Vec<RecordBatch>> = [0, 300, 550].into_iter().map(states).collect();
    let (earlier, floors) = (plan.floors(400 * MINUTE), plan.floors(1_000 * MINUTE));
    let rolled_up = |batches: &[RecordBatch], floors: &[(Level, Option<Micros>)]| {
        rollup(&plan, &sort_and_merge(&plan, &codec, batches).unwrap(), floors).unwrap()
    };
    let sets: Vec<RecordBatch> = batches.iter().map(|batches| rolled_up(batches, &earlier).batch().clone()).collect();
    let kept: Vec<RecordBatch> = sets.iter().map(|set| kept_tiles(set, &floors).unwrap()).collect();
    let rows = |sets: &[RecordBatch]| sets.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert!(rows(&kept) < rows(&sets), "some tiles have expired");
    let sorted = |sets: &[RecordBatch]| StateRows::sort_in(RowOrder::ByLevel, &plan, &codec, sets).unwrap();
    let expected = rolled_up(&batches.concat(), &floors);
    assert!(expected.len() < rows(&kept), "some tiles are in two sets");
    for sets in [sets, kept] {
        let merged = merge_rolled_up(&plan, &sorted(&sets), &floors).unwrap();
        assert_eq!((merged.batch(), merged.keys()), (expected.batch(), expected.keys()));
    }
    // Where no tile is in two sets and none has expired, the rows are not copied once they are sorted.
    let apart = sorted(&[rolled_up(&batches[0], &earlier).batch().clone()]);
    let merged = merge_rolled_up(&plan, &apart, &earlier).unwrap();
    assert!(merged.batch().columns().iter().zip(apart.batch().columns()).all(|(merged, sorted)| Arc::ptr_eq(merged, sorted)));
}
