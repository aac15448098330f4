//! Which plans read a few keys and no more: they need no turn, and no threads of their own.

use std::sync::Arc;

use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::physical_plan::ExecutionPlan;

use super::source::SourceExec;

/// What makes little of little. Joins, windows and what else is not here may make much of it.
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
/// Leaves that have next to nothing.
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
