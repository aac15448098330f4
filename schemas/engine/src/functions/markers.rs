//! `within` and `as_of`: functions that exist only for the planner. They plan and type-check like any other function.
//! The planner removes them, because their meaning (tiles of states, the time of the answer) is not a function of a
//! row.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use types::sql_types::timestamp_type;

/// `within(event time, window TEXT [, until TEXT]) -> BOOLEAN`
pub const WITHIN: &str = "within";
/// `as_of() -> TIMESTAMPTZ`
pub const AS_OF: &str = "as_of";

/// Marks the FILTER of an aggregate: only events from `window` ago to `until` ago. Without `until` there is no upper
/// edge.
pub fn within() -> ScalarUDF {
    ScalarUDF::from(Within { signature: Signature::user_defined(Volatility::Immutable) })
}

/// The time of the answer: `t` by the view's clock, or the time that the query named.
///
/// Stable and not volatile, so that it may appear in any expression above the aggregates. An optimizer that tries to
/// fold it gets the error below and leaves it in place.
pub fn as_of() -> ScalarUDF {
    ScalarUDF::from(AsOf { signature: Signature::nullary(Volatility::Stable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Within {
    signature: Signature,
}

impl ScalarUDFImpl for Within {
    fn name(&self) -> &str {
        WITHIN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [time, bounds @ ..] if is_time(time) && (1..=2).contains(&bounds.len()) && bounds.iter().all(is_text) => Ok(arguments.to_vec()),
            _ => {
                let found = arguments.iter().map(DataType::to_string).collect::<Vec<_>>().join(", ");
                plan_err!(
                    "{WITHIN} was called with ({found}): expected the event time (a timestamp or a date), a window such as '7d', \
                     and optionally where it ends, such as '1d'"
                )
            }
        }
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!(
            "{WITHIN} is allowed only in the FILTER of an aggregate of a view, \
             joined to other conditions by AND: FILTER (WHERE within(ts, '7d') AND ..)"
        )
    }
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, _) | DataType::Date32)
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsOf {
    signature: Signature,
}

impl ScalarUDFImpl for AsOf {
    fn name(&self) -> &str {
        AS_OF
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(timestamp_type())
    }

    fn return_field_from_args(&self, _arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Field::new(AS_OF, timestamp_type(), false).into())
    }

    fn invoke_with_args(&self, _arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!(
            "{AS_OF} is allowed only in a view's SELECT list or HAVING, \
             outside the aggregates: it is the time of the answer, which an event does not have"
        )
    }
}

#[cfg(test)]
mod tests;
