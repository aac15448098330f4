//! Finds which columns of which views an optimised plan reads, for the answer's meta.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use types::Result;

use crate::meta::{AskedView, Meta};
use crate::query_context::QueryContext;
use crate::sql::names::{DEFAULT_SCHEMA, view_of_table};

/// The tables that a query reads.
pub(super) struct TablesRead {
    /// The views, each with the indices of the columns that are read, or `None` if only its states are read.
    pub(super) views: Vec<(Arc<str>, Option<Vec<usize>>)>,
    pub(super) streams: Vec<Arc<str>>,
}

impl TablesRead {
    /// Errors: a view that cannot be read.
    pub(super) fn find(plan: &LogicalPlan, context: &QueryContext) -> Result<TablesRead> {
        let registry = &context.read_view.loaded.registry;
        let mut views: BTreeMap<Arc<str>, Option<BTreeSet<usize>>> = BTreeMap::new();
        let mut streams: Vec<Arc<str>> = Vec::new();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && scan.table_name.schema().is_none_or(|schema| schema == DEFAULT_SCHEMA)
            {
                let name = scan.table_name.table();
                if let Some(view) = view_of_table(registry, name) {
                    let columns = views.entry(view.name.clone()).or_default();
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
        for view in views.keys() {
            context.read_view.view(view)?;
        }
        let views = views.into_iter().map(|(view, columns)| (view, columns.map(Vec::from_iter))).collect();
        Ok(TablesRead { views, streams })
    }

    /// The meta of a query with this context, which can read all of the views.
    pub(super) fn meta(&self, context: &QueryContext) -> Meta {
        let asked = self.views.iter().filter_map(|(view, columns)| {
            let view = context.read_view.known_view(view).ok()?;
            Some(AskedView { view, columns: columns.as_deref() })
        });
        Meta::new(context, &asked.collect::<Vec<_>>(), &self.streams)
    }
}
