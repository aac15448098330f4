//! The SQL names of Arrow types, as users write them in definitions.

use arrow::datatypes::DataType;

/// `TEXT`, `BIGINT`, `DECIMAL(18,2)`, `TIMESTAMPTZ`, `BIGINT[]`; what SQL has no name for keeps Arrow's.
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
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BYTEA".into(),
        DataType::List(item) | DataType::LargeList(item) => format!("{}[]", sql_name(item.data_type())),
        DataType::Struct(fields) => {
            let members: Vec<String> = fields.iter().map(|field| format!("{} {}", field.name(), sql_name(field.data_type()))).collect();
            format!("STRUCT({})", members.join(", "))
        }
        other => other.to_string(),
    }
}
