use num_bigint::BigInt;
use proptest::prelude::*;

use super::*;

/// `numerator / denominator`, rounded half away from zero, in numbers of any size.
fn rounded(numerator: &BigInt, denominator: &BigInt) -> BigInt {
    let two = BigInt::from(2);
    let is_negative = (numerator < &BigInt::ZERO) != (denominator < &BigInt::ZERO);
    let (numerator, denominator) = (absolute(numerator), absolute(denominator));
    let magnitude = (&numerator * &two + &denominator) / (&denominator * &two);
    if is_negative { -magnitude } else { magnitude }
}

fn absolute(value: &BigInt) -> BigInt {
    if value < &BigInt::ZERO { -value } else { value.clone() }
}

fn big(value: i256) -> BigInt {
    value.to_string().parse().unwrap()
}

fn fits(value: &BigInt) -> bool {
    absolute(value) < BigInt::from(10).pow(76)
}

/// Numbers of up to 76 digits, of every length alike, and those at the edges.
fn number() -> impl Strategy<Value = i256> {
    let digits = "-?[0-9]{1,76}".prop_map(|text| i256::from_string(&text).unwrap());
    let power = (0..=75usize, -1..=1i128, any::<bool>()).prop_map(|(power, beside, negative)| {
        let value = POWERS[power].wrapping_add(i256::from_i128(beside));
        if negative { value.wrapping_neg() } else { value }
    });
    let greatest = Just(POWERS[76].wrapping_sub(i256::ONE));
    prop_oneof![6 => digits, 3 => power, 1 => greatest, 1 => (-3..=3i128).prop_map(i256::from_i128)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_quotient_is_the_exact_one_rounded_once(left in number(), right in number(), shift in 0..=76usize) {
        prop_assume!(right != i256::ZERO);
        let exact = rounded(&(big(left) * BigInt::from(10).pow(shift as u32)), &big(right));
        prop_assert_eq!(quotient(left, right, shift).map(big), fits(&exact).then_some(exact));
    }

    #[test]
    fn a_product_is_the_exact_one_rounded_once(left in number(), right in number(), dropped in 0..=38usize) {
        let exact = rounded(&(big(left) * big(right)), &BigInt::from(10).pow(dropped as u32));
        prop_assert_eq!(product(left, right, dropped).map(big), fits(&exact).then_some(exact));
    }
}

#[test]
fn what_decimals_cannot_hold_is_no_operand() {
    for beyond in [POWERS[76], i256::MAX, i256::MIN] {
        assert_eq!(quotient(beyond, i256::ONE, 0), None);
        assert_eq!(quotient(i256::ONE, beyond, 0), None);
        assert_eq!(product(beyond, i256::ONE, 0), None);
    }
}
