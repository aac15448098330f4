//! The length of an interval, by which intervals are compared. As PostgreSQL compares them: a month is 30 days, a day
//! is 24 hours. Arrow compares months, then days, then the rest, so that 25 hours are less than a day there. And the
//! seconds between two times: DataFusion drops their fraction after 2,147 of them, and returns NULL after 68 years.
//! `plan/intervals.rs` decides where they are taken. They have no names in SQL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// The name of [`length`].
pub(crate) const LENGTH_FUNCTION: &str = "interval_length";
/// The name of [`seconds`].
pub(crate) const SECONDS_FUNCTION: &str = "interval_seconds";

const DAY: i128 = 24 * 3_600 * 1_000_000_000;
const MONTH: i128 = 30 * DAY;
/// A length in nanoseconds.
const LENGTH: DataType = DataType::Decimal128(38, 0);

/// Returns the length of an interval, or of a difference of times, in nanoseconds.
pub(crate) fn length() -> Arc<ScalarUDF> {
    Taken::Length.function()
}

/// Returns the seconds of a difference of times: `date_part('epoch', difference)`.
pub(crate) fn seconds() -> Arc<ScalarUDF> {
    Taken::Seconds.function()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Taken {
    Length,
    Seconds,
}

impl Taken {
    fn function(self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::from(OfInterval { taken: self, signature: Signature::user_defined(Volatility::Immutable) }))
    }

    fn of_values(self, values: &ArrayRef) -> Result<ArrayRef> {
        let lengths = lengths(values)?;
        Ok(match self {
            Taken::Length => Arc::new(lengths),
            Taken::Seconds => Arc::new(lengths.unary::<_, Float64Type>(in_seconds)),
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfInterval {
    taken: Taken,
    signature: Signature,
}

impl ScalarUDFImpl for OfInterval {
    fn name(&self) -> &str {
        match self.taken {
            Taken::Length => LENGTH_FUNCTION,
            Taken::Seconds => SECONDS_FUNCTION,
        }
    }

    /// As it was written: a length is taken of the argument alone.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let argument = arguments.first().map(|argument| argument.schema_name().to_string()).unwrap_or_default();
        Ok(match self.taken {
            Taken::Length => argument,
            Taken::Seconds => format!("date_part(Utf8(\"epoch\"),{argument})"),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.taken {
            Taken::Length => LENGTH,
            Taken::Seconds => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let of_value = self.taken.of_values(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&of_value, 0)?))
            }
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(self.taken.of_values(values)?)),
            others => exec_err!("{} was called with {} arguments: expected 1", self.name(), others.len()),
        }
    }
}

/// The double nearest to this many nanoseconds, for all that a TIMESTAMPTZ can be apart: these are whole microseconds.
fn in_seconds(nanoseconds: i128) -> f64 {
    (nanoseconds / 1_000) as f64 / 1_000_000.0 + (nanoseconds % 1_000) as f64 / 1_000_000_000.0
}

fn lengths(values: &ArrayRef) -> Result<Decimal128Array> {
    let lengths: Decimal128Array = match values.data_type() {
        DataType::Duration(unit) => {
            let of_one = match unit {
                TimeUnit::Second => 1_000_000_000,
                TimeUnit::Millisecond => 1_000_000,
                TimeUnit::Microsecond => 1_000,
                TimeUnit::Nanosecond => 1,
            };
            cast(values, &DataType::Int64)?.as_primitive::<Int64Type>().unary(|value| i128::from(value) * of_one)
        }
        DataType::Interval(_) => {
            let whole = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            whole
                .as_primitive::<IntervalMonthDayNanoType>()
                .unary(|value| i128::from(value.months) * MONTH + i128::from(value.days) * DAY + i128::from(value.nanoseconds))
        }
        DataType::Null => Decimal128Array::new_null(values.len()),
        other => return exec_err!("the length was asked of {other}: expected an interval or a difference of times"),
    };
    Ok(lengths.with_data_type(LENGTH))
}
