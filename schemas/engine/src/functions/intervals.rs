//! The length of an interval, by which intervals are compared. As PostgreSQL compares them: a month is 30 days, a day
//! is 24 hours. Arrow compares months, then days, then the rest, so that 25 hours are less than a day there. And the
//! seconds between two times, with what DataFusion leaves out: it drops fractions, and returns NULL after 24 days.
//! `plan/intervals.rs` decides where they are taken. They have no names in SQL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// The name of [`length`].
pub(crate) const LENGTH_FUNCTION: &str = "interval_length";

const DAY: i128 = 24 * 3_600 * 1_000_000_000;
const MONTH: i128 = 30 * DAY;
/// A length in nanoseconds.
const LENGTH: DataType = DataType::Decimal128(38, 0);

/// Returns the length of an interval, or of a difference of times, in nanoseconds.
pub(crate) fn length() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Length { signature: Signature::user_defined(Volatility::Immutable) }))
}

/// The name of [`seconds`].
pub(crate) const SECONDS_FUNCTION: &str = "interval_seconds";

/// Returns the seconds of a difference of times: `date_part('epoch', difference)`.
pub(crate) fn seconds() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Seconds { signature: Signature::user_defined(Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Seconds {
    signature: Signature,
}

impl ScalarUDFImpl for Seconds {
    fn name(&self) -> &str {
        SECONDS_FUNCTION
    }

    /// As it was written.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let argument = arguments.first().map(|argument| argument.schema_name().to_string()).unwrap_or_default();
        Ok(format!("date_part(Utf8(\"epoch\"),{argument})"))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let seconds = |values: &ArrayRef| -> Result<ArrayRef> {
            let seconds: Float64Array = lengths(values)?.as_primitive::<Decimal128Type>().unary(in_seconds);
            Ok(Arc::new(seconds))
        };
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(value)] => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&seconds(&value.to_array()?)?, 0)?)),
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(seconds(values)?)),
            others => exec_err!("interval_seconds was called with {} arguments: expected 1", others.len()),
        }
    }
}

/// The double nearest to this many nanoseconds, for all that a TIMESTAMPTZ can be apart: these are whole microseconds.
fn in_seconds(nanoseconds: i128) -> f64 {
    (nanoseconds / 1_000) as f64 / 1_000_000.0 + (nanoseconds % 1_000) as f64 / 1_000_000_000.0
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &str {
        LENGTH_FUNCTION
    }

    /// As it was written: the argument alone.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.first().map(|argument| argument.schema_name().to_string()).unwrap_or_default())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(LENGTH)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let length = lengths(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&length, 0)?))
            }
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(lengths(values)?)),
            others => exec_err!("interval_length was called with {} arguments: expected 1", others.len()),
        }
    }
}

fn lengths(values: &ArrayRef) -> Result<ArrayRef> {
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
        other => return exec_err!("interval_length was called with {other}: expected an interval or a difference of times"),
    };
    Ok(Arc::new(lengths.with_data_type(LENGTH)))
}
