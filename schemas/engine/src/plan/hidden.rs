//! Carries each event's position (event time, source, partition, offset) through all plan nodes between a scan and the
//! Aggregate, so that tiles can be determined and ties broken even if the SELECT names none of these columns.

use std::sync::Arc;

use datafusion::common::{Column, tree_node::TreeNode};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias, TableScan, Union};

use crate::events::plan_schema;
use definitions::StreamDefinition;
use types::columns::{EVENT_TIME, OFFSET, PARTITION, SOURCE};
use types::{Error, Result};

/// The hidden columns, in the order they are appended.
pub(super) const HIDDEN: [&str; 4] = [EVENT_TIME, SOURCE, PARTITION, OFFSET];

/// Returns the plan with the hidden columns appended to every node's output.
pub(super) fn carry(plan: &LogicalPlan, streams: &[Arc<StreamDefinition>]) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let stream = stream_of(scan, streams)?;
            let table = provider_as_source(Arc::new(EmptyTable::new(plan_schema(stream))));
            Ok(LogicalPlanBuilder::scan(scan.table_name.clone(), table, None)?.build()?)
        }
        LogicalPlan::Projection(projection) => {
            let input = carry(&projection.input, streams)?;
            let mut exprs = projection.expr.clone();
            for name in HIDDEN {
                exprs.push(Expr::Column(column_named(&input, name)?));
            }
            Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?))
        }
        LogicalPlan::Filter(filter) => {
            let input = carry(&filter.input, streams)?;
            Ok(LogicalPlan::Filter(Filter::try_new(filter.predicate.clone(), Arc::new(input))?))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let input = carry(&alias.input, streams)?;
            Ok(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?))
        }
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.iter().map(|input| carry(input, streams).map(Arc::new)).collect::<Result<Vec<_>>>()?;
            Ok(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?))
        }
        other => Err(Error::input(format!(
            "{} cannot be kept exactly between a stream and its aggregates: expected WHERE, expressions, UNION ALL",
            node_name(other)
        ))),
    }
}

/// Returns the column with this (unqualified) name in a plan's output.
pub(super) fn column_named(plan: &LogicalPlan, name: &str) -> Result<Column> {
    plan.schema()
        .iter()
        .find(|(_, field)| field.name() == name)
        .map(|(qualifier, field)| Column::new(qualifier.cloned(), field.name()))
        .ok_or_else(|| Error::internal(format!("the plan lost its column {name}")))
}

/// Whether an expression over a plan's output is, unchanged, the event time of every stream below.
pub(super) fn names_event_time(expr: &Expr, input: &LogicalPlan, streams: &[Arc<StreamDefinition>]) -> bool {
    let Expr::Column(column) = strip_casts(expr) else { return false };
    input.schema().maybe_index_of_column(column).is_some_and(|index| is_event_time(input, index, streams))
}

/// Whether the output column at this index is, unchanged, the event time of every stream below.
fn is_event_time(plan: &LogicalPlan, index: usize, streams: &[Arc<StreamDefinition>]) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => {
            stream_of(scan, streams).is_ok_and(|stream| scan.projected_schema.field(index).name() == &stream.event_time)
        }
        LogicalPlan::Projection(projection) => {
            let mut expr = &projection.expr[index];
            while let Expr::Alias(alias) = expr {
                expr = &alias.expr;
            }
            names_event_time(expr, &projection.input, streams)
        }
        LogicalPlan::Filter(filter) => is_event_time(&filter.input, index, streams),
        LogicalPlan::SubqueryAlias(alias) => is_event_time(&alias.input, index, streams),
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| is_event_time(input, index, streams)),
        _ => false,
    }
}

pub(crate) fn strip_casts(mut expr: &Expr) -> &Expr {
    while let Expr::Cast(datafusion::logical_expr::Cast { expr: inner, .. }) = expr {
        expr = inner;
    }
    expr
}

/// Returns the streams that a plan scans, each once, in the order of their scans.
pub(super) fn streams_of(plan: &LogicalPlan, streams: &[Arc<StreamDefinition>]) -> Result<Vec<Arc<StreamDefinition>>> {
    let mut found: Vec<Arc<StreamDefinition>> = Vec::new();
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let stream = stream_of(scan, streams).map_err(DataFusionError::from)?;
            if !found.iter().any(|known| known.name == stream.name) {
                found.push(stream.clone());
            }
        }
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn stream_of<'a>(scan: &TableScan, streams: &'a [Arc<StreamDefinition>]) -> Result<&'a Arc<StreamDefinition>> {
    let _ = source_as_provider(&scan.source)?;
    let name = scan.table_name.table();
    streams.iter().find(|stream| &*stream.name == name).ok_or_else(|| Error::input(format!("there is no stream \"{name}\"")))
}

pub(crate) fn node_name(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Window(_) => "a window function (OVER)",
        LogicalPlan::Aggregate(_) => "an aggregate",
        LogicalPlan::Sort(_) => "ORDER BY",
        LogicalPlan::Join(_) => "a JOIN",
        LogicalPlan::Limit(_) => "LIMIT",
        LogicalPlan::Distinct(_) => "SELECT DISTINCT",
        LogicalPlan::Unnest(_) => "UNNEST",
        LogicalPlan::Values(_) => "VALUES",
        LogicalPlan::EmptyRelation(_) => "a SELECT without FROM",
        LogicalPlan::RecursiveQuery(_) => "WITH RECURSIVE",
        LogicalPlan::Union(_) => "UNION ALL",
        LogicalPlan::Subquery(_) | LogicalPlan::Projection(_) => "a subquery",
        _ => "this clause",
    }
}
