//! Generates SELECTs of every shape that a view supports.

use std::fmt::Write;

use proptest::prelude::*;

/// A SELECT of the supported shapes.
pub fn view() -> impl Strategy<Value = String> {
    view_with(AGGREGATES.to_vec())
}

/// The same, of aggregates of sequences alone.
pub fn view_of_sequences() -> impl Strategy<Value = String> {
    let is_of_sequence =
        |call: &&str| ["sequence_", "window_funnel", "retention", "session_count", "longest_gap"].iter().any(|name| call.contains(name));
    view_with(AGGREGATES.into_iter().filter(is_of_sequence).collect())
}

fn view_with(aggregates: Vec<&'static str>) -> impl Strategy<Value = String> {
    let windows = prop::sample::subsequence(vec!["10s", "1h", "1d", "7d", "30d", "90d"], 0..4);
    let group = prop::sample::select(vec!["", "k", "k, j", "upper(k)", "b"]);
    let filter = prop::sample::select(vec!["", "WHERE x > 0", "WHERE k IS NOT NULL AND (d < 500 OR b)", "WHERE u <> '3'"]);
    let source = prop::sample::select(vec!["s", "(SELECT * FROM s WHERE j IS NOT NULL UNION ALL SELECT * FROM s WHERE j IS NULL) z", "c"]);
    let aggregates = prop::sample::subsequence(aggregates, 1..6);
    let fails = prop::bool::weighted(0.2);
    let limit = prop::sample::select(vec!["", "", "24B", "100B", "400B"]);
    let strategy = prop::sample::select(vec!["", "", "strategy = 'full'", "strategy = 'stream'"]);
    let options = (windows, limit, strategy);
    (options, group, filter, source, aggregates, fails).prop_map(|(options, group, filter, source, mut aggregates, fails)| {
        let (windows, limit, strategy) = options;
        if fails {
            aggregates.push(FAILING);
        }
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

/// An aggregate that fails on some events.
const FAILING: &str = "sum(60 / j)";

/// Whether a view fails on an event with this `j`, unless its WHERE leaves the event out.
pub fn fails(sql: &str, j: Option<i32>) -> bool {
    sql.contains(FAILING) && j == Some(0)
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
