//! The query of each account's purchases as data-frame expressions: aggregates of columns since a point in time.

use serde_json::{Value, json};

use super::question::KEY;
use super::{Purchases, STREAM, Window};
use crate::events::Events;

/// The question for `bench/peers/polars_query.py`, without its files and its answer.
pub fn for_purchases(purchases: &Purchases) -> Value {
    let (windows, t) = (purchases.windows(), purchases.newest());
    let column = |alias: &str, (aggregate, column): (&str, Option<&str>), window: &Window| {
        json!({
            "alias": format!("{alias}_{}", window.text),
            "aggregate": aggregate,
            "column": column,
            "from_us": window.start(t),
        })
    };
    let of_each_window = |(alias, aggregate): &(&'static str, &'static str)| -> Vec<Value> {
        let called = called(aggregate);
        windows.iter().map(|window| column(alias, called, window)).collect()
    };
    json!({
        "table": STREAM,
        "key": KEY,
        "time": "ts",
        "from_us": windows.iter().map(|window| window.start(t)).min(),
        "columns": purchases.aggregates.iter().flat_map(of_each_window).collect::<Vec<_>>(),
    })
}

/// Splits an SQL aggregate, `name(column)`, into Polars' name of it and its column.
fn called(aggregate: &'static str) -> (&'static str, Option<&'static str>) {
    match aggregate.trim_end_matches(')').split_once('(') {
        Some(("count", "*")) => ("count", None),
        Some(("count", column)) => ("count_distinct", Some(column.trim_start_matches("DISTINCT "))),
        Some((name, column)) => (name, Some(column)),
        None => (aggregate, None),
    }
}
