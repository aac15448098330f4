//! Functions of real numbers that fail where PostgreSQL's do: `ln(0)`, `exp(1000)`, `power(-8, 0.5)`. DataFusion's
//! answer an infinity or NaN. Queries alone have them: a view computes with DataFusion's.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result;
use datafusion::functions::all_default_functions;
use datafusion::logical_expr::{ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};
use types::{Error, Reason};

const EXP: &str = "exp";
const POWER: &str = "power";
const LOGARITHMS: [&str; 4] = ["ln", "log", "log2", "log10"];

/// Returns the functions, under their names in DataFusion.
pub(super) fn functions() -> &'static [ScalarUDF] {
    static FUNCTIONS: LazyLock<Vec<ScalarUDF>> = LazyLock::new(|| {
        let is_checked = |name: &str| name == EXP || name == POWER || LOGARITHMS.contains(&name);
        let all = all_default_functions().into_iter().filter(|inner| is_checked(inner.name()));
        all.map(|inner| ScalarUDF::from(CheckedFunction { inner })).collect()
    });
    &FUNCTIONS
}

/// A DataFusion function that fails if its result is infinite or NaN, and its arguments are not.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedFunction {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for CheckedFunction {
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

    fn is_strict(&self) -> bool {
        self.inner.is_strict()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let operands = arguments.args.clone();
        let value = self.inner.invoke_with_args(arguments)?;
        self.check(&doubles(&value.to_array(1)?)?, &operands)?;
        Ok(value)
    }
}

impl CheckedFunction {
    fn check(&self, results: &Float64Array, operands: &[ColumnarValue]) -> Result<()> {
        let is_unusual = |row: &usize| results.is_valid(*row) && !results.value(*row).is_finite();
        let unusual: Vec<usize> = (0..results.len()).filter(is_unusual).collect();
        if unusual.is_empty() {
            return Ok(());
        }
        let operands = operands.iter().map(|operand| doubles(&operand.to_array(1)?)).collect::<Result<Vec<_>>>()?;
        for row in unusual {
            // A constant stands for all rows.
            let value = |operand: &Float64Array| operand.value(if operand.len() == 1 { 0 } else { row });
            let arguments: Vec<f64> = operands.iter().map(value).collect();
            if arguments.iter().all(|argument| argument.is_finite())
                && let Some((message, reason)) = self.refusal(&arguments, results.value(row))
            {
                return Err(Error::input(message).with_reason(reason).into());
            }
        }
        Ok(())
    }

    /// What PostgreSQL says of these arguments.
    fn refusal(&self, arguments: &[f64], result: f64) -> Option<(String, Reason)> {
        let name = self.name();
        if LOGARITHMS.contains(&name) {
            let of = match arguments.last() {
                Some(argument) if *argument == 0.0 => "zero",
                Some(argument) if *argument < 0.0 => "a negative number",
                _ => return None,
            };
            return Some((format!("cannot take logarithm of {of}"), Reason::InvalidLogarithm));
        }
        if result.is_nan() {
            let message = "a negative number raised to a non-integer power yields a complex result";
            return Some((message.to_owned(), Reason::InvalidPower));
        }
        let arguments: Vec<String> = arguments.iter().map(f64::to_string).collect();
        Some((format!("a number is too large: {name}({})", arguments.join(", ")), Reason::NumberTooLarge))
    }
}

fn doubles(values: &ArrayRef) -> Result<Float64Array> {
    Ok(cast(values, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}
