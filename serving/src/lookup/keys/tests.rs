use std::sync::Arc;

use arrow::datatypes::{Field, TimeUnit};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn typed(data_type: DataType, value: Value) -> Result<ScalarValue, String> {
    typed_as(data_type, false, value)
}

fn typed_as(data_type: DataType, is_uuid: bool, value: Value) -> Result<ScalarValue, String> {
    let field: FieldRef = Arc::new(Field::new("k", data_type, true));
    let keys = Keys::Json(vec![json!({ "k": value }).as_object().cloned().unwrap()]);
    let keys = keys.with_types(&[KeyType { field: &field, is_uuid }]);
    keys.map(|mut keys| keys.remove(0).remove(0)).map_err(|error| error.message().to_owned())
}

#[test]
fn json_values_become_the_keys_exact_types() {
    let decimal = DataType::Decimal128(18, 2);
    assert_eq!(typed(DataType::Int64, json!("9007199254740993")).unwrap(), ScalarValue::Int64(Some(9007199254740993)));
    assert_eq!(typed(DataType::Int32, json!(-7)).unwrap(), ScalarValue::Int32(Some(-7)));
    assert_eq!(typed(decimal.clone(), json!("12.5")).unwrap(), ScalarValue::Decimal128(Some(1250), 18, 2));
    assert_eq!(typed(decimal.clone(), json!(12.50)).unwrap(), ScalarValue::Decimal128(Some(1250), 18, 2));
    assert_eq!(typed(DataType::Date32, json!("1970-01-02")).unwrap(), ScalarValue::Date32(Some(1)));
    assert_eq!(typed(DataType::Boolean, json!(true)).unwrap(), ScalarValue::Boolean(Some(true)));
    assert_eq!(typed(DataType::Binary, json!("AP8=")).unwrap(), ScalarValue::Binary(Some(vec![0, 255])));
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let seconds = ScalarValue::TimestampMicrosecond(Some(1_000_000), Some("UTC".into()));
    assert_eq!(typed(time, json!("1970-01-01T01:00:01+01:00")).unwrap(), seconds);
}

#[test]
fn a_key_alone_has_the_columns_that_it_has_among_others() {
    let values = [
        ScalarValue::Int64(Some(7)),
        ScalarValue::UInt8(Some(7)),
        ScalarValue::Float64(Some(-0.5)),
        ScalarValue::Decimal128(Some(1250), 18, 2),
        ScalarValue::Utf8(Some("a".to_owned())),
        ScalarValue::Binary(Some(vec![0, 255])),
        ScalarValue::Boolean(Some(true)),
        ScalarValue::Date32(Some(1)),
        ScalarValue::TimestampMicrosecond(Some(1), Some("UTC".into())),
    ];
    for value in values {
        let null = ScalarValue::try_new_null(&value.data_type()).unwrap();
        for value in [value, null] {
            let fields: [FieldRef; 1] = [Arc::new(Field::new("k", value.data_type(), true))];
            let key = vec![value];
            let alone = columns(&fields, std::slice::from_ref(&key)).unwrap();
            let among_others = columns(&fields, &[key.clone(), key]).unwrap();
            assert_eq!(alone[0].to_data(), among_others[0].slice(0, 1).to_data());
        }
    }
}

#[test]
fn what_would_lose_something_is_refused() {
    let decimal = DataType::Decimal128(18, 2);
    assert!(typed(decimal.clone(), json!("12.345")).unwrap_err().contains("expected DECIMAL(18,2)"));
    assert!(typed(decimal, json!(1234567890123456.2)).unwrap_err().contains("write it as a text"));
    assert!(typed(DataType::Int32, json!(3_000_000_000i64)).unwrap_err().contains("found \"3000000000\", expected INT"));
    assert!(typed(DataType::Int64, json!(1.5)).is_err());
    assert!(typed(DataType::Date32, json!("2024-13-01")).unwrap_err().contains("as YYYY-MM-DD"));
    assert!(typed(DataType::Boolean, json!(1)).is_err());
}

#[test]
fn a_uuid_is_found_in_every_spelling_and_nothing_else_is_one() {
    let stored = "0a1b2c3d-4e5f-6789-abcd-ef0123456789";
    for spelling in [
        "0A1B2C3D-4E5F-6789-ABCD-EF0123456789",
        "0a1b2c3d4e5f6789abcdef0123456789",
        "{0a1b2c3d-4e5f-6789-ABCD-ef0123456789}",
        "0a1b-2c3d-4e5f-6789-abcd-ef01-2345-6789",
    ] {
        assert_eq!(typed_as(DataType::Utf8, true, json!(spelling)).unwrap(), ScalarValue::from(stored));
        assert_eq!(typed(DataType::Utf8, json!(spelling)).unwrap(), ScalarValue::from(spelling), "a text is no UUID");
        let field: FieldRef = Arc::new(Field::new("k", DataType::Utf8, true));
        let given = Keys::Typed(vec![vec![ScalarValue::from(spelling)]]);
        assert_eq!(given.with_types(&[KeyType { field: &field, is_uuid: true }]).unwrap(), [[ScalarValue::from(stored)]]);
    }
    assert_eq!(typed_as(DataType::Utf8, true, json!(null)).unwrap(), ScalarValue::Utf8(None));
    let expected = "the key column \"k\": found \"0a1b\", expected UUID (32 hexadecimal digits, with hyphens or without)";
    assert_eq!(typed_as(DataType::Utf8, true, json!("0a1b")).unwrap_err(), expected);
}

#[test]
fn a_plus_that_is_not_escaped_is_understood() {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let hour = ScalarValue::TimestampMicrosecond(Some(3_600_000_000), Some("UTC".into()));
    for text in ["1970-01-01T02:00:00 01:00", "1970-01-01 02:00:00 01", "1970-01-01 01:00:00Z"] {
        assert_eq!(typed(time.clone(), json!(text)).unwrap(), hour);
    }
    assert_eq!(typed(DataType::Binary, json!(" 8=")).unwrap_err(), "the key column \"k\": found \" 8=\", expected BYTEA as base64");
    assert_eq!(typed(DataType::Binary, json!(" /8=")).unwrap(), ScalarValue::Binary(Some(vec![0xfb, 0xff])));
    assert_eq!(typed(DataType::Int32, json!(" 5")).unwrap(), ScalarValue::Int32(Some(5)));
}

proptest! {
    #[test]
    fn no_text_makes_a_key_panic(text in any::<String>()) {
        let types = [DataType::Int64, DataType::UInt8, DataType::Float64, DataType::Decimal128(18, 2), DataType::Date32, DataType::Boolean,
            DataType::Binary, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), DataType::Timestamp(TimeUnit::Nanosecond, None)];
        for data_type in types {
            let field: FieldRef = Arc::new(Field::new("k", data_type, true));
            for is_uuid in [false, true] {
                let _ = Keys::Text(vec![vec![("k".into(), text.clone())]]).with_types(&[KeyType { field: &field, is_uuid }]);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_float_in_the_body_of_a_request_is_the_key_that_was_written(
        float in any::<f64>().prop_filter("JSON has no others", |float| float.is_finite() && *float != 0.0)
    ) {
        let read: Value = serde_json::from_str(&json!(float).to_string()).unwrap();
        prop_assert_eq!(typed(DataType::Float64, read).unwrap(), ScalarValue::Float64(Some(float)));
    }
}
