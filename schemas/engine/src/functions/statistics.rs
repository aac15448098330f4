//! `poisson_sf` and `zscore`: how unusual a number is.

use std::f64::consts::PI;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use statrs::function::erf::erfc;
use statrs::function::gamma::checked_gamma_lr;

/// `poisson_sf(k, lambda) -> DOUBLE`: the probability of `k` or more events if `lambda` are expected, `P(X >= k)`, `X ~
/// Poisson(lambda)`.
///
/// Note the boundary: the survival function of SciPy and R is `P(X > k)`; theirs at `k - 1` is ours at `k`. `k` is an
/// integer (`k <= 0` gives 1). A `lambda` of 0 gives 0 for `k > 0`. The result is NULL if an argument is NULL, or if
/// `lambda` is negative or NaN: a rate that could not be estimated for one key must not fail a query over all keys.
pub fn poisson_sf() -> ScalarUDF {
    ScalarUDF::from(PoissonSf { signature: Signature::user_defined(Volatility::Immutable) })
}

/// `zscore(x, mean, stddev) -> DOUBLE`: `(x - mean) / stddev`. NULL if an argument is NULL, or if `stddev` is not
/// greater than 0.
pub fn zscore() -> ScalarUDF {
    ScalarUDF::from(Zscore { signature: Signature::user_defined(Volatility::Immutable) })
}

/// `P(X >= k)` for `X ~ Poisson(lambda)`, or `None` if `lambda` is negative or NaN.
///
/// It is the regularised lower incomplete gamma function `P(k, lambda)`, summed from small terms: the far tail has no
/// cancellation (`1 - cdf` would be 0 past 1e-16). Relative error below 1e-9; values below 1e-307 are 0.
pub(crate) fn poisson_upper_tail(k: i64, lambda: f64) -> Option<f64> {
    if lambda.is_nan() || lambda < 0.0 {
        return None;
    }
    if k <= 0 || lambda == f64::INFINITY {
        return Some(1.0);
    }
    if lambda == 0.0 {
        return Some(0.0);
    }
    let shape = k as f64;
    if shape > EXPANSION_FROM {
        return Some(gamma_p_of_large_shape(shape, lambda).clamp(0.0, 1.0));
    }
    checked_gamma_lr(shape, lambda).ok().map(|chance| chance.clamp(0.0, 1.0))
}

/// From here on the expansion replaces the series: the series' length grows with the root of its arguments, while the
/// expansion's error falls.
const EXPANSION_FROM: f64 = 100_000.0;

/// Temme's uniform asymptotic expansion of `P(shape, x)`, first two terms (N. Temme 1979; DLMF 8.12).
fn gamma_p_of_large_shape(shape: f64, x: f64) -> f64 {
    let mu = (x - shape) / shape;
    let half_eta_squared = mu_minus_ln_1p(mu);
    let eta = (2.0 * half_eta_squared).sqrt().copysign(mu);
    // Near 0 the coefficients are computed by their series, because the closed forms would cancel.
    let first = if eta.abs() < 1e-3 { -1.0 / 3.0 + eta / 12.0 - 2.0 * eta * eta / 135.0 } else { 1.0 / mu - 1.0 / eta };
    let second = if eta.abs() < 0.05 { -1.0 / 540.0 - eta / 288.0 } else { eta.powi(-3) - mu.powi(-3) - mu.powi(-2) - 1.0 / (12.0 * mu) };
    let density = (-shape * half_eta_squared).exp() / (2.0 * PI * shape).sqrt();
    0.5 * erfc(-eta * (shape / 2.0).sqrt()) - density * (first + second / shape)
}

/// Returns `mu - ln(1 + mu)`, by its series where the difference would cancel.
fn mu_minus_ln_1p(mu: f64) -> f64 {
    if mu.abs() > 0.05 {
        return mu - mu.ln_1p();
    }
    let mut power = mu;
    let mut sum = 0.0;
    for n in 2..=16 {
        power *= -mu;
        sum -= power / f64::from(n);
    }
    sum
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PoissonSf {
    signature: Signature,
}

impl ScalarUDFImpl for PoissonSf {
    fn name(&self) -> &str {
        "poisson_sf"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [k, lambda] if (k.is_integer() || k.is_null()) && is_number(lambda) => Ok(vec![DataType::Int64, DataType::Float64]),
            _ => refused("poisson_sf", arguments, "a count (an integer) and the normal rate (a number)"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        by_rows(&arguments, |columns, row| {
            let k = columns[0].as_primitive::<Int64Type>();
            let lambda = columns[1].as_primitive::<Float64Type>();
            poisson_upper_tail(k.value(row), lambda.value(row))
        })
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Zscore {
    signature: Signature,
}

impl ScalarUDFImpl for Zscore {
    fn name(&self) -> &str {
        "zscore"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if arguments.len() == 3 && arguments.iter().all(is_number) {
            return Ok(vec![DataType::Float64; 3]);
        }
        refused("zscore", arguments, "a value, a mean and a standard deviation (numbers)")
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        by_rows(&arguments, |columns, row| {
            let [x, mean, stddev] = [0, 1, 2].map(|i| columns[i].as_primitive::<Float64Type>().value(row));
            (stddev > 0.0).then(|| (x - mean) / stddev)
        })
    }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || data_type.is_null()
}

fn refused<T>(name: &str, found: &[DataType], expected: &str) -> Result<T> {
    let found = found.iter().map(DataType::to_string).collect::<Vec<_>>().join(", ");
    plan_err!("{name} was called with ({found}): expected {expected}")
}

/// Computes row by row. A row with a NULL argument is NULL. Scalar arguments give a scalar.
fn by_rows(arguments: &ScalarFunctionArgs, value: impl Fn(&[ArrayRef], usize) -> Option<f64>) -> Result<ColumnarValue> {
    let all_scalar = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    let rows = if all_scalar { 1 } else { arguments.number_rows };
    let columns = arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<Result<Vec<_>>>()?;
    let has_null = |row: usize| columns.iter().any(|column| column.is_null(row));
    let values: Float64Array = (0..rows).map(|row| if has_null(row) { None } else { value(&columns, row) }).collect();
    if all_scalar {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?));
    }
    Ok(ColumnarValue::Array(Arc::new(values)))
}

#[cfg(test)]
mod tests;
