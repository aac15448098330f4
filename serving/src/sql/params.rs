//! The values of `$1`, `$2`, ..: typed by JSON or by the caller, then coerced by the planner as literals are. Also
//! finds the types of parameters that the planner cannot determine.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{self, Visitor};
use datafusion::sql::sqlparser::parser::Parser;
use definitions::syntax::SyntaxNode;
use serde_json::Value;
use types::sql_dialect::SqlDialect;
use types::sql_types::sql_name;
use types::{Error, Reason, Result};

use super::Params;
use super::array_text::array_value;
use super::operand_types::truth;

/// The function that `= ANY (..)` becomes.
const ARRAY_HAS: &str = "array_has";
/// The functions whose arguments must have the same type.
const OF_ONE_TYPE: [&str; 4] = ["coalesce", "nullif", "greatest", "least"];
/// PostgreSQL's protocol has no more parameters.
const MAX_PARAMETERS: usize = u16::MAX as usize;

/// Plans a statement. A parameter has the type that the planner finds. Where it finds none, it has the one in `types`;
/// without that, it is an array of the type that `= ANY` compares with, or a text.
pub async fn plan(state: &SessionState, sql: &str, statement: Statement, types: &[Option<DataType>]) -> Result<LogicalPlan> {
    // A copy of a deep statement takes much of the stack: one without parameters is planned once.
    if !sql.contains('$') {
        return Ok(Box::pin(state.statement_to_plan(statement)).await?);
    }
    let mut error = match Box::pin(state.statement_to_plan(statement.clone())).await {
        Ok(plan) => return Ok(plan),
        Err(error) => error,
    };
    let places = Places::find(&statement);
    if places.all.is_empty() {
        return Err(error.into());
    }
    for unknown in [&places.in_any, &places.alone, &places.all] {
        let cast = |(number, is_array): (&usize, &bool)| {
            let text = if *is_array { DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))) } else { DataType::Utf8 };
            (*number, given_type(types, *number, *is_array).unwrap_or(text))
        };
        let mut casts: BTreeMap<usize, DataType> = unknown.iter().map(cast).collect();
        let mut planned = Box::pin(state.statement_to_plan(with_casts(&statement, &casts)?)).await;
        if let Ok(plan) = &planned
            && compared_with_others(plan, types, &mut casts)?
        {
            planned = Box::pin(state.statement_to_plan(with_casts(&statement, &casts)?)).await;
        }
        match planned {
            Ok(plan) => return Ok(plan),
            Err(other) => error = other,
        }
    }
    Err(error.into())
}

/// Returns the type that the caller gave for a parameter. A parameter that has to be an array may be sent as a text.
fn given_type(types: &[Option<DataType>], number: usize, is_array: bool) -> Option<DataType> {
    let given = types.get(number - 1).cloned().flatten()?;
    (!is_array || given.is_list()).then_some(given)
}

/// The places of parameters in a statement. For each number: whether it is compared by `ANY`.
#[derive(Default)]
struct Places {
    in_any: BTreeMap<usize, bool>,
    /// Parameters that are a column of the answer, or compared by `ANY`.
    alone: BTreeMap<usize, bool>,
    /// All parameters that occur somewhere without a cast. The others have the types to which the text casts them.
    all: BTreeMap<usize, bool>,
    /// How often each occurs without a cast.
    uncast: BTreeMap<usize, isize>,
}

impl Places {
    fn find(statement: &Statement) -> Places {
        let mut places = Places::default();
        if let Some(statement) = inner(statement) {
            let _ = statement.visit(&mut places);
        }
        places.all.extend(places.uncast.iter().filter(|(_, times)| **times > 0).map(|(number, _)| (*number, false)));
        places.alone.extend(places.in_any.clone());
        places.all.extend(places.in_any.clone());
        places
    }

    fn count(&mut self, parameter: &ast::Expr, times: isize) {
        if let Some(number) = number(parameter) {
            *self.uncast.entry(number).or_default() += times;
        }
    }
}

