use arrow::array::ArrayRef;
use arrow::datatypes::{Field, Schema};
use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::columns::wire_types;
use crate::rows::{RowFormat, TEXT, Zone};

/// Writes a value as an answer does, and reads it as a parameter.
fn there_and_back(scalar: &ScalarValue, format: i16) -> ScalarValue {
    let column: ArrayRef = scalar.to_array().unwrap();
    let schema = Schema::new(vec![Field::new("x", column.data_type().clone(), true)]);
    let types = wire_types(&schema, &[]);
    let oid = types[0].pg_type().oid();
    let mut out = BytesMut::new();
    RowFormat { types, formats: vec![format], zone: Zone::named("Asia/Kolkata").unwrap() }.value(&mut out, 0, &column, 0).unwrap();
    value(1, oid, format, Some(&out.freeze()), Zone::default()).unwrap_or_else(|problem| panic!("{scalar}: {problem:?}"))
}

fn scalars() -> impl Strategy<Value = ScalarValue> {
    let text = "[^\\x00]{0,12}";
    prop_oneof![
        any::<bool>().prop_map(|v| ScalarValue::Boolean(Some(v))),
        any::<i16>().prop_map(|v| ScalarValue::Int16(Some(v))),
        any::<i32>().prop_map(|v| ScalarValue::Int32(Some(v))),
        any::<i64>().prop_map(|v| ScalarValue::Int64(Some(v))),
        any::<f64>().prop_map(|v| ScalarValue::Float64(Some(v))),
        any::<f32>().prop_map(|v| ScalarValue::Float32(Some(v))),
        text.prop_map(|v| ScalarValue::Utf8(Some(v))),
        vec(any::<u8>(), 0..12).prop_map(|v| ScalarValue::Binary(Some(v))),
        (-700_000i32..2_000_000).prop_map(|v| ScalarValue::Date32(Some(v))),
        // From 1907 on: before, the zone below had an offset with seconds, which is written and not read.
        (-1_987_000_000_000_000i64..200_000_000_000_000_000).prop_map(|v| ScalarValue::TimestampMicrosecond(Some(v), Some("UTC".into()))),
        vec(proptest::option::of(any::<i64>()), 0..5).prop_map(|items| {
            let items: Vec<ScalarValue> = items.into_iter().map(ScalarValue::Int64).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Int64))
        }),
        vec(proptest::option::of(text), 0..5).prop_map(|items| {
            let items: Vec<ScalarValue> = items.into_iter().map(ScalarValue::Utf8).collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Utf8))
        }),
    ]
}

proptest! {
    #[test]
    fn what_an_answer_writes_a_parameter_reads(scalar in scalars(), binary in any::<bool>()) {
        prop_assert_eq!(there_and_back(&scalar, if binary { BINARY } else { TEXT }), scalar);
    }

    #[test]
    fn a_decimal_keeps_its_digits(digits in any::<i128>(), shift in 0u32..120, scale in 0i8..=38, binary in any::<bool>()) {
        let digits = (digits >> shift) % 10_i128.pow(38);
        let read = there_and_back(&ScalarValue::Decimal128(Some(digits), 38, scale), if binary { BINARY } else { TEXT });
        prop_assert_eq!(read.cast_to(&DataType::Decimal128(38, scale)).unwrap(), ScalarValue::Decimal128(Some(digits), 38, scale));
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        oid in prop::sample::select(vec![16u32, 17, 20, 21, 23, 25, 26, 114, 700, 701, 1043, 1082, 1083, 1114, 1184, 1186, 1700, 2950, 3802, 1016, 1009, 1231, 2951, 0]),
        bytes in vec(prop_oneof![Just(0u8), any::<u8>()], 0..40), format in 0i16..2
    ) {
        let _ = value(1, oid, format, Some(&Bytes::from(bytes)), Zone::default());
    }

    #[test]
    fn any_text_is_read_or_refused(oid in prop::sample::select(vec![1700u32, 1016, 1009, 1231, 17, 1186, 1184]), text in "[-+0-9eE.{},\"\\\\xNULa ]{0,30}") {
        let _ = value(1, oid, TEXT, Some(&Bytes::from(text)), Zone::default());
    }
}

