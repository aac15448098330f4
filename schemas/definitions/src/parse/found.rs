//! What a statement becomes, and the part that streams and views have in common.

use std::sync::Arc;

use super::tokens::TextPosition;
use crate::{StreamDefinition, ViewDefinition};

/// A definition without mistakes of its own, with the places that a conflict with another one refers to.
#[derive(Debug)]
pub(super) enum Found {
    Stream { definition: StreamDefinition, name_at: TextPosition, topic_at: TextPosition },
    View { definition: ViewDefinition, name_at: TextPosition },
}

/// The common part of a definition, before its own part.
pub(super) struct Head {
    pub(super) name: Arc<str>,
    pub(super) name_at: TextPosition,
    /// The line of `CREATE`.
    pub(super) line: usize,
    /// The whole statement, without the `;`.
    pub(super) sql: String,
}
