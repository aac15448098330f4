//! The transitions of an alert's keys.

use serde::{Deserialize, Serialize};

/// What happened to a key of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransitionKind {
    /// The key's row satisfies the condition now.
    Began,
    /// It still does.
    Repeated,
    /// It no longer does.
    Resolved,
}

impl TransitionKind {
    pub const ALL: [TransitionKind; 3] = [TransitionKind::Began, TransitionKind::Repeated, TransitionKind::Resolved];

    /// The word for it, in the catalog and in records.
    pub fn word(self) -> &'static str {
        match self {
            TransitionKind::Began => "began",
            TransitionKind::Repeated => "repeated",
            TransitionKind::Resolved => "resolved",
        }
    }
}
