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
}

impl Strategy {
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Incremental => "incremental",
            Strategy::Full => "full",
        }
    }
}
