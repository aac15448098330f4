use arrow::util::display::array_value_to_string;
use definitions::{Definitions, parse};

use crate::functions::Functions;
use crate::plan::{Planned, Planner, planning_session};

async fn answer(expression: &str, from: &str) -> String {
    let session = planning_session(&Functions::standard()).unwrap();
    let batches = session.sql(&format!("SELECT {expression} AS found {from}")).await.unwrap().collect().await.unwrap();
    array_value_to_string(batches[0].column(0), 0).unwrap()
}

#[tokio::test]
async fn a_constant_is_truncated_as_a_column_is() {
    let times = ["1969-12-31 23:59:59.999999900", "1901-02-03 04:05:06.000000100", "1970-01-01 00:00:00", "2026-05-06 07:08:09.123456789"];
    for time in times.iter().flat_map(|time| [format!("TIMESTAMP '{time}'"), format!("TIMESTAMPTZ '{time}Z'")]) {
        for unit in ["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"] {
            let constant = answer(&format!("date_trunc('{unit}', {time})"), "").await;
            let column = answer(&format!("date_trunc('{unit}', t)"), &format!("FROM (VALUES ({time})) AS times(t)")).await;
            assert_eq!(constant, column, "{unit} of {time}");
            let is_later = answer(&format!("date_trunc('{unit}', {time}) > {time}"), "").await;
            assert_eq!(is_later, "false", "{unit} of {time}");
        }
    }
    assert_eq!(answer("date_trunc('millisecond', CAST(NULL AS TIMESTAMP)) IS NULL", "").await, "true");
}

#[tokio::test]
async fn states_behind_a_constant_that_was_rounded_have_a_stamp_of_their_own() {
    let stream = parse::parse_stream("CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT) WITH (event_time = 'ts')").unwrap();
    let stamp = async |condition: &str| {
        let view = format!("CREATE VIEW v AS SELECT k, count(*) FILTER (WHERE ts > {condition}) AS n FROM s GROUP BY k");
        let view = parse::parse_view(&view).unwrap();
        let project = Definitions { streams: vec![stream.clone()], views: vec![view.clone()], ..Definitions::default() };
        match Planner::new(&project, Functions::standard()).plan(&view).await {
            Ok(Planned::Stateful(plan)) => plan.stamp.clone(),
            other => panic!("{condition}: {other:?}"),
        }
    };
    let constant = "TIMESTAMPTZ '1969-12-31 23:59:59.9999Z'";
    for rounded in [format!("date_trunc('millisecond', {constant})"), format!("date_trunc('MICROSECOND', {constant})")] {
        assert!(stamp(&rounded).await.ends_with("; constants truncated/1"), "{rounded}");
    }
    for right in [format!("date_trunc('second', {constant})"), "date_trunc('millisecond', ts)".to_owned(), constant.to_owned()] {
        assert!(!stamp(&right).await.contains("truncated"), "{right}");
    }
}
