use proptest::prelude::*;

use super::*;

const DECIMAL: ParameterType = ParameterType::Decimal { precision: 5, scale: 2 };
const TYPES: [ParameterType; 6] =
    [ParameterType::BigInt, ParameterType::Double, DECIMAL, ParameterType::Text, ParameterType::Boolean, ParameterType::Interval];

#[test]
fn a_value_has_one_spelling() {
    for (of, text, expected) in [
        (ParameterType::BigInt, " 030 ", "30"),
        (ParameterType::BigInt, "-9223372036854775808", "-9223372036854775808"),
        (ParameterType::Double, "1e3", "1000.0"),
        (ParameterType::Double, ".5", "0.5"),
        (DECIMAL, "+012.5", "12.50"),
        (DECIMAL, "-.5000", "-0.50"),
        (DECIMAL, "-0", "0.00"),
        (ParameterType::Decimal { precision: 3, scale: 0 }, "999.0", "999"),
        (ParameterType::Text, " a 'b' ", " a 'b' "),
        (ParameterType::Boolean, "TRUE", "true"),
        (ParameterType::Interval, "1 hour 30 minutes", "1 hour 30 minutes"),
    ] {
        assert_eq!(of.value(text).as_deref(), Ok(expected), "{of} {text}");
    }
}

#[test]
fn a_value_of_another_type_is_refused_with_both_types() {
    for (of, text, found) in [
        (ParameterType::BigInt, "abc", "TEXT"),
        (ParameterType::BigInt, "30.5", "DOUBLE"),
        (ParameterType::BigInt, "true", "BOOLEAN"),
        (ParameterType::BigInt, "30 minutes", "INTERVAL"),
        (ParameterType::BigInt, "9223372036854775808", "a number past the range of the type"),
        (ParameterType::BigInt, "", "TEXT"),
        (ParameterType::Double, "inf", "TEXT"),
        (ParameterType::Double, "NaN", "TEXT"),
        (ParameterType::Double, "1e999", "a number past the range of the type"),
        (DECIMAL, "1000", "a number that does not fit"),
        (DECIMAL, "1e9", "a number that does not fit"),
        (DECIMAL, ".", "TEXT"),
        (ParameterType::Boolean, "1", "BIGINT"),
    ] {
        assert_eq!(of.value(text), Err(format!("the value '{text}' is {found}: expected {of}")));
    }
    for (text, found) in [("30", "BIGINT"), ("1e3", "DOUBLE"), ("true", "BOOLEAN")] {
        assert_eq!(ParameterType::Interval.value(text), Err(format!("the value '{text}' is {found}: expected {INTERVAL}")));
    }
}

#[test]
fn an_interval_is_refused_with_the_part_that_is_wrong() {
    for (text, part) in [
        ("3 lightyears", "'lightyears' is no unit"),
        ("1 day 3lightyears", "'lightyears' is no unit"),
        ("3  days", "two spaces follow '3'"),
        ("3. days", "'3.' is no number"),
        ("soon", "'soon' does not begin with a number"),
        ("three days", "'three' does not begin with a number"),
        ("3 days and 1 hour", "'and' does not begin with a number"),
        ("1-2 days", "'1-2' is no number"),
        ("1 day 2 days", "the unit 'days' is there twice"),
        ("99999999999999 years", "a number in it is past the range of the type"),
        ("", "'' does not begin with a number"),
    ] {
        assert_eq!(ParameterType::Interval.value(text), Err(format!("the value '{text}' is TEXT ({part}): expected {INTERVAL}")));
    }
}

#[test]
fn a_decimal_with_too_many_places_is_refused_with_their_number() {
    for (scale, text, most) in [(2, "0.125", "2 places"), (2, "-1000.505", "2 places"), (1, "0.25", "1 place"), (0, "1.5", "0 places")] {
        let of = ParameterType::Decimal { precision: 5, scale };
        assert_eq!(of.value(text), Err(format!("the value '{text}' has more than {most}: expected DECIMAL(5,{scale})")));
    }
}

proptest! {
    /// What is stored is read back as the same, whatever was written.
    #[test]
    fn a_stored_value_is_its_own_spelling(text in "[-+0-9.eE]{0,8}|[a-z 0-9']{0,12}|\\PC{0,8}", of in 0..TYPES.len()) {
        if let Ok(value) = TYPES[of].value(&text) {
            prop_assert_eq!(TYPES[of].value(&value), Ok(value.clone()));
        }
    }

    #[test]
    fn a_decimal_keeps_its_digits(cents in -99_999_i64..=99_999) {
        let (sign, cents) = (if cents < 0 { "-" } else { "" }, cents.abs());
        let text = format!("{sign}{}.{:02}", cents / 100, cents % 100);
        prop_assert_eq!(DECIMAL.value(&text), Ok(text));
    }
}
