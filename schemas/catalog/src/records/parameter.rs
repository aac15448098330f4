//! Parameters: the values that were set.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::tiles::Micros;

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterRecord {
    pub parameter: Arc<str>,
    /// Consecutive for each parameter, from 1 on. Its definition has versions of its own: most values are set without
    /// it.
    pub version: u32,
    /// As it is written in SQL, such as `BIGINT`.
    pub value_type: String,
    /// The value as the text of its type.
    pub value: String,
    pub set_at: Micros,
    /// The user or the token that set it.
    pub set_by: String,
}
