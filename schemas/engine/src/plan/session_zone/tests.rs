use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::util::display::array_value_to_string;

use super::*;
use crate::functions::Functions;
use crate::plan::planning_session;

/// Half an hour before and after the clocks of Berlin are changed, to 03:00 and back to 02:00. `n` is no time.
const TIMES: &str = "(SELECT TIMESTAMPTZ '2026-03-29T00:30:00Z' AS winter, TIMESTAMPTZ '2026-03-29T01:30:00Z' AS summer, \
    TIMESTAMPTZ '2026-10-25T00:30:00Z' AS once, TIMESTAMPTZ '2026-10-25T01:30:00Z' AS again, CAST(NULL AS TIMESTAMPTZ) AS n) AS t";

fn session(zone: &str) -> SessionContext {
    let mut session = planning_session(&Functions::standard()).unwrap();
    compute_in_zone(&mut session, zone).unwrap();
    session
}

async fn asked(session: &SessionContext, sql: &str) -> Result<Vec<String>, String> {
    let batches = session.sql(sql).await.map_err(|error| error.to_string())?.collect().await.map_err(|error| error.to_string())?;
    let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    let values = |(batch, row): (&RecordBatch, usize)| {
        batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap()).collect::<Vec<_>>()
    };
    Ok(rows.flat_map(values).collect())
}

async fn in_berlin(expression: &str) -> Result<String, String> {
    let found = asked(&session("Europe/Berlin"), &format!("SELECT {expression} AS found FROM {TIMES}")).await?;
    Ok(found.concat())
}

