//! The names that a mistyped function name may have meant.

use std::sync::LazyLock;

use datafusion::{functions, functions_aggregate, functions_nested};

/// Aggregates and functions that basestream adds to DataFusion's.
pub(crate) const OWN_AGGREGATES: [&str; 8] =
    ["last_n", "longest_gap", "retention", "sequence_count", "sequence_match", "session_count", "top_k", "window_funnel"];
pub(crate) const OWN_FUNCTIONS: [&str; 6] = ["as_of", "json_extract_path", "json_extract_path_text", "poisson_sf", "within", "zscore"];

/// Functions that other engines have under names of their own, each with what to write here.
pub(super) const ELSEWHERE: [(&[&str], &str); 24] = [
    (&["max_by", "argmax", "arg_max"], "first_value(x ORDER BY y DESC NULLS LAST)"),
    (&["min_by", "argmin", "arg_min"], "first_value(x ORDER BY y)"),
    (&["anylast", "any_last", "latest_by_offset"], "last_value(x ORDER BY the event time)"),
    (&["countif", "count_if"], "count(*) FILTER (WHERE ..)"),
    (&["sumif", "sum_if"], "sum(x) FILTER (WHERE ..)"),
    (&["avgif", "avg_if"], "avg(x) FILTER (WHERE ..)"),
    (&["uniq", "uniqexact", "uniqif", "count_distinct"], "count(DISTINCT x)"),
    (&["uniqcombined", "uniqcombined64", "uniqhll12", "approx_count_distinct"], "approx_distinct(x)"),
    (&["grouparray", "collect_list"], "array_agg(x ORDER BY ..)"),
    (&["groupuniqarray", "collect_set"], "array_agg(DISTINCT x ORDER BY x)"),
    (&["mode"], "top_k(x, 1)"),
    (&["variance"], "var_samp(x)"),
    (&["every"], "bool_and(x)"),
    (&["sign"], "signum(x)"),
    (&["pg_typeof"], "arrow_typeof(x)"),
    (&["year", "month", "day", "hour", "minute", "dayofweek", "day_of_week", "tohour", "todayofweek"], "date_part('hour', ts)"),
    (&["tostartofminute", "tostartofhour", "tostartofday", "timestamp_trunc"], "date_trunc('hour', ts)"),
    (&["time_bucket", "tostartofinterval", "tumble"], "date_bin(INTERVAL '15 minutes', ts)"),
    (&["date_diff", "datediff", "timestampdiff", "age"], "extract(epoch FROM later - earlier) for seconds"),
    (&["mod"], "x % y"),
    (&["if", "iif", "multiif"], "CASE WHEN .. THEN .. ELSE .. END"),
    (&["isnull"], "x IS NULL"),
    (&["json_extract", "json_extract_scalar", "json_value", "json_query", "get_json_object"], MEMBER_OF_JSON),
    (&["jsonextract", "jsonextractstring", "jsonextractfloat"], MEMBER_OF_JSON),
];

/// What reads a member of a column `payload`.
pub const MEMBER_OF_JSON: &str = "payload ->> 'a', or a column of the stream: name TEXT OPTIONS (path = '$.a')";

/// Returns what to write for a function that another engine has under this name.
pub(super) fn known_elsewhere(name: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(names, _)| names.contains(&name)).map(|(_, here)| *here)
}

/// Returns all function names, aggregates first: where an aggregate and another function are equally near, the
/// aggregate is meant.
pub(super) fn known_names<'a>() -> impl Iterator<Item = &'a str> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut names: Vec<String> = Vec::new();
        for function in functions_aggregate::all_default_aggregate_functions() {
            names.extend([function.name().to_owned()].into_iter().chain(function.aliases().iter().cloned()));
        }
        names.extend(OWN_AGGREGATES.map(str::to_owned));
        for function in functions::all_default_functions().into_iter().chain(functions_nested::all_default_nested_functions()) {
            names.extend([function.name().to_owned()].into_iter().chain(function.aliases().iter().cloned()));
        }
        names.extend(OWN_FUNCTIONS.map(str::to_owned));
        names
    });
    NAMES.iter().map(|name| -> &'a str { name })
}
