//! Arrow types: their SQL names, as users write them in definitions, and the equality of their values.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float32Type, Float64Type, TimeUnit};

/// Returns the same values with -0.0 replaced by 0.0: they are equal, but would be encoded, and counted, as two
/// numbers.
pub fn one_zero(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float64 => Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(|value| value + 0.0)),
        DataType::Float32 => Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(|value| value + 0.0)),
        _ => values.clone(),
    }
}

/// The Arrow type of every timestamp in this system.
pub fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// `TEXT`, `BIGINT`, `DECIMAL(18,2)`, `TIMESTAMPTZ`, `INTERVAL`, `BIGINT[]`; a type without an SQL name keeps Arrow's.
pub fn sql_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "TEXT".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Int8 | DataType::Int16 => "SMALLINT".into(),
        DataType::Int32 => "INT".into(),
        DataType::Int64 => "BIGINT".into(),
        DataType::UInt64 => "BIGINT UNSIGNED".into(),
        DataType::Float32 => "REAL".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => format!("DECIMAL({precision},{scale})"),
        DataType::Date32 => "DATE".into(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMPTZ".into(),
        DataType::Timestamp(_, None) => "TIMESTAMP".into(),
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTEA".into(),
        DataType::List(item) | DataType::LargeList(item) => format!("{}[]", sql_name(item.data_type())),
        DataType::Struct(fields) => {
            let members: Vec<String> = fields.iter().map(|field| format!("{} {}", field.name(), sql_name(field.data_type()))).collect();
            format!("STRUCT({})", members.join(", "))
        }
        other => other.to_string(),
    }
}
