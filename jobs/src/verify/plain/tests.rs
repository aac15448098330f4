use std::sync::Arc;

use arrow::array::{Array, AsArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::Int64Type;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use definitions::durations::parse_duration;
use definitions::parse::parse_view;
use definitions::{Column, ColumnType, Definitions, NamedWindow, Origin, StreamDefinition, ViewDefinition};
use engine::events::plan_schema;
use engine::plan::session_config;
use proptest::prelude::*;

use super::parsed::parse_expr;
use super::*;

const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;
const DAY: Micros = 24 * HOUR;
/// 2026-01-01 00:00:00 UTC, a whole number of every hop.
const NOW: Micros = 1_767_225_600 * SECOND;

fn column(name: &str, column_type: ColumnType, nullable: bool) -> Column {
    Column { name: name.into(), column_type, nullable, path: vec![name.into()], unit: None }
}

fn stream(name: &str) -> StreamDefinition {
    StreamDefinition {
        name: name.into(),
        columns: vec![
            column("ts", ColumnType::TimestampTz, false),
            column("device", ColumnType::Text, true),
            column("amount", ColumnType::BigInt, true),
        ],
        topic: name.into(),
        event_time: "ts".into(),
        id: None,
        dedup_within: None,
        key: None,
        retention: None,
        keep_raw: true,
        cluster_by: Vec::new(),
        sql: String::new(),
        origin: Origin::default(),
    }
}

fn view(name: &str, windows: &[&str], select: &str) -> ViewDefinition {
    let named = |text: &&str| NamedWindow { text: (*text).into(), length: parse_duration(text).unwrap() };
    let plain = parse_view("CREATE VIEW other AS SELECT 1 AS one").unwrap();
    ViewDefinition { name: name.into(), select: select.into(), windows: windows.iter().map(named).collect(), ..plain }
}

fn project(views: Vec<ViewDefinition>) -> Definitions {
    Definitions { streams: vec![stream("payments"), stream("refunds")], views, ..Definitions::default() }
}

fn rewritten(view: &ViewDefinition, others: Vec<ViewDefinition>, t: Micros) -> Result<Plain> {
    let aggregates = ["count", "sum", "min", "max", "avg", "array_agg", "last_n"];
    plain(view, &project(others), &|name| aggregates.contains(&name), Moment { t, as_of: false })
}

/// An event: time, device, amount.
type Event = (Micros, Option<&'static str>, Option<i64>);

fn batch(stream: &StreamDefinition, events: &[Event]) -> RecordBatch {
    let times = || TimestampMicrosecondArray::from_iter_values(events.iter().map(|event| event.0)).with_timezone("UTC");
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(times()),
        Arc::new(events.iter().map(|event| event.1).collect::<StringArray>()),
        Arc::new(events.iter().map(|event| event.2).collect::<Int64Array>()),
        Arc::new(times()),
        Arc::new(StringArray::from_iter_values(events.iter().map(|_| &*stream.name))),
        Arc::new(Int32Array::from_iter_values(events.iter().map(|_| 0))),
        Arc::new(Int64Array::from_iter_values(0..events.len() as i64)),
    ];
    RecordBatch::try_new(plan_schema(stream), columns).unwrap()
}

/// Returns the lines of a plain SELECT's result, sorted.
async fn answer(sql: &str, payments: &[Event], refunds: &[Event]) -> Vec<String> {
    let session = SessionContext::new_with_config(session_config());
    for (name, events) in [("payments", payments), ("refunds", refunds)] {
        let stream = stream(name);
        let table = MemTable::try_new(plan_schema(&stream), vec![vec![batch(&stream, events)]]).unwrap();
        session.register_table(name, Arc::new(table)).unwrap();
    }
    let batches = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await.unwrap();
    let mut lines = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|column| arrow::util::display::array_value_to_string(column, row).unwrap());
            lines.push(cells.map(|cell| if cell.is_empty() { "NULL".into() } else { cell }).collect::<Vec<_>>().join(" "));
        }
    }
    lines.sort();
    lines
}

