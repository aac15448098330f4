//! `<stream>` as a table: the accepted events up to the committed vector, from the archive. The stream's columns first, then
//! the hidden ones.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use definitions::{ColumnType, StreamDefinition};
use engine::events::event_schema;
use storage::{OffsetRanges, archive_plan};
use types::columns::EVENT_TIME;
use types::files::{FileKind, FileRecord};
use types::tiles::Micros;
use types::vector::Vector;

use crate::query_context::QueryContext;
use crate::query_runtime::QueryRuntime;

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

#[async_trait]
impl TableProvider for EventsTable {
    fn schema(&self) -> SchemaRef {
        event_schema(&self.definition)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let loaded = &self.context.read_view.loaded;
        let bounds = self.time_bounds(filters);
        let of_stream = |file: &&FileRecord| {
            !file.marked_for_deletion && file.kind == FileKind::Archive && file.subject.as_deref() == Some(&*self.definition.name)
        };
        let files: Vec<FileRecord> = loaded.state.files.iter().filter(of_stream).filter(|file| bounds.may_hold(file)).cloned().collect();
        let ranges = OffsetRanges { stream: self.definition.name.clone(), from: Vector::new(), to: loaded.vector.clone() };
        let partitions = session.config().target_partitions();
        let plan = archive_plan(self.runtime.storage(), &files, self.schema(), &ranges, projection.map(Vec::as_slice), partitions)?;
        Ok(plan)
    }
}

impl EventsTable {
    /// What the filters say of the event time: files outside hold no such event.
    fn time_bounds(&self, filters: &[Expr]) -> Bounds {
        let own_is_time =
            self.definition.columns.iter().any(|c| c.name == self.definition.event_time && c.column_type == ColumnType::TimestampTz);
        let is_time = |name: &str| name == EVENT_TIME || (own_is_time && name == self.definition.event_time);
        let mut bounds = Bounds::default();
        for term in filters.iter().flat_map(split_conjunction) {
            let Expr::BinaryExpr(BinaryExpr { left, op, right }) = term else { continue };
            match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(ScalarValue::TimestampMicrosecond(Some(time), _), _)) if is_time(&column.name) => {
                    bounds.narrow(*op, *time);
                }
                (Expr::Literal(ScalarValue::TimestampMicrosecond(Some(time), _), _), Expr::Column(column)) if is_time(&column.name) => {
                    bounds.narrow(op.swap().unwrap_or(*op), *time);
                }
                _ => {}
            }
        }
        bounds
    }
}

/// Event times from `least` to `greatest`, both included.
#[derive(Default)]
struct Bounds {
    least: Option<Micros>,
    greatest: Option<Micros>,
}

impl Bounds {
    fn narrow(&mut self, op: Operator, time: Micros) {
        if matches!(op, Operator::Gt | Operator::GtEq | Operator::Eq) {
            self.least = Some(self.least.map_or(time, |least| least.max(time)));
        }
        if matches!(op, Operator::Lt | Operator::LtEq | Operator::Eq) {
            self.greatest = Some(self.greatest.map_or(time, |greatest| greatest.min(time)));
        }
    }

    fn may_hold(&self, file: &FileRecord) -> bool {
        let after = self.least.zip(file.max_event_time).is_none_or(|(least, newest)| newest >= least);
        let before = self.greatest.zip(file.min_event_time).is_none_or(|(greatest, oldest)| oldest <= greatest);
        after && before
    }
}
