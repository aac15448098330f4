//! Says how far each live sink is, and why it puts nothing out.

use std::sync::Arc;

use committed::registry::LiveSink;
use engine::events::format_timestamp;
use serde::Serialize;
use serving::NODE_LEASE;
use types::vector::Vector;

use super::PartitionStatus;
use super::problems::Facts;

/// A live sink, as it is displayed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SinkStatus {
    pub sink: Arc<str>,
    pub version: u32,
    pub topic: Arc<str>,
    /// The stream that it reads, if that is known.
    pub stream: Option<Arc<str>>,
    /// The records of all events before it are out.
    pub position: Option<Vector>,
    /// The records of the stream that are in the log and not committed yet; null if the log did not answer.
    pub lag: Option<i64>,
    pub paused_since: Option<String>,
    /// Why it cannot be planned.
    pub refused: Option<Arc<str>>,
    /// Why its stream is not read, if a node says so.
    pub stalled: Option<StalledReport>,
    /// False if no process is alive that could put out its records: each that does reads views as a node. One that
    /// only serves counts too.
    pub running: bool,
}

/// A sink whose records cannot be put out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StalledReport {
    pub seconds: u64,
    pub error: String,
}

/// Returns the status of each live sink. Empty if the definitions cannot be planned.
pub(super) fn sinks(facts: &Facts, partitions: &[PartitionStatus]) -> Vec<SinkStatus> {
    let committed = facts.state.vector();
    let running = facts.state.leases.iter().any(|lease| lease.name.starts_with(NODE_LEASE) && lease.expires_at > facts.now);
    let live = facts.registry.iter().flatten().flat_map(|registry| &registry.sinks);
    live.map(|live| SinkStatus { stalled: stalled(facts, &live.name), running, ..SinkStatus::new(live, &committed, partitions) }).collect()
}

/// What a node says of a sink.
fn stalled(facts: &Facts, sink: &str) -> Option<StalledReport> {
    let (seconds, error) = facts.error_of(speed::SINK_STALLED, sink)?;
    Some(StalledReport { seconds, error: error.to_owned() })
}

impl SinkStatus {
    /// The status of a sink that some process runs, and of which no node says that it is stalled.
    pub(super) fn new(live: &LiveSink, committed: &Vector, partitions: &[PartitionStatus]) -> SinkStatus {
        let planned = live.plan.as_ref().ok().map(|plan| plan.stream.name.clone());
        let stream = planned.or_else(|| live.reads.clone());
        let lag = |stream: &Arc<str>| partitions.iter().filter(|known| known.stream == *stream).map(|known| known.lag).sum::<Option<i64>>();
        SinkStatus {
            sink: live.name.clone(),
            version: live.version,
            topic: live.definition.topic.clone(),
            position: stream.as_ref().map(|stream| committed.of_streams(std::slice::from_ref(stream))),
            lag: stream.as_ref().and_then(lag),
            stream,
            paused_since: live.paused_since.map(format_timestamp),
            refused: live.plan.as_ref().err().cloned(),
            stalled: None,
            running: true,
        }
    }

    /// `live`, or why it puts nothing out.
    pub(super) fn state(&self) -> &'static str {
        match self {
            SinkStatus { stalled: Some(_), .. } => "stalled",
            SinkStatus { paused_since: Some(_), .. } => "paused",
            SinkStatus { refused: Some(_), .. } => "cannot be planned",
            SinkStatus { running: false, .. } => "no process runs it",
            _ => "live",
        }
    }

    /// Why it puts nothing out.
    pub(super) fn error(&self) -> Option<&str> {
        self.stalled.as_ref().map(|stalled| &*stalled.error).or(self.refused.as_deref())
    }
}

#[cfg(test)]
mod tests;
