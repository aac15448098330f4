use std::sync::Arc;

use super::*;
use crate::plan::ViewPlan;
use crate::states::ranges::{GROUPS_AT_ONCE, ROWS_AT_ONCE};
use crate::states::testing::{events, planned, session};
use crate::states::{Partial, StateRows, rollup, sort_and_merge};

const T: Micros = 1_772_452_812_345_678;
const HOUR: Micros = 3_600_000_000;

const VIEW: &str = "CREATE VIEW v WITH (windows = '1h, 1d') AS \
    SELECT k, count(*) AS n, sum(x) AS total, count(DISTINCT x) AS different, max(x) + 1 AS above, min(x) AS least FROM s GROUP BY k";

struct World {
    plan: Arc<ViewPlan>,
    codec: KeyCodec,
    /// A snapshot, and a layer that follows it.
    snapshot: StateRows,
    layer: StateRows,
}

impl World {
    fn with_rows(rows: &[(String, i64, Micros)]) -> World {
        let plan = Arc::new(planned(VIEW));
        let codec = KeyCodec::for_plan(&plan).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut partial = Partial::new(plan.clone(), &session()).unwrap();
        let mut states = |rows: &[(String, i64, Micros)]| {
            let states = runtime.block_on(partial.states("s", &[events(rows)])).unwrap();
            sort_and_merge(&plan, &codec, &states).unwrap()
        };
        let (before, after) = rows.split_at(rows.len() / 2);
        let (before, layer) = (states(before), states(after));
        let snapshot = rollup(&plan, &before, &plan.floors(T)).unwrap();
        World { plan, codec, snapshot, layer }
    }

    fn answer(&self, keys: &[&[u8]]) -> (RecordBatch, Vec<bool>) {
        let mut pieces = Pieces::default();
        for (index, key) in keys.iter().enumerate() {
            pieces.add(self.snapshot.batch(), self.snapshot.find(key), index as u32, true);
            pieces.add(self.layer.batch(), self.layer.find(key), index as u32, false);
        }
        let wanted: Vec<usize> = (0..self.plan.columns.len()).collect();
        let answered = answer(&self.plan, &self.codec, keys, &pieces, T, &wanted).unwrap();
        (answered.rows, answered.found)
    }
}

/// More keys than are merged together, more rows than are copied together, and some keys without events in a window.
#[test]
fn many_keys_are_answered_as_each_by_itself() {
    let keys = GROUPS_AT_ONCE + 500;
    let rows: Vec<(String, i64, Micros)> =
        (0..8 * keys as i64).map(|at| (format!("k{:05}", (at * 7_919) % keys as i64), at % 5, T - (at * 104_729) % (30 * HOUR))).collect();
    let world = World::with_rows(&rows);
    assert!(world.snapshot.len() > ROWS_AT_ONCE && world.layer.len() > ROWS_AT_ONCE);
    let names: Vec<String> = (0..keys + 3).map(|key| format!("k{key:05}")).collect();
    let column: ArrayRef = Arc::new(arrow::array::StringArray::from_iter_values(&names));
    let encoded = world.codec.encode(&[column], names.len()).unwrap();
    let encoded: Vec<&[u8]> = encoded.iter().flatten().collect();
    let (together, found) = world.answer(&encoded);
    assert_eq!(found.iter().filter(|found| !**found).count(), 3);
    let mut alone_in_an_hour = 0;
    for key in (0..encoded.len()).step_by(37).chain(keys - 2..keys + 3) {
        let (alone, is_found) = world.answer(&encoded[key..=key]);
        assert_eq!(alone, together.slice(key, 1));
        assert_eq!(is_found, found[key..=key]);
        let in_an_hour = alone.column_by_name("n_1h").unwrap();
        alone_in_an_hour += in_an_hour.as_any().downcast_ref::<Int64Array>().unwrap().value(0);
    }
    assert!(alone_in_an_hour > 0);
}

#[test]
fn some_of_the_columns_are_answered_as_they_are_among_all() {
    let rows: Vec<(String, i64, Micros)> = (0..60).map(|at| (format!("k{}", at % 3), at % 7, T - at * HOUR / 4)).collect();
    let world = World::with_rows(&rows);
    let keys = &[world.layer.keys().value(0)];
    let (all, _) = world.answer(keys);
    let mut pieces = Pieces::default();
    pieces.add(world.snapshot.batch(), world.snapshot.find(keys[0]), 0, true);
    pieces.add(world.layer.batch(), world.layer.find(keys[0]), 0, false);
    for column in 0..world.plan.columns.len() {
        let Answered { rows: one, found, .. } = answer(&world.plan, &world.codec, keys, &pieces, T, &[column]).unwrap();
        assert_eq!((one, found), (all.project(&[column]).unwrap(), vec![true]));
    }
}
