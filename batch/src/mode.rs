//! Which kind of run was requested: by the view's strategy, a full one, or a replay.

use std::num::NonZeroU32;

use serde::Serialize;

/// Which kind of run was requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunMode {
    /// As the view's strategy says.
    #[default]
    ByStrategy,
    /// A recomputation from the archive.
    Full,
    Replay(ReplayRequest),
}

/// A replay: all states are computed from the events of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayRequest {
    pub from: ReplayFrom,
    /// At most this many events a second; `None`: as fast as it goes.
    pub events_a_second: Option<NonZeroU32>,
}

/// Where a replay takes events from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayFrom {
    /// The log's records, decided again.
    Log,
    /// The accepted events as they are archived.
    Archive,
}

/// A replay takes at most this many events a second unless a request names another rate, so that live work continues
/// next to it.
pub const REPLAYED_A_SECOND: NonZeroU32 = NonZeroU32::new(100_000).unwrap();
