//! The naive evaluation: after each look, all keys are looked at, from the time of the look before to its own.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use committed::registry::LiveView;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use serde_json::Value;
use types::tiles::Micros;

use crate::decisions::AcceptedEvent;
use crate::layers::{TEXTS, expected};

/// A trailing window, in whose steps of this length the row of a key may change.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub name: &'static str,
    pub length: Micros,
    pub hop: Micros,
}

/// A key begins to satisfy the condition, or ceases to.
#[derive(Debug)]
pub struct Change {
    pub began: bool,
    /// When it is looked at may depend on what is read first.
    pub times: RangeInclusive<Micros>,
    /// The value in its record, where it is compared.
    pub value: Option<Value>,
}

/// Begins and ends alternate. A key is a text of the stream's, or NULL.
pub type Changes = BTreeMap<Option<usize>, Vec<Change>>;

#[derive(Debug, Default)]
pub struct Naive {
    pub much: Changes,
    pub often: Changes,
    pub silent: Changes,
}

impl Naive {
    /// Runs the plain SELECT of a view over all events, and the condition over its rows.
    pub async fn look_at_totals(&mut self, view: &LiveView, condition: &str, events: &[AcceptedEvent], (previous, t): (Micros, Micros)) {
        let [batches, _] = expected(view, &events.iter().collect::<Vec<_>>(), t).await;
        let Some(first) = batches.first() else { return };
        let session = SessionContext::new();
        session.register_table("plain", Arc::new(MemTable::try_new(first.schema(), vec![batches.clone()]).unwrap())).unwrap();
        let select = format!("SELECT key0, c0, coalesce({condition}, false) AS holds FROM plain");
        for batch in session.sql(&select).await.unwrap().collect().await.unwrap() {
            for row in serving::json::rows(&batch).unwrap() {
                let row: Value = serde_json::from_str(row.get()).unwrap();
                let holds = row["holds"].as_bool().unwrap();
                observe(self.much.entry(key_of(&row["key0"])).or_default(), holds, previous..=t, Some(row["c0"].clone()));
            }
        }
    }

    /// Counts the events of each key, at each step of the window's edge.
    pub fn look_at_window(&mut self, window: Window, often: usize, events: &[AcceptedEvent], (previous, t): (Micros, Micros)) {
        let Window { length, hop, .. } = window;
        for (key, times) in times_by_key(events) {
            let changes = self.often.entry(key).or_default();
            for edge in (previous - previous.rem_euclid(hop)..=t).step_by(hop as usize) {
                let count = times.iter().filter(|ts| (edge - length..edge + hop).contains(*ts)).count();
                // The row of a key that ceased may be gone.
                let value = (count >= often).then(|| Value::from(count));
                observe(changes, count >= often, edge..=edge + hop - 1, value);
            }
        }
    }

    /// Whether the last event of each key is older than that. A silence that ends before it is looked at is not seen:
    /// a row has its present value since the last event.
    pub fn look_at_silence(&mut self, length: Micros, events: &[AcceptedEvent], (previous, t): (Micros, Micros)) {
        for (key, times) in times_by_key(events) {
            let changes = self.silent.entry(key).or_default();
            let last = times.into_iter().max().unwrap();
            observe(changes, last.max(previous) - last > length, previous..=t, None);
            observe(changes, t - last > length, previous.max(last + length + 1)..=t, None);
        }
    }
}

/// The key in a record or a row.
pub fn key_of(value: &Value) -> Option<usize> {
    value.as_str().map(|key| TEXTS.iter().position(|text| *text == key).unwrap())
}

fn times_by_key(events: &[AcceptedEvent]) -> BTreeMap<Option<usize>, Vec<Micros>> {
    let mut times: BTreeMap<Option<usize>, Vec<Micros>> = BTreeMap::new();
    events.iter().for_each(|(_, _, row)| times.entry(row.k).or_default().push(row.ts));
    times
}

fn observe(changes: &mut Vec<Change>, holds: bool, times: RangeInclusive<Micros>, value: Option<Value>) {
    if holds != changes.last().is_some_and(|last| last.began) {
        changes.push(Change { began: holds, times, value });
    }
}