#[tokio::test]
async fn what_depends_on_a_zone_is_computed_in_that_of_the_session() {
    for (expression, expected) in [
        ("to_char(winter, '%Y-%m-%d %H:%M')", "2026-03-29 01:30"),
        ("to_char(summer, '%Y-%m-%d %H:%M')", "2026-03-29 03:30"),
        ("CAST(winter AS TEXT)", "2026-03-29T01:30:00+01:00"),
        ("again::TEXT", "2026-10-25T02:30:00+01:00"),
        ("summer::TEXT", "2026-03-29T03:30:00+02:00"),
        ("'at ' || summer", "at 2026-03-29T03:30:00+02:00"),
        ("n::TEXT", ""),
        ("date_trunc('day', summer)", "2026-03-28T23:00:00Z"),
        ("date_trunc('month', summer)", "2026-02-28T23:00:00Z"),
        ("date_trunc('month', again)", "2026-09-30T22:00:00Z"),
        ("date_trunc('hour', once)", "2026-10-25T00:00:00Z"),
        ("date_trunc('hour', again)", "2026-10-25T01:00:00Z"),
        ("extract(hour FROM winter)", "1"),
        ("date_part('hour', summer)", "3"),
        ("date_part('day', TIMESTAMPTZ '2026-03-31T22:30:00Z')", "1"),
        ("date_part('year', TIMESTAMPTZ '2026-12-31T23:30:00Z') = 2027", "true"),
        ("date_part('epoch', summer) - date_part('epoch', winter)", "3600.0"),
        ("TIMESTAMPTZ '2026-03-31T22:30:00Z'::DATE", "2026-04-01"),
        ("summer::TIMESTAMP", "2026-03-29T03:30:00"),
        ("summer::TIME", "03:30:00"),
        ("TRY_CAST(summer AS DATE)", "2026-03-29"),
        ("TIMESTAMPTZ '2026-03-29 01:00:00'", "2026-03-29T00:00:00Z"),
        ("'2026-03-29 04:00:00'::TIMESTAMPTZ", "2026-03-29T02:00:00Z"),
        ("'2026-03-29 04:00:00+00'::TIMESTAMPTZ", "2026-03-29T04:00:00Z"),
        ("DATE '2026-03-30'::TIMESTAMPTZ", "2026-03-29T22:00:00Z"),
        ("TIMESTAMP '2026-03-30 00:00:00'::TIMESTAMPTZ", "2026-03-29T22:00:00Z"),
        ("to_timestamp('2026-03-29 03:30:00')", "2026-03-29T01:30:00Z"),
        ("to_unixtime(DATE '1970-01-02')", "86400"),
        ("to_unixtime(TIMESTAMP '1970-01-01 00:00:10')", "10"),
        ("to_unixtime(winter)", "1774744200"),
        ("to_timestamp(0)", "1970-01-01T00:00:00Z"),
        ("winter + INTERVAL '1 day'", "2026-03-29T23:30:00Z"),
        ("winter + INTERVAL '24 hours'", "2026-03-30T00:30:00Z"),
        ("INTERVAL '1 month' + winter", "2026-04-28T23:30:00Z"),
        ("summer - INTERVAL '1 month'", "2026-02-28T02:30:00Z"),
        ("TIMESTAMPTZ '2026-03-28T01:30:00Z' + INTERVAL '1 day'", "2026-03-29T01:30:00Z"),
        ("TIMESTAMPTZ '2026-03-30T00:30:00Z' - INTERVAL '1 day'", "2026-03-29T01:30:00Z"),
        ("TIMESTAMPTZ '2026-02-28T01:30:00Z' + INTERVAL '1 month 1 day'", "2026-03-29T01:30:00Z"),
        ("TIMESTAMPTZ '2026-03-28T01:30:00Z' + INTERVAL '1 day 1 hour'", "2026-03-29T02:30:00Z"),
        ("TIMESTAMPTZ '2026-10-24T00:30:00Z' + INTERVAL '1 day'", "2026-10-25T01:30:00Z"),
        ("TIMESTAMPTZ '2026-11-25T01:30:00Z' - INTERVAL '1 month'", "2026-10-25T01:30:00Z"),
        ("TIMESTAMPTZ '2026-01-30T23:30:00Z' + INTERVAL '1 month'", "2026-02-27T23:30:00Z"),
        ("once + INTERVAL '0 days'", "2026-10-25T00:30:00Z"),
        ("once + INTERVAL '1 hour'", "2026-10-25T01:30:00Z"),
        ("n + INTERVAL '1 day'", ""),
        ("summer - winter = INTERVAL '1 hour'", "true"),
        ("TIMESTAMPTZ '2026-03-29T22:00:00Z' - DATE '2026-03-29' = INTERVAL '23 hours'", "true"),
        ("DATE '2026-03-30' - TIMESTAMPTZ '2026-03-28T23:00:00Z' = INTERVAL '23 hours'", "true"),
        ("TIMESTAMPTZ '2026-03-29T22:00:00Z'::TIMESTAMP - DATE '2026-03-29' = INTERVAL '24 hours'", "true"),
        ("summer = '2026-03-29 03:30:00'", "true"),
        ("summer IN ('2026-03-29 03:30:00', '2026-03-29 04:30:00')", "true"),
        ("summer = TIMESTAMP '2026-03-29 03:30:00'", "true"),
        ("TIMESTAMPTZ '2026-03-28T23:00:00Z' >= DATE '2026-03-29'", "true"),
        ("TIMESTAMPTZ '2026-03-28T22:59:59Z' >= DATE '2026-03-29'", "false"),
        ("summer BETWEEN DATE '2026-03-29' AND DATE '2026-03-30'", "true"),
        ("TIMESTAMPTZ '2026-03-29T22:00:01Z' BETWEEN DATE '2026-03-29' AND DATE '2026-03-30'", "false"),
        ("generate_series(winter, summer, INTERVAL '1 hour')", "[2026-03-29T00:30:00Z, 2026-03-29T01:30:00Z]"),
        ("range(once, again, INTERVAL '30 minutes')", "[2026-10-25T00:30:00Z, 2026-10-25T01:00:00Z]"),
        ("generate_series(DATE '2026-03-28', DATE '2026-03-30', INTERVAL '1 day')[3]::TIMESTAMPTZ", "2026-03-29T22:00:00Z"),
        ("array_to_string(make_array(winter), ',')", "2026-03-29T01:30:00+01:00"),
        ("make_array(winter, summer)::TEXT[]", "[2026-03-29T01:30:00+01:00, 2026-03-29T03:30:00+02:00]"),
        ("date_trunc('day', summer AT TIME ZONE 'America/New_York')", "2026-03-28T00:00:00-04:00"),
    ] {
        assert_eq!(in_berlin(expression).await.as_deref(), Ok(expected), "{expression}");
    }
}

