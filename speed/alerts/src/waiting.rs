//! Says why a runner does not evaluate its alert: the read view is behind the position of the last round. This is
//! normal for a moment, while a worker reads again what another one had not committed when it died. It lasts if the log
//! was replaced.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use event_log::Log;
use serving::ReadView;
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

/// How long a runner has waited for a newer read view, and why as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct ReadViewWait {
    since: Option<Instant>,
    asked: Option<Instant>,
    why: Option<String>,
}

impl ReadViewWait {
    /// Notes that the alert is evaluated again.
    pub(crate) fn end(&mut self) {
        *self = ReadViewWait::default();
    }

    /// Notes that the runner waits for a read view with this position. Once it has waited for `patience`, returns why
    /// there may never be one. The log is asked at most once per `patience`.
    pub(crate) async fn reason(&mut self, needed: &Vector, read_view: &ReadView, log: &dyn Log, patience: Duration) -> Option<&str> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= patience && self.asked.is_none_or(|asked| asked.elapsed() >= patience) {
            self.asked = Some(Instant::now());
            // Nothing is concluded from a log that does not answer.
            if let Ok(facts) = facts(needed, read_view, log).await {
                self.why = replaced(&facts);
            }
        }
        self.why.as_deref()
    }
}

/// What is known of a partition whose records are waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AwaitedPartition {
    pub(crate) needed: Offset,
    pub(crate) end: Offset,
    /// The identity of the log, and of the one whose records are committed; empty where that is not known.
    pub(crate) identity: String,
    pub(crate) committed: String,
}

/// Why the records do not come: this is not the log that the alert was evaluated with. `None` if the log may still have
/// them.
pub(crate) fn replaced(facts: &BTreeMap<PartitionId, AwaitedPartition>) -> Option<String> {
    facts.iter().find_map(|(partition, facts)| {
        let AwaitedPartition { needed, end, identity, committed } = facts;
        let seen = format!("it was evaluated with the records of {partition} before offset {needed}");
        if !committed.is_empty() && identity != committed {
            return Some(format!("the log was replaced: {seen}, of the log {committed}, and found the log {identity}"));
        }
        (end < needed).then(|| format!("the log was replaced or lost records: {seen}, and the log ends at {end}"))
    })
}

async fn facts(needed: &Vector, read_view: &ReadView, log: &dyn Log) -> Result<BTreeMap<PartitionId, AwaitedPartition>> {
    let mut facts = BTreeMap::new();
    for (partition, needed) in needed.iter().filter(|(partition, needed)| read_view.vector.get(partition) < *needed) {
        let stream = read_view.loaded.registry.streams.get(&partition.stream);
        let stream = stream.ok_or_else(|| Error::not_found(format!("there is no stream {}", partition.stream)))?;
        let topic = &stream.definition.topic;
        let bounds = log.bounds(topic).await?.into_iter().find(|bounds| bounds.partition == partition.partition);
        let committed = read_view.loaded.state.partitions.get(partition).map(|known| known.log_identity.clone());
        let of_log = AwaitedPartition {
            needed,
            end: bounds.map_or(Offset::ZERO, |bounds| bounds.end),
            identity: log.identity(topic).await?,
            committed: committed.unwrap_or_default(),
        };
        facts.insert(partition.clone(), of_log);
    }
    Ok(facts)
}

#[cfg(test)]
mod tests;
