//! A table of a node, and DataFusion's view of it.
//!
//! The tables hold read views, and a read view holds half of DataFusion's types. The compiler proves that the future of an
//! `async_trait` method is `Send` under the bounds of that method's own lifetimes, so it proves it for all these types again
//! in each implementation: 3 to 7 s a table. The methods of [`NodeTable`] have one lifetime and no bounds, and such proofs
//! are remembered.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;

pub(super) type Planned<'a> = BoxFuture<'a, DataFusionResult<Arc<dyn ExecutionPlan>>>;

/// A table, with DataFusion's meaning of each method.
pub(super) trait NodeTable: fmt::Debug + Send + Sync + 'static {
    fn schema(&self) -> SchemaRef;

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// What it does with a filter.
    fn pushdown(&self, _filter: &Expr) -> TableProviderFilterPushDown {
        TableProviderFilterPushDown::Unsupported
    }

    fn scan<'a>(&'a self, session: &'a dyn Session, asked: Asked<'a>) -> Planned<'a>;
}

/// What a scan is asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) projection: Option<&'a Vec<usize>>,
    pub(super) filters: &'a [Expr],
    pub(super) limit: Option<usize>,
}

impl Asked<'_> {
    /// The columns that are wanted of a table.
    pub(super) fn columns(&self, schema: &SchemaRef) -> Vec<usize> {
        self.projection.cloned().unwrap_or_else(|| (0..schema.fields().len()).collect())
    }
}

/// Makes it a table of DataFusion's.
pub(super) fn provider(table: impl NodeTable) -> Arc<dyn TableProvider> {
    Arc::new(Provider(Arc::new(table)))
}

#[derive(Debug)]
struct Provider(Arc<dyn NodeTable>);

#[async_trait]
impl TableProvider for Provider {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        self.0.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(filters.iter().map(|filter| self.0.pushdown(filter)).collect())
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        self.0.scan(session, Asked { projection, filters, limit }).await
    }
}