async fn answers(view: &ViewDefinition, others: Vec<ViewDefinition>, payments: &[Event], refunds: &[Event]) -> Vec<String> {
    let plain = rewritten(view, others, NOW).unwrap();
    answer(&plain.sql, payments, refunds).await
}

#[test]
fn every_aggregate_is_asked_once_for_each_window() {
    let view = view(
        "v",
        &["1h", "7d"],
        "SELECT device, count(*) AS n, sum(amount) FILTER (WHERE amount > 0) AS s, \
              sum(amount) / 2 AS h FROM payments GROUP BY device",
    );
    let plain = rewritten(&view, vec![], NOW).unwrap();
    let hour = "__event_time >= arrow_cast(1767222000000000, 'Timestamp(Microsecond, Some(\"UTC\"))')";
    let week = "__event_time >= arrow_cast(1766620800000000, 'Timestamp(Microsecond, Some(\"UTC\"))')";
    let expected = format!(
        "SELECT device AS \"device\", count(*) FILTER (WHERE {hour}) AS \"n_1h\", count(*) FILTER (WHERE {week}) AS \"n_7d\", \
         sum(amount) FILTER (WHERE (amount > 0) AND {hour}) AS \"s_1h\", \
         sum(amount) FILTER (WHERE (amount > 0) AND {week}) AS \"s_7d\", \
         CASE WHEN count(*) FILTER (WHERE {hour}) > 0 THEN sum(amount) FILTER (WHERE {hour}) / 2 END AS \"h_1h\", \
         CASE WHEN count(*) FILTER (WHERE {week}) > 0 THEN sum(amount) FILTER (WHERE {week}) / 2 END AS \"h_7d\" \
         FROM payments GROUP BY device HAVING count(*) FILTER (WHERE {week}) > 0"
    );
    assert_eq!(plain.sql, expected);
    assert_eq!(plain.columns.iter().map(|c| c.is_key).collect::<Vec<_>>(), [true, false, false, false, false, false, false]);
}

#[tokio::test]
async fn a_window_begins_at_its_hop_and_an_empty_one_is_null_but_its_count_zero() {
    // Half a minute past the minute: the hour's edge is rounded down to the minute, the week's to the hour.
    let t = NOW + 30 * SECOND;
    let view = view("v", &["1h", "7d"], "SELECT device, count(*) AS n, sum(amount) AS s FROM payments GROUP BY device");
    let payments = [
        (NOW - HOUR, Some("a"), Some(1)),
        (NOW - HOUR - 1, Some("a"), Some(10)),
        (NOW - 7 * DAY, Some("b"), Some(100)),
        (NOW - 7 * DAY - 1, Some("c"), Some(1000)),
        (t + 5 * MINUTE, None, None),
    ];
    let plain = rewritten(&view, vec![], t).unwrap();
    assert_eq!(answer(&plain.sql, &payments, &[]).await, ["NULL 1 1 NULL NULL", "a 1 2 1 11", "b 0 1 NULL 100"]);
    assert_eq!(answer(&plain.counts_sql, &payments, &[]).await, ["5 1"]);
    assert_eq!(answer(&plain.read_sql, &payments, &[]).await, ["5"]);
}

#[tokio::test]
async fn a_column_that_names_its_window_keeps_its_name() {
    let select = "SELECT device, max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen, \
         count(*) FILTER (WHERE within(ts, '31d', '1d') AND amount > 1) AS before, \
         sum(amount) FILTER (WHERE within(ts, '1h')) + count(*) AS mixed FROM payments GROUP BY 1";
    let payments = [
        (NOW - 40 * DAY, Some("a"), Some(5)),
        (NOW - 31 * DAY, Some("a"), Some(5)),
        (NOW - DAY - 1, Some("a"), Some(1)),
        (NOW - DAY, Some("a"), Some(5)),
        (NOW, Some("a"), Some(7)),
        (NOW - 400 * DAY, Some("old"), Some(5)),
    ];
    let answered = answers(&view("v", &["7d"], select), vec![], &payments, &[]).await;
    assert_eq!(answered, ["a 2026-01-01T00:00:00Z 1 12", "old 2024-11-27T00:00:00Z 0 NULL"]);
}

