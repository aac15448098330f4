//! Adapts a node's tables to DataFusion's `TableProvider`.
//!
//! The tables hold read views, and a read view contains many of DataFusion's types. The compiler proves that the future
//! of an `async_trait` method is `Send` under the bounds of that method's own lifetimes, so it repeats the proof for
//! all these types in each implementation, which takes 3 to 7 s a table. The methods of [`NodeTable`] have one lifetime
//! and no bounds, so the compiler reuses the proofs.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;

pub(super) type PlanFuture<'a> = BoxFuture<'a, DataFusionResult<Arc<dyn ExecutionPlan>>>;

/// A table, with DataFusion's meaning of each method.
pub(super) trait NodeTable: fmt::Debug + Send + Sync + 'static {
    fn schema(&self) -> SchemaRef;

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// How the table uses a filter.
    fn pushdown(&self, _filter: &Expr) -> TableProviderFilterPushDown {
        TableProviderFilterPushDown::Unsupported
    }

    fn scan<'a>(&'a self, session: &'a dyn Session, args: ScanArgs<'a>) -> PlanFuture<'a>;
}

/// The arguments of a scan.
#[derive(Clone, Copy)]
pub(super) struct ScanArgs<'a> {
    pub(super) projection: Option<&'a Vec<usize>>,
    pub(super) filters: &'a [Expr],
    pub(super) limit: Option<usize>,
}

impl ScanArgs<'_> {
    /// The wanted columns of the table.
    pub(super) fn columns(&self, schema: &SchemaRef) -> Vec<usize> {
        self.projection.cloned().unwrap_or_else(|| (0..schema.fields().len()).collect())
    }
}

/// Wraps a table of a node as one of DataFusion's.
pub(super) fn into_table_provider(table: impl NodeTable) -> Arc<dyn TableProvider> {
    Arc::new(NodeTableProvider(Arc::new(table)))
}

#[derive(Debug)]
struct NodeTableProvider(Arc<dyn NodeTable>);

#[async_trait]
impl TableProvider for NodeTableProvider {
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
        self.0.scan(session, ScanArgs { projection, filters, limit }).await
    }
}
