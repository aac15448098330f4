//! Serialises UUIDs as text (the workspace's `uuid` is built without serde).

use serde::{Deserialize, Deserializer, Serializer, de};
use uuid::Uuid;

/// Writes a UUID as text.
pub fn serialize<S: Serializer>(id: &Uuid, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// Reads a UUID from text.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

pub mod optional {
    use super::*;

    /// Writes a UUID as text, if there is one.
    pub fn serialize<S: Serializer>(id: &Option<Uuid>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => serializer.collect_str(id),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a UUID from text, if there is one.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Uuid>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}

/// Lists of ids, for printed plans.
pub mod list {
    use super::*;

    /// Writes UUIDs as texts.
    pub fn serialize<S: Serializer>(ids: &[Uuid], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ids.iter().map(Uuid::to_string))
    }
}
