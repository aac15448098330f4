//! Values as keys and times: whatever their type in the file, exactly or not at all.

use arrow::array::{Date32Array, Float64Array, Int32Array, Int64Array, TimestampMillisecondArray, TimestampNanosecondArray};

use super::*;

fn array(values: impl Array + 'static) -> ArrayRef {
    Arc::new(values)
}

fn micros(values: &[i64]) -> ArrayRef {
    array(TimestampMicrosecondArray::from(values.to_vec()).with_timezone("UTC"))
}

#[test]
fn a_key_is_found_in_whatever_type_it_is_written() {
    let decimal = DataType::Decimal128(18, 2);
    let cents = || array(arrow::array::Decimal128Array::from(vec![150]).with_precision_and_scale(18, 2).unwrap());
    let uuid = "0190f3c8-5c3a-7c6e-8f5e-3a2b1c0d9e8f";
    let raw = arrow::array::FixedSizeBinaryArray::try_from_iter([uuid::Uuid::parse_str(uuid).unwrap().into_bytes()].into_iter()).unwrap();
    let dictionary: arrow::array::DictionaryArray<arrow::datatypes::Int32Type> = ["d1"].into_iter().collect();
    for (column, key, is_uuid, expected) in [
        (array(StringArray::from(vec!["d1"])), DataType::Utf8, false, array(StringArray::from(vec!["d1"]))),
        (array(dictionary), DataType::Utf8, false, array(StringArray::from(vec!["d1"]))),
        (array(StringArray::from(vec![uuid.to_uppercase()])), DataType::Utf8, true, array(StringArray::from(vec![uuid]))),
        (array(raw), DataType::Utf8, true, array(StringArray::from(vec![uuid]))),
        (array(StringArray::from(vec!["+7"])), DataType::Int64, false, array(Int64Array::from(vec![7]))),
        (array(Int32Array::from(vec![7])), DataType::Int64, false, array(Int64Array::from(vec![7]))),
        (array(Float64Array::from(vec![7.0])), DataType::Int64, false, array(Int64Array::from(vec![7]))),
        (array(Float64Array::from(vec![1.5])), decimal.clone(), false, cents()),
        (array(StringArray::from(vec!["1.50"])), decimal, false, cents()),
        (array(StringArray::from(vec!["1970-01-02"])), DataType::Date32, false, array(Date32Array::from(vec![1]))),
    ] {
        assert_eq!(&keys(&column, &key, is_uuid).unwrap(), &expected, "{} as {key}", column.data_type());
    }
}

#[test]
fn a_value_that_would_be_rounded_is_refused_with_its_row() {
    for (column, key, row) in [
        (array(Int64Array::from(vec![Some(1), None])), DataType::Int64, Some(1)),
        (array(StringArray::from(vec!["1", "2", "x"])), DataType::Int64, Some(2)),
        (array(Float64Array::from(vec![1.0, 1.5])), DataType::Int64, Some(1)),
        (array(Int64Array::from(vec![i64::MAX])), DataType::Int32, Some(0)),
        (array(Int64Array::from(vec![(1 << 53) + 1])), DataType::Float64, Some(0)),
        (array(Int64Array::from(vec![1])), DataType::Utf8, None),
        (array(TimestampMillisecondArray::from(vec![1])), timestamp_type(), None),
    ] {
        let wrong = keys(&column, &key, false).unwrap_err();
        assert_eq!(wrong.row, row, "{} as {key}: {wrong:?}", column.data_type());
    }
    let wrong = keys(&array(StringArray::from(vec!["d1"])), &DataType::Utf8, true).unwrap_err();
    assert_eq!((wrong.found.as_str(), wrong.expected.as_str()), ("\"d1\"", "a value of type UUID"));
}

#[test]
fn a_time_has_a_zone_and_is_not_rounded() {
    let texts = |text: &str| array(StringArray::from(vec![text]));
    for (column, time) in [
        (texts("1970-01-01T01:00:00.000001+01:00"), 1),
        (texts(" 1970-01-01 00:00:01Z "), 1_000_000),
        (array(TimestampMillisecondArray::from(vec![3]).with_timezone("Europe/Berlin")), 3_000),
        (array(TimestampNanosecondArray::from(vec![-7_000]).with_timezone("UTC")), -7),
        (micros(&[5]), 5),
    ] {
        assert_eq!(&times(&column).unwrap(), &micros(&[time]), "{column:?}");
    }
    for (column, row, expected) in [
        (texts("1970-01-01T00:00:00"), Some(0), "a zone"),
        (texts("yesterday"), Some(0), "a time such as"),
        (array(StringArray::from(vec![None::<&str>])), Some(0), "a time with a zone"),
        (array(TimestampMillisecondArray::from(vec![3])), None, "a zone"),
        (array(TimestampNanosecondArray::from(vec![1_000, 1_500]).with_timezone("UTC")), Some(1), "fraction of a microsecond"),
        (array(TimestampMillisecondArray::from(vec![i64::MAX]).with_timezone("UTC")), Some(0), "TIMESTAMPTZ"),
        (micros(&[i64::MAX]), Some(0), "years 0001 to 9999"),
        (array(Int64Array::from(vec![1])), None, "TIMESTAMPTZ"),
        (array(Date32Array::from(vec![1])), None, "TIMESTAMPTZ"),
    ] {
        let wrong = times(&column).unwrap_err();
        assert_eq!(wrong.row, row, "{wrong:?}");
        assert!(wrong.expected.contains(expected), "{wrong:?}");
    }
}

#[test]
fn an_error_shows_the_beginning_of_a_long_text_on_one_line() {
    let long = format!("yesterday\nat {}", "noon ".repeat(1_000));
    let shown = |wrong: TypeMismatch| {
        assert!(wrong.found.starts_with("\"yesterday at noon") && wrong.found.ends_with(" ..\""), "{wrong:?}");
        assert!(wrong.found.chars().count() < 80, "{wrong:?}");
    };
    shown(times(&array(StringArray::from(vec![long.as_str()]))).unwrap_err());
    shown(keys(&array(StringArray::from(vec![long.as_str()])), &DataType::Int64, false).unwrap_err());
}
