//! Finds the events on which a view fails. Plain SQL computes the expected rows from all others.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, col, in_list, lit, not};
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr, execute_stream};
use datafusion::prelude::SessionContext;
use engine::plan::ViewPlan;
use engine::states::{EventSource, PerEvent};
use futures::TryStreamExt;
use types::Result;
use types::columns::{OFFSET, PARTITION};
use types::vector::{Offset, PartitionId};

/// The offsets of failing events, per partition.
#[derive(Debug, Clone, Default)]
pub(super) struct FailingOffsets(Arc<BTreeMap<PartitionId, Vec<Offset>>>);

/// Scans these columns of a stream, or all.
type Scan<'a> = dyn Fn(Option<&[usize]>) -> Result<Arc<dyn ExecutionPlan>> + 'a;

impl FailingOffsets {
    /// Evaluates the view's expressions for each event of its streams.
    pub(super) async fn find(plan: &ViewPlan, session: &SessionContext, scan: &EventSource<'_>) -> Result<FailingOffsets> {
        let mut found: BTreeMap<PartitionId, Vec<Offset>> = BTreeMap::new();
        for per_event in PerEvent::plan(plan, session)?.iter().filter(|per_event| per_event.can_fail()) {
            let mut events = execute_stream(scan(&per_event.stream, &per_event.columns)?, session.task_ctx())?;
            while let Some(batch) = events.try_next().await? {
                per_event.evaluate(&batch, &mut |failure| found.entry(failure.partition).or_default().push(failure.offset))?;
            }
        }
        Ok(FailingOffsets(Arc::new(found)))
    }

    pub(super) fn count(&self, stream: &str) -> u64 {
        self.offsets_of_stream(stream).map(|(_, offsets)| offsets.len() as u64).sum()
    }

    /// Returns a scan of these columns of a stream without these events. `scan` scans the columns that it is given.
    pub(super) fn without(
        &self,
        stream: &str,
        schema: &SchemaRef,
        columns: Option<&[usize]>,
        scan: &Scan<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.count(stream) == 0 {
            return scan(columns);
        }
        let wanted: Vec<usize> = columns.map_or_else(|| (0..schema.fields().len()).collect(), <[usize]>::to_vec);
        let mut scanned = wanted.clone();
        for index in [schema.index_of(PARTITION)?, schema.index_of(OFFSET)?] {
            if !scanned.contains(&index) {
                scanned.push(index);
            }
        }
        let input = scan(Some(&scanned))?;
        let predicate = self.predicate(stream, &input.schema())?;
        Ok(Arc::new(FilterExecBuilder::new(predicate, input).apply_projection(Some((0..wanted.len()).collect()))?.build()?))
    }

    fn predicate(&self, stream: &str, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
        let mut others: Arc<dyn PhysicalExpr> = lit(true);
        for (partition, offsets) in self.offsets_of_stream(stream) {
            let of_partition = BinaryExpr::new(col(PARTITION, schema)?, Operator::Eq, lit(ScalarValue::Int32(Some(partition.partition))));
            let offsets = offsets.iter().map(|offset| lit(ScalarValue::Int64(Some(offset.0)))).collect();
            let listed = in_list(col(OFFSET, schema)?, offsets, &false, schema)?;
            let left_out = Arc::new(BinaryExpr::new(Arc::new(of_partition), Operator::And, listed));
            others = Arc::new(BinaryExpr::new(others, Operator::And, not(left_out)?));
        }
        Ok(others)
    }

    fn offsets_of_stream(&self, stream: &str) -> impl Iterator<Item = (&PartitionId, &Vec<Offset>)> {
        self.0.iter().filter(move |(partition, _)| *partition.stream == *stream)
    }
}
