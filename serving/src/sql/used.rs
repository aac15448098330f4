//! What an optimised plan asks of which view: for the answer's meta.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use schemas::Result;

use crate::ask::Question;
use crate::meta::{AskedView, Meta};
use crate::sql::tables::DEFAULT_SCHEMA;

pub(super) fn meta(plan: &LogicalPlan, question: &Question) -> Result<Meta> {
    let registry = &question.stand.loaded.registry;
    let mut views: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut streams: Vec<Arc<str>> = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && scan.table_name.schema().is_none_or(|schema| schema == DEFAULT_SCHEMA)
        {
            let name = scan.table_name.table();
            if registry.served(name).is_some() {
                let all = || (0..scan.source.schema().fields().len()).collect();
                views.entry(name.to_owned()).or_default().extend(scan.projection.clone().unwrap_or_else(all));
            } else if let Some((stream, _)) = registry.streams.get_key_value(name) {
                streams.push(stream.clone());
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let columns: Vec<(String, Vec<usize>)> = views.into_iter().map(|(view, columns)| (view, columns.into_iter().collect())).collect();
    let asked =
        columns.iter().map(|(view, columns)| Ok(AskedView { view: question.stand.view(view)?, columns })).collect::<Result<Vec<_>>>()?;
    Ok(Meta::of(question, &asked, &streams))
}
