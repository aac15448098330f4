use arrow::array::Decimal256Array;
use arrow::datatypes::i256;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::events::value::{ColumnValue, canonical_text, read};
use crate::events::{canonical_uuid, format_date};
use base64::Engine;
use definitions::ColumnType;
use types::sql_types::timestamp_type;

/// Two spellings of one value.
#[derive(Debug, Clone)]
struct Pair {
    column: ColumnType,
    one: String,
    other: String,
    /// JSON for an event with the value.
    json: String,
}

fn pair(column: ColumnType, one: String, other: String) -> Pair {
    let json = json!(other).to_string();
    Pair { column, one, other, json }
}

fn uuids() -> impl Strategy<Value = Pair> {
    let spelled = |bits: u128, form: u8| {
        let uuid = uuid::Uuid::from_u128(bits);
        let text = match form % 5 {
            0 => uuid.hyphenated().to_string(),
            1 => uuid.simple().to_string(),
            2 => uuid.braced().to_string(),
            3 => format!("{{{}}}", uuid.simple()),
            _ => uuid.urn().to_string(),
        };
        // The prefix of an URN has one spelling.
        if form < 5 || form % 5 == 4 { text } else { text.to_uppercase() }
    };
    (any::<u128>(), 0..10u8, 0..10u8).prop_map(move |(bits, one, other)| pair(ColumnType::Uuid, spelled(bits, one), spelled(bits, other)))
}

/// A number of at most 12 digits before the point and 4 after it, with zeros around it and with an exponent.
fn number_text(whole: i64, part: u32, zeros: (usize, usize), exponent: i32) -> String {
    let digits = format!("{}{part:04}", whole.unsigned_abs());
    let point = digits.len() as i32 - 4 - exponent;
    let (front, back) = match point {
        point if point <= 0 => ("0".to_owned(), format!("{}{digits}", "0".repeat(point.unsigned_abs() as usize))),
        point if point as usize >= digits.len() => (format!("{digits}{}", "0".repeat(point as usize - digits.len())), String::new()),
        point => (digits[..point as usize].to_owned(), digits[point as usize..].to_owned()),
    };
    let sign = if whole < 0 { "-" } else { "" };
    let fraction = format!("{back}{}", "0".repeat(zeros.1));
    let fraction = if fraction.is_empty() { fraction } else { format!(".{fraction}") };
    let exponent = if exponent == 0 { String::new() } else { format!("e{exponent}") };
    format!("{sign}{}{front}{fraction}{exponent}", "0".repeat(zeros.0))
}

fn numbers() -> impl Strategy<Value = Pair> {
    let column = prop_oneof![
        Just(ColumnType::Decimal { precision: 18, scale: 4 }),
        Just(ColumnType::Decimal { precision: 38, scale: 10 }),
        Just(ColumnType::BigInt),
    ];
    let form = || ((0..3usize, 0..3usize), -6..6i32);
    (column, -999_999_999_999..999_999_999_999i64, 0..10_000u32, form(), form()).prop_map(|(column, whole, part, one, other)| {
        let part = if column == ColumnType::BigInt { 0 } else { part };
        let spelled = |(zeros, exponent): ((usize, usize), i32)| number_text(whole, part, zeros, exponent);
        pair(column, spelled(one), spelled(other))
    })
}

fn ints() -> impl Strategy<Value = Pair> {
    let form = || ((0..3usize, 0..3usize), -6..6i32);
    (any::<i32>(), form(), form()).prop_map(|(whole, one, other)| {
        let spelled = |(zeros, exponent): ((usize, usize), i32)| number_text(i64::from(whole), 0, zeros, exponent);
        pair(ColumnType::Int, spelled(one), spelled(other))
    })
}

/// A date has one spelling.
fn dates() -> impl Strategy<Value = Pair> {
    let (earliest, latest) = (parse_date("0001-01-01").unwrap(), parse_date("9999-12-31").unwrap());
    (earliest..=latest).prop_map(|days| pair(ColumnType::Date, format_date(days), format_date(days)))
}

