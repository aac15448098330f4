//! The query of each account's purchases: as a view, and as plain SQL for the peers.
//!
//! Distinct merchants are counted exactly, because sketches of two engines give different estimates, which could not be
//! compared.

use arrow::datatypes::DataType;
use types::Strategy;
use types::sql_types::timestamp_type;
use types::tiles::Micros;

use super::{Purchases, STREAM, Window};
use crate::contest::Shape;
use crate::events::Events;
use crate::view::Dialect;

pub const KEY: &str = "account_id";

/// The path of a lookup of one account over HTTP.
pub fn row_path(view: &str, account: &str) -> String {
    format!("/v1/views/{view}/row?{KEY}={account}")
}

/// Five aggregates, each with its name.
pub type Aggregates = [(&'static str, &'static str); 5];

pub const AGGREGATES: Aggregates =
    [("purchases", "count(*)"), ("total", "sum(amount)"), ("least", "min(amount)"), ("most", "max(amount)"), ("merchants", DISTINCT)];

/// The aggregates whose states are one number each.
pub const SMALL_AGGREGATES: Aggregates = [AGGREGATES[0], AGGREGATES[1], AGGREGATES[2], AGGREGATES[3], ("newest", "max(ts)")];

const DISTINCT: &str = "count(DISTINCT merchant_id)";

pub fn create_view((name, strategy): (&str, Strategy), windows: &[Window], aggregates: &Aggregates) -> String {
    let texts: Vec<&str> = windows.iter().map(|window| window.text).collect();
    let columns: Vec<String> = aggregates.iter().map(|(alias, aggregate)| format!("{aggregate} AS {alias}")).collect();
    format!(
        "CREATE VIEW {name} WITH (windows = '{}', strategy = '{}') AS\nSELECT {KEY}, {}\nFROM {STREAM} GROUP BY {KEY};\n",
        texts.join(", "),
        strategy.name(),
        columns.join(", ")
    )
}

/// The view's columns.
pub fn shape(purchases: &Purchases) -> Shape {
    let column = |(alias, aggregate): &(&str, &str), window: &Window| {
        let data_type = match *aggregate {
            "max(ts)" => timestamp_type(),
            count if count.starts_with("count") => DataType::Int64,
            _ => DataType::Decimal128(38, 2),
        };
        (format!("{alias}_{}", window.text), data_type)
    };
    let windows = purchases.windows();
    let values = purchases.aggregates.iter().flat_map(|aggregate| windows.iter().map(move |window| column(aggregate, window)));
    Shape { key: KEY.to_owned(), values: values.collect() }
}

/// One SELECT over the raw events, as it is written without views.
pub fn plain_select(purchases: &Purchases, dialect: Dialect) -> String {
    let starts = Starts::for_purchases(purchases, dialect);
    let column = |(alias, aggregate): &(&str, &str), window: &Window| {
        format!("{aggregate}{} AS {alias}_{}", starts.filter("ts", window), window.text)
    };
    let columns = columns(&purchases.aggregates, purchases.windows(), &column);
    format!("SELECT {KEY},\n{columns}\nFROM {STREAM} WHERE ts >= {} GROUP BY {KEY}", starts.first)
}

/// The same written by hand, without DISTINCT: purchases of an account at a merchant are aggregated first, then those
/// results. `None` if there is no DISTINCT.
pub fn select_by_merchant(purchases: &Purchases) -> Option<String> {
    let (windows, starts) = (purchases.windows(), Starts::for_purchases(purchases, Dialect::DuckDb));
    let merged: Vec<(&str, &str)> = purchases.aggregates.iter().filter(|(_, aggregate)| *aggregate != DISTINCT).copied().collect();
    if merged.len() == purchases.aggregates.len() {
        return None;
    }
    let inner = |(alias, aggregate): &(&str, &str), window: &Window| {
        format!("{aggregate}{} AS {alias}_{}", starts.filter("ts", window), window.text)
    };
    let outer = |(alias, _): &(&str, &str), window: &Window| {
        let text = window.text;
        match *alias {
            "purchases" => format!("sum(purchases_{text})::BIGINT AS purchases_{text}"),
            "total" => format!("sum(total_{text}) AS total_{text}"),
            "least" => format!("min(least_{text}) AS least_{text}"),
            "most" => format!("max(most_{text}) AS most_{text}"),
            _ => format!("count(merchant_id){} AS {alias}_{text}", starts.filter("last", window)),
        }
    };
    Some(format!(
        "SELECT {KEY},\n{}\nFROM (SELECT {KEY}, merchant_id, max(ts) AS last,\n{}\nFROM {STREAM} WHERE ts >= {} GROUP BY {KEY}, merchant_id)\nGROUP BY {KEY}",
        columns(&purchases.aggregates, windows, &outer),
        columns(&merged, windows, &inner),
        starts.first
    ))
}

