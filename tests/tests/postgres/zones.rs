//! The zone of a session: what PostgreSQL computes in it.

use futures::TryStreamExt;
use tokio_postgres::{Client, NoTls};

use crate::server::{Server, error_of, one, texts};

async fn row(client: &Client, sql: &str) -> Vec<String> {
    texts(client, sql).await.concat().into_iter().map(|value| value.unwrap_or_else(|| "NULL".to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_computed_in_the_zone_of_the_session() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = "SELECT to_char(ts, 'YYYY-MM-DD HH24:MI'), ts::text, date_trunc('day', ts), extract(hour FROM ts), ts::date, ts, \
        to_char(ts AT TIME ZONE 'UTC', 'HH24') FROM events WHERE device = 'a'";
    let in_utc = ["2026-03-01 10:01", "2026-03-01T10:01:00Z", "2026-03-01 00:00:00+00", "10", "2026-03-01", "2026-03-01 10:01:00+00", "10"];
    // 14 hours ahead.
    let in_kiritimati =
        ["2026-03-02 00:01", "2026-03-02T00:01:00+14:00", "2026-03-02 00:00:00+14", "0", "2026-03-02", "2026-03-02 00:01:00+14", "10"];
    assert_eq!(row(&client, sql).await, in_utc);
    client.batch_execute("SET TimeZone = 'pacific/kiritimati'").await.unwrap();
    assert_eq!(row(&client, sql).await, in_kiritimati);
    // A prepared statement was planned before.
    let hour = client.prepare("SELECT to_char(ts, 'HH24') FROM events WHERE device = $1").await.unwrap();
    assert_eq!(client.query_one(&hour, &[&"a"]).await.unwrap().get::<_, &str>(0), "00");
    for (condition, count) in [
        ("ts >= DATE '2026-03-02'", "3"),
        ("ts::date = DATE '2026-03-01'", "0"),
        ("ts = '2026-03-02 00:01:00'", "1"),
        ("ts BETWEEN '2026-03-02' AND '2026-03-02 00:02:00'", "2"),
        ("ts >= DATE '2026-03-02' AND ts < DATE '2026-03-02' + INTERVAL '1 day'", "3"),
    ] {
        assert_eq!(one(&client, &format!("SELECT count(*) FROM events WHERE {condition}")).await, count, "{condition}");
    }
    let days = row(&client, "SELECT date_trunc('day', ts) AS day, count(*) FROM events GROUP BY 1").await;
    assert_eq!(days, ["2026-03-02 00:00:00+14", "3"]);
    let copied: Vec<_> =
        client.copy_out("COPY (SELECT ts::date FROM events WHERE device = 'a') TO STDOUT").await.unwrap().try_collect().await.unwrap();
    assert_eq!(copied.concat(), b"2026-03-02\n");
    client.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT ts::date FROM events WHERE device = 'a'").await.unwrap();
    assert_eq!(row(&client, "FETCH ALL FROM c").await, ["2026-03-02"]);
    client.batch_execute("ROLLBACK; SET TimeZone = 'UTC'").await.unwrap();
    assert_eq!(row(&client, sql).await, in_utc);
    assert_eq!(client.query_one(&hour, &[&"a"]).await.unwrap().get::<_, &str>(0), "10");

    let options = format!("{} options='-c TimeZone=Pacific/Kiritimati'", server.url());
    let (client, connection) = tokio_postgres::connect(&options, NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(row(&client, sql).await, in_kiritimati);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_may_be_at_an_offset_from_utc() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let sql = "SELECT ts, ts::text, extract(hour FROM ts), '2026-03-01 10:01'::timestamptz - ts = INTERVAL '-2 hours' \
        FROM events WHERE device = 'a'";
    let east = ["2026-03-01 12:01:00+02", "2026-03-01T12:01:00+02:00", "12", "t"];
    for (set, shown) in [
        ("SET TIME ZONE 2", "<+02>-02"),
        ("SET TimeZone = '+02'", "<+02>-02"),
        ("SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE", "<+02>-02"),
        ("SET TimeZone = 'GMT-02:00'", "GMT-02:00"),
    ] {
        client.batch_execute(set).await.unwrap();
        assert_eq!(one(&client, "SHOW TimeZone").await, shown, "{set}");
        assert_eq!(row(&client, sql).await, east, "{set}");
    }
    // In POSIX, west is positive.
    client.batch_execute("SET TimeZone = '+02:00'").await.unwrap();
    assert_eq!(one(&client, "SHOW TimeZone").await, "+02:00");
    assert_eq!(one(&client, "SELECT ts FROM events WHERE device = 'a'").await, "2026-03-01 08:01:00-02");
    for refused in ["SET TIME ZONE 24", "SET TIME ZONE INTERVAL '1 day'", "SET TimeZone = 'CET-1CEST'"] {
        let error = client.batch_execute(refused).await.unwrap_err();
        let (state, message, _) = error_of(&error);
        assert!(state == "22023" && message.contains("whole minutes of less than a day from UTC"), "{refused}: {state} {message}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hours_around_a_change_of_clocks_are_those_of_the_zone() {
    let server = Server::filled().await;
    let client = server.connect().await;
    client.batch_execute("SET TimeZone = 'Europe/Berlin'").await.unwrap();
    let at = |time: &str, what: &str| format!("SELECT {what} FROM (SELECT TIMESTAMPTZ '{time}' AS ts FROM events WHERE device = 'a') AS t");
    let all = "to_char(ts, 'HH24:MI'), ts::text, extract(hour FROM ts), date_trunc('hour', ts), date_trunc('day', ts), \
        ts + INTERVAL '1 day', ts + INTERVAL '24 hours'";
    for (time, expected) in [
        (
            "2026-03-29T00:30:00Z",
            ["01:30", "2026-03-29T01:30:00+01:00", "1", "01:00:00+01", "00:00:00+01", "03-30 01:30:00+02", "03-30 02:30:00+02"],
        ),
        (
            "2026-03-29T01:30:00Z",
            ["03:30", "2026-03-29T03:30:00+02:00", "3", "03:00:00+02", "00:00:00+01", "03-30 03:30:00+02", "03-30 03:30:00+02"],
        ),
        (
            "2026-10-25T00:30:00Z",
            ["02:30", "2026-10-25T02:30:00+02:00", "2", "02:00:00+02", "00:00:00+02", "10-26 02:30:00+01", "10-26 01:30:00+01"],
        ),
        (
            "2026-10-25T01:30:00Z",
            ["02:30", "2026-10-25T02:30:00+01:00", "2", "02:00:00+01", "00:00:00+02", "10-26 02:30:00+01", "10-26 02:30:00+01"],
        ),
    ] {
        let found = row(&client, &at(time, all)).await;
        assert!(found.iter().zip(expected).all(|(found, end)| found.ends_with(end)), "{time}: {found:?}");
    }
    for (sum, expected) in [
        ("TIMESTAMPTZ '2026-03-28 02:30:00' + INTERVAL '1 day'", "2026-03-29 03:30:00+02"),
        ("TIMESTAMPTZ '2026-10-26 02:30:00' - INTERVAL '1 day'", "2026-10-25 02:30:00+01"),
    ] {
        assert_eq!(one(&client, &format!("SELECT {sum}")).await, expected, "{sum}");
    }
    for (time, expected) in [
        ("'2026-03-29 02:30'::timestamptz", "2026-03-29 03:30:00+02"),
        ("'2026-10-25 02:30'::timestamptz", "2026-10-25 02:30:00+01"),
        ("'2026-10-25 02:30+02'::timestamptz", "2026-10-25 02:30:00+02"),
        ("TIMESTAMP '2026-10-25 02:30:00'::timestamptz", "2026-10-25 02:30:00+01"),
        ("TIMESTAMP '2026-11-01 01:30:00' AT TIME ZONE 'America/New_York'", "2026-11-01 07:30:00+01"),
        ("TIMESTAMP '2026-03-08 02:30:00' AT TIME ZONE 'America/New_York'", "2026-03-08 08:30:00+01"),
    ] {
        assert_eq!(one(&client, &format!("SELECT {time}")).await, expected, "{time}");
    }
    let series = "generate_series(TIMESTAMPTZ '2026-03-28', TIMESTAMPTZ '2026-03-30', INTERVAL '1 day')";
    for sql in [format!("SELECT * FROM {series}"), format!("SELECT unnest({series})")] {
        let error = client.simple_query(&sql).await.unwrap_err();
        let (state, message, _) = error_of(&error);
        assert!(state == "0A000" && message.contains("does not follow the session's TimeZone 'Europe/Berlin'"), "{sql}: {state} {message}");
    }
    let days = "SELECT unnest(generate_series(DATE '2026-03-28', DATE '2026-03-30', INTERVAL '1 day'))::timestamptz";
    assert_eq!(row(&client, days).await, ["2026-03-28 00:00:00+01", "2026-03-29 00:00:00+01", "2026-03-30 00:00:00+02"]);
    server.stop().await;
}
