use proptest::prelude::*;

use super::*;

fn cell(column_type: ColumnType, text: &str) -> Option<String> {
    let mut out = Vec::new();
    write_cell(&column_type, NumberFormat::Plain, text, &mut out).unwrap().then(|| String::from_utf8(out).unwrap())
}

#[test]
fn empty_cells_are_null_and_spaces_are_so_outside_of_texts() {
    assert_eq!(cell(ColumnType::Text, ""), None);
    assert_eq!(cell(ColumnType::Text, " "), Some("\" \"".into()));
    assert_eq!(cell(ColumnType::Int, " "), None);
}

#[test]
fn numbers_stay_their_text_and_looser_ones_become_strings() {
    let decimal = || ColumnType::Decimal { precision: 18, scale: 2 };
    assert_eq!(cell(decimal(), " 12.30 "), Some("12.30".into()));
    assert_eq!(cell(decimal(), "007.5"), Some("\"007.5\"".into()));
    assert_eq!(cell(ColumnType::Int, "abc"), Some("\"abc\"".into()));
    assert_eq!(cell(ColumnType::Double, "1e5"), Some("1e5".into()));
    assert_eq!(cell(ColumnType::Double, ".5"), Some("0.5".into()));
    assert_eq!(cell(ColumnType::Double, "NaN"), Some("\"NaN\"".into()));
}

#[test]
fn numbers_of_a_format_become_plain_ones_and_others_are_refused() {
    let decimal = ColumnType::Decimal { precision: 18, scale: 2 };
    let german = |column_type: &ColumnType, text: &str| {
        let mut out = Vec::new();
        write_cell(column_type, NumberFormat::PointComma, text, &mut out).map(|_| String::from_utf8(out).unwrap())
    };
    assert_eq!(german(&decimal, " 6.027,90 "), Ok("6027.90".into()));
    assert_eq!(german(&ColumnType::BigInt, "1.234"), Ok("1234".into()));
    assert_eq!(german(&ColumnType::Double, "-0,5"), Ok("-0.5".into()));
    assert_eq!(german(&decimal, ""), Ok(String::new()));
    assert_eq!(german(&ColumnType::Text, "1.234"), Ok("\"1.234\"".into()));
    // The decoder would read the string as 12.34.
    assert_eq!(german(&decimal, "12.34"), Err("found \"12.34\", expected a number written as 1.234,56".into()));
}

#[test]
fn times_without_a_zone_are_utc_and_dates_are_midnights() {
    let time = |text: &str| cell(ColumnType::TimestampTz, text);
    assert_eq!(time("2024-05-01T12:00:00+02:00"), Some("\"2024-05-01T12:00:00+02:00\"".into()));
    assert_eq!(time("2024-05-01 12:00:00.5"), Some("\"2024-05-01 12:00:00.5Z\"".into()));
    assert_eq!(time("2024-05-01 12:00:00 UTC"), Some("\"2024-05-01 12:00:00Z\"".into()));
    assert_eq!(time("2024-05-01 12:00"), Some("\"2024-05-01 12:00:00Z\"".into()));
    assert_eq!(time("2024-05-01"), Some("\"2024-05-01T00:00:00Z\"".into()));
    assert_eq!(time("1714564800000"), Some("1714564800000".into()));
    assert_eq!(time("yesterday"), Some("\"yesterday\"".into()));
}

#[test]
fn booleans_take_the_usual_spellings() {
    for (text, json) in [("True", "true"), ("f", "false"), ("1", "true"), ("maybe", "\"maybe\"")] {
        assert_eq!(cell(ColumnType::Boolean, text), Some(json.into()));
    }
}

#[test]
fn json_and_arrays_are_taken_as_they_stand() {
    let ints = || ColumnType::Array(Box::new(ColumnType::Int));
    assert_eq!(cell(ColumnType::Json, r#"{"a": 1}"#), Some(r#"{"a": 1}"#.into()));
    assert_eq!(cell(ints(), "[1, 2]"), Some("[1, 2]".into()));
    assert_eq!(cell(ints(), "{1,2}"), Some("\"{1,2}\"".into()));
    assert_eq!(
        write_cell(&ColumnType::Json, NumberFormat::Plain, "{\"a\":", &mut Vec::new()),
        Err("found \"{\"a\":\", expected JSON text".into())
    );
}

proptest! {
    #[test]
    fn our_grammar_of_numbers_is_jsons(text in "[-+]?[0-9.]{0,4}([eE][-+]?[0-9]{0,2})?") {
        let by_serde = serde_json::from_str::<&RawValue>(&text).is_ok() && text.trim() == text;
        prop_assert_eq!(is_json_number(&text), by_serde);
    }

    #[test]
    fn every_cell_becomes_json_or_an_error(text in ".{0,30}") {
        let array = ColumnType::Array(Box::new(ColumnType::Text));
        let types = [ColumnType::Text, ColumnType::Boolean, ColumnType::Int, ColumnType::Double, ColumnType::TimestampTz, ColumnType::Json, array];
        for column_type in types {
            let mut out = Vec::new();
            if let Ok(true) = write_cell(&column_type, NumberFormat::Plain, &text, &mut out) {
                prop_assert!(is_json(std::str::from_utf8(&out).unwrap()));
            } else {
                prop_assert!(out.is_empty());
            }
        }
    }
}
