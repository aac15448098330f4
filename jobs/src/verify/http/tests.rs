use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, Field, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, Schema, TimeUnit, TimestampMicrosecondType,
};
use types::sql_types::timestamp_type;

use super::*;

fn schema() -> SchemaRef {
    let entry = vec![Field::new("value", DataType::Utf8, true), Field::new("count", DataType::Int64, true)];
    let top = DataType::List(Arc::new(Field::new("item", DataType::Struct(entry.into()), true)));
    Arc::new(Schema::new(vec![
        Field::new("device", DataType::Utf8, true),
        Field::new("n", DataType::Int64, false),
        Field::new("amount", DataType::Decimal128(38, 2), true),
        Field::new("mean", DataType::Float64, true),
        Field::new("last_seen", timestamp_type(), true),
        Field::new("raw", DataType::Binary, true),
        Field::new("top", top, true),
        Field::new("quiet", DataType::Duration(TimeUnit::Microsecond), true),
        Field::new("kept", DataType::Interval(IntervalUnit::MonthDayNano), true),
    ]))
}

fn body(rows: &str) -> String {
    let vector: Vector = "payments/0:17".parse().unwrap();
    format!(
        r#"{{"rows": {rows}, "meta": {{"cut": "{}", "as_of": "2026-01-01T00:00:00.000001Z", "degraded": false, "versions": {{"v": 3}}}}}}"#,
        vector.token()
    )
}

#[test]
fn an_answer_is_read_back_with_its_types() {
    let rows = r#"[{"device": "a", "n": "9007199254740993", "amount": "12345678901234567890.12", "mean": null,
        "last_seen": "2026-01-01T00:00:00.5Z", "raw": "AAH/", "top": [{"value": "x", "count": 3}, {"value": null, "count": "4"}], "quiet": "PT-26H0.5S",
        "kept": "P1M2DT3S"},
        {"device": null, "n": 0, "amount": null, "mean": 0.1, "last_seen": null, "raw": null, "top": null,
        "quiet": null, "kept": null}]"#;
    let answer = read(body(rows).as_bytes(), "v", &schema()).unwrap();
    assert_eq!(answer.version, Some(3));
    assert_eq!((answer.t, answer.vector.to_string().as_str()), (1_767_225_600_000_001, "payments/0:17"));
    let rows = &answer.rows[0];
    let named = |name: &str| rows.column_by_name(name).unwrap();
    assert_eq!(named("n").as_primitive::<Int64Type>().values(), &[9_007_199_254_740_993, 0]);
    assert_eq!(named("amount").as_primitive::<Decimal128Type>().value(0), 1_234_567_890_123_456_789_012);
    assert_eq!(named("last_seen").as_primitive::<TimestampMicrosecondType>().value(0), 1_767_225_600_500_000);
    assert_eq!(named("raw").as_binary::<i32>().value(0), [0, 1, 255]);
    assert_eq!(named("quiet").as_primitive::<DurationMicrosecondType>().value(0), -26 * 3_600_000_000 + 500_000);
    let kept = named("kept").as_primitive::<IntervalMonthDayNanoType>().value(0);
    assert_eq!(kept, IntervalMonthDayNano::new(1, 2, 3_000_000_000));
    let top = named("top").as_list::<i32>();
    assert!(top.is_null(1) && top.value(0).as_struct().column(1).as_primitive::<Int64Type>().values() == &[3, 4]);
    for name in ["device", "amount", "last_seen", "raw", "quiet", "kept"] {
        assert!(named(name).is_null(1), "{name}");
    }
}

#[test]
fn floats_are_asked_for_as_texts_which_have_nan_and_infinities() {
    assert_eq!(query("v", &schema()), r#"SELECT * REPLACE (CAST("mean" AS VARCHAR) AS "mean") FROM "v""#);
    let device = Schema::new(vec![Field::new("device", DataType::Utf8, true)]);
    assert_eq!(query("v", &device), r#"SELECT * FROM "v""#);
    let rows = r#"[{"mean": "NaN"}, {"mean": "-inf"}, {"mean": "1.7976931348623157e308"}, {"mean": null}]"#;
    let answer = read(body(rows).as_bytes(), "v", &schema()).unwrap();
    let means = answer.rows[0].column(0).as_primitive::<Float64Type>();
    assert!(means.is_valid(0) && means.value(0).is_nan());
    assert_eq!(means.values()[1..3], [f64::NEG_INFINITY, f64::MAX]);
    assert!(means.is_null(3));
}

#[test]
fn differences_of_times_are_read_back_beyond_the_292_years_of_nanoseconds() {
    let rows = r#"[{"quiet": "PT87649391H59M59.999999S"}, {"quiet": "PT-87649391H"}]"#;
    let answer = read(body(rows).as_bytes(), "v", &schema()).unwrap();
    let quiet = answer.rows[0].column(0).as_primitive::<DurationMicrosecondType>();
    assert_eq!(quiet.values()[..], [87_649_392 * 3_600_000_000 - 1, -87_649_391 * 3_600_000_000]);
}

#[test]
fn an_answer_of_another_form_is_refused() {
    for rows in [
        r#"[{"n": "many"}]"#,
        r#"[{"raw": "?"}]"#,
        r#"[{"top": 3}]"#,
        "3",
        r#"[{"last_seen": "yesterday"}]"#,
        r#"[{"quiet": "3 h"}]"#,
        r#"[{"quiet": "P1D"}]"#,
    ] {
        assert!(read(body(rows).as_bytes(), "v", &schema()).is_err(), "{rows}");
    }
    assert!(read(b"not json", "v", &schema()).is_err());
    assert!(read(body("[]").as_bytes(), "v", &schema()).unwrap().rows[0].num_rows() == 0);
    assert!(HttpServed::new("ftp://somewhere", None).is_err() && HttpServed::new("somewhere", None).is_err());
}

#[test]
fn a_refusal_says_what_the_node_said() {
    let error = refused(404, br#"{"title": "not found", "detail": "there is no view \"x\""}"#);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("there is no view"), "{error}");
}
