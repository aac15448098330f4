use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch};
use arrow::util::display::array_value_to_string;
use datafusion::prelude::SessionContext;

use crate::functions::Functions;
use crate::plan::{Planned, Planner, planning_session};
use definitions::{Definitions, parse};

/// d: 0.30 and 7.00; e: the same with 10 digits after the point, of 38; n: 2 and 30; x: doubles.
fn session() -> SessionContext {
    let decimals = |values: [i128; 2], precision, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, scale).unwrap())
    };
    let columns: [(&str, ArrayRef); 4] = [
        ("d", decimals([30, 700], 18, 2)),
        ("e", decimals([3_000_000_000, 70_000_000_000], 38, 10)),
        ("n", Arc::new(Int64Array::from(vec![2, 30]))),
        ("x", Arc::new(Float64Array::from(vec![0.5, 4.0]))),
    ];
    let session = planning_session(&Functions::standard()).unwrap();
    session.register_batch("t", RecordBatch::try_from_iter(columns).unwrap()).unwrap();
    session
}

/// The rows of a query's first column without the zeros behind the point, and the column's type.
async fn answer(sql: &str) -> (String, String) {
    let batches = session().sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await;
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = |column: &ArrayRef, row| {
        let text = array_value_to_string(column, row).unwrap();
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    let columns: Vec<&ArrayRef> = batches.iter().map(|batch| batch.column(0)).collect();
    let rows: Vec<String> = columns.iter().flat_map(|column| (0..column.len()).map(|row| text(column, row))).collect();
    (rows.join(" "), columns[0].data_type().to_string())
}

const WIDE: &str = "Decimal256(76, 38)";

#[tokio::test]
async fn quotients_of_decimals_keep_their_digits() {
    for (quotient, expected) in [
        ("3 / 90000.0", "0.00003333333333333333333333333333333333"),
        ("2 / 30.0", "0.06666666666666666666666666666666666667"),
        ("1 / (2 / 30.0)", "14.99999999999999999999999999999999999925"),
        ("-2.0 / 3", "-0.66666666666666666666666666666666666667"),
        ("1.0 / 8", "0.125"),
        ("12345678901234567890.12 / 1", "12345678901234567890.12"),
        ("(SELECT sum(n) / 3.0 FROM t)", "10.66666666666666666666666666666666666667"),
    ] {
        let (value, data_type) = answer(&format!("SELECT {quotient}")).await;
        assert_eq!((value.as_str(), data_type.as_str()), (expected, WIDE), "{quotient}");
    }
    assert_eq!(answer("SELECT d / n FROM t").await.0, "0.15 0.23333333333333333333333333333333333333");
    assert_eq!(answer("SELECT n / d FROM t").await.0, "6.66666666666666666666666666666666666667 4.28571428571428571428571428571428571429");
    assert_eq!(answer("SELECT e / d FROM t").await.0, "1 1");
    assert_eq!(answer("SELECT sum(d) / count(*) FROM t").await.0, "3.65");
}

#[tokio::test]
async fn other_divisions_are_as_they_were() {
    assert_eq!(answer("SELECT 7 / 2").await, ("3".into(), "Int64".into()));
    assert_eq!(answer("SELECT n / 4 FROM t").await, ("0 7".into(), "Int64".into()));
    assert_eq!(answer("SELECT d / x FROM t").await, ("0.6 1.75".into(), "Float64".into()));
    assert_eq!(answer("SELECT x / 0.5 FROM t").await, ("1 8".into(), "Float64".into()));
    assert_eq!(answer("SELECT x / (d / n) FROM t").await.1, "Float64");
    assert_eq!(answer("SELECT d * 1.50 FROM t").await, ("0.45 10.5".into(), "Decimal128(22, 4)".into()));
}

#[tokio::test]
async fn quotients_can_be_used_like_other_decimals() {
    for (value, expected) in [
        ("d / 3 * 100.00", "10 233.333333333333333333333333333333333333"),
        ("d / 4 * n", "0.15 52.5"),
        ("(d / 4) * (e / 4)", "0.005625 3.0625"),
        ("(d / 3) / (e / 3)", "1 1"),
        ("d / 4 + d", "0.375 8.75"),
        ("1 - d / 4", "0.925 -0.75"),
        ("e / 4 - 0.5", "-0.425 1.25"),
        ("(d / 4) % 0.5", "0.075 0.25"),
        ("-(d / 4)", "-0.075 -1.75"),
        ("round(d / 3, 2)", "0.1 2.33"),
        ("abs(d / -4)", "0.075 1.75"),
        ("floor(d / 4)", "0 1"),
        ("coalesce(d / 4, 0)", "0.075 1.75"),
        ("nullif(d / 4, 1.75)", "0.075 "),
        ("greatest(d / 4, 0.5)", "0.5 1.75"),
        ("CASE WHEN d > 1 THEN d / 4 ELSE 0 END", "0 1.75"),
        ("CAST(d / 3 AS DECIMAL(18,2))", "0.1 2.33"),
        ("round(CAST(d / 4 AS DOUBLE), 3)", "0.075 1.75"),
        ("d / 4 > 0.5", "false true"),
        ("d / 4 = 1.75", "false true"),
        ("d / 4 > n", "false false"),
        ("d / 4 BETWEEN 0 AND 1", "true false"),
        ("d / 4 IN (0.075, 3)", "true false"),
        ("d / 4 > x", "false false"),
    ] {
        assert_eq!(answer(&format!("SELECT {value} FROM t")).await.0, expected, "{value}");
    }
    for (value, expected) in [
        ("sum(d / 4)", "1.825"),
        ("avg(d / 4)", "0.9125"),
        ("avg(d / 4) * 2.00", "1.825"),
        ("min(d / 4)", "0.075"),
        ("count(DISTINCT d / 4)", "2"),
        ("median(d / 4)", "0.9125"),
        ("sum(d / 4) FILTER (WHERE d / 4 > 1)", "1.75"),
        ("sum(d) / nullif(count(*), 0) * 100", "365"),
    ] {
        assert_eq!(answer(&format!("SELECT {value} FROM t")).await.0, expected, "{value}");
    }
}

#[tokio::test]
async fn quotients_meet_other_types_in_sets_and_subqueries() {
    for (sql, expected) in [
        ("SELECT 1 / 4.0 AS v UNION ALL SELECT 1.5 ORDER BY v", "0.25 1.5"),
        ("SELECT column1 FROM (VALUES (1 / 4.0), (2)) ORDER BY 1", "0.25 2"),
        ("WITH q AS (SELECT d / 4 AS v FROM t) SELECT v * v FROM q", "0.005625 3.0625"),
        ("SELECT n FROM t WHERE d / 4 = (SELECT 7 / 4.0)", "30"),
        ("SELECT count(*) FROM t GROUP BY d / 4 HAVING sum(d) / 4 > 1", "1"),
        ("SELECT d / 4 FROM t ORDER BY d / 4 DESC", "1.75 0.075"),
        ("SELECT sum(d / 4) OVER (ORDER BY n) FROM t", "0.075 1.825"),
    ] {
        assert_eq!(answer(sql).await.0, expected, "{sql}");
    }
}

#[tokio::test]
async fn a_quotient_that_is_no_number_is_an_error() {
    let failed = async |sql: &str| match session().sql(sql).await {
        Ok(frame) => frame.collect().await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(failed("SELECT d / (d - d) FROM t").await.contains("Divide by zero"));
    let large = failed("SELECT 10000000000000000000000000000000000000 / (d / 100) FROM t").await;
    assert!(large.contains("has more than 38 digits before the point"), "{large}");
}

#[tokio::test]
async fn a_column_keeps_its_name_and_its_sql() {
    let frame = session().sql("SELECT d / n, sum(d / 2) / count(*) FROM t GROUP BY d / n").await.unwrap();
    let names: Vec<String> = frame.collect().await.unwrap()[0].schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["t.d / t.n", "sum(t.d / Int64(2)) / count(*)"]);
}

#[tokio::test]
async fn states_behind_a_division_with_a_decimal_have_a_stamp_of_their_own() {
    let stream = "CREATE STREAM s (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, k TEXT, n BIGINT, d DECIMAL(18,2)) \
        WITH (event_time = 'ts', id = 'id', dedup_within = '1m')";
    let stamp = async |select: &str| {
        let view = parse::parse_view(&format!("CREATE VIEW v WITH (windows = '1h', every = '1h') AS {select}")).unwrap();
        let project =
            Definitions { streams: vec![parse::parse_stream(stream).unwrap()], views: vec![view.clone()], ..Definitions::default() };
        match Planner::new(&project, Functions::standard()).plan(&view).await {
            Ok(Planned::Stateful(plan)) => plan.stamp.clone(),
            other => panic!("{select}: {:?}", other.err()),
        }
    };
    for above in ["SELECT k, sum(d) / count(*) AS v FROM s GROUP BY k", "SELECT k, sum(n / 2) AS v FROM s GROUP BY k"] {
        assert!(!stamp(above).await.contains("division"), "{above}");
    }
    for below in [
        "SELECT k, sum(d / 3) AS v FROM s GROUP BY k",
        "SELECT k, count(*) FILTER (WHERE d / 3 > 0.1) AS v FROM s GROUP BY k",
        "SELECT k, count(*) AS v FROM s WHERE 1 / d > 3 GROUP BY k",
        "SELECT d / 3 AS k, count(*) AS v FROM s GROUP BY d / 3",
        "SELECT k, sum(q) AS v FROM (SELECT k, d / 3 AS q FROM s) GROUP BY k",
    ] {
        assert!(stamp(below).await.ends_with("; decimal division/2"), "{below}");
    }
}
