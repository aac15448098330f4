//! Decides which plans read only a few keys. They do not wait for a turn, and need no threads of their own.

use std::sync::Arc;

use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::physical_plan::ExecutionPlan;

use super::source::SourceExec;

/// Operators whose output is small for small input. Joins, window functions and others may produce many rows from few.
const OPERATORS: [&str; 13] = [
    "AggregateExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "FilterExec",
    "GlobalLimitExec",
    "LocalLimitExec",
    "ProjectionExec",
    "RepartitionExec",
    "SortExec",
    "SortExec(TopK)",
    "SortPreservingMergeExec",
    "UnionExec",
];
/// Leaves with hardly any rows.
const EMPTY: [&str; 3] = ["EmptyExec", "PlaceholderRowExec", "ExplainExec"];

pub(super) fn is_light(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    match children.is_empty() {
        false => OPERATORS.contains(&plan.name()) && children.into_iter().all(is_light),
        true => EMPTY.contains(&plan.name()) || is_light_leaf(&**plan),
    }
}

fn is_light_leaf(plan: &dyn ExecutionPlan) -> bool {
    if let Some(source) = plan.downcast_ref::<SourceExec>() {
        return source.is_light();
    }
    plan.downcast_ref::<DataSourceExec>().is_some_and(|source| source.data_source().downcast_ref::<MemorySourceConfig>().is_some())
}