impl Visitor for Places {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        if let ast::SetExpr::Select(select) = &*query.body {
            for item in &select.projection {
                let (ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }) = item else { continue };
                self.alone.extend(number(expr).map(|number| (number, false)));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        match expr {
            ast::Expr::Value(_) => self.count(expr, 1),
            ast::Expr::Cast { expr: operand, .. } => self.count(operand, -1),
            ast::Expr::AnyOp { right, .. } | ast::Expr::AllOp { right, .. } => {
                self.in_any.extend(number(right).map(|number| (number, true)));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Returns the statement itself, or the one that an EXPLAIN explains.
pub(super) fn inner(statement: &Statement) -> Option<&ast::Statement> {
    match statement {
        Statement::Statement(statement) => Some(statement),
        Statement::Explain(explain) => inner(&explain.statement),
        _ => None,
    }
}

pub(super) fn inner_mut(statement: &mut Statement) -> Option<&mut ast::Statement> {
    match statement {
        Statement::Statement(statement) => Some(statement),
        Statement::Explain(explain) => inner_mut(&mut explain.statement),
        _ => None,
    }
}

/// The number of a parameter, which may be in parentheses, as after `ANY`.
fn number(expr: &ast::Expr) -> Option<usize> {
    match expr {
        ast::Expr::Nested(expr) => number(expr),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Placeholder(name) => name.strip_prefix('$')?.parse().ok().filter(|number| *number > 0),
            _ => None,
        },
        _ => None,
    }
}

fn with_casts(statement: &Statement, casts: &BTreeMap<usize, DataType>) -> Result<Statement> {
    let mut statement = statement.clone();
    let Some(inner) = inner_mut(&mut statement) else { return Ok(statement) };
    inner.visit_expressions_mut(|expr| {
        // Visited after what is inside it: what it is replaced by is not visited again.
        let Some((number, data_type)) = number(expr).and_then(|number| casts.get_key_value(&number)) else {
            return Ok(());
        };
        let text = format!("CAST(${number} AS {})", sql_name(data_type));
        let cast = Parser::new(&SqlDialect).try_with_sql(&text).and_then(|mut parser| parser.parse_expr());
        *expr = cast.map_err(|error| Error::input(format!("the type of ${number} is not supported")).caused_by(error))?;
        Ok(())
    })?;
    Ok(statement)
}

/// Gives arrays in `= ANY` without a given type the type of the values that they are compared with. Returns whether any
/// changed.
fn compared_with_others(plan: &LogicalPlan, types: &[Option<DataType>], casts: &mut BTreeMap<usize, DataType>) -> Result<bool> {
    let cast = |expr: &Expr| match expr {
        Expr::Cast(cast) => placeholder(&cast.expr),
        _ => None,
    };
    let mut changed = false;
    for (number, array) in arrays(plan, cast)? {
        if given_type(types, number, true).is_none() {
            changed |= casts.insert(number, array.clone()) != Some(array);
        }
    }
    Ok(changed)
}

/// Returns the parameters that `= ANY` takes as arrays, with the types that follow from the values that they are
/// compared with.
fn arrays(plan: &LogicalPlan, parameter: impl Fn(&Expr) -> Option<usize>) -> Result<BTreeMap<usize, DataType>> {
    let mut found = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        // A filter that was pushed into a table sees the table's columns.
        let schema = if node.inputs().is_empty() { node.schema().as_ref().clone() } else { merge_schema(&node.inputs()) };
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr
                    && call.name() == ARRAY_HAS
                    && let [array, item] = call.args.as_slice()
                    && let Some(number) = parameter(array)
                    && let Ok(item) = item.get_type(&schema)
                {
                    found.insert(number, DataType::List(Arc::new(Field::new_list_field(item, true))));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// The number of the parameter, if the expression is one.
fn placeholder(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Placeholder(placeholder) => placeholder.id.strip_prefix('$')?.parse().ok(),
        _ => None,
    }
}

/// Returns the type of each parameter of a plan, `$1` first. Where the plan has none, it is the given type, or text.
///
/// Errors: `Input` for `$4000000000`, before there are as many types as that.
pub fn types(plan: &LogicalPlan, given: &[Option<DataType>]) -> Result<Vec<DataType>> {
    let most = given.len().max(MAX_PARAMETERS);
    let mut found: BTreeMap<usize, DataType> = BTreeMap::new();
    for (name, field) in plan.get_parameter_fields()? {
        let Some(number) = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok()) else {
            let message = format!("the query names the parameter {name}: expected $1, $2, ..");
            return Err(Error::input(message).with_reason(Reason::UnknownParameter));
        };
        if number > most {
            let message = format!("the query names the parameter {name}: expected at most ${most}");
            return Err(Error::input(message).with_reason(Reason::UnknownParameter));
        }
        if let Some(field) = field {
            found.insert(number, field.data_type().clone());
        }
    }
    cast_types(plan, &mut found)?;
    for (number, array) in arrays(plan, placeholder)? {
        found.entry(number).or_insert(array);
    }
    for (number, data_type) in beside_others(plan)? {
        found.entry(number).or_insert(data_type);
    }
    for number in in_limits(plan)? {
        let is_given = number.checked_sub(1).and_then(|index| given.get(index)?.as_ref()).is_some();
        if !is_given {
            found.entry(number).or_insert(DataType::Int64);
        }
    }
    let all = plan.get_parameter_names()?.iter().filter_map(|name| name[1..].parse::<usize>().ok()).max().unwrap_or_default();
    let type_of =
        |number: usize| found.get(&number).cloned().or_else(|| given.get(number - 1).cloned().flatten()).unwrap_or(DataType::Utf8);
    Ok((1..=all.max(given.len())).map(type_of).collect())
}

/// Returns NULLs with which a query is described: each has the type that the caller gives, as its value will have, or
/// else the one that was found.
pub fn nulls(types: &[DataType], given: &[Option<DataType>]) -> Result<Vec<ScalarValue>> {
    let said = types.iter().enumerate().map(|(index, found)| given.get(index).and_then(Option::as_ref).unwrap_or(found));
    Ok(said.map(ScalarValue::try_new_null).collect::<Result<Vec<_>, _>>()?)
}

/// Returns the parameters without a type whose neighbours have one, as in `coalesce(amount, $1)`, with that type.
fn beside_others(plan: &LogicalPlan) -> Result<BTreeMap<usize, DataType>> {
    let mut found = BTreeMap::new();
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                for alike in of_one_type(expr) {
                    let (params, others): (Vec<&Expr>, Vec<&Expr>) = alike.into_iter().partition(|part| placeholder(part).is_some());
                    let types = others.iter().filter_map(|other| other.get_type(&schema).ok()).filter(|of| !of.is_null());
                    if let Some(data_type) = type_union_resolution(&types.collect::<Vec<_>>()) {
                        found.extend(params.into_iter().filter_map(placeholder).map(|number| (number, data_type.clone())));
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// The parts of an expression that must have the same type, in groups.
fn of_one_type(expr: &Expr) -> Vec<Vec<&Expr>> {
    match expr {
        Expr::ScalarFunction(call) if OF_ONE_TYPE.contains(&call.name()) => vec![call.args.iter().collect()],
        Expr::Case(case) => {
            let whens = case.when_then_expr.iter().map(|(when, _)| &**when);
            let thens = case.when_then_expr.iter().map(|(_, then)| &**then);
            let compared = case.expr.iter().map(|of| &**of).chain(whens.filter(|_| case.expr.is_some()));
            vec![compared.collect(), thens.chain(case.else_expr.as_deref()).collect()]
        }
        _ => Vec::new(),
    }
}

/// The parameters that are a LIMIT or an OFFSET.
fn in_limits(plan: &LogicalPlan) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node {
            found.extend([&limit.skip, &limit.fetch].into_iter().flatten().filter_map(|expr| placeholder(expr)));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Adds the parameters that are cast, by us or in the text, with the types of the casts.
fn cast_types(plan: &LogicalPlan, found: &mut BTreeMap<usize, DataType>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Cast(cast) = expr
                    && let Some(number) = placeholder(&cast.expr)
                {
                    found.entry(number).or_insert_with(|| cast.field.data_type().clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// Replaces the parameters by their values.
///
/// Errors: `Input` where one has no value, or is compared with values of another kind.
pub fn bind(plan: LogicalPlan, params: Params) -> Result<LogicalPlan> {
    let values = match params {
        Params::Json(values) => values.iter().enumerate().map(|(index, value)| scalar(index + 1, value)).collect::<Result<Vec<_>>>(),
        Params::Typed(values) => Ok(values),
    };
    let mut named: Vec<String> = plan.get_parameter_names()?.into_iter().collect();
    if named.is_empty() && values.as_ref().is_ok_and(Vec::is_empty) {
        return Ok(plan);
    }
    let given = values.as_ref().map_or(usize::MAX, Vec::len);
    named.sort();
    for name in &named {
        let number = name.trim_start_matches('$').parse::<usize>().ok().filter(|number| (1..=given).contains(number));
        if number.is_none() {
            let expected = "expected $1, $2, .. with a value each";
            let message = format!("the query names the parameter {name}, and {given} values are given: {expected}");
            return Err(Error::input(message).with_reason(Reason::UnknownParameter));
        }
    }
    let values = with_texts_read(&plan, values?)?;
    refuse_other_kinds(&plan, &values)?;
    Ok(plan.with_param_values(values)?)
}

/// Reads the texts that are sent for arrays, such as `{a,b}`, and for truth values. A cast would turn each of the
/// former into an array with one item, and a text is not compared with a BOOLEAN.
fn with_texts_read(plan: &LogicalPlan, values: Vec<ScalarValue>) -> Result<Vec<ScalarValue>> {
    if !values.iter().any(|value| value.data_type().is_string()) {
        return Ok(values);
    }
    let types = types(plan, &vec![None; values.len()])?;
    let read = |(index, value): (usize, ScalarValue)| {
        let Some(data_type) = types.get(index).filter(|_| value.data_type().is_string()) else { return Ok(value) };
        let text = value.try_as_str().flatten();
        match (data_type, text) {
            (DataType::List(item), Some(text)) => array_value(text, item.data_type()),
            (DataType::Boolean, Some(text)) => Ok(ScalarValue::Boolean(Some(truth(text)?))),
            (DataType::List(_) | DataType::Boolean, None) => Ok(ScalarValue::try_new_null(data_type)?),
            _ => Ok(value),
        }
    };
    values.into_iter().enumerate().map(read).collect()
}

/// Refuses a number for a parameter that is compared with a column of texts, and the like. Otherwise each text would be
/// cast to a number, and the error would be about the first text that is none, not about the parameter.
fn refuse_other_kinds(plan: &LogicalPlan, params: &[ScalarValue]) -> Result<()> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        let is_text = |expr: &Expr| expr.get_type(&schema).is_ok_and(|of| sql_name(&of) == "TEXT");
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr
                    && op.supports_propagation()
                {
                    let pairs = [(left, right), (right, left)];
                    found = found
                        .take()
                        .or_else(|| pairs.iter().find_map(|(a, b)| other_kind(a, params).filter(|_| is_text(b)).zip(Some(b.to_string()))));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    match found {
        Some((parameter, column)) => Err(Error::input(format!("{parameter}, and {column} is TEXT: expected a text"))),
        None => Ok(()),
    }
}

/// Describes a parameter whose value is a number or a BOOLEAN, for a message. `None` for other expressions.
fn other_kind(expr: &Expr, params: &[ScalarValue]) -> Option<String> {
    let Expr::Placeholder(placeholder) = expr else { return None };
    let number: usize = placeholder.id.trim_start_matches('$').parse().ok()?;
    let kind = match params.get(number.checked_sub(1)?)? {
        ScalarValue::Boolean(Some(truth)) => truth.to_string(),
        value if value.data_type().is_numeric() && !value.is_null() => format!("the number {value}"),
        _ => return None,
    };
    Some(format!("the parameter ${number} is {kind}"))
}

fn scalar(number: usize, value: &Value) -> Result<ScalarValue> {
    match value {
        Value::Null => Ok(ScalarValue::Null),
        Value::Bool(truth) => Ok(ScalarValue::Boolean(Some(*truth))),
        Value::String(text) => Ok(ScalarValue::Utf8(Some(text.clone()))),
        Value::Number(number) => Ok(match (number.as_i64(), number.as_u64()) {
            (Some(signed), _) => ScalarValue::Int64(Some(signed)),
            (None, Some(unsigned)) => ScalarValue::UInt64(Some(unsigned)),
            (None, None) => ScalarValue::Float64(number.as_f64()),
        }),
        Value::Array(_) | Value::Object(_) => {
            Err(Error::input(format!("the parameter ${number}: found {}, expected a text, a number, true, false or null", kind(value))))
        }
    }
}

fn kind(value: &Value) -> &'static str {
    if value.is_array() { "an array" } else { "an object" }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    #[test]
    fn a_parameter_that_the_text_casts_gets_no_other_type() {
        let sql = "SELECT upper($1), CAST($2 AS INT), CAST(($3) AS TEXT) || $3, $4 FROM v WHERE a = ANY(($5)) AND b = $6::INT::TEXT";
        let statement = DFParserBuilder::new(sql).with_dialect(&SqlDialect).build().unwrap().parse_statement().unwrap();
        let places = Places::find(&statement);
        assert_eq!(places.in_any, BTreeMap::from([(5, true)]));
        assert_eq!(places.alone, BTreeMap::from([(4, false), (5, true)]));
        assert_eq!(places.all, BTreeMap::from([(1, false), (3, false), (4, false), (5, true)]));
    }
}
