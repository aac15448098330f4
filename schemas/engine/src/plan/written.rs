//! Expressions of a plan as SQL, for names of states, for `explain` and for errors.

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, SortExpr, lit};
use datafusion::sql::sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, OrderByExpr, OrderByOptions, Value, ValueWithSpan,
};
use datafusion::sql::unparser::expr_to_sql;
use definitions::syntax::SyntaxNode;
use types::Result;

use crate::functions::written_member;
use crate::plan::{casts, decimals, intervals};

/// Begins the argument that stands for an ORDER BY.
const ORDER: &str = "\u{1}order ";

/// How the columns of an expression are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnNames {
    /// Without their table's name: all are of one table.
    Bare,
    /// With it: they are of the sides of a join.
    WithTable,
}

impl ColumnNames {
    fn shown(self, column: Column) -> Column {
        match self {
            ColumnNames::Bare => Column::from_name(column.name),
            ColumnNames::WithTable => column,
        }
    }
}

/// Returns an expression as SQL. Aggregates are written without their ORDER BY, as the names of states' fields are.
pub(crate) fn sql_of(expr: &Expr, names: ColumnNames) -> String {
    text(&readable(expr, names))
}

/// Same as `sql_of`, with the ORDER BY of aggregates.
pub(crate) fn ordered_sql_of(expr: &Expr, names: ColumnNames) -> String {
    ordered_text(&readable(expr, names))
}

/// Works from the leaves up, to reach expressions inside casts. The casts come from type coercion and are not shown.
fn readable(expr: &Expr, names: ColumnNames) -> Expr {
    let readable = expr.clone().transform_up(|node| match node {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(names.shown(column)))),
        Expr::Cast(cast) => Ok(Transformed::yes(*cast.expr)),
        Expr::ScalarFunction(_) => Ok(Transformed::yes(written_member(casts::written(intervals::written(decimals::written(node)))))),
        other => Ok(Transformed::no(other)),
    });
    readable.map_or_else(|_| expr.clone(), |readable| readable.data)
}

fn text(expr: &Expr) -> String {
    let text = expr_to_sql(expr).map_or_else(|_| expr.schema_name().to_string(), |sql| sql.to_string());
    text.replace("count(1)", "count(*)")
}

fn ordered_text(expr: &Expr) -> String {
    with_orders(expr).map_or_else(|_| text(expr), |sql| sql.to_string().replace("count(1)", "count(*)"))
}

/// DataFusion leaves out an ORDER BY among the arguments of an aggregate. It is passed as one more argument, which is
/// replaced in the syntax tree.
fn with_orders(expr: &Expr) -> Result<ast::Expr> {
    let mut orders: Vec<Vec<OrderByExpr>> = Vec::new();
    let marked = expr.clone().transform_up(|node| match node {
        Expr::AggregateFunction(mut function) if is_ordered(&function) => {
            let order = std::mem::take(&mut function.params.order_by);
            function.params.args.push(lit(format!("{ORDER}{}", orders.len())));
            orders.push(order.iter().map(order_by).collect::<datafusion::error::Result<_>>()?);
            Ok(Transformed::yes(Expr::AggregateFunction(function)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    let mut sql = expr_to_sql(&marked.data)?;
    sql.visit_expressions_mut(|node| {
        let ast::Expr::Function(function) = node else { return Ok(()) };
        let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
        if let Some(order) = list.args.last().and_then(marked_order).and_then(|order| orders.get(order)) {
            list.clauses.push(FunctionArgumentClause::OrderBy(order.clone()));
            list.args.pop();
        }
        Ok(())
    })?;
    Ok(sql)
}

/// DataFusion writes the ORDER BY of WITHIN GROUP itself.
fn is_ordered(function: &AggregateFunction) -> bool {
    !function.params.order_by.is_empty() && !function.func.supports_within_group_clause()
}

/// Defaults are not written.
fn order_by(sort: &SortExpr) -> datafusion::error::Result<OrderByExpr> {
    let asc = (!sort.asc).then_some(false);
    let nulls_first = (sort.nulls_first == sort.asc).then_some(sort.nulls_first);
    Ok(OrderByExpr { expr: expr_to_sql(&sort.expr)?, options: OrderByOptions { asc, nulls_first }, with_fill: None })
}

fn marked_order(argument: &FunctionArg) -> Option<usize> {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(ast::Expr::Value(ValueWithSpan { value, .. }))) = argument else { return None };
    let Value::SingleQuotedString(text) = value else { return None };
    text.strip_prefix(ORDER)?.parse().ok()
}
