//! What is asked of each account's purchases: as a view, and as plain SQL for the peers.
//!
//! Distinct merchants are counted exactly: sketches of two engines estimate differently, and answers could not be held against each
//! other.

use arrow::datatypes::DataType;
use schemas::tiles::Micros;

use super::{STREAM, Window};
use crate::contest::Shape;
use crate::view::Dialect;

pub const KEY: &str = "account_id";

/// The five aggregates, with their names.
pub const AGGREGATES: [(&str, &str); 5] = [
    ("purchases", "count(*)"),
    ("total", "sum(amount)"),
    ("least", "min(amount)"),
    ("most", "max(amount)"),
    ("merchants", "count(DISTINCT merchant_id)"),
];

pub fn create_view(name: &str, windows: &[Window]) -> String {
    let texts: Vec<&str> = windows.iter().map(|window| window.text).collect();
    let columns: Vec<String> = AGGREGATES.iter().map(|(alias, aggregate)| format!("{aggregate} AS {alias}")).collect();
    format!(
        "CREATE VIEW {name} WITH (windows = '{}') AS\nSELECT {KEY}, {}\nFROM {STREAM} GROUP BY {KEY};\n",
        texts.join(", "),
        columns.join(", ")
    )
}

/// The view's columns.
pub fn shape(windows: &[Window]) -> Shape {
    let column = |(alias, aggregate): &(&str, &str), window: &Window| {
        let data_type = if aggregate.starts_with("count") { DataType::Int64 } else { DataType::Decimal128(38, 2) };
        (format!("{alias}_{}", window.text), data_type)
    };
    let values = AGGREGATES.iter().flat_map(|aggregate| windows.iter().map(move |window| column(aggregate, window)));
    Shape { key: KEY.to_owned(), values: values.collect() }
}

/// One SELECT over the raw events, as anybody would write it without views.
pub fn plain_select(windows: &[Window], t: Micros, dialect: Dialect) -> String {
    let starts = Starts::of(windows, t, dialect);
    let column = |(alias, aggregate): &(&str, &str), window: &Window| {
        format!("{aggregate}{} AS {alias}_{}", starts.filter("ts", window), window.text)
    };
    let columns = columns(windows, &column);
    format!("SELECT {KEY},\n{columns}\nFROM {STREAM} WHERE ts >= {} GROUP BY {KEY}", starts.first)
}

/// The same by hand, without DISTINCT: purchases of an account from a merchant are aggregated first, and these once more.
pub fn select_by_merchant(windows: &[Window], t: Micros) -> String {
    let starts = Starts::of(windows, t, Dialect::DuckDb);
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
    let distinct = |(_, aggregate): &&(&str, &str)| aggregate.contains("DISTINCT");
    let merged = AGGREGATES.iter().filter(|one| !distinct(one));
    let kept: Vec<String> = merged.flat_map(|one| windows.iter().map(move |window| inner(one, window))).collect();
    format!(
        "SELECT {KEY},\n{}\nFROM (SELECT {KEY}, merchant_id, max(ts) AS last,\n{}\nFROM {STREAM} WHERE ts >= {} GROUP BY {KEY}, merchant_id)\nGROUP BY {KEY}",
        columns(windows, &outer),
        kept.join(",\n"),
        starts.first
    )
}

fn columns(windows: &[Window], column: &dyn Fn(&(&str, &str), &Window) -> String) -> String {
    let columns: Vec<String> = AGGREGATES.iter().flat_map(|one| windows.iter().map(move |window| column(one, window))).collect();
    columns.join(",\n")
}

/// Where windows begin, as an engine writes it.
struct Starts {
    t: Micros,
    dialect: Dialect,
    /// Of the longest window: WHERE says it, and it needs no FILTER.
    longest: Micros,
    first: String,
}

impl Starts {
    fn of(windows: &[Window], t: Micros, dialect: Dialect) -> Starts {
        let longest = windows.iter().map(|window| window.start(t)).min().unwrap_or(t);
        Starts { t, dialect, longest, first: dialect.time(longest) }
    }

    fn filter(&self, time: &str, window: &Window) -> String {
        let start = window.start(self.t);
        if start == self.longest { String::new() } else { format!(" FILTER (WHERE {time} >= {})", self.dialect.time(start)) }
    }
}
