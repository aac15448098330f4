use std::sync::Arc;

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, DictionaryArray, DurationMicrosecondArray, Float32Array,
    Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, LargeStringArray, ListArray, ListBuilder,
    NullArray, StringArray, StringBuilder, StringViewArray, TimestampMicrosecondArray, TimestampMillisecondArray, UInt64Array,
};
use arrow::datatypes::{Decimal128Type, DecimalType, Field, Int32Type, Int64Type, IntervalMonthDayNano, Schema, i256};
use engine::plan::TextType;
use postgres_types::{FromSql, Type};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::columns::{Kind, wire_types};

/// The values of one column, each as text and as binary.
fn written(column: ArrayRef, text_type: TextType, zone: &str) -> Vec<(String, Vec<u8>)> {
    let schema = Schema::new(vec![Field::new("x", column.data_type().clone(), true)]);
    let types = wire_types(&schema, &[text_type]);
    let format = |format: i16| RowFormat { types: types.clone(), formats: vec![format], zone: Zone::named(zone).unwrap() };
    (0..column.len())
        .map(|row| {
            let (mut text, mut binary) = (BytesMut::new(), BytesMut::new());
            format(TEXT).value(&mut text, 0, &column, row).unwrap();
            format(BINARY).value(&mut binary, 0, &column, row).unwrap();
            (String::from_utf8(text.to_vec()).unwrap(), binary.to_vec())
        })
        .collect()
}

fn texts(column: ArrayRef) -> Vec<String> {
    written(column, TextType::Any, "UTC").into_iter().map(|(text, _)| text).collect()
}

fn utc(micros: Vec<i64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(micros).with_timezone("UTC"))
}

#[test]
fn texts_are_postgresqls() {
    // Each as `SELECT value::type` of PostgreSQL 15 prints it.
    assert_eq!(texts(Arc::new(BooleanArray::from(vec![true, false]))), ["t", "f"]);
    let floats = vec![
        0.0,
        -0.0,
        1.0,
        1.5,
        100.0,
        123_456.789,
        1e14,
        1e15,
        1.5e-5,
        0.0001,
        1e300,
        -2.5e-300,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let expected = [
        "0",
        "-0",
        "1",
        "1.5",
        "100",
        "123456.789",
        "100000000000000",
        "1e+15",
        "1.5e-05",
        "0.0001",
        "1e+300",
        "-2.5e-300",
        "NaN",
        "Infinity",
        "-Infinity",
    ];
    assert_eq!(texts(Arc::new(Float64Array::from(floats))), expected);
    assert_eq!(texts(Arc::new(Float32Array::from(vec![0.1, 3.4e38]))), ["0.1", "3.4e+38"]);
    let decimals = Decimal128Array::from(vec![123, -5, 0]).with_precision_and_scale(18, 2).unwrap();
    assert_eq!(texts(Arc::new(decimals)), ["1.23", "-0.05", "0.00"]);
    assert_eq!(texts(Arc::new(UInt64Array::from(vec![0, i64::MAX as u64]))), ["0", "9223372036854775807"]);
    assert_eq!(texts(Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..], b""]))), ["\\x00ff", "\\x"]);
    assert_eq!(texts(Arc::new(arrow::array::Date32Array::from(vec![0, 20_000, -719_163]))), ["1970-01-01", "2024-10-04", "0001-12-31 BC"]);
    assert_eq!(
        texts(utc(vec![0, 1_700_000_000_123_000, -1, -62_135_596_800_000_001])),
        ["1970-01-01 00:00:00+00", "2023-11-14 22:13:20.123+00", "1969-12-31 23:59:59.999999+00", "0001-12-31 23:59:59.999999+00 BC"]
    );
    let intervals = vec![
        IntervalMonthDayNano::new(14, -3, 14_706_700_000_000),
        IntervalMonthDayNano::new(0, 0, 0),
        IntervalMonthDayNano::new(-1, 1, -1_500_000_000),
    ];
    assert_eq!(
        texts(Arc::new(IntervalMonthDayNanoArray::from(intervals))),
        ["1 year 2 mons -3 days +04:05:06.7", "00:00:00", "-1 mons +1 day -00:00:01.5"]
    );
    assert_eq!(texts(Arc::new(DurationMicrosecondArray::from(vec![90_000_000_000]))), ["25:00:00"]);
}