#[test]
fn texts_are_read_in_the_spellings_of_clients() {
    let read = |oid: u32, text: &str| value(1, oid, TEXT, Some(&Bytes::copy_from_slice(text.as_bytes())), Zone::default());
    let time = ScalarValue::TimestampMicrosecond(Some(1_767_225_600_000_000), Some("UTC".into()));
    let list = |items: &[Option<i64>]| {
        let items: Vec<ScalarValue> = items.iter().map(|item| ScalarValue::Int64(*item)).collect();
        ScalarValue::List(ScalarValue::new_list_nullable(&items, &DataType::Int64))
    };
    for (oid, text, expected) in [
        (16, "t", ScalarValue::Boolean(Some(true))),
        (16, "off", ScalarValue::Boolean(Some(false))),
        (1700, "1.50", ScalarValue::Decimal128(Some(150), 3, 2)),
        (1700, "-1e3", ScalarValue::Decimal128(Some(-1000), 4, 0)),
        (1700, ".5", ScalarValue::Decimal128(Some(5), 1, 1)),
        (1184, "2026-01-01 00:00:00+00", time.clone()),
        (1184, "2026-01-01T01:00:00+01:00", time.clone()),
        (1184, "2026-01-01 +00", time),
        (1082, "2026-01-01", ScalarValue::Date32(Some(20_454))),
        // JDBC sends a date with the zone of the client.
        (1082, "2026-01-01 +00", ScalarValue::Date32(Some(20_454))),
        (1082, "2026-01-01 -05:30", ScalarValue::Date32(Some(20_454))),
        (1114, "2026-01-01 +02", ScalarValue::TimestampMicrosecond(Some(1_767_225_600_000_000), None)),
        (1016, "{1, NULL ,3}", list(&[Some(1), None, Some(3)])),
        (1016, "{}", list(&[])),
        (17, "a\\001\\\\", ScalarValue::Binary(Some(vec![97, 1, 92]))),
    ] {
        assert_eq!(read(oid, text).unwrap_or_else(|problem| panic!("{oid} {text}: {problem:?}")), expected, "{oid} {text}");
    }
    for (oid, text) in [
        (23, "a"),
        (1700, "NaN"),
        (1700, "1.2.3"),
        (16, "maybe"),
        (1082, "soon"),
        (17, "\\xf"),
        (1016, "{1"),
        (1016, "{{1}}"),
        (1016, "{,}"),
    ] {
        assert!(read(oid, text).is_err(), "{oid} {text}");
    }
}

#[test]
fn a_time_without_an_offset_is_one_of_the_zone_of_the_session() {
    let read = |oid: u32, text: &str, zone: &str| {
        value(1, oid, TEXT, Some(&Bytes::copy_from_slice(text.as_bytes())), Zone::named(zone).unwrap()).ok()
    };
    let at = |text: &str| {
        let time = ScalarValue::Utf8(Some(text.to_owned())).cast_to(&timestamp_type()).unwrap();
        assert!(!time.is_null(), "{text}");
        time
    };
    for (text, expected) in [
        ("2026-03-29 01:30:00", "2026-03-29T00:30:00Z"),
        ("2026-03-29 03:30:00.25", "2026-03-29T01:30:00.25Z"),
        ("2026-10-25 02:30:00+01", "2026-10-25T01:30:00Z"),
        ("2026-03-29 01:30:00Z", "2026-03-29T01:30:00Z"),
        // Not there, because the clocks are put forward, and there twice.
        ("2026-03-29 02:30:00", "2026-03-29T01:30:00Z"),
        ("2026-10-25 02:30:00", "2026-10-25T01:30:00Z"),
    ] {
        assert_eq!(read(1184, text, "Europe/Berlin"), Some(at(expected)), "{text}");
    }
    let two = ScalarValue::new_list_nullable(&[at("2026-03-29T00:30:00Z"), at("2026-03-29T01:30:00Z")], &timestamp_type());
    let texts = "{\"2026-03-29 01:30:00\",\"2026-03-29 03:30:00\"}";
    assert_eq!(read(1185, texts, "Europe/Berlin"), Some(ScalarValue::List(two)));
    assert_eq!(read(1184, "soon", "Europe/Berlin"), None);
    let local = ScalarValue::TimestampMicrosecond(Some(1_774_747_800_000_000), None);
    assert_eq!(read(1114, "2026-03-29 01:30:00", "Europe/Berlin"), Some(local));
}
