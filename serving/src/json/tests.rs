use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, DurationMicrosecondArray, Float64Array,
    Int64Array, IntervalMonthDayNanoArray, ListArray, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Decimal128Type, DecimalType, Field, Int64Type, IntervalMonthDayNano, Schema, i256};
use engine::functions::QUOTIENT;
use proptest::prelude::*;

use super::{RowWriter, rows, value};

fn json(column: impl arrow::array::Array + 'static, row: usize) -> String {
    value(&(Arc::new(column) as ArrayRef), row).unwrap().get().to_owned()
}

#[test]
fn integers_past_two_to_the_53_are_strings() {
    let column = Int64Array::from(vec![1 << 53, (1 << 53) + 1, -(1 << 53) - 1, i64::MIN]);
    let texts: Vec<String> = (0..4).map(|row| json(column.clone(), row)).collect();
    assert_eq!(texts, ["9007199254740992", "\"9007199254740993\"", "\"-9007199254740993\"", "\"-9223372036854775808\""]);
    assert_eq!(json(UInt64Array::from(vec![u64::MAX]), 0), "\"18446744073709551615\"");
}

#[test]
fn decimals_are_strings_with_all_their_digits() {
    let column = Decimal128Array::from(vec![1550, -5, 12345678901234567890123456789]).with_precision_and_scale(38, 2).unwrap();
    assert_eq!(json(column.clone(), 0), "\"15.50\"");
    assert_eq!(json(column.clone(), 1), "\"-0.05\"");
    assert_eq!(json(column, 2), "\"123456789012345678901234567.89\"");
}

proptest! {
    #[test]
    fn decimals_are_written_as_arrow_formats_them(
        value in prop_oneof![any::<i64>().prop_map(i128::from), -1_000..1_000i128, -10i128.pow(38) + 1..10i128.pow(38)],
        scale in 0..=38i8,
    ) {
        let column = Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale).unwrap();
        prop_assert_eq!(json(column, 0), format!("\"{}\"", Decimal128Type::format_decimal(value, 38, scale)));
    }
}

#[test]
fn quotients_have_no_zeros_at_the_end() {
    let one = i256::from_i128(10i128.pow(38));
    let third = i256::from_i128(10i128.pow(38) / 3);
    let eighth = i256::from_i128(10i128.pow(38) / 8);
    let column = Decimal256Array::from(vec![one, third, eighth, eighth.wrapping_neg(), i256::ZERO, one.wrapping_mul(i256::from(10))]);
    let column = column.with_data_type(QUOTIENT);
    let texts: Vec<String> = (0..6).map(|row| json(column.clone(), row)).collect();
    let expected = ["1", "0.33333333333333333333333333333333333333", "0.125", "-0.125", "0", "10"];
    assert_eq!(texts, expected.map(|text| format!("\"{text}\"")));
    let rounded = Decimal256Array::from(vec![i256::from(50)]).with_precision_and_scale(76, 1).unwrap();
    assert_eq!(json(rounded, 0), "\"5.0\"");
}

#[test]
fn what_is_no_number_is_null() {
    let column = Float64Array::from(vec![Some(f64::NAN), Some(f64::INFINITY), None, Some(0.1), Some(1e300)]);
    let texts: Vec<String> = (0..5).map(|row| json(column.clone(), row)).collect();
    assert_eq!(texts[..4], ["null", "null", "null", "0.1"]);
    assert_eq!(texts[4].parse::<f64>().unwrap(), 1e300);
}

#[test]
fn times_have_a_zone_and_days_have_none() {
    assert_eq!(json(TimestampMicrosecondArray::from(vec![1_714_566_600_250_000]).with_timezone("UTC"), 0), "\"2024-05-01T12:30:00.25Z\"");
    assert_eq!(json(TimestampNanosecondArray::from(vec![-1]), 0), "\"1969-12-31T23:59:59.999999Z\"");
    assert_eq!(json(Date32Array::from(vec![19_844]), 0), "\"2024-05-01\"");
}

