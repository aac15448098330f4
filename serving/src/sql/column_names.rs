//! The names of an answer's columns. DataFusion names a column without an alias after its expression, and shows
//! constants with their types.

use std::sync::Arc;

use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use types::Result;
use types::sql_errors::constants_as_sql;

/// Names columns as SQL: `3`, not `Int64(3)`. A column whose name another one has keeps its own.
pub(super) fn as_sql(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = plan.schema().columns();
    let names: Vec<String> = columns.iter().map(|column| constants_as_sql(&column.name)).collect();
    let is_changed = |at: usize| columns[at].name != names[at] && names.iter().filter(|name| **name == names[at]).count() == 1;
    if !(0..names.len()).any(is_changed) {
        return Ok(plan);
    }
    let named = |at: usize| {
        let column = Expr::Column(columns[at].clone());
        if is_changed(at) { column.alias(names[at].as_str()) } else { column }
    };
    let columns: Vec<Expr> = (0..names.len()).map(named).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}
