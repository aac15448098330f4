//! Which decimals can be operands, and their values in the one type in which all are computed.

use arrow::array::{Array, ArrayRef, AsArray, Decimal256Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal256Type};
use datafusion::common::{Result, plan_err};

/// The most digits of a decimal.
pub(super) const DIGITS: u8 = 76;
/// The most digits after the point of an operand, and of a result.
pub(super) const SCALE: i8 = 38;

/// Values, and their digits after the point.
pub(super) type Operand = (Decimal256Array, i8);

/// Returns the digits after the point of a decimal that can be an operand.
pub(crate) fn operand_scale(data_type: &DataType) -> Option<i8> {
    let scale = match data_type {
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => *scale,
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => return None,
    };
    (0..=SCALE).contains(&scale).then_some(scale)
}

pub(super) fn operand(array: &ArrayRef) -> Result<Operand> {
    let Some(scale) = operand_scale(array.data_type()) else {
        return plan_err!("found {}, expected a decimal", array.data_type());
    };
    let wide = cast(array, &DataType::Decimal256(DIGITS, scale))?;
    Ok((wide.as_primitive::<Decimal256Type>().clone(), scale))
}