#[test]
fn an_unsigned_integer_past_bigint_is_refused() {
    let column: ArrayRef = Arc::new(UInt64Array::from(vec![1 << 63]));
    for format in [TEXT, BINARY] {
        let types = wire_types(&Schema::new(vec![Field::new("x", DataType::UInt64, true)]), &[]);
        let format = RowFormat { types, formats: vec![format], zone: Zone::default() };
        let error = format.value(&mut BytesMut::new(), 0, &column, 0).unwrap_err();
        assert_eq!(error.message(), "a number is too large: 9223372036854775808 does not fit BIGINT; cast it to DECIMAL(20,0)");
        assert_eq!(error.reason(), Some(types::Reason::NumberTooLarge));
    }
}

#[test]
fn times_are_written_in_the_clients_zone() {
    let winter = 1_700_000_000_000_000;
    let summer = 1_720_000_000_000_000;
    let of =
        |zone: &str| -> Vec<String> { written(utc(vec![winter, summer]), TextType::Any, zone).into_iter().map(|(text, _)| text).collect() };
    assert_eq!(of("Europe/Berlin"), ["2023-11-14 23:13:20+01", "2024-07-03 11:46:40+02"]);
    assert_eq!(of("asia/kolkata"), ["2023-11-15 03:43:20+05:30", "2024-07-03 15:16:40+05:30"]);
    assert_eq!(of("America/New_York"), ["2023-11-14 17:13:20-05", "2024-07-03 05:46:40-04"]);
}

#[test]
fn a_text_is_the_same_whatever_holds_it() {
    let expected = ["a", "b", "a"];
    let dictionary: DictionaryArray<Int32Type> = expected.into_iter().collect();
    for column in [
        Arc::new(StringArray::from(expected.to_vec())) as ArrayRef,
        Arc::new(StringViewArray::from(expected.to_vec())),
        Arc::new(dictionary),
    ] {
        let rows = plain(RecordBatch::try_from_iter([("x", column)]).unwrap()).unwrap();
        assert_eq!(texts(rows.column(0).clone()), expected);
    }
}

#[test]
fn lists_are_arrays() {
    let texts_of = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![Some(vec![Some(1), None, Some(-3)]), Some(vec![])]);
    let found = written(Arc::new(texts_of), TextType::Any, "UTC");
    assert_eq!(found[0].0, "{1,NULL,-3}");
    assert_eq!(found[1].0, "{}");
    assert_eq!(Vec::<Option<i64>>::from_sql(&Type::INT8_ARRAY, &found[0].1).unwrap(), [Some(1), None, Some(-3)]);
    assert_eq!(Vec::<Option<i64>>::from_sql(&Type::INT8_ARRAY, &found[1].1).unwrap(), []);

    let mut texts = ListBuilder::new(StringBuilder::new());
    for item in ["", "null", "a b", "x,y", "\"q\"", "\\", "{}", "plain"] {
        texts.values().append_value(item);
    }
    texts.append(true);
    let found = written(Arc::new(texts.finish()), TextType::Any, "UTC");
    assert_eq!(found[0].0, r#"{"","null","a b","x,y","\"q\"","\\","{}",plain}"#);
}

#[test]
fn a_uuid_is_sixteen_bytes() {
    let found = written(Arc::new(StringArray::from(vec!["00112233-4455-6677-8899-aabbccddeeff"])), TextType::Uuid, "UTC");
    assert_eq!(found[0].0, "00112233-4455-6677-8899-aabbccddeeff");
    assert_eq!(found[0].1, 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes());
}

#[test]
fn json_that_is_a_text_is_written_as_it_is() {
    let json = r#"{"a": ["b"]}"#;
    let found = written(Arc::new(StringArray::from(vec![json])), TextType::Json, "UTC");
    assert_eq!(found, [(json.to_owned(), json.as_bytes().to_vec())]);
}

#[test]
fn null_is_a_length_of_minus_one() {
    let batch = RecordBatch::try_from_iter([
        ("a", Arc::new(Int32Array::from(vec![Some(7), None])) as ArrayRef),
        ("b", Arc::new(StringArray::from(vec![None, Some("x")]))),
    ])
    .unwrap();
    let format = RowFormat { types: wire_types(batch.schema_ref(), &[]), formats: vec![BINARY, TEXT], zone: Zone::default() };
    let mut out = BytesMut::new();
    let writer = BatchWriter::new(&format, &batch);
    writer.data_row(&mut out, 0).unwrap();
    writer.data_row(&mut out, 1).unwrap();
    let expected: &[u8] = b"D\0\0\0\x12\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xffD\0\0\0\x0f\0\x02\xff\xff\xff\xff\0\0\0\x01x";
    assert_eq!(&out[..], expected);
}

