//! Expressions of a plan as SQL, for names of states, for `explain` and for errors.

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Expr;
use datafusion::sql::unparser::expr_to_sql;

use crate::plan::{decimals, intervals};

/// Returns an expression over one table as SQL, with unqualified columns.
pub(crate) fn sql_of(expr: &Expr) -> String {
    written(expr, |column| Column::from_name(column.name))
}

/// Returns an expression over the sides of a join as SQL, each column with its table's name.
pub(crate) fn qualified_sql_of(expr: &Expr) -> String {
    written(expr, |column| column)
}

/// Works from the leaves up, to reach expressions inside casts. The casts come from type coercion and are not shown.
fn written(expr: &Expr, name: impl Fn(Column) -> Column) -> String {
    let readable = expr.clone().transform_up(|node| match node {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(name(column)))),
        Expr::Cast(cast) => Ok(Transformed::yes(*cast.expr)),
        Expr::ScalarFunction(_) => Ok(Transformed::yes(intervals::written(decimals::written(node)))),
        other => Ok(Transformed::no(other)),
    });
    let readable = readable.map_or_else(|_| expr.clone(), |readable| readable.data);
    let text = expr_to_sql(&readable).map_or_else(|_| readable.schema_name().to_string(), |sql| sql.to_string());
    text.replace("count(1)", "count(*)")
}