#[tokio::test]
async fn an_empty_window_is_not_evaluated_and_without_keys_there_is_a_row() {
    let ratio = view("v", &["1h", "7d"], "SELECT device, sum(amount) / count(*) AS mean FROM payments GROUP BY device");
    assert_eq!(answers(&ratio, vec![], &[(NOW - DAY, Some("a"), Some(4))], &[]).await, ["a NULL 4"]);
    let total = view("v", &["1h"], "SELECT count(*) AS n, coalesce(sum(amount), 0) AS s FROM payments WHERE amount > 0");
    assert_eq!(answers(&total, vec![], &[(NOW - DAY, Some("a"), Some(4))], &[]).await, ["0 NULL"]);
}

#[tokio::test]
async fn the_events_time_reaches_the_aggregate_through_ctes_unions_subqueries_and_views() {
    let clean = view("clean", &[], "SELECT * FROM payments WHERE amount > 0");
    let both = view(
        "both",
        &[],
        "SELECT device, amount FROM clean UNION ALL SELECT d, -a FROM (SELECT device, amount, 1 AS one FROM refunds) AS r (d, a, one)",
    );
    let top = view(
        "v",
        &["1h"],
        "WITH named AS (SELECT upper(device) AS who, b.* FROM both AS b) SELECT who, count(*) AS n, sum(amount) AS s FROM named GROUP BY who",
    );
    let payments = [(NOW, Some("a"), Some(5)), (NOW, Some("a"), Some(-5)), (NOW - 2 * HOUR, Some("a"), Some(7))];
    let refunds = [(NOW, Some("a"), Some(2)), (NOW - DAY, Some("b"), Some(2))];
    let plain = rewritten(&top, vec![clean, both], NOW).unwrap();
    assert_eq!(answer(&plain.sql, &payments, &refunds).await, ["A 2 3"]);
    assert_eq!(answer(&plain.counts_sql, &payments, &refunds).await, ["4 2"]);
    assert_eq!(answer(&plain.read_sql, &payments, &refunds).await, ["5"]);
    assert_eq!(plain.reads.into_iter().collect::<Vec<_>>(), [("payments".into(), 1), ("refunds".into(), 1)]);
}

#[tokio::test]
async fn ties_are_broken_by_the_events_place() {
    let view = view("v", &[], "SELECT device, array_agg(amount ORDER BY ts DESC) AS list FROM payments GROUP BY device");
    let payments = [(NOW, Some("a"), Some(3)), (NOW, Some("a"), Some(1)), (NOW + 1, Some("a"), Some(2))];
    assert_eq!(answers(&view, vec![], &payments, &[]).await, ["a [2, 3, 1]"]);
    let last = rewritten(&super::tests::view("v", &[], "SELECT last_n(amount, 2) AS l FROM payments"), vec![], NOW).unwrap();
    assert!(last.sql.contains("last_n(amount, 2 ORDER BY __event_time, __source, __partition, __offset)"), "{}", last.sql);
}

#[tokio::test]
async fn as_of_bounds_everything_from_above() {
    let view = view(
        "v",
        &["1h"],
        "SELECT device, count(*) AS n, as_of() - max(ts) < INTERVAL '1 minute' AS active FROM payments WHERE amount > 0 GROUP BY device",
    );
    let payments = [(NOW, Some("a"), Some(5)), (NOW + 1, Some("a"), Some(5)), (NOW + 1, Some("b"), Some(5))];
    let aggregates = ["count", "max"];
    let plain = plain(&view, &project(vec![]), &|name| aggregates.contains(&name), Moment { t: NOW, as_of: true }).unwrap();
    assert_eq!(answer(&plain.sql, &payments, &[]).await, ["a 1 true"]);
}

