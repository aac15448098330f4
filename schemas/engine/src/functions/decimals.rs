//! Division and multiplication of decimals that keep their digits. `a / b` and `a * b` become calls of these two where
//! DataFusion's own operators would lose digits or fail (`plan/decimals.rs` decides where). They have no name in SQL.
//!
//! A quotient is a DECIMAL(76,38): 38 digits before the point and 38 after it, rounded half away from zero. So it has
//! at least 16 significant digits, as PostgreSQL's has, if it is 1e-22 or greater. Arrow's own division keeps four
//! digits more than the dividend has, and cuts off the rest: `3 / 90000.0` is 0.0000 there.
//!
//! A type that depends on the operands' would not do: the scale of a quotient of two DECIMAL(38,10) would have to be
//! 54, and that of a quotient of quotients greater still. With one type for all quotients, the order in which divisions
//! nest does not matter, and equal quotients are equal values.

use std::sync::Arc;

use arrow::array::Decimal256Array;
use arrow::compute::try_binary;
use arrow::datatypes::{DataType, Decimal256Type, DecimalType, i256};
use arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use arithmetic::{product, quotient};
use operands::{DIGITS, Operand, SCALE, operand};

mod arithmetic;
mod average;
mod operands;

pub(crate) use average::{averages_of_sums, avg, is_average};
pub(crate) use operands::operand_scale;

/// The type of every quotient. Each DECIMAL that a stream can have fits into it.
pub const QUOTIENT: DataType = DataType::Decimal256(DIGITS, SCALE);

/// An operator on two decimals of at most [`SCALE`] digits after the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DecimalOperator {
    Divide,
    /// The exact product, rounded if it has more than [`SCALE`] digits after the point.
    Multiply,
}

impl DecimalOperator {
    const ALL: [DecimalOperator; 2] = [DecimalOperator::Divide, DecimalOperator::Multiply];

    pub(crate) fn function(self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::from(DecimalFunction { operator: self, signature: Signature::user_defined(Volatility::Immutable) }))
    }

    /// Returns the operator that a function stands for.
    pub(crate) fn from_function(function: &ScalarUDF) -> Option<DecimalOperator> {
        Self::ALL.into_iter().find(|operator| operator.name() == function.name())
    }

    /// As it is written in SQL.
    pub(crate) fn operator(self) -> Operator {
        match self {
            DecimalOperator::Divide => Operator::Divide,
            DecimalOperator::Multiply => Operator::Multiply,
        }
    }

    fn name(self) -> &'static str {
        match self {
            DecimalOperator::Divide => "decimal_divide",
            DecimalOperator::Multiply => "decimal_multiply",
        }
    }

    fn result(self, left: i8, right: i8) -> DataType {
        match self {
            DecimalOperator::Divide => QUOTIENT,
            DecimalOperator::Multiply => DataType::Decimal256(DIGITS, left.saturating_add(right).min(SCALE)),
        }
    }

    /// Computes rows of operands with these numbers of digits after the point. A row with a NULL is NULL.
    fn compute(self, (left, left_scale): Operand, (right, right_scale): Operand) -> Result<Decimal256Array> {
        let too_large = |left: i256, right: i256| {
            let (left, right) = (text(left, left_scale), text(right, right_scale));
            let whole = DIGITS - SCALE as u8;
            let result = format!("{left} {} {right}", self.operator());
            ArrowError::ArithmeticOverflow(format!("{result} has more than {whole} digits before the point"))
        };
        let values = match self {
            DecimalOperator::Divide => {
                let shift = usize::from((SCALE - left_scale + right_scale).unsigned_abs());
                try_binary::<_, _, _, Decimal256Type>(&left, &right, |left, right| match right == i256::ZERO {
                    true => Err(ArrowError::DivideByZero),
                    false => quotient(left, right, shift).ok_or_else(|| too_large(left, right)),
                })
            }
            DecimalOperator::Multiply => {
                let dropped = usize::from((left_scale + right_scale - SCALE).max(0).unsigned_abs());
                try_binary::<_, _, _, Decimal256Type>(&left, &right, |left, right| {
                    product(left, right, dropped).ok_or_else(|| too_large(left, right))
                })
            }
        };
        Ok(values?.with_data_type(self.result(left_scale, right_scale)))
    }
}

fn text(value: i256, scale: i8) -> String {
    Decimal256Type::format_decimal(value, DIGITS, scale)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DecimalFunction {
    operator: DecimalOperator,
    signature: Signature,
}

impl ScalarUDFImpl for DecimalFunction {
    fn name(&self) -> &str {
        self.operator.name()
    }

    /// The text of `left / right`, as DataFusion names the result's column.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [left, right] => Ok(format!("{} {} {}", left.schema_name(), self.operator.operator(), right.schema_name())),
            _ => plan_err!("{} was called with {} arguments: expected 2", self.name(), arguments.len()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        scales(self.name(), arguments).map(|_| arguments.to_vec())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let (left, right) = scales(self.name(), arguments)?;
        Ok(self.operator.result(left, right))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = arguments.args.as_slice() else { return plan_err!("{} takes two decimals", self.name()) };
        let all_scalar = matches!((left, right), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let rows = if all_scalar { 1 } else { arguments.number_rows };
        let values = self.operator.compute(operand(&left.to_array(rows)?)?, operand(&right.to_array(rows)?)?)?;
        match all_scalar {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?)),
            false => Ok(ColumnarValue::Array(Arc::new(values))),
        }
    }
}

fn scales(name: &str, arguments: &[DataType]) -> Result<(i8, i8)> {
    match arguments {
        [left, right] => match (operand_scale(left), operand_scale(right)) {
            (Some(left), Some(right)) => Ok((left, right)),
            _ => plan_err!("{name} was called with ({left}, {right}): expected two decimals"),
        },
        _ => plan_err!("{name} was called with {} arguments: expected two decimals", arguments.len()),
    }
}

#[cfg(test)]
mod tests;
