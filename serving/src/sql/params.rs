//! The values of `$1`, `$2`, ..: typed by JSON, then coerced by the planner as literals are.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use schemas::{Error, Result};
use serde_json::Value;

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
    let values = params.iter().enumerate().map(|(index, value)| scalar(index + 1, value)).collect::<Result<Vec<_>>>()?;
    Ok(plan.with_param_values(values)?)
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
