//! Arrow types as PostgreSQL's.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, Schema, SchemaRef};
use engine::plan::TextType;
use pgwire::messages::data::{FieldDescription, RowDescription};
use postgres_types::Type;
use types::{Error, Reason, Result};

/// Marks of the tables of `pg_catalog` (as arrow-pg reads them): an integer that is an OID, a text that is one byte.
const OID_MARK: &str = "pg.oid_alias";
const OID: &str = "oid";
const CHAR_MARK: &str = "pg.char";

/// Messages have the number of columns in 16 bits with a sign.
const MAX_COLUMNS: usize = i16::MAX as usize;

/// How the values of a column, or the items of its lists, are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    Text,
    Char,
    Uuid,
    Bytes,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
    /// Texts that are JSON, and what PostgreSQL has no type for: structs, maps, and lists of them.
    Json,
}

/// A column's type on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireType {
    pub(crate) kind: Kind,
    pub(crate) is_list: bool,
    /// Precision and scale of decimals; -1 without.
    pub(crate) modifier: i32,
}

impl WireType {
    pub(crate) fn from_field(field: &Field, text_type: TextType) -> WireType {
        let data_type = field.data_type();
        let is_oid = field.metadata().get(OID_MARK).is_some_and(|mark| mark == OID);
        let special = |of: &DataType| match (of, text_type) {
            (of, TextType::Uuid) if is_text(of) => Some(Kind::Uuid),
            (of, TextType::Json) if is_text(of) => Some(Kind::Json),
            (DataType::Int32, _) if is_oid => Some(Kind::Oid),
            _ => None,
        };
        let (item, is_list) = match data_type {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => (item.data_type(), true),
            other => (other, false),
        };
        if let Some(kind) = special(item) {
            return WireType { kind, is_list, modifier: -1 };
        }
        if is_text(data_type) && field.metadata().contains_key(CHAR_MARK) {
            return WireType { kind: Kind::Char, is_list: false, modifier: -1 };
        }
        match data_type {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => match kind_of(item.data_type()) {
                // A list in a list need not be rectangular, as PostgreSQL's arrays are.
                Kind::Json => WireType { kind: Kind::Json, is_list: false, modifier: -1 },
                kind => WireType { kind, is_list: true, modifier: modifier_of(item.data_type()) },
            },
            other => WireType { kind: kind_of(other), is_list: false, modifier: modifier_of(other) },
        }
    }

    pub(crate) fn pg_type(&self) -> Type {
        match (self.kind, self.is_list) {
            (Kind::Bool, false) => Type::BOOL,
            (Kind::Bool, true) => Type::BOOL_ARRAY,
            (Kind::Int2, false) => Type::INT2,
            (Kind::Int2, true) => Type::INT2_ARRAY,
            (Kind::Int4, false) => Type::INT4,
            (Kind::Int4, true) => Type::INT4_ARRAY,
            (Kind::Int8, false) => Type::INT8,
            (Kind::Int8, true) => Type::INT8_ARRAY,
            (Kind::Oid, false) => Type::OID,
            (Kind::Oid, true) => Type::OID_ARRAY,
            (Kind::Float4, false) => Type::FLOAT4,
            (Kind::Float4, true) => Type::FLOAT4_ARRAY,
            (Kind::Float8, false) => Type::FLOAT8,
            (Kind::Float8, true) => Type::FLOAT8_ARRAY,
            (Kind::Numeric, false) => Type::NUMERIC,
            (Kind::Numeric, true) => Type::NUMERIC_ARRAY,
            (Kind::Text, false) => Type::TEXT,
            (Kind::Text, true) => Type::TEXT_ARRAY,
            (Kind::Char, false) => Type::CHAR,
            (Kind::Char, true) => Type::CHAR_ARRAY,
            (Kind::Uuid, false) => Type::UUID,
            (Kind::Uuid, true) => Type::UUID_ARRAY,
            (Kind::Bytes, false) => Type::BYTEA,
            (Kind::Bytes, true) => Type::BYTEA_ARRAY,
            (Kind::Date, false) => Type::DATE,
            (Kind::Date, true) => Type::DATE_ARRAY,
            (Kind::Time, false) => Type::TIME,
            (Kind::Time, true) => Type::TIME_ARRAY,
            (Kind::Timestamp, false) => Type::TIMESTAMP,
            (Kind::Timestamp, true) => Type::TIMESTAMP_ARRAY,
            (Kind::TimestampTz, false) => Type::TIMESTAMPTZ,
            (Kind::TimestampTz, true) => Type::TIMESTAMPTZ_ARRAY,
            (Kind::Interval, false) => Type::INTERVAL,
            (Kind::Interval, true) => Type::INTERVAL_ARRAY,
            (Kind::Json, false) => Type::JSON,
            (Kind::Json, true) => Type::JSON_ARRAY,
        }
    }

    /// The bytes of a value; -1 where they differ.
    pub(crate) fn size(&self) -> i16 {
        if self.is_list {
            return -1;
        }
        match self.kind {
            Kind::Bool | Kind::Char => 1,
            Kind::Int2 => 2,
            Kind::Int4 | Kind::Oid | Kind::Float4 | Kind::Date => 4,
            Kind::Int8 | Kind::Float8 | Kind::Time | Kind::Timestamp | Kind::TimestampTz => 8,
            Kind::Uuid | Kind::Interval => 16,
            Kind::Numeric | Kind::Text | Kind::Bytes | Kind::Json => -1,
        }
    }
}

