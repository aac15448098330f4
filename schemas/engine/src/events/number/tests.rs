use super::*;
use proptest::prelude::*;

#[test]
fn exponents_are_exact() {
    assert_eq!(scaled("1e2", 0), Some(100));
    assert_eq!(scaled("1.25E1", 1), Some(125));
    assert_eq!(scaled("12500e-3", 1), Some(125));
    assert_eq!(scaled("0e999999999999999999", 2), Some(0));
    assert_eq!(scaled("-0.0", 2), Some(0));
}

#[test]
fn a_fraction_finer_than_the_scale_is_refused_unless_it_is_zeros() {
    assert_eq!(scaled("1.230", 2), Some(123));
    assert_eq!(scaled("1.231", 2), None);
    assert_eq!(scaled("1e-3", 2), None);
    assert_eq!(scaled("1000e-3", 0), Some(1));
}

#[test]
fn a_finer_fraction_can_be_rounded_down() {
    for (text, scale, value) in [
        ("1764327600.1234567", 6, 1_764_327_600_123_456),
        ("-0.0000001", 6, -1),
        ("-1.5", 0, -2),
        ("1.5", 1, 15),
        ("1999", -3, 1),
        ("-1", -3, -1),
        ("1e-999999999999", 6, 0),
        ("-1e-40", 0, -1),
        ("-10.5e-1", 0, -2),
        ("100e-2", 0, 1),
    ] {
        assert_eq!(floored(text, scale), Some(value), "{text}");
    }
    for text in ["1e39", &"9".repeat(60), &format!("{}.5", "9".repeat(60)), "", ".", "-", "1.2.3", "1.5e", "1.5x"] {
        assert_eq!(floored(text, 0), None, "{text}");
    }
}

#[test]
fn overflow_is_refused() {
    assert_eq!(scaled("1e38", 0), Some(10i128.pow(38)));
    assert_eq!(scaled("1e39", 0), None);
    assert_eq!(scaled("1e999999999999", 0), None);
    assert_eq!(scaled(&"9".repeat(60), 0), None);
}

#[test]
fn as_many_digits_as_64_bits_hold_and_one_more_are_read_alike() {
    assert_eq!(scaled("9999999999999999999", 0), Some(9_999_999_999_999_999_999));
    assert_eq!(scaled("99999999999999999999", 0), Some(99_999_999_999_999_999_999));
    assert_eq!(scaled("-99999999999999999.9", 2), Some(-9_999_999_999_999_999_990));
    assert_eq!(scaled("9999999999999999999", 19), Some(99_999_999_999_999_999_990_000_000_000_000_000_000));
    assert_eq!(scaled("9999999999999999999", 20), None);
}

#[test]
fn long_runs_of_zeros_cost_nothing() {
    let zeros = "0".repeat(10_000);
    assert_eq!(scaled(&format!("1{zeros}e-10000"), 0), Some(1));
    assert_eq!(scaled(&format!("{zeros}7"), 0), Some(7));
    assert_eq!(scaled(&format!("0.{zeros}7e10001"), 0), Some(7));
}

#[test]
fn what_is_no_number_is_refused() {
    for text in ["", "-", "+", ".", "e5", "1e", "1e+", "1.2.3", "1_000", " 1", "1 ", "0x10", "NaN", "Infinity", "--1", "1e1.5", "١"] {
        assert_eq!(scaled(text, 0), None, "{text}");
    }
    for (text, value) in [("+5", 5), ("007", 7), ("5.", 5), (".5e1", 5)] {
        assert_eq!(scaled(text, 0), Some(value), "{text}");
    }
}

#[test]
fn the_grammar_of_json_is_a_part_of_ours() {
    for text in ["0", "-0", "1", "10.5", "1e5", "1E+5", "-1.5e-1"] {
        assert!(serde_json::from_str::<serde_json::Number>(text).is_ok() && scaled(text, 20).is_some(), "{text}");
    }
}

proptest! {
    #[test]
    fn a_decimal_reads_back_from_its_text(unscaled in -(10i128.pow(37))..10i128.pow(37), scale in 0usize..30) {
        let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let sign = if unscaled < 0 { "-" } else { "" };
        let point = if scale > 0 { "." } else { "" };
        prop_assert_eq!(scaled(&format!("{sign}{whole}{point}{fraction}"), scale as i64), Some(unscaled));
        prop_assert_eq!(scaled(&format!("{unscaled}e-{scale}"), scale as i64), Some(unscaled));
    }

    #[test]
    fn digits_behind_the_scale_are_cut_off_however_many_they_are(
        unscaled in any::<i128>(),
        scale in 0usize..10,
        zeros in 0usize..60,
        tail in "[0-9]{0,60}",
    ) {
        let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        let sign = if unscaled < 0 { "-" } else { "" };
        let tail = format!("{}{tail}", "0".repeat(zeros));
        // Of a negative number the lower one is farther from zero.
        let is_lower = unscaled < 0 && tail.contains(|digit: char| digit != '0');
        let expected = unscaled.checked_sub(i128::from(is_lower));
        prop_assume!(expected.is_some() && unscaled != i128::MIN);
        prop_assert_eq!(floored(&format!("{sign}{whole}.{fraction}{tail}"), scale as i64), expected);
        prop_assert_eq!(floored(&format!("{sign}{digits}{tail}e-{}", tail.len()), 0), expected);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,40}", scale in -50i64..50) {
        let exact = scaled(&text, scale);
        prop_assert!(exact.is_none() || floored(&text, scale) == exact);
    }

    #[test]
    fn any_text_of_number_characters_is_read_or_refused(text in "[-+0-9.eE]{0,60}", scale in -50i64..50) {
        let exact = scaled(&text, scale);
        prop_assert!(exact.is_none() || floored(&text, scale) == exact);
    }
}