#[test]
fn intervals_and_differences_of_times_are_iso_8601() {
    let interval = IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(14, 3, -1_500_000_000)]);
    assert_eq!(json(interval.clone(), 0), "\"P1Y2M3DT-1.5S\"");
    assert_eq!(json(DurationMicrosecondArray::from(vec![9_000_500_000]), 0), "\"PT2H30M0.5S\"");
    let inner = StructArray::from(vec![(Arc::new(Field::new("idle", interval.data_type().clone(), true)), Arc::new(interval) as ArrayRef)]);
    assert_eq!(json(inner, 0), "{\"idle\":\"P1Y2M3DT-1.5S\"}");
}

#[test]
fn bytes_truths_and_texts() {
    assert_eq!(json(BinaryArray::from(vec![&[0u8, 255][..]]), 0), "\"AP8=\"");
    assert_eq!(json(BooleanArray::from(vec![false]), 0), "false");
    assert_eq!(json(StringArray::from(vec!["a\"\n</script>\u{0}"]), 0), r#""a\"\n</script>\u0000""#);
}

#[test]
fn lists_and_structs_nest() {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![Some(vec![Some(1), None, Some(i64::MAX)])]);
    assert_eq!(json(list.clone(), 0), "[1,null,\"9223372036854775807\"]");
    let inner = StructArray::from(vec![
        (Arc::new(Field::new("n", DataType::Int64, true)), Arc::new(Int64Array::from(vec![7])) as ArrayRef),
        (Arc::new(Field::new("of", list.data_type().clone(), true)), Arc::new(list) as ArrayRef),
    ]);
    assert_eq!(json(inner, 0), "{\"n\":7,\"of\":[1,null,\"9223372036854775807\"]}");
}

#[test]
fn columns_keep_their_order_and_none_hides_another() {
    let fields = ["z", "a", "z"].map(|name| Field::new(name, DataType::Int64, true));
    let columns = [1, 2, 3].map(|n| Arc::new(Int64Array::from(vec![n])) as ArrayRef);
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns.to_vec()).unwrap();
    assert_eq!(rows(&batch).unwrap()[0].get(), r#"{"z":1,"a":2,"z_2":3}"#);
    assert_eq!(RowWriter::new(&batch.schema()).row(&batch, 0).unwrap().get(), r#"{"z":1,"a":2,"z_2":3}"#);
}

#[test]
fn rows_are_written_as_they_are_one_by_one() {
    let batch = |name: &str| {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
        RecordBatch::try_from_iter([(name, column)]).unwrap()
    };
    // More schemas than writers are kept of, each twice.
    let batches: Vec<RecordBatch> = (0..40).map(|number| batch(&format!("c{number}"))).collect();
    for (number, batch) in batches.iter().enumerate().chain(batches.iter().enumerate()) {
        let mut out = Vec::new();
        super::write_rows(&mut out, batch).unwrap();
        let expected = format!(r#"[{{"c{number}":1}},{{"c{number}":null}},{{"c{number}":3}}]"#);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert_eq!(rows(batch).unwrap()[1].get(), format!(r#"{{"c{number}":null}}"#));
    }
}

proptest! {
    #[test]
    fn decimals_are_the_texts_that_arrow_makes(
        value in prop_oneof![any::<i64>().prop_map(i128::from), -1_000i128..1_000, -(10i128.pow(38) - 1)..10i128.pow(38)],
        scale in -3i8..=38,
    ) {
        let column = Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale).unwrap();
        let expected = arrow::util::display::array_value_to_string(&column, 0).unwrap();
        prop_assert_eq!(json(column, 0), format!("\"{expected}\""));
    }

    #[test]
    fn every_text_reads_back(text in any::<String>()) {
        let written = json(StringArray::from(vec![text.clone()]), 0);
        prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
    }

    #[test]
    fn every_finite_double_reads_back(number in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
        let written = json(Float64Array::from(vec![number]), 0);
        prop_assert_eq!(written.parse::<f64>().unwrap(), number);
    }
}
