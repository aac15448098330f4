//! Finds which columns of which views an optimised plan reads, for the answer's meta.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use types::Result;

use crate::meta::{AskedView, Meta};
use crate::query_context::QueryContext;
use crate::sql::names::{DEFAULT_SCHEMA, view_of_table};

pub(super) fn meta(plan: &LogicalPlan, context: &QueryContext) -> Result<Meta> {
    let registry = &context.read_view.loaded.registry;
    // Without columns: only its states.
    let mut views: BTreeMap<&str, Option<BTreeSet<usize>>> = BTreeMap::new();
    let mut streams: Vec<Arc<str>> = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && scan.table_name.schema().is_none_or(|schema| schema == DEFAULT_SCHEMA)
        {
            let name = scan.table_name.table();
            if let Some(view) = view_of_table(registry, name) {
                let columns = views.entry(&view.name).or_default();
                if *view.name == *name {
                    let all = || (0..scan.source.schema().fields().len()).collect();
                    columns.get_or_insert_default().extend(scan.projection.clone().unwrap_or_else(all));
                }
            } else if let Some((stream, _)) = registry.streams.get_key_value(name) {
                streams.push(stream.clone());
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let views: Vec<(&str, Option<Vec<usize>>)> = views.into_iter().map(|(view, columns)| (view, columns.map(Vec::from_iter))).collect();
    let asked = views.iter().map(|(view, columns)| Ok(AskedView { view: context.read_view.view(view)?, columns: columns.as_deref() }));
    Ok(Meta::new(context, &asked.collect::<Result<Vec<_>>>()?, &streams))
}
