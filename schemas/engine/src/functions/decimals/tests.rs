use arrow::array::Array;
use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;

/// Decimals of a stream: up to 38 digits, and where the point is.
fn decimal() -> impl Strategy<Value = (i128, i8)> {
    ("-?[0-9]{1,38}", 0..=38i8).prop_map(|(digits, scale)| (digits.parse().unwrap(), scale))
}

fn operand_of((value, scale): (i128, i8)) -> Operand {
    (Decimal256Array::from(vec![Some(i256::from_i128(value)), None]), scale)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// PostgreSQL's rule: at least 16 significant digits. Quotients under 1e-22 have fewer, and say so in the docs.
    #[test]
    fn a_quotient_is_right_in_its_first_16_digits(left in decimal(), right in decimal()) {
        prop_assume!(right.0 != 0);
        let power = |exponent: i8| BigInt::from(10).pow(exponent.unsigned_abs().into());
        // left / right = numerator / denominator
        let numerator = BigInt::from(left.0) * power(right.1);
        let denominator = BigInt::from(right.0) * power(left.1);
        let magnitude = |value: BigInt| if value < BigInt::ZERO { -value } else { value };
        match DecimalOperator::Divide.compute(operand_of(left), operand_of(right)) {
            Ok(values) => {
                prop_assert_eq!(values.data_type(), &QUOTIENT);
                prop_assert!(values.is_null(1));
                let value: BigInt = values.value(0).to_string().parse().unwrap();
                let error = magnitude(value * &denominator - &numerator * power(SCALE));
                // Half of the last digit kept.
                prop_assert!(error.clone() * 2 <= magnitude(denominator.clone()));
                let is_tiny = magnitude(numerator.clone()) * power(22) < magnitude(denominator);
                // An error of half a unit in the 16th digit is at most 5e-16 of the quotient.
                prop_assert!(is_tiny || error * BigInt::from(10).pow(16) <= magnitude(numerator * power(SCALE)) * 5);
            }
            Err(error) => {
                prop_assert!(error.to_string().contains("has more than 38 digits before the point"), "{}", error);
                prop_assert!(magnitude(numerator) + magnitude(denominator.clone()) >= magnitude(denominator * power(38)));
            }
        }
    }
}

#[test]
fn dividing_by_zero_is_an_error_and_null_is_not() {
    let zero = (Decimal256Array::from(vec![Some(i256::ZERO)]), 2);
    let one = (Decimal256Array::from(vec![Some(i256::ONE)]), 0);
    let null = (Decimal256Array::from(vec![None]), 0);
    let error = DecimalOperator::Divide.compute(one, zero.clone()).unwrap_err();
    assert!(error.to_string().contains("Divide by zero"), "{error}");
    assert!(DecimalOperator::Divide.compute(null, zero).unwrap().is_null(0));
}

#[test]
fn a_number_that_is_too_large_is_named() {
    let large = (Decimal256Array::from(vec![Some(i256::from_i128(10i128.pow(37)))]), 0);
    let small = (Decimal256Array::from(vec![Some(i256::ONE)]), 2);
    let error = DecimalOperator::Divide.compute(large.clone(), small).unwrap_err();
    let expected = "10000000000000000000000000000000000000 / 0.01 has more than 38 digits before the point";
    assert!(error.to_string().contains(expected), "{error}");
    assert!(DecimalOperator::Multiply.compute(large.clone(), large.clone()).is_ok(), "74 digits, none after the point");
    let wide = (Decimal256Array::from(vec![POWER_OF_37_AT_38]), SCALE);
    assert!(DecimalOperator::Multiply.compute(wide, large).is_err());
}

/// 10^37 with 38 digits after the point.
const POWER_OF_37_AT_38: i256 = {
    let ten = i256::from_i128(10i128.pow(37));
    ten.wrapping_mul(i256::from_i128(10i128.pow(38)))
};
