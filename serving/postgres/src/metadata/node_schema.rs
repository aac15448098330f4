//! The schemas `public` and `system`, with the node's tables: their columns, for which nothing is read.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use serving::TableDescription;
use types::{Error, Reason};

use super::tables::Tables;

/// A schema of the node.
pub(super) struct NodeSchema {
    pub(super) schema: &'static str,
    pub(super) tables: Arc<Tables>,
}

impl fmt::Debug for NodeSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.schema)
    }
}

#[async_trait]
impl SchemaProvider for NodeSchema {
    fn table_names(&self) -> Vec<String> {
        self.tables.now().iter().filter(|table| table.schema == self.schema).map(|table| table.name.clone()).collect()
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        let tables = self.tables.now();
        let found = tables.iter().find(|table| table.schema == self.schema && table.name == name);
        Ok(found.map(|table| Arc::new(ColumnsOnlyTable(table.clone())) as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.tables.now().iter().any(|table| table.schema == self.schema && table.name == name)
    }
}

/// A table of the node, as the catalog describes it.
#[derive(Debug)]
struct ColumnsOnlyTable(TableDescription);

#[async_trait]
impl TableProvider for ColumnsOnlyTable {
    fn schema(&self) -> SchemaRef {
        self.0.columns.clone()
    }

    fn table_type(&self) -> TableType {
        if self.0.is_view { TableType::View } else { TableType::Base }
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let message =
            format!("not supported: \"{}\" together with tables or functions of PostgreSQL's catalog; expected two queries", self.0.name);
        Err(Error::input(message).with_reason(Reason::NotSupported).into())
    }
}