/// A column of every type that is written in a way of its own, and of some others, made from these numbers.
fn columns_of_many_types(numbers: &[Option<i64>]) -> RecordBatch {
    fn each<T, A: From<Vec<Option<T>>>>(numbers: &[Option<i64>], value: impl Fn(i64) -> T) -> A {
        A::from(numbers.iter().map(|number| number.map(&value)).collect::<Vec<Option<T>>>())
    }
    fn decimals(numbers: &[Option<i64>], precision: u8, scale: i8, value: impl Fn(i64) -> i128) -> Decimal128Array {
        each::<_, Decimal128Array>(numbers, value).with_precision_and_scale(precision, scale).unwrap()
    }
    let texts: Vec<Option<String>> = each(numbers, |number| number.to_string());
    let lists = numbers.iter().map(|number| number.map(|number| vec![Some(number), None]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(each::<_, BooleanArray>(numbers, |number| number > 0)),
        Arc::new(each::<_, Int8Array>(numbers, |number| number as i8)),
        Arc::new(each::<_, Int16Array>(numbers, |number| number as i16)),
        Arc::new(each::<_, Int32Array>(numbers, |number| number as i32)),
        Arc::new(each::<_, Int64Array>(numbers, |number| number)),
        Arc::new(each::<_, UInt64Array>(numbers, i64::unsigned_abs)),
        Arc::new(each::<_, Float32Array>(numbers, |number| f32::from_bits(number as u32))),
        Arc::new(each::<_, Float64Array>(numbers, |number| f64::from_bits(number as u64))),
        Arc::new(decimals(numbers, 20, 2, i128::from)),
        Arc::new(decimals(numbers, 9, 4, |number| i128::from(number) % 1_000_000_000)),
        Arc::new(decimals(numbers, 38, 9, |number| i128::from(number) * i128::from(i64::MAX))),
        Arc::new(each::<_, TimestampMicrosecondArray>(numbers, |number| number).with_timezone("UTC")),
        Arc::new(each::<_, TimestampMicrosecondArray>(numbers, |number| number / 1_000)),
        Arc::new(each::<_, TimestampMillisecondArray>(numbers, |number| number / 1_000_000)),
        Arc::new(each::<_, Date32Array>(numbers, |number| i32::from(number as i16))),
        Arc::new(StringArray::from(texts.clone())),
        Arc::new(StringViewArray::from(texts.clone())),
        Arc::new(LargeStringArray::from(texts)),
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
        Arc::new(NullArray::new(numbers.len())),
    ];
    let named = columns.into_iter().enumerate().map(|(index, column)| (index.to_string(), column, true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

const MANY_TYPES: usize = 20;

/// Reads PostgreSQL's binary numeric by its documentation, independently of how it is written.
fn read_numeric(bytes: &[u8]) -> String {
    let short = |at: usize| i16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (count, weight, sign, scale) = (short(0), short(2), short(4), short(6) as usize);
    let digit = |place: i16| -> u32 {
        let index = weight - place;
        if (0..count).contains(&index) { short(8 + 2 * index as usize) as u32 } else { 0 }
    };
    let whole: String = (0..=weight.max(0)).rev().map(|place| format!("{:04}", digit(place))).collect();
    let fraction: String = (1..=scale.div_ceil(4) as i16).map(|place| format!("{:04}", digit(-place))).collect();
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if scale > 0 { "." } else { "" };
    format!("{}{whole}{point}{}", if sign == 0x4000 { "-" } else { "" }, &fraction[..scale])
}

proptest! {
    #[test]
    fn a_batch_is_written_as_its_values_are(
        numbers in vec(prop::option::weighted(0.8, prop_oneof![any::<i64>(), -20_000i64..20_000]), 1..20),
        formats in vec(prop::sample::select(vec![TEXT, BINARY]), MANY_TYPES),
        from in any::<prop::sample::Index>(),
    ) {
        let from = from.index(numbers.len());
        let batch = columns_of_many_types(&numbers).slice(from, numbers.len() - from);
        let format = RowFormat { types: wire_types(batch.schema_ref(), &[]), formats, zone: Zone::default() };
        let writer = BatchWriter::new(&format, &batch);
        for row in 0..batch.num_rows() {
            let (mut written, mut expected) = (BytesMut::new(), BytesMut::new());
            expected.put_i16(MANY_TYPES as i16);
            let mut columns = batch.columns().iter().enumerate();
            let of_values = columns.try_for_each(|(index, column)| format.field(&mut expected, index, column, row));
            match (writer.data_row(&mut written, row), of_values) {
                (Ok(()), Ok(())) => {
                    prop_assert_eq!(written[0], b'D');
                    prop_assert_eq!(i32::from_be_bytes(written[1..5].try_into().unwrap()), written.len() as i32 - 1);
                    prop_assert_eq!(&written[5..], &expected[..]);
                }
                (written, expected) => {
                    let [written, expected] = [written, expected].map(|refused| refused.unwrap_err().to_string());
                    prop_assert_eq!(written, expected);
                }
            }
        }
    }

    #[test]
    fn a_decimal_of_any_type_is_written_as_its_text_is(
        value in any::<i128>(), shift in 0u32..127, precision in 1u8..=38, scale in -9i8..=38
    ) {
        let (value, scale) = (value >> shift, scale.min(precision as i8));
        let (mut written, mut expected) = (BytesMut::new(), BytesMut::new());
        binary::DecimalFormat::new(precision, scale).put(&mut written, value);
        binary::put_numeric(&mut expected, &Decimal128Type::format_decimal(value, precision, scale));
        prop_assert_eq!(&written, &expected);
    }

    #[test]
    fn a_decimal_is_the_same_in_both_formats(value in any::<i128>(), shift in 0u32..127, scale in 0i8..=38) {
        let value = (value >> shift) % 10_i128.pow(38);
        let column = Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale).unwrap();
        let found = &written(Arc::new(column), TextType::Any, "UTC")[0];
        prop_assert_eq!(&read_numeric(&found.1), &found.0);
        let digits: String = found.0.chars().filter(|c| *c != '.').collect();
        prop_assert_eq!(digits.parse::<i128>().unwrap(), value);
    }

    #[test]
    fn a_wide_decimal_is_the_same_in_both_formats(high in any::<i64>(), low in any::<u128>(), scale in 0i8..=60) {
        let column = Decimal256Array::from(vec![i256::from_parts(low, i128::from(high))]).with_precision_and_scale(76, scale).unwrap();
        let found = &written(Arc::new(column), TextType::Any, "UTC")[0];
        prop_assert_eq!(&read_numeric(&found.1), &found.0);
    }

    #[test]
    fn a_float_reads_back(bits in any::<u64>(), short in any::<u32>()) {
        let value = f64::from_bits(bits);
        let text = &texts(Arc::new(Float64Array::from(vec![value])))[0];
        prop_assert!(text.parse::<f64>().unwrap() == value || value.is_nan(), "{}", text);
        let value = f32::from_bits(short);
        let text = &texts(Arc::new(Float32Array::from(vec![value])))[0];
        prop_assert!(text.parse::<f32>().unwrap() == value || value.is_nan(), "{}", text);
    }

    #[test]
    fn integers_and_times_read_back(value in any::<i64>(), days in any::<i32>()) {
        let found = &written(Arc::new(Int64Array::from(vec![value])), TextType::Any, "UTC")[0];
        prop_assert_eq!(found.0.parse::<i64>().unwrap(), value);
        prop_assert_eq!(i64::from_sql(&Type::INT8, &found.1).unwrap(), value);
        // No value panics: it is written or refused.
        let column: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![value]).with_timezone("UTC"));
        let format = |format: i16, kind| RowFormat { types: vec![WireType { kind, is_list: false, modifier: -1 }], formats: vec![format], zone: Zone::default() };
        let _ = format(TEXT, Kind::TimestampTz).value(&mut BytesMut::new(), 0, &column, 0);
        let _ = format(BINARY, Kind::TimestampTz).value(&mut BytesMut::new(), 0, &column, 0);
        let column: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![days]));
        let _ = format(TEXT, Kind::Date).value(&mut BytesMut::new(), 0, &column, 0);
        let _ = format(BINARY, Kind::Date).value(&mut BytesMut::new(), 0, &column, 0);
    }
}
