use arrow::util::display::array_value_to_string;
use definitions::{Definitions, parse};

use crate::functions::Functions;
use crate::plan::{Planned, Planner, planning_session};

/// A view's stamp, whose only sum is of these numbers.
async fn stamp_of_sum(of: &str) -> String {
    let stream = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x DOUBLE, i BIGINT, d DECIMAL(18,2)) WITH (event_time = 'ts')";
    let stream = parse::parse_stream(stream).unwrap();
    let view = parse::parse_view(&format!("CREATE VIEW v AS SELECT k, sum({of}) AS n FROM s GROUP BY k")).unwrap();
    let project = Definitions { streams: vec![stream], views: vec![view.clone()], ..Definitions::default() };
    match Planner::new(&project, Functions::standard()).plan(&view).await {
        Ok(Planned::Stateful(plan)) => plan.stamp.clone(),
        other => panic!("{of}: {other:?}"),
    }
}

#[tokio::test]
async fn definitions_cast_round_and_take_seconds_as_postgresql_does() {
    let session = planning_session(&Functions::standard()).unwrap();
    for (expression, expected) in [
        ("CAST(2.7 AS BIGINT)", "3"),
        ("CAST(CAST(2.5 AS DOUBLE) AS BIGINT)", "2"),
        ("CAST(-2.5 AS BIGINT)", "-3"),
        ("TRY_CAST(CAST(2.7 AS DOUBLE) AS INT)", "3"),
        ("round(CAST(2.5 AS DOUBLE))", "2.0"),
        ("CAST(trunc(CAST(2.7 AS DOUBLE)) AS BIGINT)", "2"),
        ("CAST(CAST(1e10 AS DOUBLE) AS TEXT)", "10000000000"),
        ("CAST(['a', 'b c'] AS TEXT)", "{a,\"b c\"}"),
        ("'x' || CAST(1.0 AS DOUBLE)", "x1"),
        ("concat(true, 'x')", "tx"),
        ("extract(second FROM TIMESTAMP '2026-03-01 10:00:01.25')", "1.25"),
    ] {
        let batches = session.sql(&format!("SELECT {expression} AS found")).await.unwrap().collect().await.unwrap();
        assert_eq!(array_value_to_string(batches[0].column(0), 0).unwrap(), expected, "{expression}");
    }
}

#[tokio::test]
async fn states_that_were_of_other_values_have_a_stamp_of_their_own() {
    for other in ["CAST(x AS BIGINT)", "CAST(d AS INT)", "round(x)", "length(CAST(x AS TEXT))", "extract(second FROM ts)"] {
        assert!(stamp_of_sum(other).await.ends_with("; values of PostgreSQL/1"), "{other}");
    }
    for same in ["x", "CAST(i AS INT)", "CAST(k AS BIGINT)", "CAST(i AS DOUBLE)", "length(CAST(i AS TEXT))", "extract(minute FROM ts)"] {
        assert!(!stamp_of_sum(same).await.contains("PostgreSQL"), "{same}");
    }
}
