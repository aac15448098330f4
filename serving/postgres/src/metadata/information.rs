//! `information_schema`: DataFusion's, but with columns as PostgreSQL describes them, and with tables of constraints,
//! of which there are none.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::error::Result as DataFusionResult;
use engine::plan::TextType;
use types::Result;

use super::tables::Tables;
use super::{DATABASE, PG_CATALOG};
use crate::columns::{Kind, WireType, text_schema};

pub(super) const INFORMATION_SCHEMA: &str = "information_schema";
const COLUMNS: &str = "columns";
/// Tables of constraints, with their columns.
const CONSTRAINTS: [(&str, &[&str]); 4] = [
    (
        "table_constraints",
        &["constraint_catalog", "constraint_schema", "constraint_name", "table_catalog", "table_schema", "table_name", "constraint_type"],
    ),
    (
        "key_column_usage",
        &["constraint_catalog", "constraint_schema", "constraint_name", "table_catalog", "table_schema", "table_name", "column_name"],
    ),
    (
        "constraint_column_usage",
        &["table_catalog", "table_schema", "table_name", "column_name", "constraint_catalog", "constraint_schema", "constraint_name"],
    ),
    (
        "referential_constraints",
        &["constraint_catalog", "constraint_schema", "constraint_name", "unique_constraint_schema", "unique_constraint_name"],
    ),
];

pub(super) struct InformationSchema {
    pub(super) inner: InformationSchemaProvider,
    pub(super) pg_catalog: Arc<dyn SchemaProvider>,
    pub(super) tables: Arc<Tables>,
}

impl fmt::Debug for InformationSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(INFORMATION_SCHEMA)
    }
}

#[async_trait]
impl SchemaProvider for InformationSchema {
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names().into_iter().chain(CONSTRAINTS.iter().map(|(name, _)| (*name).to_owned())).collect()
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        if let Some((_, columns)) = CONSTRAINTS.iter().find(|(table, _)| *table == name) {
            return Ok(Some(Arc::new(MemTable::try_new(text_schema(columns), vec![Vec::new()])?)));
        }
        match name {
            COLUMNS => Ok(Some(self.columns().await?)),
            _ => self.inner.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        CONSTRAINTS.iter().any(|(table, _)| *table == name) || self.inner.table_exist(name)
    }
}

impl InformationSchema {
    async fn columns(&self) -> DataFusionResult<Arc<dyn TableProvider>> {
        let mut columns = Vec::new();
        for table in self.tables.now().iter() {
            columns.extend(columns_of(table.schema, &table.name, &table.columns, &table.text_types));
        }
        for name in self.pg_catalog.table_names() {
            if let Some(table) = self.pg_catalog.table(&name).await? {
                columns.extend(columns_of(PG_CATALOG, &name, &table.schema(), &[]));
            }
        }
        let rows = described(&columns)?;
        Ok(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?))
    }
}

/// A column of a table.
struct Column {
    schema: String,
    table: String,
    name: String,
    /// From 1.
    position: i32,
    is_nullable: bool,
    wire_type: WireType,
}

fn columns_of(schema: &str, table: &str, columns: &SchemaRef, text_types: &[TextType]) -> Vec<Column> {
    let column = |(index, field): (usize, &Arc<Field>)| Column {
        schema: schema.to_owned(),
        table: table.to_owned(),
        name: field.name().clone(),
        position: index as i32 + 1,
        is_nullable: field.is_nullable(),
        wire_type: WireType::from_field(field, text_types.get(index).copied().unwrap_or_default()),
    };
    columns.fields().iter().enumerate().map(column).collect()
}