#[tokio::test]
async fn columns_keep_their_names_and_groups_are_those_of_the_zone() {
    let events = "(VALUES (TIMESTAMPTZ '2026-03-28T22:30:00Z'), (TIMESTAMPTZ '2026-03-28T23:30:00Z'), \
        (TIMESTAMPTZ '2026-03-29T21:30:00Z'), (TIMESTAMPTZ '2026-03-29T22:30:00Z')) AS events(ts)";
    let sql = format!(
        "SELECT date_trunc('day', ts), count(*) AS n, current_date AS today FROM {events} GROUP BY date_trunc('day', ts) ORDER BY 1"
    );
    let plan = session("Europe/Berlin").sql(&sql).await.unwrap();
    let shown =
        |schema: &DFSchema| schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect::<Vec<_>>();
    let plain = shown(plan.schema());
    assert_eq!(shown(plan.into_optimized_plan().unwrap().schema()), plain);
    let days = format!("SELECT date_trunc('day', ts) AS day, count(*) AS n FROM {events} GROUP BY date_trunc('day', ts) ORDER BY day");
    let expected = ["2026-03-27T23:00:00Z", "1", "2026-03-28T23:00:00Z", "2", "2026-03-29T22:00:00Z", "1"];
    assert_eq!(asked(&session("Europe/Berlin"), &days).await.unwrap(), expected);
}

/// UNION is an aggregate over a union, in which a time that is never NULL was one before the zone was taken into
/// account.
#[tokio::test]
async fn what_is_never_null_can_be_united_in_the_zone() {
    let berlin = session("Europe/Berlin");
    let ts: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_774_744_200_000_000]).with_timezone(UTC));
    berlin.register_batch("events", RecordBatch::try_from_iter_with_nullable([("ts", ts, false)]).unwrap()).unwrap();
    for (expression, may_be_null) in [
        ("date_trunc('day', ts)", false),
        ("ts + INTERVAL '1 day'", false),
        ("ts::DATE::TIMESTAMPTZ", false),
        ("TRY_CAST(ts::TEXT AS TIMESTAMPTZ)", true),
        // DataFusion's function says so.
        ("ts::TIMESTAMP", true),
    ] {
        let one = format!("SELECT {expression} AS found FROM events");
        let plan = berlin.sql(&one).await.unwrap().into_optimized_plan().unwrap();
        assert_eq!(plan.schema().field(0).is_nullable(), may_be_null, "{expression}");
        let united = asked(&berlin, &format!("{one} UNION {one}")).await;
        assert_eq!(united.map(|found| found.len()), Ok(1), "{expression}");
    }
}

/// DataFusion takes what has no local time for one past the end of the frame, and counts all rows.
#[tokio::test]
async fn frames_of_a_window_count_in_utc() {
    let counts = |first: &str, second: &str| {
        format!(
            "SELECT count(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '1 day' PRECEDING AND CURRENT ROW) AS n \
            FROM (VALUES (TIMESTAMPTZ '{first}'), (TIMESTAMPTZ '{second}')) AS events(ts) ORDER BY ts"
        )
    };
    // Between them is the day with 23 hours.
    let apart = counts("2026-03-28T23:00:00Z", "2026-03-29T22:30:00Z");
    assert_eq!(asked(&session("Europe/Berlin"), &apart).await.unwrap(), ["1", "2"]);
    // A day before the second, the clocks showed its time twice.
    let long_before = counts("2026-10-01T00:00:00Z", "2026-10-26T01:30:00Z");
    assert_eq!(asked(&session("Europe/Berlin"), &long_before).await.unwrap(), ["1", "1"]);
}

