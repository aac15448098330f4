use std::sync::Arc;

use arrow::array::{Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::util::display::array_value_to_string;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use definitions::parse::{parse_stream, parse_view};
use definitions::{Definitions, StreamDefinition};
use engine::events::plan_schema;
use engine::plan::session_config;
use types::Result;
use types::tiles::Micros;

use super::super::{Moment, Plain, plain};

const SECOND: Micros = 1_000_000;
const HOUR: Micros = 3_600 * SECOND;
const DAY: Micros = 24 * HOUR;
/// 2026-01-01 00:00:00 UTC, a whole number of every hop.
const NOW: Micros = 1_767_225_600 * SECOND;

/// An event: time, user, device, points.
type Event = (Micros, Option<&'static str>, Option<&'static str>, Option<i64>);

fn streams() -> Vec<StreamDefinition> {
    let of = |name: &str| {
        let sql =
            format!("CREATE STREAM {name} (ts TIMESTAMPTZ NOT NULL, user_id TEXT, device_id TEXT, points BIGINT) WITH (event_time = 'ts')");
        parse_stream(&sql).unwrap()
    };
    vec![of("create_account"), of("login")]
}

/// Builds the first of the views, which may name the others.
fn rewritten(views: &[&str], moment: Moment) -> Result<Plain> {
    let views: Vec<_> = views.iter().map(|sql| parse_view(sql).unwrap()).collect();
    let aggregates = ["count", "sum", "min", "max", "avg", "array_agg", "first_value"];
    plain(
        &views[0].clone(),
        &Definitions { streams: streams(), views, ..Definitions::default() },
        &|name| aggregates.contains(&name),
        moment,
    )
}

fn at(t: Micros) -> Moment {
    Moment { t, as_of: false }
}

fn batch(stream: &StreamDefinition, events: &[Event]) -> RecordBatch {
    let times = || TimestampMicrosecondArray::from_iter_values(events.iter().map(|event| event.0)).with_timezone("UTC");
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(times()),
        Arc::new(events.iter().map(|event| event.1).collect::<StringArray>()),
        Arc::new(events.iter().map(|event| event.2).collect::<StringArray>()),
        Arc::new(events.iter().map(|event| event.3).collect::<Int64Array>()),
        Arc::new(times()),
        Arc::new(StringArray::from_iter_values(events.iter().map(|_| &*stream.name))),
        Arc::new(Int32Array::from_iter_values(events.iter().map(|_| 0))),
        Arc::new(Int64Array::from_iter_values(0..events.len() as i64)),
    ];
    RecordBatch::try_new(plan_schema(stream), columns).unwrap()
}

/// Returns the lines of a plain SELECT's result, sorted.
async fn answer(sql: &str, accounts: &[Event], logins: &[Event]) -> Vec<String> {
    let session = SessionContext::new_with_config(session_config());
    for (stream, events) in streams().iter().zip([accounts, logins]) {
        let table = MemTable::try_new(plan_schema(stream), vec![vec![batch(stream, events)]]).unwrap();
        session.register_table(&*stream.name, Arc::new(table)).unwrap();
    }
    let batches = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await.unwrap();
    let mut lines = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
            lines.push(cells.map(|cell| if cell.is_empty() { "NULL".into() } else { cell }).collect::<Vec<_>>().join(" "));
        }
    }
    lines.sort();
    lines
}

fn event(back: Micros, user: &'static str, device: &'static str, points: i64) -> Event {
    (NOW - back, Some(user), Some(device), Some(points))
}