fn doubles() -> impl Strategy<Value = Pair> {
    (-1_000_000..1_000_000i64, 0..10_000u32, 0..4usize, -6..6i32).prop_map(|(whole, part, zeros, exponent)| {
        let plain = number_text(whole, part, (0, 0), 0);
        // Events have numbers in JSON's form.
        Pair { column: ColumnType::Double, one: number_text(whole, part, (zeros, zeros), exponent), other: plain.clone(), json: plain }
    })
}

fn times() -> impl Strategy<Value = Pair> {
    let form = || (-14 * 60..=14 * 60i64, any::<bool>(), 0..4usize);
    (0..4_000_000_000_000_000i64, form(), form()).prop_map(|(time, one, other)| {
        let spelled = |(offset, is_spaced, zeros): (i64, bool, usize)| {
            let local = crate::events::format_timestamp(time + offset * 60_000_000);
            let local = local.trim_end_matches('Z');
            let point = if zeros > 0 && !local.contains('.') { "." } else { "" };
            let sign = if offset < 0 { '-' } else { '+' };
            let zone = format!("{sign}{:02}:{:02}", offset.abs() / 60, offset.abs() % 60);
            let text = format!("{local}{point}{}{zone}", "0".repeat(zeros));
            if is_spaced { text.replace('T', " ") } else { text }
        };
        pair(ColumnType::TimestampTz, spelled(one), spelled(other))
    })
}

