//! Generates SELECTs of every shape that a view supports.

use std::fmt::Write;

use proptest::prelude::*;

/// A SELECT of the supported shapes.
pub fn view() -> impl Strategy<Value = String> {
    view_with(AGGREGATES.to_vec(), &GROUPS, &LIMITS)
}

/// The same, of aggregates of sequences alone.
pub fn view_of_sequences() -> impl Strategy<Value = String> {
    let is_of_sequence =
        |call: &&str| ["sequence_", "window_funnel", "retention", "session_count", "longest_gap"].iter().any(|name| call.contains(name));
    view_with(AGGREGATES.into_iter().filter(is_of_sequence).collect(), &GROUPS, &LIMITS)
}

/// The same, with one of these GROUP BYs. No value is past a limit, and none changes much with the order of additions.
pub fn view_grouped_by(groups: &'static [&'static str]) -> impl Strategy<Value = String> {
    let is_stable = |call: &&str| !["corr(", "regr_slope("].iter().any(|name| call.contains(name));
    view_with(AGGREGATES.into_iter().filter(is_stable).collect(), groups, &[""])
}

const GROUPS: [&str; 5] = ["", "k", "k, j", "upper(k)", "b"];
const LIMITS: [&str; 5] = ["", "", "24B", "100B", "400B"];

/// A WHERE over events, or none.
pub fn filter() -> impl Strategy<Value = &'static str> {
    prop::sample::select(FILTERS.map(|(filter, _)| filter).to_vec())
}

fn view_with(
    aggregates: Vec<&'static str>,
    groups: &'static [&'static str],
    limits: &'static [&'static str],
) -> impl Strategy<Value = String> {
    let windows = prop::sample::subsequence(vec!["10s", "1h", "1d", "7d", "30d", "90d"], 0..4);
    let group = prop::sample::select(groups);
    let source = prop::sample::select(vec!["s", "(SELECT * FROM s WHERE j IS NOT NULL UNION ALL SELECT * FROM s WHERE j IS NULL) z", "c"]);
    let aggregates = prop::sample::subsequence(aggregates, 1..6);
    let failing = prop::option::weighted(0.3, prop::sample::select(FAILING.map(|(aggregate, _)| aggregate).to_vec()));
    let limit = prop::sample::select(limits);
    let strategy = prop::sample::select(vec!["", "", "strategy = 'full'", "strategy = 'stream'"]);
    let options = (windows, limit, strategy);
    (options, group, filter(), source, aggregates, failing).prop_map(|(options, group, filter, source, mut aggregates, failing)| {
        let (windows, limit, strategy) = options;
        aggregates.extend(failing);
        let mut sql = String::from("CREATE VIEW v ");
        let collects = aggregates.iter().any(|aggregate| COLLECTING.iter().any(|function| aggregate.contains(function)));
        let windows = (!windows.is_empty()).then(|| format!("windows = '{}'", windows.join(", ")));
        let limit = (collects && !limit.is_empty()).then(|| format!("max_state_bytes = '{limit}'"));
        let strategy = (!strategy.is_empty()).then(|| strategy.to_owned());
        let options: Vec<String> = windows.into_iter().chain(limit).chain(strategy).collect();
        if !options.is_empty() {
            let _ = write!(sql, "WITH ({}) ", options.join(", "));
        }
        sql.push_str("AS ");
        if source == "c" {
            sql.push_str("WITH c AS (SELECT ts, k, j, x, d, f, u, b FROM s) ");
        }
        sql.push_str("SELECT ");
        for (i, key) in group.split(", ").filter(|key| !key.is_empty()).enumerate() {
            let _ = write!(sql, "{key} AS key{i}, ");
        }
        let columns: Vec<String> = aggregates.iter().enumerate().map(|(i, aggregate)| format!("{aggregate} AS c{i}")).collect();
        let _ = write!(sql, "{} FROM {source} {filter}", columns.join(", "));
        if !group.is_empty() {
            let _ = write!(sql, " GROUP BY {group}");
        }
        sql
    })
}

/// What WHEREs and failing aggregates read of an event.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub k: Option<&'static str>,
    pub j: Option<i32>,
    pub x: Option<i64>,
    /// In hundredths.
    pub d: Option<i64>,
    pub u: Option<&'static str>,
    pub b: Option<bool>,
}