#[test]
fn what_is_not_a_view_is_refused_with_its_name() {
    for select in [
        "SELECT",
        "SELECT 1",
        "SELECT a, count(*) AS n FROM nowhere GROUP BY a",
        "SELECT count(*) FROM payments",
        "SELECT count(*) AS n FROM v",
    ] {
        let view = view("v", &[], select);
        let refused = rewritten(&view, vec![view.clone()], NOW).unwrap_err();
        assert!(refused.to_string().contains("view: v"), "{select}: {refused}");
    }
}

/// The hop of a window by its definition, implemented a third time.
fn hop(window: Micros) -> Micros {
    let mut hop = SECOND;
    for longer in [10 * SECOND, MINUTE, 5 * MINUTE, HOUR, DAY] {
        if longer <= window / 60 {
            hop = longer;
        }
    }
    hop
}

fn edge(t: Micros, back: Micros, hop: Micros) -> Micros {
    let at = t - back;
    at - at.rem_euclid(hop)
}

fn naive(events: &[(Micros, u8, Option<i64>)], t: Micros, windows: &[Micros]) -> Vec<String> {
    let mut keys: Vec<u8> = events.iter().map(|event| event.1).collect();
    keys.sort_unstable();
    keys.dedup();
    let longest = *windows.iter().max().unwrap();
    let mut lines = Vec::new();
    for key in keys {
        let of_key = |window: Micros| events.iter().filter(move |event| event.1 == key && event.0 >= edge(t, window, hop(window)));
        if of_key(longest).count() == 0 {
            continue;
        }
        let counts = windows.iter().map(|window| of_key(*window).count().to_string());
        let sums = windows.iter().map(|window| {
            let amounts: Vec<i64> = of_key(*window).filter_map(|event| event.2).collect();
            if amounts.is_empty() { "NULL".to_owned() } else { amounts.iter().sum::<i64>().to_string() }
        });
        lines.push([format!("d{key}")].into_iter().chain(counts).chain(sums).collect::<Vec<_>>().join(" "));
    }
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn counts_and_sums_are_those_of_a_loop_over_all_events(
        mut events in proptest::collection::vec((-100 * DAY..HOUR, 0..4u8, proptest::option::of(-100..100i64)), 0..60),
        near_edges in proptest::collection::vec((0..3usize, -2..3i64, 0..4u8), 0..20),
        t in -DAY..DAY,
        windows in proptest::sample::subsequence(vec!["90s", "1h", "1d", "7d", "90d"], 1..4),
    ) {
        let t = NOW + t;
        let lengths: Vec<Micros> = windows.iter().map(|text| parse_duration(text).unwrap().as_micros() as Micros).collect();
        events.iter_mut().for_each(|event| event.0 += t);
        for (window, aside, key) in near_edges {
            let length = lengths[window % lengths.len()];
            events.push((edge(t, length, hop(length)) + aside, key, Some(1)));
        }
        let names = ["d0", "d1", "d2", "d3"];
        let stored: Vec<Event> = events.iter().map(|event| (event.0, Some(names[event.1 as usize]), event.2)).collect();
        let view = view("v", &windows, "SELECT device, count(*) AS n, sum(amount) AS s FROM payments GROUP BY device");
        let plain = rewritten(&view, vec![], t).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        prop_assert_eq!(runtime.block_on(answer(&plain.sql, &stored, &[])), naive(&events, t, &lengths));
        let counted = runtime.block_on(async {
            let session = SessionContext::new_with_config(session_config());
            let stream = stream("payments");
            let table = MemTable::try_new(plan_schema(&stream), vec![vec![batch(&stream, &stored)]]).unwrap();
            session.register_table("payments", Arc::new(table)).unwrap();
            session.sql(&plain.counts_sql).await.unwrap().collect().await.unwrap()
        });
        prop_assert_eq!(counted[0].column(0).as_primitive::<Int64Type>().value(0), events.len() as i64);
    }
}