fn bytes_of_any_length() -> impl Strategy<Value = Pair> {
    any::<Vec<u8>>().prop_map(|bytes| {
        let padded = base64::engine::general_purpose::STANDARD.encode(&bytes);
        pair(ColumnType::Bytea, padded.clone(), padded.trim_end_matches('=').to_owned())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn every_spelling_of_a_value_is_the_key_that_an_event_with_it_has(
        pair in prop_oneof![uuids(), numbers(), ints(), doubles(), dates(), times(), bytes_of_any_length()]
    ) {
        let is_uuid = pair.column == ColumnType::Uuid;
        let key = |text: &str| parse_key(text, &pair.column.arrow(), is_uuid);
        let found = key(&pair.one);
        prop_assert!(found.is_some(), "{:?} is not read", pair);
        prop_assert_eq!(&found, &key(&pair.other));
        if pair.column != ColumnType::Bytea {
            prop_assert_eq!(&found, &key(&format!(" {} ", pair.one)));
        }
        let stored = read(&pair.column, None, &pair.json).map_err(|_| TestCaseError::fail(format!("{pair:?}")))?;
        let array = found.unwrap().to_array().unwrap();
        prop_assert_eq!(stored.canonical_text(), canonical_text(&array, 0));
    }
}

const INTEGERS: [DataType; 8] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
];

/// Whole numbers, many of them about the bounds of a type, and texts that are nearly numbers.
fn nearly_integers() -> impl Strategy<Value = String> {
    let about_a_bound = (0..127u32, -2..=2i128, any::<bool>()).prop_map(|(bits, beside, is_negative)| {
        let value = (1i128 << bits) + beside;
        if is_negative { -value } else { value }
    });
    prop_oneof![
        about_a_bound.prop_map(|value| value.to_string()),
        any::<i128>().prop_map(|value| value.to_string()),
        "[-+]?[0-9]{0,3}[.]?0{0,2}(e[-+]?[0-9])?",
        "[-+0-9.e ]{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn an_integer_key_is_what_arrow_makes_of_the_number(text in nearly_integers()) {
        for data_type in INTEGERS {
            let cast = |number| ScalarValue::Decimal128(Some(number), 38, 0).cast_to(&data_type).ok();
            prop_assert_eq!(parse_key(&text, &data_type, false), whole(text.trim()).and_then(cast), "{} as {}", text, data_type);
        }
    }
}

#[test]
fn truths_and_zeros_have_several_spellings() {
    for (texts, truth) in [(["true", "TRUE", "t", "1"], true), (["false", "False", "F", "0"], false)] {
        assert!(texts.iter().all(|text| parse_key(text, &DataType::Boolean, false) == Some(ScalarValue::Boolean(Some(truth)))));
    }
    assert_eq!(parse_key("yes", &DataType::Boolean, false), None);
    for zero in ["0", "-0", "-0.0", "0e7"] {
        assert_eq!(parse_key(zero, &DataType::Float64, false), Some(ScalarValue::Float64(Some(0.0))));
        assert_eq!(parse_key(zero, &DataType::Decimal128(5, 2), false), Some(ScalarValue::Decimal128(Some(0), 5, 2)));
        assert_eq!(parse_key(zero, &DataType::Int32, false), Some(ScalarValue::Int32(Some(0))));
    }
}

#[test]
fn what_is_no_value_of_the_type_is_no_key() {
    for (text, data_type) in [
        ("1.5", DataType::Int64),
        ("3000000000", DataType::Int32),
        ("-1", DataType::UInt64),
        ("1.005", DataType::Decimal128(18, 2)),
        ("12345", DataType::Decimal128(4, 0)),
        ("2024-02-30", DataType::Date32),
        ("2024-05-01T12:00:00", timestamp_type()),
        ("a=b", DataType::Binary),
        ("", DataType::Int64),
    ] {
        assert_eq!(parse_key(text, &data_type, false), None, "{text} as {data_type}");
    }
    for text in ["", "0a1b", "0a1b2c3d-4e5f-6789-abcd-ef012345678g", "0a1b2c3d-4e5f-6789-abcd-ef01234567890"] {
        assert_eq!(parse_key(text, &DataType::Utf8, true), None, "{text}");
    }
}

#[test]
fn a_quotient_is_found_with_and_without_the_zeros_at_its_end() {
    let stored = Decimal256Array::from(vec![i256::from_string(&format!("125{}", "0".repeat(35))).unwrap()]);
    let stored = ScalarValue::try_from_array(&stored.with_precision_and_scale(76, 38).unwrap(), 0).unwrap();
    for text in ["0.125", "0.1250", "00.12500000000000000000000000000000000000"] {
        assert_eq!(parse_key(text, &DataType::Decimal256(76, 38), false), Some(stored.clone()), "{text}");
    }
    assert_eq!(parse_key("1e-40", &DataType::Decimal256(76, 38), false), None);
}

#[test]
fn a_uuid_is_asked_for_with_hyphens_where_postgresql_takes_them_and_an_event_has_none_there() {
    let stored = Some(ScalarValue::from("0a1b2c3d-4e5f-6789-abcd-ef0123456789"));
    for text in ["0a1b-2c3d-4e5f-6789-abcd-ef01-2345-6789", "{0A1B2C3D-4E5F6789-ABCDEF01-23456789}"] {
        assert_eq!(parse_key(text, &DataType::Utf8, true), stored, "{text}");
        assert!(read(&ColumnType::Uuid, None, &json!(text).to_string()).is_err(), "{text}");
    }
    for text in ["0a1b2c-3d4e5f6789abcdef0123456789", "0a1b2c3d--4e5f6789abcdef0123456789", "0a1b2c3d4e5f6789abcdef0123456789-"] {
        assert_eq!(parse_key(text, &DataType::Utf8, true), None, "{text}");
    }
}

#[test]
fn a_text_is_itself_and_a_canonical_uuid_is_not_copied() {
    assert_eq!(parse_key(" A ", &DataType::Utf8, false), Some(ScalarValue::from(" A ")));
    assert!(matches!(canonical_uuid("0a1b2c3d-4e5f-6789-abcd-ef0123456789"), Some(std::borrow::Cow::Borrowed(_))));
    let event = read(&ColumnType::Uuid, None, r#""{0A1B2C3D-4E5F-6789-ABCD-EF0123456789}""#).ok();
    assert_eq!(event, Some(ColumnValue::Text("0a1b2c3d-4e5f-6789-abcd-ef0123456789".into())));
}