fn described(columns: &[Column]) -> Result<RecordBatch> {
    let texts = |value: &dyn Fn(&Column) -> Option<String>| -> ArrayRef { Arc::new(columns.iter().map(value).collect::<StringArray>()) };
    let all = |value: &str| texts(&|_| Some(value.to_owned()));
    let integers = |value: &dyn Fn(&Column) -> Option<i32>| -> ArrayRef { Arc::new(columns.iter().map(value).collect::<Int32Array>()) };
    let none = || texts(&|_| None);
    let digits = |column: &Column| digits(&column.wire_type);
    let arrays: [(&str, ArrayRef); 22] = [
        ("table_catalog", all(DATABASE)),
        ("table_schema", texts(&|column| Some(column.schema.clone()))),
        ("table_name", texts(&|column| Some(column.table.clone()))),
        ("column_name", texts(&|column| Some(column.name.clone()))),
        ("ordinal_position", integers(&|column| Some(column.position))),
        ("column_default", none()),
        ("is_nullable", texts(&|column| Some(if column.is_nullable { "YES" } else { "NO" }.to_owned()))),
        ("data_type", texts(&|column| Some(data_type(&column.wire_type).to_owned()))),
        ("character_maximum_length", integers(&|_| None)),
        ("character_octet_length", integers(&|_| None)),
        ("numeric_precision", integers(&|column| digits(column).map(|digits| digits.precision))),
        ("numeric_precision_radix", integers(&|column| digits(column).map(|digits| digits.radix))),
        ("numeric_scale", integers(&|column| digits(column).and_then(|digits| digits.scale))),
        ("datetime_precision", integers(&|column| fractional_digits(&column.wire_type))),
        ("udt_catalog", all(DATABASE)),
        ("udt_schema", all(PG_CATALOG)),
        ("udt_name", texts(&|column| Some(column.wire_type.pg_type().name().to_owned()))),
        ("is_identity", all("NO")),
        ("identity_generation", none()),
        ("is_generated", all("NEVER")),
        ("generation_expression", none()),
        ("is_updatable", all("NO")),
    ];
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Schema::new(arrays.iter().map(field).collect::<Vec<_>>());
    Ok(RecordBatch::try_new(Arc::new(schema), arrays.into_iter().map(|(_, array)| array).collect())?)
}

/// As the SQL standard names a type.
fn data_type(wire_type: &WireType) -> &'static str {
    if wire_type.is_list {
        return "ARRAY";
    }
    match wire_type.kind {
        Kind::Bool => "boolean",
        Kind::Int2 => "smallint",
        Kind::Int4 => "integer",
        Kind::Int8 => "bigint",
        Kind::Oid => "oid",
        Kind::Float4 => "real",
        Kind::Float8 => "double precision",
        Kind::Numeric => "numeric",
        Kind::Text => "text",
        Kind::Char => "\"char\"",
        Kind::Uuid => "uuid",
        Kind::Bytes => "bytea",
        Kind::Date => "date",
        Kind::Time => "time without time zone",
        Kind::Timestamp => "timestamp without time zone",
        Kind::TimestampTz => "timestamp with time zone",
        Kind::Interval => "interval",
        Kind::Json => "json",
    }
}

/// The digits of a number.
#[derive(Debug, PartialEq, Eq)]
struct Digits {
    precision: i32,
    /// The base that they are counted in.
    radix: i32,
    /// How many come after the point.
    scale: Option<i32>,
}

fn digits(wire_type: &WireType) -> Option<Digits> {
    let binary = |precision, scale| Some(Digits { precision, radix: 2, scale });
    match wire_type.kind {
        _ if wire_type.is_list => None,
        Kind::Int2 => binary(16, Some(0)),
        Kind::Int4 => binary(32, Some(0)),
        Kind::Int8 => binary(64, Some(0)),
        Kind::Float4 => binary(24, None),
        Kind::Float8 => binary(53, None),
        Kind::Numeric if wire_type.modifier >= 4 => {
            let modifier = wire_type.modifier - 4;
            Some(Digits { precision: modifier >> 16, radix: 10, scale: Some(modifier & 0xffff) })
        }
        _ => None,
    }
}

fn fractional_digits(wire_type: &WireType) -> Option<i32> {
    match wire_type.kind {
        _ if wire_type.is_list => None,
        Kind::Time | Kind::Timestamp | Kind::TimestampTz | Kind::Interval => Some(6),
        Kind::Date => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::*;

    #[test]
    fn types_are_named_and_numbers_have_their_digits() {
        let wire_type = |data_type: DataType| WireType::from_field(&Field::new("x", data_type, true), TextType::Any);
        assert_eq!(digits(&wire_type(DataType::Decimal128(18, 2))), Some(Digits { precision: 18, radix: 10, scale: Some(2) }));
        assert_eq!(digits(&wire_type(DataType::Int64)), Some(Digits { precision: 64, radix: 2, scale: Some(0) }));
        assert_eq!(digits(&wire_type(DataType::Utf8)), None);
        let list = wire_type(DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))));
        assert_eq!((data_type(&list), digits(&list), list.pg_type().name()), ("ARRAY", None, "_int8"));
        assert_eq!(fractional_digits(&wire_type(types::sql_types::timestamp_type())), Some(6));
    }
}
