//! Scoring one event by a sink, on request. Sinks are built in a crate above this one; it attaches a [`Scorer`] to the
//! node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use committed::registry::LiveSink;
use engine::parameters::UsedParameters;
use event_log::NewRecord;
use feed::DecisionListener;
use futures::future::BoxFuture;
use serde::{Serialize, Serializer};
use types::Result;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId, Vector};

use crate::meta::{optional_time, time, token};
use crate::read_view::ReadView;

/// Makes the records of sinks on request.
pub trait Scorer: Send + Sync {
    /// What the sink would put out for an event that came now. Nothing is stored.
    ///
    /// Errors: `Input` for an event that is not of the sink's stream; `Unavailable` while a view of the sink cannot be
    /// read.
    fn score<'a>(&'a self, read_view: &'a ReadView, sink: &'a LiveSink, event: &'a NewRecord) -> BoxFuture<'a, Result<Scored>>;

    /// Prepares to append an event of this sink's stream: finds workers of all its partitions. Those of other processes
    /// listen from then on. There are none where the workers of this process have all partitions.
    ///
    /// Errors: `Conflict`, which says where events are to be sent instead, and `Unavailable` while workers of another
    /// process are not reached.
    fn listen<'a>(&'a self, sink: &'a LiveSink) -> BoxFuture<'a, Result<Vec<DecisionListener>>>;

    /// Appends an event to its stream, and waits until its sink has put out its record. `within` bounds the wait.
    ///
    /// Errors: those of an append. What happens after it is in the answer.
    fn append<'a>(
        &'a self,
        sink: &'a LiveSink,
        event: NewRecord,
        elsewhere: Vec<DecisionListener>,
        within: Duration,
    ) -> BoxFuture<'a, Result<StoredEvent>>;
}

/// What a sink says of an event that is stored nowhere.
#[derive(Debug)]
pub struct Scored {
    pub outcome: EventOutcome,
    pub meta: ScoreMeta,
}

/// What became of an event that was appended.
#[derive(Debug)]
pub struct StoredEvent {
    /// Where it is in the log.
    pub partition: PartitionId,
    pub offset: Offset,
    /// The sink's version that made the record.
    pub version: u32,
    /// The version of the value of each parameter that it was made with.
    pub parameters: UsedParameters,
    /// `None` if nothing was known in time.
    pub outcome: Option<EventOutcome>,
    /// What was made of the event that a duplicate repeats, if the process still knows.
    pub first: Option<RepeatedEvent>,
}

/// The event that a duplicate repeats, and what the sink made of it.
#[derive(Debug)]
pub struct RepeatedEvent {
    /// In the partition of the duplicate.
    pub offset: Offset,
    /// As of [`StoredEvent`].
    pub version: u32,
    pub parameters: UsedParameters,
    pub outcome: EventOutcome,
}

/// What a sink makes of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventOutcome {
    /// The record's value: a JSON object.
    Scored(Bytes),
    /// The same, of an event on which the SELECT fails: it has the member `_error`.
    Failed(Bytes),
    /// The sink's WHERE leaves it out.
    Filtered,
    /// Its id was accepted before, within `dedup_within`.
    Duplicate,
    /// The event is dated too far ahead.
    DeadLetter,
    /// The sink has not begun, because a view of it is being built; or its record was put out before the worker that
    /// answers had the partition; or the caller may not have the right to it.
    Unknown,
}

impl EventOutcome {
    /// As the member `status` of an answer.
    pub fn name(&self) -> &'static str {
        match self {
            EventOutcome::Scored(_) => "scored",
            EventOutcome::Failed(_) => "failed",
            EventOutcome::Filtered => "filtered",
            EventOutcome::Duplicate => "duplicate",
            EventOutcome::DeadLetter => "dead_letter",
            EventOutcome::Unknown => "unknown",
        }
    }

    /// The record, if there is one.
    pub fn row(&self) -> Option<&Bytes> {
        match self {
            EventOutcome::Scored(row) | EventOutcome::Failed(row) => Some(row),
            _ => None,
        }
    }
}

/// What a score is made from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoreMeta {
    /// Per partition, the next offset: every accepted event before it is seen, none after it. As JSON a token.
    #[serde(serialize_with = "token")]
    pub cut: Vector,
    /// The time for which the rows of the views are read.
    #[serde(serialize_with = "time")]
    pub as_of: Micros,
    /// Every event the log accepted before this is seen.
    #[serde(serialize_with = "optional_time")]
    pub complete_to: Option<Micros>,
    /// The sink and its version.
    #[serde(serialize_with = "name_and_version")]
    pub sink: (Arc<str>, u32),
    /// The version of each view that is joined.
    pub versions: BTreeMap<Arc<str>, u32>,
    /// The version of the value of each parameter that the sink uses.
    #[serde(skip_serializing_if = "UsedParameters::is_empty")]
    pub parameters: UsedParameters,
}

impl ScoreMeta {
    /// Creates the meta of a record that the sink makes from this read view.
    pub fn new(read_view: &ReadView, sink: &LiveSink, views: &[Arc<str>], as_of: Micros) -> Result<ScoreMeta> {
        let live = views.iter().map(|view| read_view.live(view)).collect::<Result<Vec<_>>>()?;
        Ok(ScoreMeta {
            cut: read_view.vector.clone(),
            as_of,
            complete_to: live.iter().map(|view| read_view.complete_to_of(view)).min().flatten(),
            sink: (sink.name.clone(), sink.version),
            versions: live.iter().map(|view| (view.name.clone(), view.version)).collect(),
            parameters: sink.plan.as_ref().map(|plan| plan.parameters.clone()).unwrap_or_default(),
        })
    }
}

fn name_and_version<S: Serializer>((name, version): &(Arc<str>, u32), serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{name}@{version}"))
}
