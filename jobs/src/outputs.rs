//! Sinks and alerts in the catalog: listed, read, paused, and rolled back to an earlier text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::{CatalogState, DefinitionKind};
use committed::names::{live_names, not_defined};
use definitions::{AlertDefinition, SinkDefinition, parse};
use event_alerts::alert_of;
use event_log::{Log, PartitionBounds, TopicPartition};
use event_sinks::sink_of;
use types::Result;
use types::record::Record;
use types::vector::Offset;

mod merged;
mod operate;
mod switches;

pub use operate::{Paused, RolledBack};
pub use switches::SwitchReport;

use merged::{MergedPartitions, PartitionRecords};

/// At most this many partitions are listed.
const LISTED: usize = 5;
/// How often a reader that follows looks for new records.
const FOLLOW: Duration = Duration::from_millis(200);

/// Returns a live sink by its name.
pub(crate) fn live_sink(state: &CatalogState, name: &str) -> Result<SinkDefinition> {
    parse::parse_sink(live(state, DefinitionKind::Sink, name)?)
}

/// Returns a live alert by its name.
pub(crate) fn live_alert(state: &CatalogState, name: &str) -> Result<AlertDefinition> {
    parse::parse_alert(live(state, DefinitionKind::Alert, name)?)
}

/// The text of a live definition.
fn live<'s>(state: &'s CatalogState, kind: DefinitionKind, name: &str) -> Result<&'s str> {
    if let Some(record) = state.served_or_building(kind, name) {
        return Ok(&record.sql);
    }
    Err(not_defined(kind, name, live_names(state)))
}

/// The sink or the alert of a record, and its version, by the record's headers.
type OutputOf = fn(&[(String, Bytes)]) -> Option<(&str, u32)>;

/// Reads the records of one sink or alert: by their times, and those of one partition in the order of its offsets.
pub struct OutputReader<'a> {
    log: &'a dyn Log,
    name: &'a str,
    topic: Arc<str>,
    output_of: OutputOf,
    next: BTreeMap<i32, Offset>,
}

impl<'a> OutputReader<'a> {
    /// Creates a reader of the records of a sink.
    pub fn of_sink(log: &'a dyn Log, sink: &'a SinkDefinition) -> Self {
        Self { log, name: &sink.name, topic: sink.topic.clone(), output_of: sink_of, next: BTreeMap::new() }
    }

    pub(crate) fn of_alert(log: &'a dyn Log, alert: &'a AlertDefinition) -> Self {
        Self { log, name: &alert.name, topic: alert.topic.clone(), output_of: alert_of, next: BTreeMap::new() }
    }

    /// Says at which offsets the topic begins, if older records were deleted.
    pub async fn deleted(&self) -> Result<Option<String>> {
        let bounds = self.log.bounds(&self.topic).await?;
        Ok(deleted(&self.topic, &bounds))
    }

    /// Passes on the records that were appended since the last call, and those that it did not want any more. `take`
    /// returns whether it wants more.
    pub async fn read(&mut self, take: &mut dyn FnMut(&Record) -> Result<bool>) -> Result<bool> {
        let bounds = self.log.bounds(&self.topic).await?;
        let partitions = bounds.iter().map(|bounds| {
            let next = self.next.get(&bounds.partition).copied().unwrap_or(bounds.begin);
            let source = TopicPartition { topic: self.topic.clone(), partition: bounds.partition };
            // A retention of the topic may have deleted what was not read yet.
            PartitionRecords::new(source, next.max(bounds.begin), bounds.end)
        });
        let is_of_it = |record: &Record| (self.output_of)(&record.headers).is_some_and(|(name, _)| name == self.name);
        let mut merged = MergedPartitions::new(self.log, partitions.collect(), &is_of_it);
        let mut wants_more = true;
        while wants_more && let Some(record) = merged.next_record().await? {
            wants_more = take(&record)?;
        }
        self.next.extend(merged.positions());
        Ok(wants_more)
    }

    /// The same, again and again until `take` wants no more.
    pub async fn follow(&mut self, take: &mut dyn FnMut(&Record) -> Result<bool>) -> Result<()> {
        while self.read(take).await? {
            tokio::time::sleep(FOLLOW).await;
        }
        Ok(())
    }
}

fn deleted(topic: &str, bounds: &[PartitionBounds]) -> Option<String> {
    let begins = bounds.iter().filter(|bounds| bounds.begin > Offset(0));
    let mut begins: Vec<String> = begins.map(|bounds| format!("offset {} of partition {}", bounds.begin.0, bounds.partition)).collect();
    if begins.len() > LISTED {
        begins.truncate(LISTED);
        begins.push("..".to_owned());
    }
    let why = "older records were deleted after their retention (its own, or else that of [log]; on Kafka the topic's)";
    (!begins.is_empty()).then(|| format!("the topic \"{topic}\" begins at {}: {why}", begins.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_says_where_it_begins_once_records_are_deleted() {
        let bounds = |begins: &[i64]| -> Vec<PartitionBounds> {
            let bounds = |(partition, begin): (i32, &i64)| PartitionBounds { partition, begin: Offset(*begin), end: Offset(90) };
            (0..).zip(begins).map(bounds).collect()
        };
        assert_eq!(deleted("t", &bounds(&[0, 0])), None);
        let text = deleted("t", &bounds(&[0, 12, 90])).unwrap();
        assert!(text.starts_with("the topic \"t\" begins at offset 12 of partition 1, offset 90 of partition 2: older records"), "{text}");
        let text = deleted("t", &bounds(&[1; 40])).unwrap();
        assert!(text.contains("offset 1 of partition 4, ..: older records"), "{text}");
    }
}