/// A part of a SELECT, and what it does with an event, computed without SQL.
type Part = (&'static str, fn(&Event) -> bool);

/// WHEREs, and whether an event passes.
const FILTERS: [Part; 4] = [
    ("", |_| true),
    ("WHERE x > 0", |event| event.x.is_some_and(|x| x > 0)),
    ("WHERE k IS NOT NULL AND (d < 500 OR b)", |event| event.k.is_some() && (event.d.is_some_and(|d| d < 50_000) || event.b == Some(true))),
    ("WHERE u <> '3'", |event| event.u.is_some_and(|u| u != "3")),
];

/// Aggregates that fail on some events, and whether they fail on an event.
const FAILING: [Part; 4] = [
    ("sum(60 / j)", |event| event.j == Some(0)),
    ("min(x * 12000000000000000)", |event| event.x.is_some_and(|x| x.checked_mul(12_000_000_000_000_000).is_none())),
    ("max(x + 9223372036854775000)", |event| event.x.is_some_and(|x| x.checked_add(9_223_372_036_854_775_000).is_none())),
    ("min(CAST(u AS BIGINT))", |event| event.u.is_some_and(|u| u.parse::<i64>().is_err())),
];

/// Whether a view fails on this event, unless its WHERE leaves the event out.
pub fn fails(sql: &str, event: &Event) -> bool {
    part_of(sql, &FAILING).is_some_and(|fails| fails(event))
}

/// Whether a view leaves this event out because it fails on it.
pub fn leaves_out(sql: &str, event: &Event) -> bool {
    fails(sql, event) && passes(sql, event)
}

/// Whether an event passes the WHERE.
pub fn passes(sql: &str, event: &Event) -> bool {
    part_of(sql, &FILTERS).is_none_or(|passes| passes(event))
}

fn part_of(sql: &str, parts: &[Part]) -> Option<fn(&Event) -> bool> {
    parts.iter().find(|(part, _)| !part.is_empty() && sql.contains(part)).map(|(_, outcome)| *outcome)
}

/// What is in the calls that collect values.
const COLLECTING: [&str; 8] =
    ["DISTINCT", "array_agg", "string_agg", "median", "sequence_", "window_funnel", "session_count", "longest_gap"];

const AGGREGATES: [&str; 52] = [
    "count(*)",
    "count(x)",
    "count(DISTINCT u)",
    "coalesce(count(DISTINCT x), 0) + count(*)",
    "array_agg(DISTINCT u ORDER BY u)",
    "count(DISTINCT u) FILTER (WHERE within(ts, '2d', '1d'))",
    "count(*) FILTER (WHERE b)",
    "sum(x)",
    "sum(d)",
    "sum(f)",
    "avg(x)",
    "avg(d)",
    "avg(f)",
    "min(d)",
    "max(u)",
    "max(ts)",
    "max(ts) <= as_of()",
    "stddev(f)",
    "var_pop(x)",
    "sum(DISTINCT x)",
    "approx_distinct(u)",
    "median(x)",
    "array_agg(u ORDER BY ts)",
    "array_agg(x ORDER BY x DESC)",
    "first_value(x ORDER BY ts)",
    "last_value(u ORDER BY ts)",
    "string_agg(u, ',' ORDER BY ts)",
    "bool_and(b)",
    "bit_xor(x)",
    "corr(x, f)",
    "regr_slope(f, x)",
    "regr_count(f, x)",
    "last_n(x, 3)",
    "top_k(u, 3)",
    "sequence_match('(?1)(?t<=3600)(?2)', ts, x > 0, b)",
    "sequence_count('(?1).*(?2)', ts, x > 0, x <= 0)",
    "sequence_count('(?1)(?2t<=600)', ts, b, d > 0) FILTER (WHERE within(ts, '7d'))",
    "window_funnel('1h', ts, x > 0, d > 0, b)",
    "window_funnel('1d', 'strict_order', 'strict_increase', ts, b, x > 0) + count(*)",
    "retention(x > 0, b, d IS NULL)",
    "session_count(ts, '10m')",
    "longest_gap(ts) FILTER (WHERE b)",
    "sequence_count('(?1)(?2)', CASE WHEN j > 0 THEN ts + INTERVAL '90 minutes' WHEN j < 0 THEN ts END, b, x > 0)",
    "sum(x) * 2 + count(*)",
    "sum(d) / count(*)",
    "count(*) FILTER (WHERE within(ts, '2d', '1d'))",
    "sum(x) FILTER (WHERE within(ts, '1h') AND b)",
    "max(ts) FILTER (WHERE within(ts, 'all'))",
    "count(*) FILTER (WHERE within(ts, 'all', '7d'))",
    "count(*) FILTER (WHERE within(ts, '1d')) * 24 - count(*) FILTER (WHERE within(ts, '30d'))",
    "poisson_sf(count(*) FILTER (WHERE within(ts, '1h')), count(*) FILTER (WHERE within(ts, '7d')) / 168.0)",
    "count(*) FILTER (WHERE within(ts, '10s', '1s'))",
];
