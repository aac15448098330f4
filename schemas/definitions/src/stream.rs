//! `CREATE STREAM`: the facts of one topic, and the SQL types of their columns.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field};
use serde::{Deserialize, Serialize};
use types::sql_types::timestamp_type;

use crate::origin::Origin;

/// `CREATE STREAM`: the facts of one topic, typed.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamDefinition {
    pub name: Arc<str>,
    pub columns: Vec<Column>,
    pub topic: Arc<str>,
    /// The column that holds the event time: TIMESTAMPTZ or DATE, NOT NULL.
    pub event_time: String,
    /// The column that identifies an event, for deduplication.
    pub id: Option<String>,
    pub dedup_within: Option<Duration>,
    /// The column by which our producers partition.
    pub key: Option<String>,
    pub retention: Option<Duration>,
    /// Whether the archive keeps the raw key, value and headers.
    pub keep_raw: bool,
    /// The columns by which a compacted archive file is sorted within a day, before partition and offset.
    pub cluster_by: Vec<String>,
    /// The statement's text.
    pub sql: String,
    pub origin: Origin,
}

/// One column of a stream: where it is in a JSON record, and its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    pub column_type: ColumnType,
    pub nullable: bool,
    /// The members to follow from the record's root: `$.a.b` is `["a", "b"]`. Default: the column's name.
    pub path: Vec<String>,
    /// For TIMESTAMPTZ given as a number.
    pub unit: Option<TimeUnit>,
}

/// The unit of a time that is written as a number since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeUnit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

/// The SQL types of stream columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnType {
    Text,
    Boolean,
    Int,
    BigInt,
    Double,
    Decimal {
        precision: u8,
        scale: i8,
    },
    Date,
    /// Microseconds, UTC.
    TimestampTz,
    /// Stored as lower-case text with hyphens.
    Uuid,
    Bytea,
    /// Stored as text.
    Json,
    Array(Box<ColumnType>),
}

impl ColumnType {
    /// Returns the Arrow type that holds it.
    pub fn arrow(&self) -> DataType {
        match self {
            ColumnType::Text | ColumnType::Uuid | ColumnType::Json => DataType::Utf8,
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::Int => DataType::Int32,
            ColumnType::BigInt => DataType::Int64,
            ColumnType::Double => DataType::Float64,
            ColumnType::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale),
            ColumnType::Date => DataType::Date32,
            ColumnType::TimestampTz => timestamp_type(),
            ColumnType::Bytea => DataType::Binary,
            ColumnType::Array(item) => DataType::List(Arc::new(Field::new("item", item.arrow(), true))),
        }
    }
}

/// As it is written in `CREATE STREAM`.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Text => f.write_str("TEXT"),
            ColumnType::Boolean => f.write_str("BOOLEAN"),
            ColumnType::Int => f.write_str("INT"),
            ColumnType::BigInt => f.write_str("BIGINT"),
            ColumnType::Double => f.write_str("DOUBLE"),
            ColumnType::Decimal { precision, scale } => write!(f, "DECIMAL({precision},{scale})"),
            ColumnType::Date => f.write_str("DATE"),
            ColumnType::TimestampTz => f.write_str("TIMESTAMPTZ"),
            ColumnType::Uuid => f.write_str("UUID"),
            ColumnType::Bytea => f.write_str("BYTEA"),
            ColumnType::Json => f.write_str("JSON"),
            ColumnType::Array(item) => write!(f, "{item}[]"),
        }
    }
}

impl Column {
    /// Returns the Arrow field of the column.
    pub fn field(&self) -> Field {
        Field::new(&self.name, self.column_type.arrow(), self.nullable)
    }
}
