//! A backtest of what ran live says of each event what its sink had put out.

use std::collections::BTreeMap;
use std::sync::Mutex;

use basestream_tests::Harness;
use batch::{Backtest, BacktestClock, Known};
use committed::registry::Registry;
use serde_json::Value;
use types::tiles::Micros;

use super::{HOUR, MINUTE};

/// The scored rows of a range by partition and offset, without their places. Each event at most once.
pub(super) async fn scored(harness: &Harness, sink: &str, (from, to): (Micros, Micros), known: Known) -> BTreeMap<(i32, i64), Value> {
    let state = harness.catalog.state().await.unwrap();
    let registry = Registry::load(&state, &harness.functions).await.unwrap();
    let sink = registry.sinks.iter().find(|live| &*live.name == sink).unwrap();
    let backtest = Backtest { registry: &registry, sink, from, to, known, clock: BacktestClock::Event };
    let found = Mutex::new(BTreeMap::new());
    let mut take = |rows: &arrow::array::RecordBatch| {
        for row in serving::json::rows(rows)? {
            let mut row: Value = serde_json::from_str(row.get()).unwrap();
            let members = row.as_object_mut().unwrap();
            let mut taken = |name: &str| members.remove(name).unwrap();
            let event = (taken("_partition").as_i64().unwrap() as i32, taken("_offset").as_i64().unwrap());
            assert_eq!(taken("_error"), Value::Null);
            let time = engine::events::parse_timestamp(taken("_event_time").as_str().unwrap()).unwrap();
            assert!((from..to).contains(&time));
            assert!(found.lock().unwrap().insert(event, row).is_none(), "{event:?} is scored twice");
        }
        Ok(())
    };
    let count = harness.batch_layer(256 << 20).backtest(&state, &backtest, &mut take, &|_| ()).await.unwrap();
    let found = found.into_inner().unwrap();
    assert_eq!(count, found.len() as u64);
    found
}

/// What the exclusive sink says of each accepted event, where all that is dated before it is known: computed from the
/// events alone.
pub(super) fn by_event_time(events: &BTreeMap<(i32, i64), (Micros, i64, Value)>) -> BTreeMap<(i32, i64), (usize, Option<i64>)> {
    let row = |place: &(i32, i64), (time, _, key): &(Micros, i64, Value)| {
        let from = (time - HOUR).div_euclid(MINUTE) * MINUTE;
        let is_seen = |(other_place, (other, x, other_key)): &(&(i32, i64), &(Micros, i64, Value))| {
            !key.is_null() && other_key == key && *x != 7 && *other >= from && (*other, *other_place) < (*time, place)
        };
        let seen: Vec<i64> = events.iter().filter(is_seen).map(|(_, (_, x, _))| *x).collect();
        (seen.len(), (!seen.is_empty()).then(|| seen.iter().sum()))
    };
    events.iter().map(|(place, event)| (*place, row(place, event))).collect()
}

/// A sink whose views link events is refused, and says why.
pub(super) async fn refuses_links(harness: &Harness) {
    let state = harness.catalog.state().await.unwrap();
    let registry = Registry::load(&state, &harness.functions).await.unwrap();
    let sink = registry.sinks.iter().find(|live| &*live.name == "after").unwrap();
    let backtest = Backtest { registry: &registry, sink, from: 0, to: 1, known: Known::Log, clock: BacktestClock::Event };
    let refused = harness.batch_layer(256 << 20).backtest(&state, &backtest, &mut |_| Ok(()), &|_| ()).await.unwrap_err();
    assert!(refused.to_string().contains("\"links\""), "{refused}");
}
