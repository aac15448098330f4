//! Where a definition comes from.

use std::path::PathBuf;

/// Where a definition is in its file: `file` is absent for a definition created in code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    pub file: Option<PathBuf>,
    /// The line of the definition's first character, counted from 1.
    pub line: usize,
}
