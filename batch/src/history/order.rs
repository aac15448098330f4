//! The archived events of a stream, one after another, in the order in which they became known.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef, TimestampMicrosecondType};
use async_trait::async_trait;
use catalog::{ArchiveBounds, CatalogState, archive_files};
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
use types::files::FileRecord;
use types::sql_types::timestamp_type;
use types::tiles::Micros;
use types::vector::Vector;

/// The column of when the log received an event: the greatest record timestamp of its partition up to it.
pub(crate) const CLOCK: &str = "__clock";
/// The column of the greatest event time of an event's partition up to it.
pub(crate) const NEWEST: &str = "__newest";
/// The column of times by which events are sorted in [`Order::Dated`] and [`Order::DatedAndArrived`].
pub(crate) const PLACE: &str = "__place";

/// The order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// By [`CLOCK`]. A partition's clock never goes back, so this keeps each partition in the order of its offsets.
    Arrived,
    /// By their event times.
    Dated,
    /// By the time from which on they are both dated and arrived: the later of event time and clock.
    DatedAndArrived,
}

/// The archive up to a state's vector.
#[derive(Clone, Copy)]
pub(crate) struct Archived<'a> {
    pub(crate) storage: &'a ObjectStorage,
    pub(crate) state: &'a CatalogState,
}

/// Sorts the archived events of a stream, and only those with an event time in `dated`.
pub(crate) async fn ordered(
    session: &SessionContext,
    archived: Archived<'_>,
    stream: &StreamDefinition,
    order: Order,
    dated: Range<Option<Micros>>,
) -> Result<SendableRecordBatchStream> {
    let events = registered(session, archived, stream, ("events_of", ArchiveBounds::default()))?;
    let so_far = format!("OVER (PARTITION BY {PARTITION} ORDER BY {OFFSET} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)");
    let from = dated.start.map(|from| format!("CAST({EVENT_TIME} AS BIGINT) >= {from}"));
    let to = dated.end.map(|to| format!("CAST({EVENT_TIME} AS BIGINT) < {to}"));
    let conditions: Vec<String> = from.into_iter().chain(to).collect();
    let dated = if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    let sql = match order {
        Order::Arrived => format!(
            "SELECT * FROM (SELECT *, max({TIMESTAMP}) {so_far} AS {CLOCK}, max({EVENT_TIME}) {so_far} AS {NEWEST} FROM {events}) {dated} \
             ORDER BY {CLOCK}, {PARTITION}, {OFFSET}"
        ),
        Order::Dated => format!("SELECT *, {EVENT_TIME} AS {PLACE} FROM {events} {dated} ORDER BY {PLACE}, {PARTITION}, {OFFSET}"),
        // All events of a partition move its clock, those that are left out too.
        Order::DatedAndArrived => format!(
            "SELECT *, CASE WHEN {EVENT_TIME} > {CLOCK} THEN {EVENT_TIME} ELSE {CLOCK} END AS {PLACE} FROM \
             (SELECT *, max({TIMESTAMP}) {so_far} AS {CLOCK} FROM {events}) {dated} ORDER BY {PLACE}, {PARTITION}, {OFFSET}"
        ),
    };
    Ok(session.sql(&sql).await?.execute_stream().await?)
}

/// The events of a stream, in any order, in those files of the archive that may have an event time in `dated`.
pub(crate) async fn unordered(
    session: &SessionContext,
    archived: Archived<'_>,
    stream: &StreamDefinition,
    dated: Range<Micros>,
) -> Result<SendableRecordBatchStream> {
    let newest = dated.end.saturating_sub(1);
    let bounds = ArchiveBounds { oldest: Some(dated.start), newest: Some(newest), ..ArchiveBounds::default() };
    let events = registered(session, archived, stream, ("dated_events_of", bounds))?;
    Ok(session.sql(&format!("SELECT * FROM {events}")).await?.execute_stream().await?)
}

/// The least record timestamp of the archived events of a stream: before it, the log had received none of them. `None`:
/// there are no events.
pub(crate) async fn first_arrival(session: &SessionContext, archived: Archived<'_>, stream: &StreamDefinition) -> Result<Option<Micros>> {
    let events = registered(session, archived, stream, ("arrivals_of", ArchiveBounds::default()))?;
    let found = session.sql(&format!("SELECT min({TIMESTAMP}) FROM {events}")).await?.collect().await?;
    let first = |rows: &RecordBatch| rows.column(0).as_primitive_opt::<TimestampMicrosecondType>()?.iter().next().flatten();
    Ok(found.iter().find_map(first))
}

/// Registers the archived events of a stream, in files within these bounds, as a table whose name begins with the
/// prefix: the same stream may be read several times at once. Returns the name for SQL.
fn registered(
    session: &SessionContext,
    archived: Archived<'_>,
    stream: &StreamDefinition,
    (prefix, bounds): (&str, ArchiveBounds<'_>),
) -> Result<String> {
    let timestamp = Arc::new(Field::new(TIMESTAMP, timestamp_type(), false));
    let files = archive_files(archived.state, std::slice::from_ref(&stream.name), bounds);
    let schema = plan_schema(stream);
    let table = ArchivedEvents {
        storage: archived.storage.clone(),
        files: files.into_iter().cloned().collect(),
        schema: Arc::new(Schema::new(schema.fields().iter().cloned().chain([timestamp]).collect::<Vec<_>>())),
        ranges: OffsetRanges { stream: stream.name.clone(), from: Vector::new(), to: archived.state.vector().clone() },
    };
    let name = format!("{prefix}_{}", stream.name);
    session.register_table(datafusion::common::TableReference::bare(name.as_str()), Arc::new(table))?;
    Ok(format!("\"{}\"", name.replace('"', "\"\"")))
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
