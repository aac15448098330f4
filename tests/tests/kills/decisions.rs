//! What a sink put out while processes were killed: one record for each accepted event, in the order of its partition,
//! with the event counted in what it saw.

use std::collections::{BTreeMap, HashMap};

use basestream_tests::records_of;
use event_log::Log;
use event_sinks::source_of;
use serde_json::Value;
use types::{Error, Result};

use crate::site::Site;

pub const SEEN: &str = "CREATE VIEW seen AS SELECT device_id, count(*) AS payments FROM payments GROUP BY device_id;\n";
/// Joins no linked view: links as dense as those of this load take a debug build minutes to walk for each event. The
/// sinks of `tests/faults` and of the law join one.
pub const SCORED: &str = "CREATE SINK scored WITH (topic = 'TOPIC_GROUP_scored', key = 'event_id') AS
SELECT p.event_id, p.device_id, s.payments, d.payments_1m
FROM payments p LEFT JOIN seen s ON s.device_id = p.device_id LEFT JOIN devices d ON d.device_id = p.device_id;\n";

/// A partition and an offset.
pub type Position = (i64, i64);

/// Compares the records with the accepted events. Returns what was found, for people.
pub async fn check(site: &Site, log: &dyn Log) -> Result<String> {
    let accepted = accepted(site)?;
    if accepted.is_empty() {
        return Err(Error::internal("no event was accepted"));
    }
    let found = records(site, log).await?;
    let missing = accepted.keys().find(|position| !found.contains_key(position));
    if let Some(position) = missing {
        return Err(Error::corrupt("an accepted event has no record").with("event", format!("{position:?}")));
    }
    if let Some(position) = found.keys().find(|position| !accepted.contains_key(position)) {
        return Err(Error::corrupt("a record is of no accepted event").with("event", format!("{position:?}")));
    }
    // In how many partitions the events of a device are.
    let mut all: HashMap<&Value, u64> = HashMap::new();
    accepted.values().for_each(|device| *all.entry(device).or_default() += 1);
    let mut in_partition: HashMap<(i64, &Value), u64> = HashMap::new();
    accepted.iter().for_each(|((partition, _), device)| *in_partition.entry((*partition, device)).or_default() += 1);
    let (mut before, mut exact) = (HashMap::new(), 0);
    for ((partition, offset), device) in &accepted {
        let row = &found[&(*partition, *offset)];
        let own: u64 = *before.entry((*partition, device)).and_modify(|count| *count += 1).or_insert(1);
        // What other partitions had at that moment is not known.
        let others = all[device] - in_partition[&(*partition, device)];
        let expected = if device.is_null() { 0..=0 } else { own..=own + others };
        if &row["device_id"] != device || !row["payments"].as_u64().is_some_and(|payments| expected.contains(&payments)) {
            return Err(Error::corrupt("a record does not say what its event saw")
                .with("event", format!("{partition}/{offset}"))
                .with("found", row)
                .with("expected", format!("{device} with {expected:?} payments")));
        }
        exact += usize::from(expected.start() == expected.end());
    }
    Ok(format!("{} records of the sink, {exact} of which follow from their partition alone", found.len()))
}

/// The device of each accepted event.
pub fn accepted(site: &Site) -> Result<BTreeMap<Position, Value>> {
    let text = site.project.ok(&["query", "SELECT __partition, __offset, device_id FROM payments", "--json"])?;
    let mut answer: Value = serde_json::from_str(&text)?;
    let Value::Array(rows) = answer["rows"].take() else { return Err(Error::internal("a query without rows")) };
    let position = |row: &Value| (row["__partition"].as_i64().unwrap_or(-1), row["__offset"].as_i64().unwrap_or(-1));
    Ok(rows.into_iter().map(|mut row| (position(&row), row["device_id"].take())).collect())
}

/// The record of each event.
async fn records(site: &Site, log: &dyn Log) -> Result<BTreeMap<Position, Value>> {
    let (mut found, mut last) = (BTreeMap::new(), HashMap::new());
    for (source, record) in records_of(log, &site.topic_put_out("scored")).await? {
        let (events, offset) = source_of(&record.headers).ok_or_else(|| Error::corrupt("a record does not name its event"))?;
        let event = format!("{events}/{offset}");
        if last.insert((source.partition, events.partition), offset).is_some_and(|last| last >= offset) {
            return Err(Error::corrupt("a record is out of order").with("event", event).with("partition", &source));
        }
        let value: Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
        if found.insert((events.partition.into(), offset.0), value).is_some() {
            return Err(Error::corrupt("an event has two records").with("event", event));
        }
    }
    Ok(found)
}
