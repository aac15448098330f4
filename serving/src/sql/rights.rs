//! Whether a principal may read the tables of a query. A view and its states need the right to read the view, but not
//! the streams behind it. `system.*` describes everything, so a principal that is limited to some views or streams is
//! refused there. `information_schema` shows each principal the tables that it may read.

use access::{Action, Object, Principal, allow, may};
use committed::registry::Registry;
use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use types::Result;

use crate::sql::names::{DEFAULT_SCHEMA, INFORMATION_SCHEMA, view_of_table};

/// Allows a table that exists, or names the missing right.
///
/// Errors: `Forbidden`.
pub(super) fn allow_table(principal: &Principal, registry: &Registry, table: &TableReference) -> Result<()> {
    match table.schema().unwrap_or(DEFAULT_SCHEMA) {
        INFORMATION_SCHEMA => Ok(()),
        DEFAULT_SCHEMA => allow(principal, Action::Read, object(registry, table.table())),
        _ => allow(principal, Action::Read, Object::System(table.table())),
    }
}

/// Allows all tables that a plan scans. This checks the resolved plan, whatever the text looked like.
pub(super) fn allow_plan(principal: &Principal, registry: &Registry, plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && !is_made_by_a_function(registry, &scan.table_name)
        {
            allow_table(principal, registry, &scan.table_name)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Whether a principal may read a table of the default schema.
pub(super) fn may_read(principal: &Principal, registry: &Registry, table: &str) -> bool {
    may(principal, Action::Read, object(registry, table))
}

pub(super) fn may_read_system(principal: &Principal) -> bool {
    may(principal, Action::Read, Object::System("*"))
}

fn object<'a>(registry: &'a Registry, table: &'a str) -> Object<'a> {
    match view_of_table(registry, table) {
        Some(view) => Object::View(&view.name),
        None => Object::Stream(table),
    }
}

/// A table function such as `range(1, 10)` is scanned under its own name, which is not that of a view or stream.
fn is_made_by_a_function(registry: &Registry, table: &TableReference) -> bool {
    let schema = table.schema().unwrap_or(DEFAULT_SCHEMA);
    let is_known = view_of_table(registry, table.table()).is_some() || registry.streams.contains_key(table.table());
    schema == DEFAULT_SCHEMA && !is_known
}

#[cfg(test)]
mod tests;
