use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float32Array, Float64Array, RecordBatch};
use arrow::util::display::array_value_to_string;
use datafusion::prelude::SessionContext;

use crate::functions::Functions;
use crate::plan::planning_session;

/// x: values that DECIMAL(30,15) cannot hold; r: likewise in 32 bits; d: 0.30 and 0.50 alternating.
fn session() -> SessionContext {
    let x: ArrayRef = Arc::new(Float64Array::from(vec![Some(1e300), Some(1e-300), Some(0.1 + 0.2), Some(0.3), None]));
    let r: ArrayRef = Arc::new(Float32Array::from(vec![Some(1e30), Some(1e-30), Some(0.5), Some(0.25), None]));
    let d = Decimal128Array::from(vec![30, 50, 30, 30, 50]).with_precision_and_scale(18, 2).unwrap();
    let session = planning_session(&Functions::standard()).unwrap();
    session.register_batch("t", RecordBatch::try_from_iter([("x", x), ("r", r), ("d", Arc::new(d) as ArrayRef)]).unwrap()).unwrap();
    session
}

async fn answer(sql: &str) -> (String, String) {
    let batches = session().sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await;
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let column = batches[0].column(0);
    let rows: Vec<String> = (0..column.len()).map(|row| array_value_to_string(column, row).unwrap()).collect();
    (rows.join(" "), column.data_type().to_string())
}

#[tokio::test]
async fn doubles_are_compared_as_doubles() {
    for (condition, expected) in [
        ("x > 0.0", "4"),
        ("x > 0.5", "1"),
        ("0.5 < x", "1"),
        ("x = 0.3", "1"),
        ("x <> 0.3", "3"),
        ("x > -0.5", "4"),
        ("x IS DISTINCT FROM 0.3", "4"),
        ("x BETWEEN 0.0 AND 0.9", "3"),
        ("0.3 BETWEEN x AND 9.0", "2"),
        ("x IN (0.3, 0.7)", "1"),
        ("x > d", "2"),
        ("d = x", "1"),
        ("r > 0.5", "1"),
        ("r >= 0.25", "3"),
        ("CASE x WHEN 0.3 THEN true ELSE false END", "1"),
        ("coalesce(x, 0.5) > 0.4", "2"),
        ("x > 0.5 OR x = 0.3", "2"),
        ("x > (SELECT 0.5)", "1"),
        ("x > d * 1.5", "1"),
    ] {
        let (rows, _) = answer(&format!("SELECT count(*) FILTER (WHERE {condition}) FROM t")).await;
        assert_eq!(rows, expected, "{condition}");
    }
}

#[tokio::test]
async fn doubles_beside_decimals_stay_doubles() {
    for value in [
        "coalesce(x, 0.5)",
        "greatest(x, 0.5)",
        "nullif(x, 0.5)",
        "CASE WHEN d > 0.4 THEN x ELSE 0.5 END",
        "CASE WHEN x > 1.0 THEN 0.5 ELSE x END",
        "CASE WHEN x > 1.0 THEN d ELSE x END",
    ] {
        assert_eq!(answer(&format!("SELECT {value} AS value FROM t")).await.1, "Float64", "{value}");
        // Expressions over the value stay DOUBLE too.
        let sql = format!("SELECT count(*) FILTER (WHERE value < 0.1) FROM (SELECT {value} AS value FROM t)");
        assert!(answer(&sql).await.0.parse::<u32>().is_ok(), "{value}");
    }
    let nested = "SELECT count(*) FILTER (WHERE value > 0.0) FROM (SELECT coalesce(x, 0.5) AS value FROM t)";
    assert_eq!(answer(nested).await.0, "5");
}

#[tokio::test]
async fn decimals_among_themselves_stay_exact() {
    assert_eq!(answer("SELECT count(*) FROM t WHERE d = 0.30").await.0, "3");
    assert_eq!(answer("SELECT CASE WHEN x > 0.5 THEN d ELSE 0.125 END FROM t").await.1, "Decimal128(19, 3)");
    assert_eq!(answer("SELECT coalesce(d, 0.1) FROM t LIMIT 1").await, ("0.30".to_owned(), "Decimal128(18, 2)".to_owned()));
    assert_eq!(answer("SELECT sum(0.1) FROM t").await.0, "0.5");
}