/// The same columns, of which these are marked as OIDs if they are integers.
pub(crate) fn with_oids(schema: SchemaRef, columns: &BTreeSet<usize>) -> SchemaRef {
    if columns.is_empty() {
        return schema;
    }
    let marked = |(index, field): (usize, &Arc<Field>)| match columns.contains(&index) {
        true => field.as_ref().clone().with_metadata(HashMap::from([(OID_MARK.to_owned(), OID.to_owned())])),
        false => field.as_ref().clone(),
    };
    let fields: Vec<Field> = schema.fields().iter().enumerate().map(marked).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn kind_of(data_type: &DataType) -> Kind {
    match data_type {
        DataType::Boolean => Kind::Bool,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => Kind::Int2,
        DataType::Int32 | DataType::UInt16 => Kind::Int4,
        // A count of rows or items is unsigned to DataFusion.
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => Kind::Int8,
        DataType::Float16 | DataType::Float32 => Kind::Float4,
        DataType::Float64 => Kind::Float8,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => Kind::Numeric,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => Kind::Bytes,
        DataType::Date32 | DataType::Date64 => Kind::Date,
        DataType::Time32(_) | DataType::Time64(_) => Kind::Time,
        DataType::Timestamp(_, None) => Kind::Timestamp,
        DataType::Timestamp(_, Some(_)) => Kind::TimestampTz,
        DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime | IntervalUnit::MonthDayNano) | DataType::Duration(_) => {
            Kind::Interval
        }
        DataType::Dictionary(_, value) => kind_of(value),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => Kind::Text,
        _ => Kind::Json,
    }
}

/// As PostgreSQL packs precision and scale.
fn modifier_of(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale)
            if *scale >= 0 =>
        {
            ((i32::from(*precision) << 16) | i32::from(*scale)) + 4
        }
        _ => -1,
    }
}

/// The types of an answer's columns. `text_types` says of each what its texts are; a column that it lacks has any.
pub(crate) fn wire_types(schema: &Schema, text_types: &[TextType]) -> Vec<WireType> {
    let text_type = |index: usize| text_types.get(index).copied().unwrap_or_default();
    schema.fields().iter().enumerate().map(|(index, field)| WireType::from_field(field, text_type(index))).collect()
}

/// The same of an answer that is to be sent.
///
/// Errors: `Limit` for more columns than a message can have.
pub(crate) fn types_to_send(schema: &Schema, text_types: &[TextType]) -> Result<Vec<WireType>> {
    match schema.fields().len() {
        found if found > MAX_COLUMNS => {
            let error = Error::limit("the answer has too many columns").with_reason(Reason::TooManyColumns);
            Err(error.with("found", found).with("expected at most", MAX_COLUMNS))
        }
        _ => Ok(wire_types(schema, text_types)),
    }
}

/// A schema of texts.
pub(crate) fn text_schema(names: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect::<Vec<_>>()))
}

/// The columns as clients get them. `formats` is that of each column: 0 is text, 1 binary.
pub(crate) fn row_description(schema: &Schema, types: &[WireType], formats: &[i16]) -> RowDescription {
    let fields = schema.fields().iter().zip(types).enumerate().map(|(index, (field, of))| {
        let format = formats.get(index).copied().unwrap_or_default();
        FieldDescription::new(field.name().replace('\0', ""), 0, 0, of.pg_type().oid(), of.size(), of.modifier, format)
    });
    RowDescription::new(fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_names() {
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        for (data_type, expected) in [
            (DataType::Utf8, Type::TEXT),
            (DataType::Int64, Type::INT8),
            (DataType::UInt64, Type::INT8),
            (DataType::Decimal256(60, 2), Type::NUMERIC),
            (types::sql_types::timestamp_type(), Type::TIMESTAMPTZ),
            (list(DataType::Int64), Type::INT8_ARRAY),
            (list(DataType::Binary), Type::BYTEA_ARRAY),
            (list(list(DataType::Int64)), Type::JSON),
            (DataType::Struct(vec![Field::new("a", DataType::Int64, true)].into()), Type::JSON),
            (DataType::Null, Type::TEXT),
        ] {
            let field = Field::new("x", data_type.clone(), true);
            assert_eq!(WireType::from_field(&field, TextType::Any).pg_type(), expected, "{data_type}");
        }
        for (data_type, text_type, expected) in [
            (DataType::Utf8, TextType::Uuid, Type::UUID),
            (DataType::Utf8View, TextType::Json, Type::JSON),
            (list(DataType::Utf8), TextType::Uuid, Type::UUID_ARRAY),
            (list(DataType::Utf8), TextType::Json, Type::JSON_ARRAY),
            (DataType::Int64, TextType::Uuid, Type::INT8),
        ] {
            let field = Field::new("x", data_type.clone(), true);
            assert_eq!(WireType::from_field(&field, text_type).pg_type(), expected, "{data_type} {text_type:?}");
        }
        let integers = Schema::new(vec![Field::new("a", DataType::Int32, true), Field::new("b", list(DataType::Int32), true)]);
        let integers = with_oids(with_oids(Arc::new(integers), &BTreeSet::from([1])), &BTreeSet::new());
        assert_eq!(wire_types(&integers, &[]).iter().map(WireType::pg_type).collect::<Vec<_>>(), [Type::INT4, Type::OID_ARRAY]);
        assert_eq!(WireType::from_field(&Field::new("x", DataType::Decimal128(18, 2), true), TextType::Any).modifier, 1_179_654);
    }
}
