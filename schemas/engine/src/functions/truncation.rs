//! `date_trunc`, which truncates a constant as it truncates a column. DataFusion's rounds a constant before 1970 up to
//! the millisecond or the microsecond.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// The units to which DataFusion truncates a constant towards 1970.
const ROUNDED: [&str; 2] = ["millisecond", "microsecond"];

/// Returns the function, under the names that it has in DataFusion.
pub(super) fn date_trunc() -> ScalarUDF {
    ScalarUDF::from(DateTrunc { inner: datetime::date_trunc() })
}

/// It forwards what DataFusion's function defines; the other methods of the trait have their defaults there too.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DateTrunc {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for DateTrunc {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let column = match arguments.args.as_slice() {
            [_, ColumnarValue::Scalar(time)] if matches!(time.data_type(), DataType::Timestamp(..)) => time.to_array()?,
            _ => return self.inner.invoke_with_args(arguments),
        };
        arguments.args[1] = ColumnarValue::Array(column);
        arguments.number_rows = 1;
        let truncated = self.inner.invoke_with_args(arguments)?.into_array(1)?;
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
