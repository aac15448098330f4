//! What a statement becomes, and the part that all kinds have in common.

use std::sync::Arc;

use super::tokens::TextPosition;
use crate::{AlertDefinition, ParameterDefinition, SinkDefinition, StreamDefinition, ViewDefinition};
use types::Error;

/// A definition without mistakes of its own, with the places that a conflict with another one refers to.
#[derive(Debug)]
pub(super) enum Found {
    Stream { definition: StreamDefinition, name_at: TextPosition, topic_at: TextPosition },
    View { definition: ViewDefinition, name_at: TextPosition },
    Sink { definition: SinkDefinition, name_at: TextPosition },
    Alert { definition: AlertDefinition, name_at: TextPosition },
    Parameter { definition: ParameterDefinition, name_at: TextPosition },
}

impl Found {
    /// The error for a definition of another kind than `expected`.
    pub(super) fn instead_of(&self, expected: &str) -> Error {
        let found = match self {
            Found::Stream { .. } => "CREATE STREAM",
            Found::View { .. } => "CREATE VIEW",
            Found::Sink { .. } => "CREATE SINK",
            Found::Alert { .. } => "CREATE ALERT",
            Found::Parameter { .. } => "CREATE PARAMETER",
        };
        Error::input(format!("found {found}; expected one {expected}"))
    }
}

/// The common part of a definition, before its own part.
pub(super) struct DefinitionHead {
    pub(super) name: Arc<str>,
    pub(super) name_at: TextPosition,
    /// The line of `CREATE`.
    pub(super) line: usize,
    /// The whole statement, without the `;`.
    pub(super) sql: String,
}
