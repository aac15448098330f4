//! Checks that the joined columns have the same type. A comparison silently coerces its sides to a common type, but the
//! text of a number may have several forms (`7`, `07`, `7.0`): the user must say which one is meant.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator};

use crate::plan::select_place::SelectError;
use crate::plan::written::{ColumnNames, sql_of};
use types::sql_types::sql_name;
use types::{Error, Result};

/// Refuses equalities between a join's sides whose types cannot be compared exactly. `plan` must not be analysed yet:
/// it holds only the user's own casts.
pub(crate) fn check_key_types(plan: &LogicalPlan) -> Result<(), SelectError> {
    check_nodes(plan, |node| match node {
        LogicalPlan::Filter(filter) => joined_below(&filter.input).map_or(Ok(()), |join| check(join, &equalities(&filter.predicate))),
        other => check_join(other),
    })
}

/// The same for the conditions of the joins alone, for a SELECT whose WHERE joins nothing.
pub(crate) fn check_on_types(plan: &LogicalPlan) -> Result<(), SelectError> {
    check_nodes(plan, check_join)
}

fn check_nodes(plan: &LogicalPlan, of_node: impl Fn(&LogicalPlan) -> Result<(), SelectError>) -> Result<(), SelectError> {
    let mut found = Ok(());
    let _ = plan.apply(|node| {
        found = of_node(node);
        Ok(if found.is_err() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

fn check_join(node: &LogicalPlan) -> Result<(), SelectError> {
    let LogicalPlan::Join(join) = node else { return Ok(()) };
    check(join, &join_keys(join))
}

fn join_keys(join: &Join) -> Vec<(&Expr, &Expr)> {
    let on = join.on.iter().map(|(left, right)| (left, right));
    on.chain(join.filter.iter().flat_map(equalities)).collect()
}

fn joined_below(plan: &LogicalPlan) -> Option<&Join> {
    match plan {
        LogicalPlan::Filter(filter) => joined_below(&filter.input),
        LogicalPlan::Join(join) => Some(join),
        _ => None,
    }
}

fn equalities(condition: &Expr) -> Vec<(&Expr, &Expr)> {
    let sides = |expr| match expr {
        &Expr::BinaryExpr(BinaryExpr { ref left, op: Operator::Eq, ref right }) => Some((&**left, &**right)),
        _ => None,
    };
    split_conjunction(condition).into_iter().filter_map(sides).collect()
}

fn check(join: &Join, equalities: &[(&Expr, &Expr)]) -> Result<(), SelectError> {
    let (left, right) = (join.left.schema(), join.right.schema());
    for (one, other) in equalities {
        let across = (reads(one, left) && reads(other, right)) || (reads(one, right) && reads(other, left));
        let types = (one.get_type(&join.schema), other.get_type(&join.schema));
        let (true, (Ok(one_type), Ok(other_type))) = (across, types) else { continue };
        if !are_alike(&one_type, &other_type) {
            return Err(unlike((one, &one_type), (other, &other_type)));
        }
    }
    Ok(())
}

/// Whether an expression reads only this side.
fn reads(expr: &Expr, side: &DFSchema) -> bool {
    let columns = expr.column_refs();
    !columns.is_empty() && columns.iter().all(|column| side.has_column(column))
}

/// Whether values of these types are compared without rounding and without conversion to text.
fn are_alike(one: &DataType, other: &DataType) -> bool {
    let is_text = |of: &DataType| matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_exact = |of: &DataType| of.is_integer() || of.is_decimal();
    let is_time = |of: &DataType| matches!(of, DataType::Timestamp(..));
    one == other || [is_text, is_exact, |of: &DataType| of.is_floating(), is_time].iter().any(|is| is(one) && is(other))
}

fn unlike((one, one_type): (&Expr, &DataType), (other, other_type): (&Expr, &DataType)) -> SelectError {
    let (left, right) = (sql_of(one, ColumnNames::WithTable), sql_of(other, ColumnNames::WithTable));
    let (left_type, right_type) = (sql_name(one_type), sql_name(other_type));
    let cast = |text: &str, to: &str| format!("CAST({text} AS {to})");
    // Casts to TEXT if either side is TEXT, because every value has a text; otherwise to the type of the left side.
    let (cast_left, cast_right) = match left_type.as_str() {
        _ if right_type == "TEXT" => (cast(&left, "TEXT"), right.clone()),
        to => (left.clone(), cast(&right, to)),
    };
    let error = Error::input(format!(
        "the join keys {left} and {right} are of different types, {left_type} and {right_type}: expected one type, \
         with a cast, for example \
         {cast_left} = {cast_right}"
    ));
    SelectError { error, span: one.spans().and_then(|spans| spans.first()) }
}
