//! `date_trunc`, which truncates a constant as it truncates a column. DataFusion's rounds a constant before 1970 up to
//! the millisecond or the microsecond.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF};

use super::wrapped::{FunctionCall, Wrapped};

/// The units to which DataFusion truncates a constant towards 1970.
const ROUNDED: [&str; 2] = ["millisecond", "microsecond"];

/// Returns the function.
pub(super) fn date_trunc() -> ScalarUDF {
    ScalarUDF::from(Wrapped { inner: datetime::date_trunc(), call: AsOfColumn })
}

/// A constant is truncated as a column of one row.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsOfColumn;

impl FunctionCall for AsOfColumn {
    fn call(&self, inner: &ScalarUDF, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let column = match arguments.args.as_slice() {
            [_, ColumnarValue::Scalar(time)] if matches!(time.data_type(), DataType::Timestamp(..)) => time.to_array()?,
            _ => return inner.invoke_with_args(arguments),
        };
        arguments.args[1] = ColumnarValue::Array(column);
        arguments.number_rows = 1;
        let truncated = inner.invoke_with_args(arguments)?.into_array(1)?;
        Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&truncated, 0)?))
    }
}

/// What a stamp adds for states that depend on a constant that earlier releases may have rounded up.
pub(crate) const STAMP: &str = "; constants truncated/1";

/// Whether an expression truncates a constant to a unit for which DataFusion rounds it.
pub(crate) fn truncates_constant(expr: &Expr) -> bool {
    let is_such = |call: &ScalarFunction| match call.args.as_slice() {
        [Expr::Literal(unit, _), time] if call.func.name() == "date_trunc" => {
            let unit = unit.try_as_str().flatten().unwrap_or_default();
            ROUNDED.iter().any(|rounded| rounded.eq_ignore_ascii_case(unit)) && time.column_refs().is_empty()
        }
        _ => false,
    };
    expr.exists(|expr| Ok(matches!(expr, Expr::ScalarFunction(call) if is_such(call)))).unwrap_or(false)
}

#[cfg(test)]
mod tests;
