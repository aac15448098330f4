//! Lets DataFusion plan a SELECT: its syntax tree, its plan, and the plan after the analyser.

use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use definitions::{Diagnostics, ViewDefinition};
use types::Error;
use types::sql_dialect::parse_statement;

use crate::plan::refuse::{at_error, at_select};

pub(super) fn parse(view: &ViewDefinition) -> Result<ast::Query, Diagnostics> {
    match parse_statement(&view.select).map_err(|error| at_error(view, error))? {
        Statement::Statement(statement) => match *statement {
            ast::Statement::Query(query) => Ok(*query),
            other => {
                let error = Error::input(format!("a view is a SELECT, found {}", other.to_string().chars().take(40).collect::<String>()));
                Err(at_select(view, &error))
            }
        },
        _ => Err(at_select(view, &Error::input("a view is a SELECT, found another statement"))),
    }
}

/// Returns the plan of the text, before analysis.
pub(super) async fn logical(session: &SessionContext, query: &ast::Query) -> Result<LogicalPlan, DataFusionError> {
    session.state().statement_to_plan(Statement::Statement(Box::new(ast::Statement::Query(Box::new(query.clone()))))).await
}

/// Returns the plan after DataFusion's analyser: types are coerced and `count(*)` is spelled out, but nothing is
/// optimized.
pub(super) fn analysed(session: &SessionContext, plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let state = session.state();
    state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {})
}

/// Returns `SELECT expression` with the tables of `query`, joined without a condition. `None` if the query is not a
/// plain SELECT.
pub(super) fn selected_alone(query: &ast::Query, expression: ast::Expr) -> Option<ast::Query> {
    let mut alone = query.clone();
    alone.order_by = None;
    alone.pipe_operators.clear();
    let ast::SetExpr::Select(select) = &mut *alone.body else { return None };
    take_join_conditions(select);
    select.distinct = None;
    select.qualify = None;
    select.projection = vec![ast::SelectItem::UnnamedExpr(expression)];
    select.selection = None;
    select.having = None;
    select.group_by = ast::GroupByExpr::Expressions(Vec::new(), Vec::new());
    Some(alone)
}

/// Puts `true` in the places of the conditions by which tables are joined, and returns them.
pub(super) fn take_join_conditions(select: &mut ast::Select) -> Vec<ast::Expr> {
    use ast::JoinOperator::{CrossJoin, FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
    let mut taken = Vec::new();
    for join in select.from.iter_mut().flat_map(|table| &mut table.joins) {
        if let Join(constraint)
        | Inner(constraint)
        | Left(constraint)
        | LeftOuter(constraint)
        | Right(constraint)
        | RightOuter(constraint)
        | FullOuter(constraint)
        | CrossJoin(constraint) = &mut join.join_operator
            && let ast::JoinConstraint::On(condition) = constraint
        {
            taken.push(std::mem::replace(condition, ast::Expr::Value(ast::Value::Boolean(true).with_empty_span())));
        }
    }
    taken
}
