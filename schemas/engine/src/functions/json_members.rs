//! Members of JSON. Both functions are those of datafusion-functions-json, under PostgreSQL's names too, and named as
//! PostgreSQL's operators where they stand for one.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::{ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, binary_expr};
use datafusion_functions_json::udfs::{json_as_text_udf, json_get_json_udf};

use super::wrapped::{FunctionCall, Wrapped};

/// The name of the function that returns JSON.
pub(crate) const JSON_MEMBER: &str = "json_get_json";
const JSON_MEMBER_AS_TEXT: &str = "json_as_text";

/// Returns the function that takes JSON and the steps of a path, and returns the JSON there.
pub(crate) fn json_member() -> ScalarUDF {
    member(&json_get_json_udf(), Operator::Arrow).with_aliases(["json_extract_path", "jsonb_extract_path"])
}

/// Returns the function that takes the same and returns a text: that of a string without its quotes.
pub(crate) fn json_member_as_text() -> ScalarUDF {
    member(&json_as_text_udf(), Operator::LongArrow).with_aliases(["json_extract_path_text", "jsonb_extract_path_text"])
}

/// Returns a call of one step as the operator that the user wrote.
pub(crate) fn written_member(expr: Expr) -> Expr {
    let Expr::ScalarFunction(call) = &expr else { return expr };
    let operator = match call.name() {
        JSON_MEMBER => Operator::Arrow,
        JSON_MEMBER_AS_TEXT => Operator::LongArrow,
        _ => return expr,
    };
    match call.args.as_slice() {
        [json, step] => binary_expr(json.clone(), operator, step.clone()),
        _ => expr,
    }
}

fn member(inner: &Arc<ScalarUDF>, operator: Operator) -> ScalarUDF {
    ScalarUDF::from(Wrapped { inner: Arc::clone(inner), call: MemberByOperator(operator) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MemberByOperator(Operator);

impl FunctionCall for MemberByOperator {
    fn call(&self, inner: &ScalarUDF, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        inner.invoke_with_args(arguments)
    }

    fn column_name(&self, arguments: &[Expr]) -> Option<String> {
        let [json, step] = arguments else { return None };
        Some(format!("{} {} {}", json.schema_name(), self.0, step.schema_name()))
    }
}
