//! How a batch run makes a view's snapshot.

use serde::{Deserialize, Serialize};

/// How a batch run makes a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Adds the states of the checkpoints since the last cut to the snapshot before.
    #[default]
    Incremental,
    /// Recomputes all states from the archive.
    Full,
    /// The Kappa way: like `Incremental`, but never reads the archive. What the segments do not have is replayed from
    /// the log.
    Stream,
    /// Computes all states from the log or the archive, in the order in which the events were committed. Only a run
    /// that was asked for is one, no view.
    Replay,
}

impl Strategy {
    pub const ALL: [Strategy; 4] = [Strategy::Incremental, Strategy::Full, Strategy::Stream, Strategy::Replay];

    /// The name in definitions and in the catalog.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Incremental => "incremental",
            Strategy::Full => "full",
            Strategy::Stream => "stream",
            Strategy::Replay => "replay",
        }
    }
}
