//! The plan of a recomputation: from the archive to merged states in the order of a snapshot's files.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr, ScalarFunctionExpr};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PhysicalExpr};
use datafusion::prelude::SessionContext;
use schemas::definitions::StreamDefinition;
use schemas::plan::{TILE, ViewPlan};
use schemas::states::KeyCodec;
use schemas::states::partial::{partial_exec, prepared_plan};
use schemas::storage::bucket_of;
use schemas::{Error, Result};

/// The first column of the plan's output; the others are those of Partial.
pub(crate) const BUCKET: &str = "__bucket";

/// Aggregations at once.
const PARTITIONS: usize = 2;

/// Archive rows to (bucket, keys, tile, states), sorted by bucket, keys and tile. Rows of one key and tile may be several.
///
/// Under memory pressure Partial hands on early what it has, and the sort spills. States are merged where they are written, in
/// order and a few keys at a time: a second aggregation in between would have to hold (or spill, which fails for states that are
/// larger than their accumulators say) what the sort holds anyway.
pub(crate) async fn recompute_plan(
    plan: &ViewPlan,
    codec: &Arc<KeyCodec>,
    buckets: u32,
    session: &SessionContext,
    source: &(dyn Fn(&StreamDefinition) -> Result<Arc<dyn ExecutionPlan>> + Send + Sync),
) -> Result<Arc<dyn ExecutionPlan>> {
    let prepared = prepared_plan(plan, session, source).await?;
    let prepared = if plan.links.is_some() { unordered(prepared)? } else { prepared };
    let partial: Arc<dyn ExecutionPlan> = partial_exec(plan, prepared)?;
    sort(plan, with_bucket(plan, codec, buckets, partial, session)?)
}

/// The side of an edge is a constant of each stream, which DataFusion takes for an order of its groups. An aggregation over ordered input
/// hands its groups on a batch at a time, and moves all others up each time: for millions of edges that took a fifth of a run.
fn unordered(edges: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(RepartitionExec::try_new(edges, Partitioning::RoundRobinBatch(PARTITIONS))?))
}

fn group_columns(plan: &ViewPlan) -> Vec<(Arc<dyn PhysicalExpr>, String)> {
    let names = (0..plan.keys.len()).map(|i| format!("k{i}")).chain([TILE.to_owned()]);
    names.enumerate().map(|(index, name)| (Arc::new(Column::new(&name, index)) as Arc<dyn PhysicalExpr>, name)).collect()
}

fn with_bucket(
    plan: &ViewPlan,
    codec: &Arc<KeyCodec>,
    buckets: u32,
    input: Arc<dyn ExecutionPlan>,
    session: &SessionContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = input.schema();
    let types: Vec<DataType> = plan.keys.iter().map(|key| key.data_type().clone()).collect();
    let function = Arc::new(ScalarUDF::from(BucketOf { codec: Bytewise(codec.clone()), buckets, signature: bucket_signature(&types) }));
    let keys = group_columns(plan).into_iter().take(plan.keys.len()).map(|(column, _)| column).collect();
    let options = session.state().config_options().clone();
    let bucket: Arc<dyn PhysicalExpr> = Arc::new(ScalarFunctionExpr::try_new(function, keys, &schema, options)?);
    let rest = schema.fields().iter().enumerate().map(|(index, field)| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), index));
        (column, field.name().clone())
    });
    let exprs: Vec<(Arc<dyn PhysicalExpr>, String)> = [(bucket, BUCKET.to_owned())].into_iter().chain(rest).collect();
    Ok(Arc::new(ProjectionExec::try_new(exprs, input)?))
}

fn sort(plan: &ViewPlan, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = input.schema();
    let options = SortOptions { descending: false, nulls_first: true };
    let exprs = (0..plan.keys.len() + 2).map(|index| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(schema.field(index).name(), index));
        PhysicalSortExpr::new(column, options)
    });
    let ordering = LexOrdering::new(exprs).ok_or_else(|| Error::internal("a snapshot has an order"))?;
    let sorted = Arc::new(SortExec::new(ordering.clone(), input).with_preserve_partitioning(true));
    Ok(Arc::new(SortPreservingMergeExec::new(ordering, sorted)))
}

fn bucket_signature(types: &[DataType]) -> Signature {
    if types.is_empty() { Signature::nullary(Volatility::Immutable) } else { Signature::exact(types.to_vec(), Volatility::Immutable) }
}

/// The hash bucket of a row's keys, by the bytes of their encoding (of an edge: of the node it leaves): as serving computes it for a lookup.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BucketOf {
    codec: Bytewise,
    buckets: u32,
    signature: Signature,
}

/// A codec compared by identity.
#[derive(Debug, Clone)]
struct Bytewise(Arc<KeyCodec>);

impl PartialEq for Bytewise {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Bytewise {}

impl std::hash::Hash for Bytewise {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl ScalarUDFImpl for BucketOf {
    fn name(&self) -> &str {
        BUCKET
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::UInt32)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let columns = args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect::<DataFusionResult<Vec<_>>>()?;
        let keys = self.codec.0.places(&columns, args.number_rows)?;
        let buckets: UInt32Array = (0..args.number_rows).map(|row| Some(bucket_of(keys.value(row), self.buckets))).collect();
        Ok(ColumnarValue::Array(Arc::new(buckets) as ArrayRef))
    }
}
