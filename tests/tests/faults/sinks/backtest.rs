//! A backtest of what ran live says of each event what its sink had put out.

use std::collections::BTreeMap;
use std::sync::Mutex;

use basestream_tests::Harness;
use batch::{Backtest, BacktestClock, Backtested, Known, ReceivedLate};
use committed::registry::Registry;
use serde_json::Value;
use types::tiles::Micros;

use super::{HOUR, MINUTE};

mod duckdb;

/// The scored rows of a range by partition and offset, without their places. Each event at most once.
pub(super) async fn scored(
    harness: &Harness,
    sink: &str,
    range: (Micros, Micros),
    by: (Known, BacktestClock),
) -> BTreeMap<(i32, i64), Value> {
    let registry = Registry::load(&harness.catalog.state().await.unwrap(), &harness.functions).await.unwrap();
    scored_as(harness, &registry, sink, range, by).await
}

/// The same by the sinks of a registry, with the clock of events.
pub(super) async fn scored_by(
    harness: &Harness,
    registry: &Registry,
    sink: &str,
    (from, to): (Micros, Micros),
    known: Known,
) -> BTreeMap<(i32, i64), Value> {
    scored_as(harness, registry, sink, (from, to), (known, BacktestClock::Event)).await
}

/// The same by the sinks of a registry and a clock.
async fn scored_as(
    harness: &Harness,
    registry: &Registry,
    sink: &str,
    range: (Micros, Micros),
    by: (Known, BacktestClock),
) -> BTreeMap<(i32, i64), Value> {
    scored_in(256 << 20, harness, registry, sink, range, by).await.0
}

/// The same in so much memory, and the events that were received late. With little memory, a chunk has few events.
pub(crate) async fn scored_in(
    memory: usize,
    harness: &Harness,
    registry: &Registry,
    sink: &str,
    (from, to): (Micros, Micros),
    (known, clock): (Known, BacktestClock),
) -> (BTreeMap<(i32, i64), Value>, Vec<ReceivedLate>) {
    let state = harness.catalog.state().await.unwrap();
    let sink = registry.sinks.iter().find(|live| &*live.name == sink).unwrap();
    let backtest = Backtest { registry, sink, changed: None, from, to, known, clock };
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
    let backtested = harness.batch_layer(memory).backtest(&state, &backtest, &mut take, &|_| ()).await.unwrap();
    let Backtested { rows, received_late } = backtested;
    let found = found.into_inner().unwrap();
    assert_eq!(rows, found.len() as u64);
    (found, received_late)
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
