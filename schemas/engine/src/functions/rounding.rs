//! `round(x)` of a real number: halfway between two integers it is the even one, as in PostgreSQL. Of a decimal it is
//! the one farther from 0, as DataFusion's is of both.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::math;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};

use super::wrapped::{FunctionCall, Wrapped};

pub(crate) const ROUND: &str = "round";

pub(crate) fn round() -> ScalarUDF {
    ScalarUDF::from(Wrapped { inner: math::round(), call: HalvesToEven })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct HalvesToEven;

impl FunctionCall for HalvesToEven {
    fn call(&self, inner: &ScalarUDF, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(numbers)] if numbers.data_type().is_floating() => match rounded(numbers) {
                Some(rounded) => Ok(ColumnarValue::Array(rounded)),
                None => inner.invoke_with_args(arguments),
            },
            [ColumnarValue::Scalar(number)] if number.data_type().is_floating() => match rounded(&number.to_array()?) {
                Some(rounded) => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&rounded, 0)?)),
                None => inner.invoke_with_args(arguments),
            },
            _ => inner.invoke_with_args(arguments),
        }
    }
}

fn rounded(numbers: &ArrayRef) -> Option<ArrayRef> {
    match numbers.data_type() {
        DataType::Float64 => {
            let rounded: Float64Array = numbers.as_primitive::<Float64Type>().unary(f64::round_ties_even);
            Some(Arc::new(rounded))
        }
        DataType::Float32 => {
            let rounded: Float32Array = numbers.as_primitive::<Float32Type>().unary(f32::round_ties_even);
            Some(Arc::new(rounded))
        }
        _ => None,
    }
}
