//! Lists the catalog, its schemas and tables, and the keys of views. Each principal sees what it may read.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::metadata::{SqlInfoDataBuilder, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{Command, CommandGetPrimaryKeys};
use engine::plan::{ColumnKind, ViewPlan};
use serving::{CATALOG, Node, TableDescription};
use types::{Error, Result};

use crate::capabilities;

const VIEW: &str = "VIEW";
const TABLE: &str = "TABLE";
const SYSTEM_TABLE: &str = "SYSTEM TABLE";
const PUBLIC: &str = "public";
const SYSTEM: &str = "system";
/// `*` leaves columns out whose names begin so, and so does the description of a stream.
const HIDDEN: &str = "__";

/// The columns of what a command asks, if it asks what there is.
pub(crate) fn schema(command: &Command) -> Option<SchemaRef> {
    Some(match command.clone() {
        Command::CommandGetCatalogs(asked) => asked.into_builder().schema(),
        Command::CommandGetDbSchemas(asked) => asked.into_builder().schema(),
        Command::CommandGetTables(asked) => asked.into_builder().schema(),
        Command::CommandGetTableTypes(asked) => asked.into_builder().schema(),
        Command::CommandGetSqlInfo(_) => Arc::new(SqlInfoDataBuilder::schema().clone()),
        Command::CommandGetXdbcTypeInfo(_) => XdbcTypeInfoDataBuilder::new().build().ok()?.schema(),
        Command::CommandGetPrimaryKeys(_) => primary_keys_schema(),
        Command::CommandGetExportedKeys(_) | Command::CommandGetImportedKeys(_) | Command::CommandGetCrossReference(_) => {
            foreign_keys_schema()
        }
        _ => return None,
    })
}

/// Its rows. [`schema`] says which commands these are.
pub(crate) async fn rows(command: Command, node: &Node) -> Result<RecordBatch> {
    let batch = match command {
        Command::CommandGetCatalogs(asked) => {
            let mut builder = asked.into_builder();
            builder.append(CATALOG);
            builder.build()
        }
        Command::CommandGetDbSchemas(asked) => {
            let mut builder = asked.into_builder();
            let tables = node.tables(node.read_view()?).await?;
            for schema in
                [PUBLIC, SYSTEM].into_iter().filter(|schema| *schema == PUBLIC || tables.iter().any(|table| table.schema == *schema))
            {
                builder.append(CATALOG, schema);
            }
            builder.build()
        }
        Command::CommandGetTables(asked) => {
            let mut builder = asked.into_builder();
            for table in node.tables(node.read_view()?).await? {
                builder.append(CATALOG, table.schema, &table.name, type_of(&table), &shown(&table)).map_err(not_made)?;
            }
            builder.build()
        }
        Command::CommandGetTableTypes(asked) => {
            let mut builder = asked.into_builder();
            for of in [SYSTEM_TABLE, TABLE, VIEW] {
                builder.append(of);
            }
            builder.build()
        }
        Command::CommandGetSqlInfo(asked) => asked.into_builder(&capabilities::server_info().map_err(not_made)?).build(),
        Command::CommandGetXdbcTypeInfo(asked) => asked.into_builder(&capabilities::types().map_err(not_made)?).build(),
        Command::CommandGetPrimaryKeys(asked) => return primary_keys(&asked, node).await,
        _ => return Ok(RecordBatch::new_empty(foreign_keys_schema())),
    };
    batch.map_err(not_made)
}

fn type_of(table: &TableDescription) -> &'static str {
    match table.schema {
        SYSTEM => SYSTEM_TABLE,
        _ if table.is_view => VIEW,
        _ => TABLE,
    }
}

/// The columns that `*` has.
fn shown(table: &TableDescription) -> Schema {
    let is_shown = |field: &&Arc<Field>| table.is_view || table.schema != PUBLIC || !field.name().starts_with(HIDDEN);
    Schema::new(table.columns.fields().iter().filter(is_shown).cloned().collect::<Vec<_>>())
}

/// A view has one row for each of its keys, where its SELECT shows all of them.
async fn primary_keys(asked: &CommandGetPrimaryKeys, node: &Node) -> Result<RecordBatch> {
    let is_ours = asked.catalog.as_deref().is_none_or(|catalog| catalog == CATALOG)
        && asked.db_schema.as_deref().is_none_or(|schema| schema == PUBLIC);
    let read_view = node.read_view()?;
    let is_readable = is_ours && node.tables(read_view.clone()).await?.iter().any(|table| table.is_view && table.name == asked.table);
    let plan = read_view.live(&asked.table).ok().filter(|_| is_readable).map(|live| &live.plan);
    let keys: Vec<&str> = plan.map_or_else(Vec::new, |plan| shown_keys(plan));
    let all = |value: &str| -> ArrayRef { Arc::new(StringArray::from(vec![value; keys.len()])) };
    let columns: Vec<ArrayRef> = vec![
        all(CATALOG),
        all(PUBLIC),
        all(&asked.table),
        Arc::new(StringArray::from(keys.clone())),
        Arc::new(Int32Array::from_iter_values(1..=keys.len() as i32)),
        all(&asked.table),
    ];
    Ok(RecordBatch::try_new(primary_keys_schema(), columns)?)
}

fn shown_keys(plan: &ViewPlan) -> Vec<&str> {
    let keys: Vec<&str> =
        plan.columns.iter().filter(|column| matches!(column.kind, ColumnKind::Key(_))).map(|column| column.field.name().as_str()).collect();
    if keys.len() == plan.answer_keys().len() { keys } else { Vec::new() }
}

fn primary_keys_schema() -> SchemaRef {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    Arc::new(Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("key_name", true),
    ]))
}

fn foreign_keys_schema() -> SchemaRef {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    Arc::new(Schema::new(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}

fn not_made(error: arrow_flight::error::FlightError) -> Error {
    Error::internal("the catalog cannot be listed").caused_by(error)
}
