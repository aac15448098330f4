//! Decodes a record's value (JSON text) into typed values, once for all layers. Refused records go to the dead letters.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::members::{Members, PathValue};
use super::time::midnight;
use super::value::{ColumnValue, Mismatch, read, shortened};
use definitions::{Column, ColumnType, StreamDefinition};
use types::tiles::Micros;
use types::{Error, Result};

/// Decodes the records of one stream. The result depends only on the definition and the bytes.
#[derive(Debug)]
pub struct Decoder {
    definition: Arc<StreamDefinition>,
    members: Members,
    event_time: usize,
    id: Option<usize>,
    key: Option<usize>,
}

/// A decoded event. Texts are borrowed from the record where possible.
#[derive(Debug, Clone, PartialEq)]
pub struct Event<'a> {
    values: Vec<ColumnValue<'a>>,
    event_time: Micros,
    id: Option<usize>,
    key: Option<usize>,
}

/// Why a record is not an event of its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// The column concerned. `None`: the record as a whole.
    pub column: Option<String>,
    /// The position in the record, as `$.a.b[3]`.
    pub path: String,
    /// What was found there, shortened.
    pub found: String,
    pub expected: String,
}

impl Decoder {
    /// Creates a decoder.
    ///
    /// Errors: `Input` if the event time, id or key column of the definition is absent or has an unsuitable type.
    pub fn new(definition: Arc<StreamDefinition>) -> Result<Self> {
        let event_time = role(&definition, "event_time", &definition.event_time)?;
        let time_type = &definition.columns[event_time].column_type;
        if !matches!(time_type, ColumnType::TimestampTz | ColumnType::Date) {
            return Err(Error::input(format!(
                "the event time column \"{}\" is {time_type}: expected TIMESTAMPTZ or DATE",
                definition.event_time
            ))
            .with("stream", &definition.name));
        }
        let id = definition.id.as_deref().map(|id| text_role(&definition, "id", id)).transpose()?;
        let key = definition.key.as_deref().map(|key| text_role(&definition, "key", key)).transpose()?;
        Ok(Self { members: Members::new(&definition.columns), definition, event_time, id, key })
    }

    pub fn definition(&self) -> &Arc<StreamDefinition> {
        &self.definition
    }

    /// Decodes one record's value.
    pub fn decode<'a>(&self, value: Option<&'a [u8]>) -> Result<Event<'a>, DecodeError> {
        let slots = self.members.find(object_text(value)?).map_err(|error| no_object(value, format!("invalid JSON ({error})")))?;
        let columns = &self.definition.columns;
        // Not collected as a `Result`, which loses the size hint.
        let mut values = Vec::with_capacity(columns.len());
        for (column, slot) in columns.iter().zip(slots) {
            match (slot, &column.column_type) {
                (PathValue::Plain(json), ColumnType::Text) => values.push(ColumnValue::Text(Cow::Borrowed(unquoted(json)))),
                _ => values.push(column_value(column, slot)?),
            }
        }
        let event_time = match &values[self.event_time] {
            ColumnValue::Timestamp(time) => *time,
            ColumnValue::Date(days) => midnight(*days),
            _ => return Err(absent(&columns[self.event_time], "null")),
        };
        Ok(Event { values, event_time, id: self.id, key: self.key })
    }
}

impl<'a> Event<'a> {
    /// Microseconds since 1970-01-01 UTC; midnight for a DATE.
    pub fn event_time(&self) -> Micros {
        self.event_time
    }

    /// The text that identifies this event within its stream, for deduplication. `None` without an id column, or if it
    /// is null.
    pub fn id(&self) -> Option<Cow<'_, str>> {
        self.values[self.id?].canonical_text()
    }

    /// The text that our producers partition by. `None` without a key column, or if it is null.
    pub fn key(&self) -> Option<Cow<'_, str>> {
        self.values[self.key?].canonical_text()
    }

    /// One value per column, in the stream's order.
    pub fn values(&self) -> &[ColumnValue<'a>] {
        &self.values
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.column {
            Some(column) => write!(f, "column {column} ({}): found {}, expected {}", self.path, self.found, self.expected),
            None => write!(f, "record: found {}, expected {}", self.found, self.expected),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Error::input(error.to_string())
    }
}

/// Returns the index of the column that has this role in the definition.
fn role(definition: &StreamDefinition, role: &str, column: &str) -> Result<usize> {
    definition.columns.iter().position(|candidate| candidate.name == column).ok_or_else(|| {
        let names: Vec<&str> = definition.columns.iter().map(|column| column.name.as_str()).collect();
        Error::input(format!("{role} names the column \"{column}\", which the stream does not have: it has {}", names.join(", ")))
            .with("stream", &definition.name)
    })
}

fn text_role(definition: &StreamDefinition, name: &str, column: &str) -> Result<usize> {
    let index = role(definition, name, column)?;
    match &definition.columns[index].column_type {
        ColumnType::Array(_) => {
            Err(Error::input(format!("{name} names the column \"{column}\", which is an array: expected a single value"))
                .with("stream", &definition.name))
        }
        _ => Ok(index),
    }
}

/// Returns the value as UTF-8 text that begins like an object.
pub(super) fn object_text(value: Option<&[u8]>) -> Result<&str, DecodeError> {
    let bytes = value.ok_or_else(|| no_object(value, "no value (a tombstone)".into()))?;
    let text = std::str::from_utf8(bytes).map_err(|error| no_object(value, format!("invalid UTF-8 at byte {}", error.valid_up_to())))?;
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'{') => Ok(text),
        Some(_) => Err(no_object(None, shortened(text))),
        None => Err(no_object(None, "an empty value".into())),
    }
}

/// Returns the content of a JSON string without escapes.
fn unquoted(json: &str) -> &str {
    json.get(1..json.len().saturating_sub(1)).unwrap_or_default()
}

pub(super) fn column_value<'a>(column: &Column, slot: PathValue<'a>) -> Result<ColumnValue<'a>, DecodeError> {
    let json = match slot {
        PathValue::Found(json) | PathValue::Plain(json) => json,
        PathValue::Missing if column.nullable => return Ok(ColumnValue::Null),
        PathValue::Missing => return Err(absent(column, "nothing")),
        PathValue::NoObject(found) => return Err(wrong(column, "", format!("{found} on the way"), "an object there".into())),
    };
    match read(&column.column_type, column.unit, json) {
        Ok(ColumnValue::Null) if !column.nullable => Err(absent(column, "null")),
        Ok(value) => Ok(value),
        Err(Mismatch { place, found, expected }) => Err(wrong(column, &place, found, expected)),
    }
}

#[cold]
fn absent(column: &Column, found: &str) -> DecodeError {
    wrong(column, "", found.into(), format!("{} NOT NULL", column.column_type))
}

#[cold]
fn wrong(column: &Column, place: &str, found: String, expected: String) -> DecodeError {
    DecodeError { column: Some(column.name.clone()), path: format!("$.{}{place}", column.path.join(".")), found, expected }
}

#[cold]
fn no_object(value: Option<&[u8]>, mut found: String) -> DecodeError {
    if let Some(text) = value.filter(|bytes| !bytes.is_empty()).and_then(|bytes| std::str::from_utf8(bytes).ok()) {
        found = format!("{found}: {}", shortened(text));
    }
    DecodeError { column: None, path: "$".into(), found, expected: "one JSON object".into() }
}

#[cfg(test)]
mod tests;
