//! `pg_catalog`: the tables of datafusion-pg-catalog, with what clients need beside them.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray, new_null_array};
use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{LogicalPlanBuilder, col, lit};
use datafusion_pg_catalog::pg_catalog::PG_CATALOG_TABLES;
use types::Result;

use super::attributes::Attributes;
use super::classes::Classes;
use super::derived::DerivedTable;
use super::tables::Tables;
use super::{DATABASE, PG_CATALOG};
use crate::columns::text_schema;
use crate::session::defaults;

/// The views that are always empty, with their columns.
const ABSENT: [(&str, &[&str]); 5] = [
    ("pg_cursors", &["name", "statement", "is_holdable", "is_binary", "is_scrollable", "creation_time"]),
    ("pg_indexes", &["schemaname", "tablename", "indexname", "tablespace", "indexdef"]),
    ("pg_policies", &["schemaname", "tablename", "policyname", "permissive", "roles", "cmd", "qual", "with_check"]),
    ("pg_rules", &["schemaname", "tablename", "rulename", "definition"]),
    ("pg_sequences", &["schemaname", "sequencename", "sequenceowner", "data_type", "start_value", "last_value"]),
];

/// Whether `pg_catalog` has a table of this name.
pub(crate) fn is_catalog_table(name: &str) -> bool {
    PG_CATALOG_TABLES.contains(&name) || ABSENT.iter().any(|(view, _)| *view == name)
}

/// `pg_catalog`, with our types of columns.
pub(super) struct PgCatalog {
    pub(super) inner: Arc<dyn SchemaProvider>,
    pub(super) tables: Arc<Tables>,
}

impl fmt::Debug for PgCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PG_CATALOG)
    }
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names().into_iter().chain(ABSENT.iter().map(|(name, _)| (*name).to_owned())).collect()
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        if let Some((_, columns)) = ABSENT.iter().find(|(view, _)| *view == name) {
            return Ok(Some(Arc::new(MemTable::try_new(text_schema(columns), vec![Vec::new()])?)));
        }
        let Some(table) = self.inner.table(name).await? else { return Ok(None) };
        match name {
            "pg_attribute" => {
                let (pg_catalog, tables) = (self.inner.clone(), self.tables.clone());
                Ok(Some(Arc::new(DerivedTable(Attributes { attributes: table, pg_catalog, tables }))))
            }
            "pg_class" => Ok(Some(Arc::new(DerivedTable(Classes::new(table))))),
            "pg_database" => Ok(Some(Arc::new(only_ours(table)?))),
            "pg_settings" => Ok(Some(settings()?)),
            _ => Ok(Some(table)),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        ABSENT.iter().any(|(view, _)| *view == name) || self.inner.table_exist(name)
    }
}

/// `pg_database`, without the database that every PostgreSQL has.
fn only_ours(databases: Arc<dyn TableProvider>) -> DataFusionResult<ViewTable> {
    let all = LogicalPlanBuilder::scan("pg_database", provider_as_source(databases), None)?;
    Ok(ViewTable::new(all.filter(col("datname").eq(lit(DATABASE)))?.build()?, None))
}

/// `pg_settings`: the settings that `SHOW ALL` has, with their defaults.
fn settings() -> Result<Arc<dyn TableProvider>> {
    let schema =
        text_schema(&["name", "setting", "unit", "category", "short_desc", "context", "vartype", "source", "boot_val", "reset_val"]);
    let (names, values): (Vec<&str>, Vec<&str>) = defaults().unzip();
    let (names, values): (ArrayRef, ArrayRef) = (Arc::new(StringArray::from(names)), Arc::new(StringArray::from(values)));
    let all = |value: &'static str| -> ArrayRef { Arc::new(StringArray::from(vec![value; names.len()])) };
    let none: ArrayRef = new_null_array(&DataType::Utf8, names.len());
    let kind = [none.clone(), all("basestream"), none, all("user"), all("string"), all("default")];
    let columns = [names.clone(), values.clone()].into_iter().chain(kind).chain([values.clone(), values.clone()]).collect();
    let rows = RecordBatch::try_new(schema.clone(), columns)?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![rows]])?))
}
