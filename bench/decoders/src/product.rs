//! What the product's decoder (src/events, a link to its own files) takes from the crates `types` and `definitions`, as
//! far as decoding needs it.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};

use self::sql_types::timestamp_type;

pub mod tiles {
    pub type Micros = i64;
}

pub mod vector {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Offset(pub i64);
}

pub mod record {
    use bytes::Bytes;

    #[derive(Debug, Clone)]
    pub struct Record {
        pub offset: super::vector::Offset,
        pub timestamp: i64,
        pub key: Option<Bytes>,
        pub value: Option<Bytes>,
        pub headers: Vec<(String, Bytes)>,
    }
}

#[allow(dead_code)]
#[path = "../../../schemas/types/src/columns.rs"]
pub mod columns;

pub mod sql_types {
    use arrow::datatypes::{DataType, TimeUnit};

    pub fn timestamp_type() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    }
}

/// Without kinds: nothing here acts on one.
#[derive(Debug)]
pub struct Error(String);

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn input(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub fn limit(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub fn corrupt(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub fn with(self, key: &str, value: impl fmt::Display) -> Self {
        Self(format!("{} ({key}: {value})", self.0))
    }

    pub fn caused_by(self, error: impl fmt::Display) -> Self {
        Self(format!("{}: {error}", self.0))
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone)]
pub struct StreamDefinition {
    pub name: Arc<str>,
    pub columns: Vec<Column>,
    pub event_time: String,
    pub id: Option<String>,
    pub key: Option<String>,
    pub keep_raw: bool,
}

#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub column_type: ColumnType,
    pub nullable: bool,
    pub path: Vec<String>,
    pub unit: Option<TimeUnit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)]
pub enum TimeUnit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code)]
pub enum ColumnType {
    Text,
    Boolean,
    Int,
    BigInt,
    Double,
    Decimal { precision: u8, scale: i8 },
    Date,
    TimestampTz,
    Uuid,
    Bytea,
    Json,
    Array(Box<ColumnType>),
}

impl ColumnType {
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

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Column {
    pub fn field(&self) -> Field {
        Field::new(&self.name, self.column_type.arrow(), self.nullable)
    }
}