#[test]
fn a_window_is_a_condition_on_both_event_times() {
    let plain = rewritten(
        &["CREATE VIEW device_links WITH (windows = '7d, 30d', every = '3h') AS SELECT c.device_id, \
           count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id) AS linked, max(l.points) AS most, \
           count(DISTINCT l.device_id) FILTER (WHERE within(c.ts, '365d') AND within(l.ts, '30d')) AS old \
           FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY c.device_id"],
        at(NOW),
    )
    .unwrap();
    let time = |seconds: i64| format!("arrow_cast({seconds}000000, 'Timestamp(Microsecond, Some(\"UTC\"))')");
    let (week, month, year) = (time(1_766_620_800), time(1_764_633_600), time(1_735_689_600));
    let both = |edge: &str| format!("c.__event_time >= {edge} AND l.__event_time >= {edge}");
    let (in_week, in_month) = (both(&week), both(&month));
    let expected = format!(
        "SELECT c.device_id AS \"device_id\", \
         count(DISTINCT l.device_id) FILTER (WHERE (l.device_id <> c.device_id) AND {in_week}) AS \"linked_7d\", \
         count(DISTINCT l.device_id) FILTER (WHERE (l.device_id <> c.device_id) AND {in_month}) AS \"linked_30d\", \
         max(l.points) FILTER (WHERE {in_week}) AS \"most_7d\", \
         max(l.points) FILTER (WHERE {in_month}) AS \"most_30d\", \
         count(DISTINCT l.device_id) FILTER (WHERE c.ts >= {year} AND l.ts >= {month}) AS \"old\" \
         FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY c.device_id \
         HAVING count(*) FILTER (WHERE c.__event_time >= {year} AND l.__event_time >= {month}) > 0"
    );
    assert_eq!(plain.sql, expected);
    assert_eq!(plain.columns.iter().map(|column| column.is_key).collect::<Vec<_>>(), [true, false, false, false, false, false]);
    assert_eq!(plain.reads.into_iter().collect::<Vec<_>>(), [("create_account".into(), 1), ("login".into(), 1)]);
    assert_eq!(
        plain.counts_sql,
        format!(
            "SELECT sum(passed) AS passed, sum(expired) AS expired FROM (\
             SELECT count(*) AS passed, count(*) FILTER (WHERE c.__event_time < {year}) AS expired FROM create_account c \
             WHERE (c.user_id) IS NOT NULL UNION ALL \
             SELECT count(*) AS passed, count(*) FILTER (WHERE l.__event_time < {year}) AS expired FROM login l \
             WHERE (l.user_id) IS NOT NULL) AS sides"
        )
    );
    assert_eq!(
        plain.read_sql,
        "SELECT sum(read) AS read FROM (SELECT count(*) AS read FROM create_account c UNION ALL SELECT count(*) AS read FROM login l) AS sides"
    );
}

#[tokio::test]
async fn two_registrations_and_three_logins_are_six_pairs() {
    let view = "CREATE VIEW v AS SELECT c.device_id, count(*) AS n, sum(l.points) AS s, avg(l.points) AS a, count(l.points) AS p, \
        count(DISTINCT c.user_id) AS users, array_agg(DISTINCT l.device_id ORDER BY l.device_id) AS devices \
        FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY c.device_id";
    let accounts = [event(0, "u", "a", 0), event(HOUR, "u", "a", 0), event(0, "v", "b", 0)];
    let mut logins = vec![event(0, "u", "x", 1), event(DAY, "u", "x", 2), event(2 * DAY, "u", "y", 4), event(0, "w", "x", 8)];
    let plain = rewritten(&[view], at(NOW)).unwrap();
    assert_eq!(answer(&plain.sql, &accounts, &logins).await, ["a 6 14 2.3333333333333335 6 1 [x, y]"]);
    assert_eq!(answer(&plain.counts_sql, &accounts, &logins).await, ["7 0"]);
    logins.push((NOW, Some("u"), None, None));
    assert_eq!(answer(&plain.sql, &accounts, &logins).await, ["a 8 14 2.3333333333333335 6 1 [x, y, ]"]);
}