#[tokio::test]
async fn the_days_added_to_a_column_are_those_of_the_zone() {
    let times = "(VALUES (TIMESTAMPTZ '2026-03-28T01:30:00Z', INTERVAL '1 day'), (TIMESTAMPTZ '2026-10-24T00:30:00Z', INTERVAL '1 day'), \
        (TIMESTAMPTZ '2026-10-25T01:30:00Z', INTERVAL '-24 hours'), (NULL, INTERVAL '1 month')) AS times(ts, step)";
    let berlin = session("Europe/Berlin");
    let next_days = asked(&berlin, &format!("SELECT ts + INTERVAL '1 day' FROM {times} ORDER BY ts")).await.unwrap();
    assert_eq!(next_days, ["2026-03-29T01:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z", ""]);
    let sums = asked(&berlin, &format!("SELECT step + ts FROM {times} ORDER BY ts")).await.unwrap();
    assert_eq!(sums, ["2026-03-29T01:30:00Z", "2026-10-25T01:30:00Z", "2026-10-24T01:30:00Z", ""]);
    // Samoa had no 30 December.
    let skipped = "SELECT TIMESTAMPTZ '2011-12-29T20:00:00Z' + INTERVAL '1 day'";
    assert_eq!(asked(&session("Pacific/Apia"), skipped).await.unwrap(), ["2011-12-30T20:00:00Z"]);
    let error = asked(&berlin, &format!("SELECT ts + INTERVAL '300000 years' FROM {times}")).await.unwrap_err();
    assert!(error.contains("Timestamp out of range"), "{error}");
}

/// In Santiago, the clocks went from 24:00 of 5 September to 01:00. In Havana they went back from 01:00 of 1 November.
#[tokio::test]
async fn a_day_without_a_midnight_begins_an_hour_later() {
    let days = "(VALUES (DATE '2026-09-06', TIMESTAMPTZ '2026-09-06T04:00:00Z'), (DATE '2026-09-07', TIMESTAMPTZ '2026-09-06T03:59:59Z'), \
        (NULL, NULL)) AS days(day, ts)";
    let santiago = session("America/Santiago");
    let sql = format!("SELECT day::TIMESTAMPTZ AS begins, ts >= day, ts >= DATE '2026-09-06' FROM {days} ORDER BY day");
    let expected = ["2026-09-06T04:00:00Z", "true", "true", "2026-09-07T03:00:00Z", "false", "false", "", "", ""];
    assert_eq!(asked(&santiago, &sql).await.unwrap(), expected);
    assert_eq!(asked(&session("America/Havana"), "SELECT DATE '2026-11-01'::TIMESTAMPTZ").await.unwrap(), ["2026-11-01T05:00:00Z"]);
}

