//! Trims the embedded log. In the topic of a stream, records are deleted that every live stream over the topic
//! committed long ago; where there is none, every stream that was dropped. In the topic of a sink or an alert, dropped
//! ones included, that no live stream reads, records are deleted that were appended long ago. So they are in a topic
//! that no stream and no output has any more, because its stream left it before anything was committed.
//!
//! A stream's events are in the archive once they are committed, and a worker never reads below the committed vector.
//! The time of a commit is that of its checkpoint: records that were committed late, because no worker ran, are kept as
//! long as those that were committed at once. The catalog forgets checkpoints after their stream's retention; for
//! records before them, the time of the append counts. The last record before the committed vector is kept, because it
//! identifies the log when a partition is taken over. Records that a replay pins are kept as well: those of a run until
//! it ends, those of a replay of dead letters until the next replay has found what this one appended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Catalog, CatalogState, DefinitionKind, DefinitionRecord, pin_of_replay, pins_of_runs};
use definitions::parse::{parse_alert, parse_sink, parse_stream};
use event_log::{Log, PartitionBounds, TopicPartition};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::tiles::{Clock, Micros};
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, ErrorKind, Result};

/// What is trimmed, and by whom.
pub struct Trimming {
    pub catalog: Catalog,
    pub log: Arc<dyn Log>,
    /// The consumer group of the workers: records that another group has read stay.
    pub group: String,
    /// `log.retention`: how long records stay after their commit.
    pub retention: Duration,
    pub clock: Clock,
}

