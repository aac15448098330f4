//! `<stream>` as a table: the accepted events up to the committed vector, from the archive. The stream's columns first,
//! then the hidden ones.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use catalog::{ArchiveBounds, archive_files};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use definitions::{ColumnType, StreamDefinition};
use engine::events::event_schema;
use storage::{OffsetRanges, pruned_archive_plan};
use types::columns::EVENT_TIME;
use types::files::FileRecord;
use types::tiles::Micros;
use types::vector::Vector;

use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;
use crate::sql::table::{NodeTable, PlanFuture, ScanArgs};

pub(super) struct EventsTable {
    pub(super) runtime: QueryRuntime,
    pub(super) context: QueryContext,
    pub(super) definition: Arc<StreamDefinition>,
}

impl fmt::Debug for EventsTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventsTable({})", self.definition.name)
    }
}

impl NodeTable for EventsTable {
    fn schema(&self) -> SchemaRef {
        event_schema(&self.definition)
    }

    fn pushdown(&self, _: &Expr) -> TableProviderFilterPushDown {
        TableProviderFilterPushDown::Inexact
    }

    fn scan<'a>(&'a self, session: &'a dyn Session, args: ScanArgs<'a>) -> PlanFuture<'a> {
        Box::pin(ready(self.plan(session, args)))
    }
}

impl EventsTable {
    fn plan(&self, session: &dyn Session, args: ScanArgs<'_>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let loaded = &self.context.read_view.loaded;
        let files = archive_files(&loaded.state, std::slice::from_ref(&self.definition.name), self.time_bounds(args.filters));
        let files: Vec<FileRecord> = files.into_iter().cloned().collect();
        let ranges = OffsetRanges { stream: self.definition.name.clone(), from: Vector::new(), to: loaded.vector.clone() };
        let partitions = session.config().target_partitions();
        let (projection, pruning) = (args.projection.map(Vec::as_slice), self.pruning(session, args.filters)?);
        Ok(pruned_archive_plan(self.runtime.storage(), &files, self.schema(), &ranges, projection, pruning, partitions)?)
    }

    /// Returns the filters by which parts of files are skipped: those on the columns by which compacted files are
    /// sorted. In any other column, most parts hold nearly the whole range of values. Floats are never among the sorted
    /// columns, and must not be: a part's minimum and maximum do not count NaN.
    fn pruning(&self, session: &dyn Session, filters: &[Expr]) -> DataFusionResult<Option<Arc<dyn PhysicalExpr>>> {
        let is_sorted_by = |term: &&Expr| {
            let columns = term.column_refs();
            !columns.is_empty() && columns.iter().all(|column| self.definition.cluster_by.contains(&column.name))
        };
        let terms = filters.iter().flat_map(split_conjunction).filter(is_sorted_by).cloned();
        let Some(all) = conjunction(terms) else { return Ok(None) };
        let schema = DFSchema::try_from(self.schema())?;
        session.create_physical_expr(all, &schema).map(Some)
    }

    /// Returns the bounds that the filters set for the event time. Files outside of them hold no such event.
    fn time_bounds(&self, filters: &[Expr]) -> ArchiveBounds<'static> {
        let own_is_time =
            self.definition.columns.iter().any(|c| c.name == self.definition.event_time && c.column_type == ColumnType::TimestampTz);
        let is_time = |name: &str| name == EVENT_TIME || (own_is_time && name == self.definition.event_time);
        let mut bounds = ArchiveBounds::default();
        for term in filters.iter().flat_map(split_conjunction) {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = term else { continue };
            match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(ScalarValue::TimestampMicrosecond(Some(time), _), _)) if is_time(&column.name) => {
                    narrow(&mut bounds, *op, *time);
                }
                (Expr::Literal(ScalarValue::TimestampMicrosecond(Some(time), _), _), Expr::Column(column)) if is_time(&column.name) => {
                    narrow(&mut bounds, op.swap().unwrap_or(*op), *time);
                }
                _ => {}
            }
        }
        bounds
    }
}

/// Narrows the times to those that compare with `time` as the operator says.
fn narrow(bounds: &mut ArchiveBounds<'_>, op: Operator, time: Micros) {
    if matches!(op, Operator::Gt | Operator::GtEq | Operator::Eq) {
        bounds.oldest = Some(bounds.oldest.map_or(time, |oldest| oldest.max(time)));
    }
    if matches!(op, Operator::Lt | Operator::LtEq | Operator::Eq) {
        bounds.newest = Some(bounds.newest.map_or(time, |newest| newest.min(time)));
    }
}
