//! The queries, and their expected answers.

use serde_json::{Value, json};
use types::{Error, Result};

use super::once::Reported;
use crate::events::Events;
use crate::purchases::question::{AGGREGATES, KEY};
use crate::purchases::{FOUR_WINDOWS, Purchases, VIEW};

/// A query.
pub(super) struct Query {
    pub(super) name: &'static str,
    /// Windows and aggregates that it names.
    pub(super) named: &'static str,
    pub(super) sql: Option<String>,
    pub(super) is_all: bool,
    /// It has a row for each key, and names only some of the columns.
    pub(super) is_part: bool,
    /// The number of rows, if it does not depend on the keys.
    rows: Option<u64>,
}

/// The number of rows in a query for the greatest.
const GREATEST: u64 = 100;

pub(super) fn all() -> Vec<Query> {
    let of = |aggregates: &[(&str, &str)], windows: &[&str]| -> String {
        let columns = windows.iter().flat_map(|window| aggregates.iter().map(move |(alias, _)| format!(", {alias}_{window}")));
        columns.collect()
    };
    let windows = FOUR_WINDOWS.map(|window| window.text);
    let part = |name, named, columns: String| Query {
        name,
        named,
        sql: Some(format!("SELECT {KEY}{columns} FROM {VIEW}")),
        is_all: false,
        is_part: true,
        rows: None,
    };
    let other = |name, named, rows, sql: String| Query { name, named, sql: Some(sql), is_all: false, is_part: false, rows: Some(rows) };
    let counts: Vec<String> = windows.iter().map(|window| format!("sum(purchases_{window})::BIGINT AS events_{window}")).collect();
    vec![
        Query { name: "none: the node alone", named: "-", sql: None, is_all: false, is_part: false, rows: Some(0) },
        Query { is_all: true, is_part: false, ..part("all columns", "4 x 5", of(&AGGREGATES, &windows)) },
        part("one sum, shortest window", "1 x 1", of(&AGGREGATES[1..2], &windows[..1])),
        part("one sum, longest window", "1 x 1", of(&AGGREGATES[1..2], &windows[3..])),
        part("all aggregates, longest window", "1 x 5", of(&AGGREGATES, &windows[3..])),
        part("one sum, all windows", "4 x 1", of(&AGGREGATES[1..2], &windows)),
        part("all but distinct merchants", "4 x 4", of(&AGGREGATES[..4], &windows)),
        other("total of events, all windows", "4 x 1", 1, format!("SELECT {} FROM {VIEW}", counts.join(", "))),
        other(
            "the hundred greatest sums over 7d",
            "1 x 1",
            GREATEST,
            format!("SELECT {KEY}, total_7d FROM {VIEW} ORDER BY total_7d DESC NULLS LAST LIMIT {GREATEST}"),
        ),
    ]
}

/// The expected values, computed from the events.
pub(super) struct Truth {
    /// Keys with a row.
    pub(super) keys: u64,
    /// Events in each window, in the shape of the row that the query for them returns.
    events: Value,
}

pub(super) fn truth(purchases: &Purchases) -> Truth {
    let t = purchases.newest();
    let starts = FOUR_WINDOWS.map(|window| window.start(t));
    let (mut seen, mut events) = (vec![false; purchases.accounts as usize], [0u64; 4]);
    for purchase in (0..purchases.events).map(|number| purchases.purchase(number)) {
        seen[purchase.account as usize] |= purchase.ts >= starts[3];
        for (count, start) in events.iter_mut().zip(starts) {
            *count += u64::from(purchase.ts >= start);
        }
    }
    let events = FOUR_WINDOWS.iter().zip(events).map(|(window, count)| (format!("events_{}", window.text), json!(count))).collect();
    Truth { keys: seen.iter().filter(|seen| **seen).count() as u64, events: Value::Object(events) }
}

impl Truth {
    /// Errors on any difference.
    pub(super) fn hold(&self, query: &Query, reported: &Reported) -> Result<()> {
        let rows = query.rows.unwrap_or(self.keys).min(self.keys.max(1));
        let is_sum = reported.last.get("events_1h").is_some();
        if reported.rows != rows || (is_sum && reported.last != self.events) {
            return Err(Error::internal("a scan differs from the events")
                .with("query", query.name)
                .with("rows", reported.rows)
                .with("expected", rows)
                .with("last", &reported.last)
                .with("of events", &self.events));
        }
        Ok(())
    }
}
