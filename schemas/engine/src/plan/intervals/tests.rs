use arrow::util::display::array_value_to_string;

use crate::functions::Functions;
use crate::plan::planning_session;

/// `a` is 25 hours after `b`.
const TIMES: &str =
    "(SELECT TIMESTAMP '2026-03-02 01:00:00' AS a, TIMESTAMP '2026-03-01 00:00:00' AS b, CAST(NULL AS TIMESTAMP) AS n) AS t";

async fn answer(expression: &str) -> Result<String, String> {
    let session = planning_session(&Functions::standard()).unwrap();
    let asked = session.sql(&format!("SELECT {expression} AS found FROM {TIMES}")).await;
    let batches = asked.map_err(|error| error.to_string())?.collect().await.map_err(|error| error.to_string())?;
    Ok(array_value_to_string(batches[0].column(0), 0).unwrap())
}

#[tokio::test]
async fn intervals_are_compared_by_their_length() {
    for (expression, expected) in [
        ("a - b > INTERVAL '1 day'", "true"),
        ("a - b > INTERVAL '24 hours'", "true"),
        ("a - b > INTERVAL '25 hours'", "false"),
        ("a - b = INTERVAL '25 hours'", "true"),
        ("a - b = INTERVAL '1 day 1 hour'", "true"),
        ("a - b IS DISTINCT FROM INTERVAL '1 day 1 hour'", "false"),
        ("INTERVAL '1 day' < a - b", "true"),
        ("a - b < INTERVAL '2 days'", "true"),
        ("b - a < INTERVAL '-1 day'", "true"),
        ("a - b < INTERVAL '1 month'", "true"),
        ("INTERVAL '25 hours' > INTERVAL '1 day'", "true"),
        ("INTERVAL '1 month' = INTERVAL '30 days'", "true"),
        ("(a - b) + INTERVAL '1 day' > INTERVAL '2 days'", "true"),
        ("a - b BETWEEN INTERVAL '1 day' AND INTERVAL '2 days'", "true"),
        ("a - b IN (INTERVAL '1 day', INTERVAL '1 day 1 hour')", "true"),
        ("CASE a - b WHEN INTERVAL '1 day 1 hour' THEN 1 ELSE 0 END", "1"),
        ("a - n > INTERVAL '1 day'", ""),
        ("a - b > NULL::INTERVAL", ""),
        ("a > b + INTERVAL '1 day'", "true"),
    ] {
        assert_eq!(answer(expression).await.as_deref(), Ok(expected), "{expression}");
    }
    let refused = answer("greatest(a - b, INTERVAL '1 day')").await.unwrap_err();
    assert!(refused.contains("greatest() does not compare intervals"), "{refused}");
}

#[tokio::test]
async fn the_seconds_between_two_times_have_their_fraction() {
    for (times, expected) in [
        ("TIMESTAMP '2026-01-05 00:00:00.25' - TIMESTAMP '2026-01-01 00:00:00'", "345600.25"),
        ("TIMESTAMP '2026-01-01 00:00:00' - TIMESTAMP '2026-01-05 00:00:00.25'", "-345600.25"),
        ("TIMESTAMP '1970-01-01 00:00:00' - TIMESTAMP '1900-01-01 00:00:00'", "2208988800.0"),
        ("TIMESTAMP '2026-01-01 00:50:00.5' - TIMESTAMP '2026-01-01 00:00:00'", "3000.5"),
        ("a - b", "90000.0"),
        ("a - n", ""),
    ] {
        for asked in [format!("date_part('epoch', {times})"), format!("extract(epoch FROM {times})")] {
            assert_eq!(answer(&asked).await.as_deref(), Ok(expected), "{asked}");
        }
    }
    assert_eq!(answer("date_part('epoch', INTERVAL '1 day 1.5 seconds')").await.as_deref(), Ok("86401.5"));
    assert_eq!(answer("avg(date_part('epoch', a - b))").await.as_deref(), Ok("90000.0"));
}

/// Any two intervals of whole seconds are ordered as their lengths are, however they are written.
#[tokio::test]
async fn the_order_is_that_of_the_lengths() {
    let written =
        [(0, 0, 90_000), (0, 1, 0), (0, 1, 3_600), (1, 0, 0), (0, 30, 0), (0, 29, 86_401), (0, -1, 86_400), (0, 0, 0), (-1, 31, 0)];
    for (left, right) in written.iter().flat_map(|left| written.iter().map(move |right| (left, right))) {
        let text = |(months, days, seconds): &(i64, i64, i64)| format!("INTERVAL '{months} months {days} days {seconds} seconds'");
        let length = |(months, days, seconds): &(i64, i64, i64)| (months * 30 + days) * 86_400 + seconds;
        let (less, expected) = (format!("{} < {}", text(left), text(right)), length(left) < length(right));
        assert_eq!(answer(&less).await, Ok(expected.to_string()), "{less}");
    }
}