#[tokio::test]
async fn a_null_key_joins_nothing_and_a_null_end_point_is_not_another_one() {
    let view = "CREATE VIEW v AS SELECT c.device_id, count(*) AS n, count(*) FILTER (WHERE l.device_id <> c.device_id) AS others, \
        count(DISTINCT l.device_id) AS devices FROM create_account c, login l WHERE c.user_id = l.user_id AND l.points > 0 GROUP BY c.device_id";
    let accounts = [event(0, "u", "a", 0), (NOW, None, Some("a"), None), (NOW, Some("u"), None, None), (NOW, None, None, None)];
    let logins = [
        event(0, "u", "a", 1),
        event(0, "u", "b", 1),
        (NOW, Some("u"), None, Some(1)),
        (NOW, None, Some("c"), Some(1)),
        (NOW, Some("u"), Some("d"), None),
        event(0, "u", "e", 0),
    ];
    let plain = rewritten(&[view], at(NOW)).unwrap();
    assert_eq!(answer(&plain.sql, &accounts, &logins).await, ["NULL 3 0 2", "a 3 1 2"]);
    // Four of ten events have no key or do not pass; `l.points > 0` with the NULL key is excluded once.
    assert_eq!(answer(&plain.counts_sql, &accounts, &logins).await, ["5 0"]);
    assert_eq!(answer(&plain.read_sql, &accounts, &logins).await, ["10"]);
}

#[tokio::test]
async fn both_events_lie_in_the_window_to_its_edge() {
    let view = "CREATE VIEW v WITH (windows = '1h, 7d', every = '1h') AS SELECT c.device_id, count(*) AS n, sum(l.points) AS s \
        FROM create_account c JOIN login l USING (user_id) GROUP BY c.device_id";
    // Half a minute past: the hour's edge is rounded down to the minute, the week's to the hour.
    let t = NOW + 30 * SECOND;
    let accounts = [event(HOUR, "u", "a", 0), event(HOUR + 1, "u", "b", 0), event(7 * DAY, "u", "c", 0), event(7 * DAY + 1, "u", "d", 0)];
    let logins = [event(HOUR, "u", "x", 1), event(HOUR + 1, "u", "x", 2), event(7 * DAY + 1, "u", "x", 4)];
    let plain = rewritten(&[view], at(t)).unwrap();
    assert_eq!(answer(&plain.sql, &accounts, &logins).await, ["a 1 2 1 3", "b 0 2 NULL 3", "c 0 2 NULL 3"]);
    assert_eq!(answer(&plain.counts_sql, &accounts, &logins).await, ["7 2"]);
    let as_of = rewritten(&[view], Moment { t: NOW - HOUR - 1, as_of: true }).unwrap();
    assert_eq!(answer(&as_of.sql, &accounts, &logins).await, ["b 1 2 2 6", "c 0 2 NULL 6", "d 0 2 NULL 6"]);
}

#[tokio::test]
async fn each_side_has_its_own_window_and_a_side_without_one_counts_over_all_time() {
    let view = "CREATE VIEW v AS SELECT c.device_id, count(*) FILTER (WHERE within(c.ts, '1d')) AS young, \
        max(l.points) FILTER (WHERE within(c.ts, '31d', '1d') AND within(l.ts, '7d')) AS old \
        FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY c.device_id";
    let accounts = [event(DAY, "u", "a", 0), event(DAY + 1, "u", "b", 0), event(31 * DAY, "u", "c", 0), event(31 * DAY + 1, "u", "d", 0)];
    let logins = [event(7 * DAY, "u", "x", 1), event(7 * DAY + 1, "u", "x", 2), event(900 * DAY, "u", "x", 4)];
    let plain = rewritten(&[view], at(NOW)).unwrap();
    // `d` is older than the left side's longest window; the right side's longest is all time.
    assert_eq!(answer(&plain.sql, &accounts, &logins).await, ["a 3 NULL", "b 0 1", "c 0 1"]);
    // Counts over all time never expire.
    assert_eq!(answer(&plain.counts_sql, &accounts, &logins).await, ["7 0"]);
}