impl Trimming {
    /// Trims again and again until `stop` is cancelled. Each step is one transaction, so it can be dropped at any
    /// point.
    pub async fn run(&self, every: Duration, stop: CancellationToken) {
        let rounds = async {
            loop {
                tokio::time::sleep(every).await;
                match self.trim().await {
                    Ok(0) => {}
                    Ok(records) => info!(records, "the log was trimmed"),
                    Err(error) => warn!(%error, "the log could not be trimmed; trying again later"),
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = rounds => {}
        }
    }

    /// Trims all topics once, and returns how many records went.
    pub async fn trim(&self) -> Result<u64> {
        let state = self.catalog.state().await?;
        let trimmed = self.trim_records(self.old_records(&state).await?).await?;
        metrics::counter!("basestream_jobs_trimmed_records_total").increment(trimmed);
        Ok(trimmed)
    }

    async fn trim_records(&self, old: Vec<OldRecords>) -> Result<u64> {
        let mut trimmed = 0;
        for OldRecords { source, before, appended_before, is_left } in old {
            // An `apply` may have given the topic to a stream, a sink or an alert meanwhile.
            if is_left && has_user(&*self.catalog.state().await?, &source.topic)? {
                continue;
            }
            trimmed += self.log.trim(&source, &self.group, before, appended_before).await?;
        }
        Ok(trimmed)
    }

    /// Forgets a consumer group that will never read again: what only it held back is trimmed from now on.
    ///
    /// Errors: `Input` for the group of these workers; `NotFound` for one that has read nothing; `Conflict` while a
    /// worker of it is alive.
    pub(crate) async fn forget_group(&self, group: &str) -> Result<()> {
        if group == self.group {
            return Err(Error::input("the consumer group is `speed.group`: what it has read is trimmed").with("group", group));
        }
        self.log.forget_group(group).await
    }

    /// Returns how many records [`Trimming::trim`] would delete at this state.
    pub(crate) async fn would_trim(&self, state: &CatalogState) -> Result<u64> {
        let mut records = 0;
        for OldRecords { source, before, appended_before, .. } in self.old_records(state).await? {
            records += self.log.trimmable(&source, &self.group, before, appended_before).await?;
        }
        Ok(records)
    }

    /// Returns what trims the same records with another retention.
    pub(crate) fn with_retention(&self, retention: Duration) -> Trimming {
        let Trimming { catalog, log, group, clock, .. } = self;
        Trimming { catalog: catalog.clone(), log: log.clone(), group: group.clone(), retention, clock: clock.clone() }
    }

    /// Returns what may go of each partition.
    async fn old_records(&self, state: &CatalogState) -> Result<Vec<OldRecords>> {
        let now = (self.clock)();
        let ago = |retention: Duration| now.saturating_sub(i64::try_from(retention.as_micros()).unwrap_or(i64::MAX));
        let mut old = Vec::new();
        let mut by_topic = streams_by_topic(state.live(DefinitionKind::Stream))?;
        let outputs = output_topics(state, self.retention)?;
        for (topic, retention) in outputs.iter().filter(|(topic, _)| !by_topic.contains_key(*topic)) {
            // No worker asks for them again: how far a sink is stands elsewhere.
            old.extend(self.all_records(topic, ago(*retention)).await?);
        }
        for (topic, streams) in streams_by_topic(state.dropped(DefinitionKind::Stream))? {
            if !outputs.contains_key(&topic) {
                by_topic.entry(topic).or_insert(streams);
            }
        }
        let committed_before = ago(self.retention);
        for (topic, left_at) in left_topics(state) {
            if left_at < committed_before && !by_topic.contains_key(&topic) && !outputs.contains_key(&topic) {
                let records = self.all_records(&topic, committed_before).await?.into_iter();
                old.extend(records.map(|records| OldRecords { is_left: true, ..records }));
            }
        }
        let recent = committed_since(state, committed_before);
        for (topic, streams) in by_topic {
            let identity = match self.log.identity(&topic).await {
                Ok(identity) => identity,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for bounds in self.log.bounds(&topic).await? {
                let Some(before) = trimmable(state, &streams, bounds.partition, &identity, &recent, now) else { continue };
                if before > bounds.begin {
                    let source = TopicPartition { topic: topic.clone(), partition: bounds.partition };
                    old.push(OldRecords { source, before, appended_before: committed_before, is_left: false });
                }
            }
        }
        Ok(old)
    }

    /// Returns all records of a topic that were appended before a time.
    async fn all_records(&self, topic: &Arc<str>, appended_before: Micros) -> Result<Vec<OldRecords>> {
        let of_partition = |bounds: PartitionBounds| {
            let source = TopicPartition { topic: topic.clone(), partition: bounds.partition };
            OldRecords { source, before: bounds.end, appended_before, is_left: false }
        };
        Ok(self.log.bounds(topic).await?.into_iter().map(of_partition).collect())
    }
}

/// The records of a partition that may go: those before an offset that were appended before a time.
struct OldRecords {
    source: TopicPartition,
    before: Offset,
    appended_before: Micros,
    /// No stream and no output had the topic when the catalog was read.
    is_left: bool,
}

/// Whether a topic is that of a live stream, sink or alert.
pub(crate) fn has_user(state: &CatalogState, topic: &str) -> Result<bool> {
    for record in state.definitions.live() {
        let used = match record.kind {
            DefinitionKind::Stream => Some(parse_stream(&record.sql)?.topic),
            _ => output_of(record)?.map(|(topic, _)| topic),
        };
        if used.as_deref() == Some(topic) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the first offset of each partition that was committed at `since` or later.
///
/// A compacted checkpoint holds commits of one day and has the time of the last of them: all of its offsets count as
/// committed then.
fn committed_since(state: &CatalogState, since: Micros) -> BTreeMap<&PartitionId, Offset> {
    let mut first: BTreeMap<&PartitionId, Offset> = BTreeMap::new();
    for range in state.checkpoints.iter().filter(|checkpoint| checkpoint.committed_at >= since).flat_map(|recent| &recent.ranges) {
        let known = first.entry(&range.partition).or_insert(range.start);
        *known = range.start.min(*known);
    }
    first
}

fn streams_by_topic<'s>(records: impl Iterator<Item = &'s DefinitionRecord>) -> Result<BTreeMap<Arc<str>, Vec<Arc<str>>>> {
    let mut streams: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    for record in records {
        streams.entry(parse_stream(&record.sql)?.topic).or_default().push(record.name.clone());
    }
    Ok(streams)
}

/// The topics that streams had before they got another one, and when that was. A stream gets another topic only as long
/// as nothing of it is committed.
fn left_topics(state: &CatalogState) -> BTreeMap<Arc<str>, Micros> {
    let mut left = BTreeMap::new();
    let mut before: Option<(&Arc<str>, Arc<str>)> = None;
    for record in state.definitions.iter().filter(|record| record.kind == DefinitionKind::Stream) {
        let Ok(stream) = parse_stream(&record.sql) else { continue };
        let moved = before.filter(|(name, topic)| **name == record.name && *topic != stream.topic);
        if let Some((_, topic)) = moved {
            let at = left.entry(topic).or_insert(record.created_at);
            *at = record.created_at.max(*at);
        }
        before = Some((&record.name, stream.topic));
    }
    left
}

/// The topics of sinks and alerts, and how long their records stay: as long as one of the live ones says. A topic that
/// only dropped ones had, or earlier versions, keeps them as long as one of those said.
fn output_topics(state: &CatalogState, unless_given: Duration) -> Result<BTreeMap<Arc<str>, Duration>> {
    let mut topics = [BTreeMap::new(), BTreeMap::new()];
    for record in state.definitions.iter() {
        let Some((topic, retention)) = output_of(record)? else { continue };
        let retention = retention.unwrap_or(unless_given);
        let known = topics[usize::from(record.status.is_live())].entry(topic).or_insert(retention);
        *known = retention.max(*known);
    }
    let [mut all, live] = topics;
    all.extend(live);
    Ok(all)
}

/// The topic and the retention of a sink or an alert.
fn output_of(record: &DefinitionRecord) -> Result<Option<(Arc<str>, Option<Duration>)>> {
    Ok(match record.kind {
        DefinitionKind::Sink => Some(parse_sink(&record.sql).map(|sink| (sink.topic, sink.retention))?),
        DefinitionKind::Alert => Some(parse_alert(&record.sql).map(|alert| (alert.topic, alert.retention))?),
        DefinitionKind::Stream | DefinitionKind::View | DefinitionKind::Parameter => None,
    })
}

/// Returns the offset before which no stream and no run needs the records of a partition of the log of this identity,
/// and which was not committed recently: `recent` has the first offset of each partition that was. `None` if one of the
/// streams has read nothing of it yet, or has read another log.
fn trimmable(
    state: &CatalogState,
    streams: &[Arc<str>],
    partition: i32,
    identity: &str,
    recent: &BTreeMap<&PartitionId, Offset>,
    now: Micros,
) -> Option<Offset> {
    let pins: Vec<&Vector> = pins_of_runs(state, now).collect();
    let old_of = |stream: &Arc<str>| {
        let known = state.partitions.get(&PartitionId::new(stream.clone(), partition))?;
        let pins = pins.iter().copied().chain(pin_of_replay(state, stream));
        let needed = pins.map(|pin| pin.get(&known.id)).chain(recent.get(&known.id).copied());
        (known.log_identity == identity).then_some(needed.fold(known.next_offset, Offset::min))
    };
    let least = streams.iter().map(old_of).collect::<Option<Vec<Offset>>>()?.into_iter().min()?;
    Some(Offset(least.0 - 1))
}

#[cfg(test)]
mod tests;