#[test]
fn whether_values_may_be_past_a_limit_is_one_more_column_of_the_same_select() {
    let collecting = view("v", &["1h"], "SELECT device, count(DISTINCT amount) AS amounts, count(*) AS n FROM payments GROUP BY device");
    let plain = rewritten(&collecting, vec![], NOW).unwrap();
    let (columns, rest) = plain.sql.split_once(" FROM ").unwrap();
    let hour = "__event_time >= arrow_cast(1767222000000000, 'Timestamp(Microsecond, Some(\"UTC\"))')";
    let mark = format!("coalesce(sum(__bytes_of_recurring(amount)) FILTER (WHERE {hour}) > 1048576, false) AS \"__may_be_past\"");
    assert_eq!(plain.may_be_past_sql, Some(format!("{columns}, {mark} FROM {rest}")));
    let counting = view("v", &["1h"], "SELECT device, count(*) AS n, sum(amount) AS s FROM payments GROUP BY device");
    assert_eq!(rewritten(&counting, vec![], NOW).unwrap().may_be_past_sql, None);
}

#[tokio::test]
async fn the_bytes_of_a_value_are_eight_and_those_of_its_text_or_of_its_items() {
    let session = SessionContext::new_with_config(session_config());
    register(&session);
    let list = "make_array('a', NULL, 'bcd')";
    let sql = format!(
        "SELECT __bytes_of_values('abc', 7, NULL, arrow_cast(NULL, 'Utf8')), __bytes_of_texts(arrow_cast('abcd', 'Utf8View')), \
         __bytes_of_recurring(arrow_cast('ab', 'Binary')), __bytes_of_values({list}), __bytes_of_list({list})"
    );
    let rows = session.sql(&sql).await.unwrap().collect().await.unwrap();
    let bytes: Vec<i64> = rows[0].columns().iter().map(|column| column.as_primitive::<Int64Type>().value(0)).collect();
    assert_eq!(bytes, [19, 12, 10, 28, 20]);
    let no_list = session.sql("SELECT __bytes_of_list('a')").await.unwrap().collect().await.unwrap_err();
    assert!(no_list.to_string().contains("expected a list"), "{no_list}");
}

#[test]
fn percentiles_near_another_one_are_asked_for_where_a_column_is_one_call() {
    let near = |sql: &str| calls::near_percentiles(&parse_expr(sql).unwrap(), 0.05);
    let calls = [
        ("approx_median(x)", "approx_percentile_cont(x, 0.450000)", "approx_percentile_cont(x, 0.550000)"),
        (
            "approx_percentile_cont(x, 0.98) FILTER (WHERE x > 1)",
            "approx_percentile_cont(x, 0.930000) FILTER (WHERE x > 1)",
            "approx_percentile_cont(x, 1.000000) FILTER (WHERE x > 1)",
        ),
        (
            "approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY x)",
            "approx_percentile_cont(0.450000) WITHIN GROUP (ORDER BY x)",
            "approx_percentile_cont(0.550000) WITHIN GROUP (ORDER BY x)",
        ),
        (
            "approx_percentile_cont_with_weight(x, w, 0.02)",
            "approx_percentile_cont_with_weight(x, w, 0.000000)",
            "approx_percentile_cont_with_weight(x, w, 0.070000)",
        ),
    ];
    for (call, below, above) in calls {
        assert_eq!(near(call), Some([below, above].map(|near| format!("CAST({near} AS DOUBLE)"))), "{call}");
    }
    for other in ["sum(x)", "approx_median(x) + 1", "approx_percentile_cont(x, p)"] {
        assert_eq!(near(other), None, "{other}");
    }
}