#[tokio::test]
async fn a_stream_is_joined_with_itself_through_views_subqueries_and_names_of_its_own() {
    let view = "CREATE VIEW v WITH (windows = '1d', every = '1h') AS WITH mine (who, device, at) AS (SELECT user_id, device_id, ts FROM paid) \
        SELECT device, count(*) AS n, count(DISTINCT other) FILTER (WHERE other <> device) AS others, \
        max(points) FILTER (WHERE within(ts, '2d')) AS most \
        FROM mine JOIN (SELECT *, upper(device_id) AS other FROM paid) ON who = user_id AND points < 9 WHERE device <> 'z' GROUP BY device";
    let paid = "CREATE VIEW paid AS SELECT * FROM login WHERE points > 0";
    let logins =
        [event(0, "u", "A", 1), event(DAY, "u", "B", 2), event(2 * DAY, "u", "C", 3), event(0, "u", "z", 9), event(0, "u", "D", 0)];
    let plain = rewritten(&[view, paid], at(NOW)).unwrap();
    assert_eq!(answer(&plain.sql, &[], &logins).await, ["A 2 1 3", "B 2 1 3", "C 0 0 3"]);
    assert_eq!(plain.reads.into_iter().collect::<Vec<_>>(), [("login".into(), 2)]);
    // On each side three of the four paid ones pass.
    assert_eq!(answer(&plain.counts_sql, &[], &logins).await, ["6 0"]);
    assert_eq!(answer(&plain.read_sql, &[], &logins).await, ["10"]);
}

