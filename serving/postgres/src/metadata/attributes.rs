//! `pg_attribute`: the types that answers have. It knows neither UUIDs nor most arrays nor the digits of decimals by
//! itself, and a client that reads binary values goes by it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int16Array, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{Int16Type, Int32Type, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use serving::TableDescription;
use types::{Error, Result};

use super::derived::{DerivedRows, all_rows};
use super::tables::Tables;
use crate::columns::WireType;

pub(super) struct Attributes {
    pub(super) attributes: Arc<dyn TableProvider>,
    /// Has the tables by which attributes belong to tables of the node.
    pub(super) pg_catalog: Arc<dyn SchemaProvider>,
    pub(super) tables: Arc<Tables>,
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pg_attribute")
    }
}

#[async_trait]
impl DerivedRows for Attributes {
    fn schema(&self) -> SchemaRef {
        self.attributes.schema()
    }

    async fn rows(&self, session: &dyn Session) -> DataFusionResult<RecordBatch> {
        let attributes = all_rows(session, &self.attributes).await?;
        let class = self.pg_catalog.table("pg_class").await?.ok_or_else(|| Error::internal("there is no pg_class"))?;
        let class = all_rows(session, &class).await?;
        let namespace = self.pg_catalog.table("pg_namespace").await?.ok_or_else(|| Error::internal("there is no pg_namespace"))?;
        let namespace = all_rows(session, &namespace).await?;
        let tables = self.tables.now();
        let types = wire_types(&attributes, &tables_by_oid(&class, &namespace, &tables)?)?;
        Ok(with_wire_types(&attributes, &types)?)
    }
}

fn integers<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a Int32Array> {
    let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int32Type>());
    column.ok_or_else(|| Error::internal(format!("there is no column {name} of OIDs")))
}

fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    let column = batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    column.ok_or_else(|| Error::internal(format!("there is no column {name} of texts")))
}

/// The tables by the OIDs that `pg_class` gives them.
fn tables_by_oid<'a>(
    class: &RecordBatch,
    namespace: &RecordBatch,
    tables: &'a [TableDescription],
) -> Result<HashMap<i32, &'a TableDescription>> {
    let (schema_oids, schema_names) = (integers(namespace, "oid")?, texts(namespace, "nspname")?);
    let schemas: HashMap<i32, &str> = (0..namespace.num_rows()).map(|row| (schema_oids.value(row), schema_names.value(row))).collect();
    let (oids, names, schemas_of) = (integers(class, "oid")?, texts(class, "relname")?, integers(class, "relnamespace")?);
    let described = |row: usize| {
        let schema = *schemas.get(&schemas_of.value(row))?;
        tables.iter().find(|table| table.schema == schema && table.name == names.value(row))
    };
    Ok((0..class.num_rows()).filter_map(|row| Some((oids.value(row), described(row)?))).collect())
}

/// For each attribute the type of its column; `None` if it belongs to no table of the node.
fn wire_types(attributes: &RecordBatch, tables: &HashMap<i32, &TableDescription>) -> Result<Vec<Option<WireType>>> {
    let (relations, columns) = (integers(attributes, "attrelid")?, texts(attributes, "attname")?);
    let wire_type = |row: usize| {
        let table = tables.get(&relations.value(row))?;
        let index = table.columns.index_of(columns.value(row)).ok()?;
        Some(WireType::from_field(table.columns.field(index), table.text_types[index]))
    };
    Ok((0..attributes.num_rows()).map(wire_type).collect())
}

/// The attributes with these types, where there is one.
fn with_wire_types(attributes: &RecordBatch, types: &[Option<WireType>]) -> Result<RecordBatch> {
    let replaced = |name: &str, value: &dyn Fn(&WireType) -> i32| -> Result<ArrayRef> {
        let before = integers(attributes, name)?;
        let row_value = |(row, wire_type): (usize, &Option<WireType>)| Some(wire_type.as_ref().map_or(before.value(row), value));
        Ok(Arc::new(types.iter().enumerate().map(row_value).collect::<Int32Array>()))
    };
    let replacements = [
        ("atttypid", replaced("atttypid", &|wire_type| wire_type.pg_type().oid() as i32)?),
        ("atttypmod", replaced("atttypmod", &|wire_type| wire_type.modifier)?),
        ("attndims", replaced("attndims", &|wire_type| i32::from(wire_type.is_list))?),
        ("attlen", sizes(attributes, types)),
    ];
    let mut arrays: Vec<ArrayRef> = attributes.columns().to_vec();
    for (name, array) in replacements {
        if let Ok(index) = attributes.schema_ref().index_of(name) {
            arrays[index] = array;
        }
    }
    Ok(RecordBatch::try_new(attributes.schema(), arrays)?)
}

/// `attlen`: the size of a value in bytes.
fn sizes(attributes: &RecordBatch, types: &[Option<WireType>]) -> ArrayRef {
    let before = attributes.column_by_name("attlen").map(|column| column.as_primitive::<Int16Type>());
    let size = |(row, wire_type): (usize, &Option<WireType>)| {
        wire_type.as_ref().map(WireType::size).or_else(|| before.map(|before| before.value(row)))
    };
    Arc::new(types.iter().enumerate().map(size).collect::<Int16Array>())
}
