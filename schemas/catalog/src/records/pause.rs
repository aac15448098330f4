//! Pauses of sinks and alerts, and from where on which version of a sink makes the records.

use std::sync::Arc;

use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use uuid::Uuid;

use super::DefinitionKind;

/// A sink or an alert that puts nothing out, in all its versions, until it is resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseRecord {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    pub since: Micros,
}

/// The worker that decides what becomes of the events of a partition for a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkClaim {
    pub sink: Arc<str>,
    pub partition: PartitionId,
    /// A new id for each claim.
    pub claim: Uuid,
}

/// From an offset of a partition on, a version of a sink makes the record of each event; or none does, because the sink
/// is paused. It holds up to the next switch of the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkSwitch {
    pub sink: Arc<str>,
    pub partition: PartitionId,
    /// The identity of the log that the offset belongs to.
    pub log_identity: String,
    pub from: Offset,
    pub version: u32,
    pub paused: bool,
    /// Set by the commit.
    pub at: Micros,
}

/// The events of one partition that one version of a sink decides, or that lie in a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkRange {
    /// The switch that begins it.
    pub switch: SinkSwitch,
    /// The offset after the last one; `None` while it lasts, and of a log that was replaced.
    pub to: Option<Offset>,
}