#[tokio::test]
async fn keys_behind_which_more_lies_than_is_followed_are_reported() {
    let view = "CREATE VIEW v WITH (windows = '1d', every = '1h', max_degree = 2) AS SELECT l.device_id AS d, count(DISTINCT c.device_id) AS n \
        FROM create_account c JOIN login l ON c.user_id = l.user_id WHERE l.points > 0 GROUP BY l.device_id";
    // `many` has three users (`twice` two; `less` three, one of which does not pass); `w` has three accounts.
    let of = |device, users: [&'static str; 3]| users.map(|user| event(0, user, device, 1));
    let mut logins =
        [of("many", ["t", "u", "v"]), of("twice", ["t", "t", "u"]), of("lead", ["w", "t", "t"]), of("less", ["t", "u", "u"])].concat();
    logins.push(event(0, "v", "less", 0));
    let accounts = ["a", "b", "c"].map(|device| event(900 * DAY, "w", device, 0)).to_vec();
    let plain = rewritten(&[view], at(NOW)).unwrap();
    let crowded = plain.crowded_sql.unwrap();
    assert_eq!(answer(&crowded, &accounts, &logins).await, ["lead", "many"]);
    assert_eq!(answer(&crowded, &accounts[..2], &logins).await, ["many"]);
    let composite = "CREATE VIEW v WITH (max_degree = 1) AS SELECT c.device_id, count(*) AS n FROM create_account c JOIN login l \
        USING (user_id, points) GROUP BY 1";
    let crowded = rewritten(&[composite], at(NOW)).unwrap().crowded_sql.unwrap();
    let accounts = [event(0, "u", "a", 1), event(0, "u", "a", 2), event(0, "u", "b", 1), event(0, "v", "c", 1)];
    assert_eq!(answer(&crowded, &accounts, &[event(0, "v", "x", 1), event(0, "v", "x", 1)]).await, ["a", "c"]);
}

#[tokio::test]
async fn a_column_called_user_belongs_to_its_side_without_quotes_too() {
    let accounts = [event(0, "u", "a", 0), event(0, "v", "a", 0), event(0, "w", "b", 0)];
    let logins = [event(0, "u", "x", 1), event(0, "v", "x", 1), event(0, "w", "x", 1)];
    for user in ["c.\"user\"", "c.user", "\"user\"", "user"] {
        let view = format!(
            "CREATE VIEW v WITH (max_degree = 1) AS SELECT c.device_id, count(*) AS n, count(DISTINCT {user}) AS users \
             FROM (SELECT ts, user_id AS \"user\", device_id FROM create_account) c JOIN login l ON {user} = l.user_id \
             WHERE {user} <> 'w' GROUP BY c.device_id"
        );
        let plain = rewritten(&[view.as_str()], at(NOW)).unwrap();
        assert_eq!(answer(&plain.sql, &accounts, &logins).await, ["a 2 2"], "{user}");
        // The third account does not pass; the logins have no condition of their own.
        assert_eq!(answer(&plain.counts_sql, &accounts, &logins).await, ["5 0"], "{user}");
        assert_eq!(answer(&plain.crowded_sql.unwrap(), &accounts, &logins).await, ["a"], "{user}");
    }
}

#[tokio::test]
async fn what_each_neighbour_adds_to_a_total_is_reported() {
    let view = "CREATE VIEW v WITH (windows = '1d', every = '1h') AS SELECT c.device_id AS d, count(*) AS n, max(l.points) AS most, \
        sum(l.points) AS s, count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id) AS others \
        FROM create_account c JOIN login l ON c.user_id = l.user_id WHERE l.points > 0 GROUP BY c.device_id";
    // On `a`, user u created two accounts and logs in twice from x and once from y; v logs in from x. The fourth login
    // is too old, the fifth does not pass.
    let accounts =
        [event(0, "u", "a", 0), event(0, "u", "a", 0), event(0, "v", "a", 0), event(0, "w", "a", 0), event(2 * DAY, "t", "a", 0)];
    let logins = [
        event(0, "u", "x", 1),
        event(0, "u", "x", 2),
        event(0, "u", "y", 4),
        event(2 * DAY, "u", "z", 9),
        event(0, "u", "q", 0),
        event(0, "v", "x", 10),
    ];
    let sql = rewritten(&[view], at(NOW)).unwrap().weights_sql.unwrap();
    let expected = [
        // u adds 6 pairs, 14 points and 2 devices; v adds 1, 10 and 1.
        "0 a 37.0 6.0 296.0 14.0 5.0 2.0",
        // x adds 5, 16 and 1; y adds 2, 8 and 1.
        "1 a 29.0 5.0 320.0 16.0 2.0 1.0",
        // u with x adds 4 and 6, u with y 2 and 8, v with x 1 and 10.
        "2 a 21.0 4.0 200.0 10.0 3.0 1.0",
        // u, v and w live; u leads to two devices.
        "3 a 3.0 0.0 0.0 0.0 0.0 0.0",
        "4 a 2.0 0.0 0.0 0.0 0.0 0.0",
    ];
    assert_eq!(answer(&sql, &accounts, &logins).await, expected);
}

#[test]
fn what_is_no_join_of_two_is_refused() {
    let from = |from: &str| format!("CREATE VIEW v AS SELECT c.device_id, count(*) AS n FROM {from} GROUP BY c.device_id");
    for (sql, why) in [
        (from("login c LEFT JOIN login l ON c.user_id = l.user_id"), "joins two"),
        (from("login c NATURAL JOIN create_account"), "joins two"),
        (from("login c, login d, login e"), "joins two"),
        (from("login c JOIN login l ON c.user_id = l.user_id AND c.ts < l.ts"), "= and <> alone"),
        (from("(SELECT c.device_id FROM login c JOIN login l ON c.user_id = l.user_id) AS c"), "only the view itself joins"),
        (
            "CREATE VIEW v AS SELECT c.device_id, first_value(l.points ORDER BY l.ts) AS f FROM login c JOIN login l ON c.user_id = l.user_id \
             GROUP BY c.device_id"
                .to_owned(),
            "no order of their own",
        ),
        (
            "CREATE VIEW v AS SELECT c.device_id, count(*) FILTER (WHERE within(at, '1d')) AS n FROM login c JOIN login l \
             ON c.user_id = l.user_id GROUP BY c.device_id"
                .to_owned(),
            "does not name the event time of one side",
        ),
    ] {
        let refused = rewritten(&[&sql], at(NOW)).unwrap_err().to_string();
        assert!(refused.contains(why) && refused.contains("view: v"), "{sql}: {refused}");
    }
}
