//! Sorts rows that can be read once by DataFusion, under the session's memory limit. The sort spills.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use types::{Error, Result};

/// Sorts rows by these columns, ascending. All rows are read before the first one comes out.
pub(crate) fn sorted(
    rows: SendableRecordBatchStream,
    by: impl IntoIterator<Item = usize>,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let schema = rows.schema();
    let options = SortOptions { descending: false, nulls_first: true };
    let exprs = by.into_iter().map(|index| PhysicalSortExpr::new(Arc::new(Column::new(schema.field(index).name(), index)), options));
    let ordering = LexOrdering::new(exprs).ok_or_else(|| Error::internal("rows are sorted by no column"))?;
    let once = Arc::new(Once { schema: schema.clone(), rows: Mutex::new(Some(rows)) });
    let source = StreamingTableExec::try_new(schema, vec![once], None, None, false, None)?;
    Ok(SortExec::new(ordering, Arc::new(source)).execute(0, context)?)
}

/// Rows that can be read once.
struct Once {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        let twice = || Err(DataFusionError::Internal("rows that can be read once are read again".to_owned()));
        rows.unwrap_or_else(|| Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), futures::stream::iter([twice()]))))
    }
}
