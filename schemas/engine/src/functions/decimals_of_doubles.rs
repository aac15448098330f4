//! The decimal that PostgreSQL casts a DOUBLE to: the one with its first 15 digits, rounded half away from zero.
//! DataFusion's cast rounds the binary fraction, and to that 1.005 is less than the half of a hundredth.

use std::sync::Arc;

use arrow::array::{AsArray, Decimal128Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use types::{Error, Reason};

/// Digits of a DOUBLE behind its first one that count.
const DIGITS_AFTER_FIRST: usize = 14;

/// Returns the function that casts a DOUBLE to a decimal with this many digits, of which `scale` are behind the point.
/// If `safe`, one that does not fit is NULL, and an error otherwise. It has no name in SQL.
pub(crate) fn decimal_of_double(precision: u8, scale: i8, safe: bool) -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    ScalarUDF::from(DecimalOfDouble { precision, scale, safe, signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DecimalOfDouble {
    precision: u8,
    scale: i8,
    safe: bool,
    signature: Signature,
}

impl DecimalOfDouble {
    fn decimal(&self, double: f64) -> Result<Option<i128>> {
        match scaled(double, self.scale).filter(|decimal| decimal.unsigned_abs() < 10_u128.pow(self.precision.into())) {
            Some(decimal) => Ok(Some(decimal)),
            None if self.safe => Ok(None),
            None => {
                let message = format!("a number is too large: {double:?} does not fit DECIMAL({}, {})", self.precision, self.scale);
                Err(Error::input(message).with_reason(Reason::NumberTooLarge).into())
            }
        }
    }
}

/// The digits of a number with `scale` of them behind the point. `None` for one that does not fit into 128 bits.
fn scaled(double: f64, scale: i8) -> Option<i128> {
    if !double.is_finite() {
        return None;
    }
    let text = format!("{double:.DIGITS_AFTER_FIRST$e}");
    let (digits, exponent) = text.split_once('e')?;
    let digits: i128 = digits.replace('.', "").parse().ok()?;
    let shift = exponent.parse::<i32>().ok()? - DIGITS_AFTER_FIRST as i32 + i32::from(scale);
    if digits == 0 {
        return Some(0);
    }
    if shift >= 0 {
        return digits.checked_mul(10_i128.checked_pow(shift.unsigned_abs())?);
    }
    // None of the 15 digits is left.
    let Some(divisor) = 10_i128.checked_pow(shift.unsigned_abs()) else { return Some(0) };
    let (whole, rest) = (digits / divisor, digits % divisor);
    Some(if rest.abs() * 2 >= divisor { whole + digits.signum() } else { whole })
}

impl ScalarUDFImpl for DecimalOfDouble {
    fn name(&self) -> &str {
        "decimal_of_double"
    }

    /// As that of a cast.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.iter().map(|argument| argument.schema_name().to_string()).collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(self.precision, self.scale))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = self.safe || arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), DataType::Decimal128(self.precision, self.scale), is_nullable)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Scalar(ScalarValue::Float64(double))] => {
                let decimal = double.map(|double| self.decimal(double)).transpose()?.flatten();
                Ok(ColumnarValue::Scalar(ScalarValue::Decimal128(decimal, self.precision, self.scale)))
            }
            [ColumnarValue::Array(doubles)] => {
                let doubles = doubles.as_primitive::<Float64Type>().iter();
                let decimals =
                    doubles.map(|double| -> Result<Option<i128>> { Ok(double.map(|double| self.decimal(double)).transpose()?.flatten()) });
                let decimals = Decimal128Array::from(decimals.collect::<Result<Vec<_>>>()?);
                Ok(ColumnarValue::Array(Arc::new(decimals.with_precision_and_scale(self.precision, self.scale)?)))
            }
            others => plan_err!("decimal_of_double was called with {} arguments: expected a DOUBLE", others.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fifteen_digits_are_rounded_half_away_from_zero() {
        for (double, scale, expected) in [
            (1.005, 2, Some(101)),
            (-1.005, 2, Some(-101)),
            (0.285, 2, Some(29)),
            (0.1 + 0.2, 17, Some(30_000_000_000_000_000)),
            (1.0 / 3.0, 18, Some(333_333_333_333_333_000)),
            (2.5, 0, Some(3)),
            (0.0, 2, Some(0)),
            (1e-300, 38, Some(0)),
            (0.004_999_9, 2, Some(0)),
            (1e22, 0, Some(10_000_000_000_000_000_000_000)),
            (1250.0, -2, Some(13)),
            (1e40, 0, None),
            (f64::NAN, 2, None),
            (f64::INFINITY, 2, None),
        ] {
            assert_eq!(scaled(double, scale), expected, "{double}");
        }
    }
}
