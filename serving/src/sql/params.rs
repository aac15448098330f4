//! The values of `$1`, `$2`, ..: typed by JSON, then coerced by the planner as literals are.

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan};
use serde_json::Value;
use types::sql_types::sql_name;
use types::{Error, Result};

pub(super) fn bind(plan: LogicalPlan, params: Vec<Value>) -> Result<LogicalPlan> {
    let mut named: Vec<String> = plan.get_parameter_names()?.into_iter().collect();
    if named.is_empty() && params.is_empty() {
        return Ok(plan);
    }
    named.sort();
    for name in &named {
        let number = name.trim_start_matches('$').parse::<usize>().ok().filter(|number| (1..=params.len()).contains(number));
        if number.is_none() {
            return Err(Error::input(format!(
                "the query names the parameter {name}, and {} values are given: expected $1, $2, .. with a value each",
                params.len()
            )));
        }
    }
    refuse_other_kinds(&plan, &params)?;
    let values = params.iter().enumerate().map(|(index, value)| scalar(index + 1, value)).collect::<Result<Vec<_>>>()?;
    Ok(plan.with_param_values(values)?)
}

/// Compared with a number, each text of a column would have to be one: the first that is none would be blamed for the parameter.
fn refuse_other_kinds(plan: &LogicalPlan, params: &[Value]) -> Result<()> {
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

/// A parameter that is a number or a truth, as a message names it.
fn other_kind(expr: &Expr, params: &[Value]) -> Option<String> {
    let Expr::Placeholder(placeholder) = expr else { return None };
    let number: usize = placeholder.id.trim_start_matches('$').parse().ok()?;
    let kind = match params.get(number.checked_sub(1)?)? {
        Value::Number(number) => format!("the number {number}"),
        Value::Bool(truth) => truth.to_string(),
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
