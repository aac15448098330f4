//! Switches: from which event on which version of a sink makes the records, or none because the sink is paused. A
//! switch is recorded in the catalog before the first event is decided by it.
//!
//! ```text
//! claim in the catalog --> take over in the log --> read the last switch --> record a switch if the sink has changed
//! ```
//!
//! What holds, whichever process dies:
//! - **Every event before a switch is decided.** Its record is out, or it has none because the version before left it
//!   out or the sink was paused. So a worker that begins again before the switch decides none of them again, and needs
//!   only the current version.
//! - **No event after a switch was decided before it.** Once an output is claimed in the catalog, the worker that had
//!   it before can commit no switch and no checkpoint; once it is taken over in the log, that worker can append
//!   nothing. What it had put out and recorded is read after that. A worker begins again if it has lost its claim by
//!   then, or finds that more was committed than when it began. So the worker that may append is always the one that
//!   may switch, or has lost the right to both.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::{Add, Commit, Expect, SinkClaim, SinkSwitch};
use committed::registry::LiveSink;
use types::vector::{Offset, PartitionId};
use types::{Error, Result};
use uuid::Uuid;

/// What a worker knows about an output that it has taken over.
#[derive(Debug, Clone)]
pub struct OutputState {
    pub partition: PartitionId,
    /// The identity of the log that its offsets belong to.
    pub identity: String,
    /// The events before it are settled in the log: the record of each is out, or it gets none.
    pub next: Option<Offset>,
    /// The last switch, as the catalog has it.
    pub last: Option<SinkSwitch>,
    /// The claim under which its switches and its checkpoints are committed.
    pub claim: Uuid,
}

impl OutputState {
    /// An output that has to be claimed and then taken over.
    pub fn unclaimed(partition: PartitionId, identity: String, claim: Uuid) -> OutputState {
        OutputState { partition, identity, next: None, last: None, claim }
    }

    /// The claim, as the catalog has it.
    pub fn claimed(&self, sink: &Arc<str>) -> SinkClaim {
        SinkClaim { sink: sink.clone(), partition: self.partition.clone(), claim: self.claim }
    }

    /// Whether the last switch is to the current state of the sink.
    pub fn is_switched_to(&self, sink: &LiveSink) -> bool {
        self.last.as_ref().is_some_and(|last| match sink.paused_since {
            Some(_) => last.paused,
            None => !last.paused && last.version == sink.version,
        })
    }

    /// Whether an event is settled, or could be.
    pub fn has_begun(&self) -> bool {
        self.next.is_some() || self.last.as_ref().is_some_and(|last| !last.paused)
    }

    /// The offset before which no event is decided again.
    pub fn decided_before(&self) -> Option<Offset> {
        self.next.max(self.last.as_ref().map(|last| last.from))
    }

    /// The switch to the current state of the sink, after the worker has decided everything before `position`. `None`
    /// if no switch is needed.
    pub fn switch(&self, sink: &LiveSink, position: Offset) -> Option<SinkSwitch> {
        (!self.is_switched_to(sink)).then(|| SinkSwitch {
            sink: sink.name.clone(),
            partition: self.partition.clone(),
            log_identity: self.identity.clone(),
            from: self.decided_before().map_or(position, |decided| decided.max(position)),
            version: sink.version,
            paused: sink.paused_since.is_some(),
            at: 0,
        })
    }

    /// The same when new definitions come into effect. A sink that has not begun switches with its next events.
    pub fn switch_at_once(&self, sink: &LiveSink, position: Offset) -> Option<SinkSwitch> {
        self.switch(sink, position).filter(|switch| switch.paused || self.has_begun())
    }

    /// Notes the last switch that the catalog has of the output. It is ignored if it belongs to another log.
    pub fn note(&mut self, last: SinkSwitch) {
        if last.log_identity == self.identity {
            self.last = Some(last);
        }
    }
}

/// The commit after which no earlier worker commits a switch or a checkpoint.
pub fn claim_commit(id: Uuid, claims: impl IntoIterator<Item = SinkClaim>) -> Commit {
    Commit { id, add: claims.into_iter().map(Add::SinkClaim).collect(), ..Commit::default() }
}

/// Records switches under the claims of their outputs. It is refused if another worker has claimed one of them since,
/// or if a later version than `version_of` a stream decides the stream's records.
pub fn switch_commit(id: Uuid, claims: Vec<SinkClaim>, switches: Vec<SinkSwitch>, version_of: impl Fn(&Arc<str>) -> Option<u32>) -> Commit {
    let streams: BTreeSet<&Arc<str>> = switches.iter().map(|switch| &switch.partition.stream).collect();
    let decided =
        streams.into_iter().filter_map(|stream| Some(Expect::NotRedecoded { stream: stream.clone(), version: version_of(stream)? }));
    let expect = decided.chain([Expect::SinkClaims(claims)]).collect();
    Commit { id, expect, add: switches.into_iter().map(Add::SinkSwitch).collect(), ..Commit::default() }
}

/// Checks the committed position, which is final once an output is taken over.
///
/// Errors: `Conflict` if the worker before committed more than this one began with: it has decided events that this one
/// would decide again, by other switches.
pub fn check_position(partition: &PartitionId, committed: Offset, position: Offset) -> Result<()> {
    if committed <= position {
        return Ok(());
    }
    let error = Error::conflict("another worker has committed events that this one was about to decide");
    Err(error.with("partition", partition).with("committed", committed).with("position", position))
}

/// The index of the first of these ascending offsets that is not before `decided_before`. The events before it have
/// their records, or have none.
pub fn first_due(decided_before: Option<Offset>, offsets: &[i64]) -> usize {
    decided_before.map_or(0, |decided| offsets.partition_point(|offset| *offset < decided.0))
}

#[cfg(test)]
mod tests;