/// The same through the states that a batch run keeps: states of each key and tile, so that any later time can be
/// answered, and the answer merged from them. Tiles have the finest length that a window needs at that age. DuckDB
/// keeps no coarser ones and writes nothing.
pub fn select_by_states(purchases: &Purchases) -> String {
    let (windows, t) = (purchases.windows(), purchases.newest());
    let start = |window: &Window| window.start(t);
    let mut aged: Vec<&Window> = windows.iter().collect();
    aged.sort_by_key(|window| -start(window));
    let tile = |window: &Window| format!("epoch_us(ts) // {hop} * {hop}", hop = window.hop());
    let (oldest, younger) = aged.split_last().expect("a view has a window");
    let cases: String = younger.iter().map(|window| format!("WHEN epoch_us(ts) >= {} THEN {} ", start(window), tile(window))).collect();
    let state = |(alias, aggregate): &(&str, &str)| match *aggregate {
        DISTINCT => format!("list(DISTINCT merchant_id) AS {alias}"),
        other => format!("{other} AS {alias}"),
    };
    let states: Vec<String> = purchases.aggregates.iter().map(state).collect();
    let merged = |(alias, aggregate): &(&str, &str), window: &Window| {
        let (text, filter) = (window.text, format!("FILTER (WHERE tile >= {})", start(window)));
        match *aggregate {
            "count(*)" => format!("coalesce(sum({alias}) {filter}, 0)::BIGINT AS {alias}_{text}"),
            "sum(amount)" => format!("sum({alias}) {filter} AS {alias}_{text}"),
            "min(amount)" => format!("min({alias}) {filter} AS {alias}_{text}"),
            DISTINCT => format!("coalesce(len(list_distinct(flatten(list({alias}) {filter}))), 0)::BIGINT AS {alias}_{text}"),
            _ => format!("max({alias}) {filter} AS {alias}_{text}"),
        }
    };
    format!(
        "WITH states AS MATERIALIZED (SELECT {KEY}, CASE {cases}ELSE {} END AS tile,\n{}\nFROM {STREAM} WHERE epoch_us(ts) >= {} GROUP BY ALL)\n\
         SELECT {KEY},\n{}\nFROM states GROUP BY {KEY}",
        tile(oldest),
        states.join(", "),
        start(oldest),
        columns(&purchases.aggregates, windows, &merged),
    )
}

fn columns(aggregates: &[(&str, &str)], windows: &[Window], column: &dyn Fn(&(&str, &str), &Window) -> String) -> String {
    let columns: Vec<String> = aggregates.iter().flat_map(|one| windows.iter().map(move |window| column(one, window))).collect();
    columns.join(",\n")
}

/// The start of each window, as an engine writes it.
struct Starts {
    t: Micros,
    dialect: Dialect,
    /// The start of the longest window: it is in WHERE, and needs no FILTER.
    longest: Micros,
    first: String,
}

impl Starts {
    fn for_purchases(purchases: &Purchases, dialect: Dialect) -> Starts {
        let (windows, t) = (purchases.windows(), purchases.newest());
        let longest = windows.iter().map(|window| window.start(t)).min().unwrap_or(t);
        Starts { t, dialect, longest, first: dialect.time(longest) }
    }

    fn filter(&self, time: &str, window: &Window) -> String {
        let start = window.start(self.t);
        if start == self.longest { String::new() } else { format!(" FILTER (WHERE {time} >= {})", self.dialect.time(start)) }
    }
}