/// As PostgreSQL 15 resolves them.
#[tokio::test]
async fn a_local_time_that_is_there_twice_or_not_at_all_is_one_time() {
    for (expression, expected) in [
        ("TIMESTAMPTZ '2026-03-29 02:30:00'", "2026-03-29T01:30:00Z"),
        ("'2026-10-25 02:30:00.25'::TIMESTAMPTZ", "2026-10-25T01:30:00.250Z"),
        ("'2026-10-25 02:30:00+02'::TIMESTAMPTZ", "2026-10-25T00:30:00Z"),
        ("TIMESTAMP '2026-03-29 02:30:00'::TIMESTAMPTZ", "2026-03-29T01:30:00Z"),
        ("TIMESTAMP '2026-10-25 02:30:00'::TIMESTAMPTZ", "2026-10-25T01:30:00Z"),
        ("TRY_CAST('2026-10-25 02:30:00' AS TIMESTAMPTZ)", "2026-10-25T01:30:00Z"),
        ("TRY_CAST('soon' AS TIMESTAMPTZ)", ""),
        ("to_timestamp('2026-03-29 02:30:00')", "2026-03-29T01:30:00Z"),
        ("to_timestamp_seconds(TIMESTAMP '2026-10-25 02:30:00')", "2026-10-25T01:30:00Z"),
        ("again = '2026-10-25 02:30:00'", "true"),
        ("summer IN (TIMESTAMP '2026-03-29 02:30:00')", "true"),
        ("summer BETWEEN '2026-03-29 02:30:00' AND '2026-03-29 02:30:00'", "true"),
        ("make_array('2026-10-25 02:30:00', NULL, '2026-10-25')::TIMESTAMPTZ[]", "[2026-10-25T01:30:00Z, , 2026-10-24T22:00:00Z]"),
        ("make_array(DATE '2026-03-30')::TIMESTAMPTZ[]", "[2026-03-29T22:00:00Z]"),
    ] {
        assert_eq!(in_berlin(expression).await.as_deref(), Ok(expected), "{expression}");
    }
    for (zone, local, expected) in [
        ("Europe/Dublin", "2026-03-29 01:30:00", "2026-03-29T01:30:00Z"),
        ("Europe/Dublin", "2026-10-25 01:30:00", "2026-10-25T01:30:00Z"),
        ("Europe/Moscow", "2014-10-26 01:30:00", "2014-10-25T22:30:00Z"),
        ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30T22:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-05 01:45:00", "2026-04-04T15:15:00Z"),
        ("Australia/Lord_Howe", "2026-10-04 02:15:00", "2026-10-03T15:45:00Z"),
    ] {
        let sql = format!(
            "SELECT shown::TIMESTAMPTZ AS of_text, shown::TIMESTAMP::TIMESTAMPTZ AS of_time \
            FROM (VALUES ('{local}'), (NULL)) AS clocks(shown) ORDER BY shown"
        );
        assert_eq!(asked(&session(zone), &sql).await.unwrap(), [expected, expected, "", ""], "{zone} {local}");
    }
    let error = in_berlin("'soon'::TIMESTAMPTZ").await.unwrap_err();
    assert!(error.contains("Error parsing timestamp from 'soon'"), "{error}");
}

/// In Havana, the clocks went back from 01:00 to 00:00 of 1 November.
#[tokio::test]
async fn a_midnight_that_is_there_twice_begins_one_day() {
    let havana = session("America/Havana");
    let events = "(VALUES (TIMESTAMPTZ '2026-11-01T03:30:00Z'), (TIMESTAMPTZ '2026-11-01T04:30:00Z'), \
        (TIMESTAMPTZ '2026-11-01T05:30:00Z'), (TIMESTAMPTZ '2026-11-01T20:30:00Z')) AS events(ts)";
    for by in ["date_trunc('day', ts)", "ROLLUP (date_trunc('day', ts))"] {
        let sql = format!("SELECT date_trunc('day', ts) AS day, count(*) AS n FROM {events} GROUP BY {by} ORDER BY day LIMIT 2");
        assert_eq!(asked(&havana, &sql).await.unwrap(), ["2026-10-31T04:00:00Z", "1", "2026-11-01T05:00:00Z", "3"], "{by}");
    }
    for (unit, time, expected) in [
        ("DAY", "2026-11-01T04:30:00Z", "2026-11-01T05:00:00Z"),
        ("week", "2026-11-01T04:30:00Z", "2026-10-26T04:00:00Z"),
        ("month", "2026-11-01T04:30:00Z", "2026-11-01T05:00:00Z"),
        ("month", "2026-11-04T12:00:00Z", "2026-11-01T05:00:00Z"),
        ("quarter", "2026-11-01T04:30:00Z", "2026-10-01T04:00:00Z"),
        ("year", "2026-11-01T04:30:00Z", "2026-01-01T05:00:00Z"),
        ("hour", "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z"),
        ("hour", "2026-11-01T05:30:00Z", "2026-11-01T05:00:00Z"),
    ] {
        let sql = format!("SELECT date_trunc('{unit}', TIMESTAMPTZ '{time}')");
        assert_eq!(asked(&havana, &sql).await.unwrap(), [expected], "{unit} {time}");
    }
    let santiago = "SELECT date_trunc('day', TIMESTAMPTZ '2026-09-06T04:30:00Z')";
    assert_eq!(asked(&session("America/Santiago"), santiago).await.unwrap(), ["2026-09-06T04:00:00Z"]);
}

