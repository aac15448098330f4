//! What events see together is what each sees by itself, at a bounded number of merges.

use std::sync::Arc;

use arrow::array::StringArray;
use proptest::prelude::*;

use super::*;
use crate::states::added::PerEventStates;
use crate::states::testing::{events, planned, session};
use crate::states::{Partial, StateRows, answer, rollup, sort_and_merge};

const MINUTE: Micros = 60_000_000;
const HOUR: Micros = 60 * MINUTE;
const BEGIN: Micros = 1_772_452_800_000_000;
// Without sums of floats, whose last digit depends on the order.
const VIEWS: [&str; 4] = [
    "CREATE VIEW v WITH (windows = '1h, 1d') AS SELECT k, count(*) AS n, sum(x) AS total, min(x) AS least, avg(x) AS mean, max(ts) AS last \
     FROM s WHERE x <> 3 GROUP BY k",
    "CREATE VIEW v WITH (windows = '1h') AS SELECT count(*) AS n, count(DISTINCT x) AS different, bool_or(x > 4) AS any_large FROM s",
    "CREATE VIEW v WITH (windows = '1h') AS SELECT k, last_n(x, 3 ORDER BY ts) AS last, top_k(x, 2) AS most FROM s GROUP BY k",
    "CREATE VIEW v AS SELECT k, sequence_count('(?1)(?2)', ts, x = 1, x = 2) AS twice, max(x) FILTER (WHERE within(ts, '2h')) AS newest, \
     count(*) FILTER (WHERE within(ts, '1d')) AS n FROM s GROUP BY k",
];

type Row = (String, i64, Micros);

struct World {
    plan: Arc<ViewPlan>,
    codec: Arc<KeyCodec>,
    snapshot: StateRows,
    layer: StateRows,
    added: AddedStates,
    keys: Vec<Vec<u8>>,
}

impl World {
    async fn new(plan: ViewPlan, snapshot: &[Row], layer: &[Row], batch: &[Row]) -> World {
        let (plan, session) = (Arc::new(plan), session());
        let codec = Arc::new(KeyCodec::for_plan(&plan).unwrap());
        let mut partial = Partial::new(plan.clone(), &session).unwrap();
        let snapshot = sort_and_merge(&plan, &codec, &partial.states("s", &[events(snapshot)]).await.unwrap()).unwrap();
        let snapshot = rollup(&plan, &snapshot, &plan.floors(BEGIN)).unwrap();
        let layer = sort_and_merge(&plan, &codec, &partial.states("s", &[events(layer)]).await.unwrap()).unwrap();
        let mut states = PerEventStates::new(plan.clone(), codec.clone(), "s", &session).unwrap().unwrap();
        let added = states.compute(&events(batch)).await.unwrap();
        let encoded = codec.encode(&[Arc::new(StringArray::from(vec!["k0", "k1", "k2"])) as ArrayRef], 3).unwrap();
        let mut keys: Vec<Vec<u8>> = encoded.iter().flatten().map(<[u8]>::to_vec).collect();
        keys.dedup();
        World { plan, codec, snapshot, layer, added, keys }
    }

    fn pieces<'a>(&'a self, keys: &[&[u8]]) -> Pieces<'a> {
        let mut pieces = Pieces::default();
        for (index, key) in keys.iter().enumerate() {
            pieces.add(self.snapshot.batch(), self.snapshot.find(key), index as u32, true);
            pieces.add_fresh(self.layer.batch(), self.layer.find(key), index as u32);
        }
        pieces
    }

    /// The row of each event, and how much was merged.
    fn together(&self, seen: &[SeenEvent]) -> (RecordBatch, Merges) {
        let keys: Vec<&[u8]> = self.keys.iter().map(Vec::as_slice).collect();
        let seen = Seen { keys: &keys, before: &self.pieces(&keys), added: Some(&self.added), events: seen };
        let rows = answer_seen(&self.plan, &self.codec, &seen, &self.wanted()).unwrap();
        let mut merges = Merges::default();
        let uses: Vec<Use> = (0..self.plan.ranges.len()).map(|range| Use { state: StateIndex(0), range: RangeIndex(range) }).collect();
        seen.values(&self.plan, &uses, &mut merges).unwrap();
        (rows, merges)
    }

    fn alone(&self, event: &SeenEvent) -> RecordBatch {
        let keys = [self.keys[event.key as usize].as_slice()];
        let mut pieces = self.pieces(&keys);
        for row in self.added.before(&self.added.of_key(keys[0]), event.counted) {
            pieces.add_fresh(self.added.rows().batch(), row..row + 1, 0);
        }
        answer(&self.plan, &self.codec, &keys, &pieces, event.t, &self.wanted()).unwrap().rows
    }

    fn wanted(&self) -> Vec<usize> {
        (0..self.plan.columns.len()).collect()
    }
}

fn rows(of: Vec<(u8, i64, Micros)>) -> Vec<Row> {
    of.into_iter().map(|(key, x, back)| (format!("k{key}"), x, BEGIN - back)).collect()
}

fn some(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(u8, i64, Micros)>> {
    // Two of the times are alike more often than not.
    prop::collection::vec((0..3_u8, 0..6_i64, prop_oneof![Just(0), 0..3 * HOUR, 0..30 * HOUR]), count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn events_see_together_what_each_sees_alone(
        view in 0..VIEWS.len(),
        (snapshot, layer, batch) in (some(0..12), some(0..8), some(1..24)),
        asked in prop::collection::vec((0..3_usize, 0..2_u32, 0..90_i64), 24),
    ) {
        let plan = planned(VIEWS[view]);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let world = runtime.block_on(World::new(plan, &rows(snapshot), &rows(layer), &rows(batch.clone())));
        let seen = asked.iter().take(batch.len()).enumerate().map(|(event, (key, itself, minutes))| SeenEvent {
            key: (*key).min(world.keys.len() - 1) as u32,
            counted: event as u32 + itself,
            t: BEGIN + minutes / 30 * MINUTE,
        });
        let seen: Vec<SeenEvent> = seen.collect();
        let (together, _) = world.together(&seen);
        for (at, event) in seen.iter().enumerate() {
            prop_assert_eq!(together.slice(at, 1), world.alone(event), "event {}: {:?}", at, event);
        }
    }
}

/// A key that has every event of a batch: each costs a few merges, and the states from before are merged once.
#[test]
fn an_event_of_a_hot_key_costs_few_merges() {
    let plan = planned(VIEWS[0]);
    let ranges = plan.ranges.len();
    let of_hours = |count: i64| -> Vec<Row> { (0..count).map(|at| ("k0".to_owned(), 1, BEGIN - at * HOUR / 4)).collect() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for events in [64_usize, 512] {
        let batch: Vec<Row> = (0..events).map(|_| ("k0".to_owned(), 1, BEGIN)).collect();
        let world = runtime.block_on(World::new(plan.clone(), &[], &of_hours(90), &batch));
        let seen: Vec<SeenEvent> = (1..=events as u32).map(|counted| SeenEvent { key: 0, counted, t: BEGIN }).collect();
        let (rows, merges) = world.together(&seen);
        let n = rows.column_by_name("n_1h").unwrap().as_any().downcast_ref::<arrow::array::Int64Array>().unwrap();
        assert_eq!(n.value(events - 1) - n.value(0), events as i64 - 1);
        let most_of_event = 2 + events.ilog2() as usize;
        assert!(merges.added <= ranges * events * most_of_event, "{events} events: {merges:?}");
        assert!(merges.before <= ranges * world.layer.len(), "{events} events: {merges:?}");
    }
}
