//! What a script defines: event types with their fields, macros, features and the sink.

use std::collections::BTreeMap;

use super::expression::{Expression, Macro};

/// The field that has an event's time, where `set-source` names no other.
pub(super) const TIME_FIELD: &str = "c_timestamp";

/// What the lines of a script define.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// By event type.
    pub sources: BTreeMap<String, Source>,
    pub sink: Option<FeatureSink>,
    pub features: Vec<Feature>,
    pub kept: Vec<KeptFeature>,
    pub macros: BTreeMap<String, Macro>,
}

/// One event type.
#[derive(Debug)]
pub(super) struct Source {
    pub line: usize,
    pub topic: String,
    /// Where the topic may have other event types too.
    pub type_condition: Option<TypeCondition>,
    pub time: String,
    pub id: Option<String>,
    pub key: Option<String>,
    /// Comments on what its line says and no SQL is made of.
    pub notes: Vec<String>,
    pub fields: Vec<Field>,
}

/// The field that has an event's type, and its value for one event type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TypeCondition {
    pub field: String,
    pub value: String,
}

/// One field of an event type.
#[derive(Debug)]
pub(super) struct Field {
    pub line: usize,
    pub name: String,
    pub path: String,
    pub sql_type: String,
    /// Of a time that is a number.
    pub unit: Option<String>,
}

impl Field {
    /// Whether both have one name and are read in the same way.
    pub fn is_like(&self, other: &Field) -> bool {
        (&self.name, &self.path, &self.sql_type, &self.unit) == (&other.name, &other.path, &other.sql_type, &other.unit)
    }
}

/// Where the features go.
#[derive(Debug)]
pub(super) struct FeatureSink {
    pub line: usize,
    pub event_type: String,
    pub name: String,
    pub topic: String,
    pub key: Option<String>,
    pub mode: &'static str,
    /// Comments on what the script says and no SQL is made of.
    pub notes: Vec<String>,
}

/// A feature that the sink puts out.
#[derive(Debug)]
pub(super) struct Feature {
    pub line: usize,
    /// Later lines that say the same.
    pub repeated: Vec<usize>,
    pub name: String,
    /// As it is written.
    pub text: String,
    pub expression: Expression,
}

/// A feature that views keep and the sink does not put out.
#[derive(Debug)]
pub(super) struct KeptFeature {
    pub line: usize,
    pub event_type: String,
    pub expression: Expression,
}