#[tokio::test]
async fn a_zone_may_be_an_offset() {
    for (expression, expected) in [
        ("ts::TEXT", "2026-01-02T01:30:00+05:30"),
        ("to_char(ts, '%d %H:%M')", "02 01:30"),
        ("date_part('hour', ts)", "1"),
        ("date_trunc('day', ts)", "2026-01-01T18:30:00Z"),
        ("ts::DATE", "2026-01-02"),
        ("ts::TIMESTAMP", "2026-01-02T01:30:00"),
        ("ts + INTERVAL '1 day'", "2026-01-02T20:00:00Z"),
        ("'2026-01-01 05:30:00'::TIMESTAMPTZ", "2026-01-01T00:00:00Z"),
        ("DATE '2026-01-01'::TIMESTAMPTZ", "2025-12-31T18:30:00Z"),
        ("ts AT TIME ZONE '+05:30'", "2026-01-02T01:30:00+05:30"),
    ] {
        let sql = format!("SELECT {expression} AS found FROM (VALUES (TIMESTAMPTZ '2026-01-01T20:00:00Z')) AS times(ts)");
        assert_eq!(asked(&session("+05:30"), &sql).await.unwrap(), [expected], "{expression}");
    }
}

/// Their clocks differ by 25 hours.
#[tokio::test]
async fn today_is_the_day_of_the_zone() {
    let (sql, mut days) = ("SELECT current_date", Vec::new());
    for zone in ["Pacific/Kiritimati", "Pacific/Niue"] {
        days.push(asked(&session(zone), sql).await.unwrap().concat());
    }
    assert!(days[0] > days[1], "{days:?}");
}

#[tokio::test]
async fn what_cannot_follow_the_zone_is_refused() {
    for (expression, named) in [
        ("make_array(winter)::TIMESTAMP[]", "an array of times that is cast to TIMESTAMP[]"),
        ("generate_series(winter, summer, INTERVAL '1 day')", "generate_series() of times by days or months"),
        ("range(winter, summer, INTERVAL '1 month')", "range() of times by days or months"),
        ("range(winter, summer, INTERVAL '1 hour' + INTERVAL '1 hour')", "range() of times by days or months"),
        ("to_unixtime('2026-03-29 03:30:00')", "to_unixtime() of a text"),
    ] {
        let error = in_berlin(expression).await.expect_err(expression);
        assert!(error.contains(&format!("{named} does not follow the session's TimeZone 'Europe/Berlin'")), "{expression}: {error}");
    }
    let series = "SELECT * FROM generate_series(TIMESTAMPTZ '2026-03-28', TIMESTAMPTZ '2026-03-30', INTERVAL '1 day')";
    let error = asked(&session("Europe/Berlin"), series).await.unwrap_err();
    assert!(error.contains("generate_series() of times in FROM does not follow"), "{error}");
    assert_eq!(asked(&session("Europe/Berlin"), "SELECT * FROM generate_series(1, 2)").await.unwrap(), ["1", "2"]);
}
