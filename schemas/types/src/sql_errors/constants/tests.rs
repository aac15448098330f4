use datafusion::common::ScalarValue;

use super::*;

#[test]
fn the_constants_of_a_plan_become_sql_and_types_stay() {
    let interval = ScalarValue::new_interval_mdn(0, 1, 0);
    for (constant, sql) in [
        (ScalarValue::Int64(Some(-3)), "-3"),
        (ScalarValue::UInt8(Some(3)), "3"),
        (ScalarValue::Float64(Some(2.5)), "2.5"),
        (ScalarValue::Int64(None), "NULL"),
        (ScalarValue::Boolean(Some(true)), "true"),
        (ScalarValue::Decimal128(Some(350), 18, 2), "3.50"),
        (ScalarValue::Decimal128(None, 18, 2), "NULL"),
        (ScalarValue::from("it's (\"x\""), "'it''s (\"x\"'"),
        (ScalarValue::Utf8View(Some(String::new())), "''"),
        (ScalarValue::Utf8(None), "NULL"),
        (ScalarValue::Date32(Some(366)), "DATE '1971-01-02'"),
        (interval, "INTERVAL '1 days'"),
        (ScalarValue::new_interval_mdn(2, 0, 90_000_000_000), "INTERVAL '2 months 90 seconds'"),
        (ScalarValue::new_interval_dt(0, 5), "INTERVAL '5 milliseconds'"),
    ] {
        let text = format!("sum(größe.x + {constant:?}) > {constant:?} AND y");
        assert_eq!(constants_as_sql(&text), format!("sum(größe.x + {sql}) > {sql} AND y"), "{constant:?}");
    }
    for other in
        ["sum(Int64)", "Decimal128(18, 2)", "Timestamp(µs, \"UTC\")", "FixedSizeBinary(3)", "Utf8(", "Int64(x)", "(((", "f(\"Int64", ""]
    {
        assert_eq!(constants_as_sql(other), other);
    }
}
