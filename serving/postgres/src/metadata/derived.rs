//! Tables of `pg_catalog` whose rows are those of another table, changed.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::{ExecutionPlan, collect};

/// Makes the rows of a table, each time that it is read.
#[async_trait]
pub(super) trait DerivedRows: fmt::Debug + Send + Sync + 'static {
    fn schema(&self) -> SchemaRef;

    async fn rows(&self, session: &dyn Session) -> DataFusionResult<RecordBatch>;
}

/// A table with such rows.
#[derive(Debug)]
pub(super) struct DerivedTable<R>(pub(super) R);

#[async_trait]
impl<R: DerivedRows> TableProvider for DerivedTable<R> {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let rows = self.0.rows(session).await?;
        MemTable::try_new(self.0.schema(), vec![vec![rows]])?.scan(session, projection, filters, limit).await
    }
}

/// All rows of a table.
pub(super) async fn all_rows(session: &dyn Session, table: &Arc<dyn TableProvider>) -> DataFusionResult<RecordBatch> {
    let plan = table.scan(session, None, &[], None).await?;
    let batches = collect(plan, session.task_ctx()).await?;
    Ok(concat_batches(&table.schema(), &batches)?)
}
