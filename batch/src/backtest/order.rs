//! The archived events of a stream, one after another, in the order in which they became known.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use catalog::CatalogState;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use engine::events::plan_schema;
use storage::{ObjectStorage, OffsetRanges, archive_plan};
use types::Result;
use types::columns::{EVENT_TIME, OFFSET, PARTITION, TIMESTAMP};
use types::files::{FileKind, FileRecord};
use types::sql_types::timestamp_type;
use types::tiles::Micros;
use types::vector::Vector;

use super::Known;

/// When the log received an event: the greatest record timestamp of its partition up to it.
pub(super) const CLOCK: &str = "__clock";
/// The greatest event time of its partition up to it.
pub(super) const NEWEST: &str = "__newest";

/// Sorts the events up to the catalog's vector, and only those dated before `before`. A partition's clock never goes back,
/// so that the order by clock keeps each partition in the order of its offsets.
pub(super) async fn ordered(
    session: &SessionContext,
    (storage, state): (&ObjectStorage, &CatalogState),
    stream: &StreamDefinition,
    known: Known,
    before: Option<Micros>,
) -> Result<SendableRecordBatchStream> {
    let is_of_stream = |file: &&FileRecord| file.subject.as_deref() == Some(&*stream.name);
    let timestamp = Arc::new(Field::new(TIMESTAMP, timestamp_type(), false));
    let schema = plan_schema(stream);
    let table = ArchivedEvents {
        storage: storage.clone(),
        files: state.readable(FileKind::Archive).filter(is_of_stream).cloned().collect(),
        schema: Arc::new(Schema::new(schema.fields().iter().cloned().chain([timestamp]).collect::<Vec<_>>())),
        ranges: OffsetRanges { stream: stream.name.clone(), from: Vector::new(), to: state.vector().clone() },
    };
    session.register_table("events", Arc::new(table))?;
    let so_far = format!("OVER (PARTITION BY {PARTITION} ORDER BY {OFFSET} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)");
    let dated = before.map(|before| format!("WHERE CAST({EVENT_TIME} AS BIGINT) < {before}")).unwrap_or_default();
    let sql = match known {
        Known::Log => format!(
            "SELECT *, max({TIMESTAMP}) {so_far} AS {CLOCK}, max({EVENT_TIME}) {so_far} AS {NEWEST} FROM events \
             ORDER BY {CLOCK}, {PARTITION}, {OFFSET}"
        ),
        Known::Event => format!("SELECT * FROM events {dated} ORDER BY {EVENT_TIME}, {PARTITION}, {OFFSET}"),
    };
    Ok(session.sql(&sql).await?.execute_stream().await?)
}

/// The accepted events of a stream as a table, with their record timestamps.
#[derive(Debug)]
struct ArchivedEvents {
    storage: ObjectStorage,
    files: Vec<FileRecord>,
    schema: SchemaRef,
    ranges: OffsetRanges,
}

#[async_trait]
impl TableProvider for ArchivedEvents {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        columns: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let (columns, threads) = (columns.map(Vec::as_slice), session.config().target_partitions());
        Ok(archive_plan(&self.storage, &self.files, self.schema.clone(), &self.ranges, columns, threads)?)
    }
}
