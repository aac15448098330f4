//! Writes a first view for a guessed stream: counts and sums by its likely key.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use definitions::settings::SpeedSettings;
use definitions::{Column, ColumnType, StreamDefinition};
use engine::events::format_timestamp;
use types::Result;
use types::tiles::{Micros, micros};

use crate::ingest::{FileSurvey, Shape, survey};
use crate::installation::now;
use crate::sql_names::quoted;

/// How many records of the file are surveyed.
const RECORDS: u64 = 200_000;
/// At most this many columns are summed.
const SUMS: usize = 3;
const DAY: Duration = Duration::from_secs(86_400);

pub(super) struct FirstView {
    pub(super) name: String,
    /// `column=value` of the newest event; empty if the view has one row.
    pub(super) example_key: String,
    pub(super) sql: String,
    /// Why this key was chosen, as text.
    pub(super) why: String,
    /// The file's events are in the past: the view's clock is their event time.
    pub(super) event_clock: bool,
    /// Why this clock was chosen, as text.
    pub(super) why_clock: String,
}

pub(super) fn first_view(stream: &StreamDefinition, file: &Path, shape: Shape) -> Result<FirstView> {
    let last = now().saturating_add(micros(SpeedSettings::default().max_future));
    let found = survey(file, shape, Arc::new(stream.clone()), RECORDS, last)?;
    let key = key_of(stream, &found);
    let why = why(stream, &found, key.as_deref());
    let age = found.latest.map(|latest| now().saturating_sub(latest)).unwrap_or_default();
    let name = match &key {
        Some(key) => format!("{}_by_{}", stream.name, key.strip_suffix("_id").unwrap_or(key)),
        None => format!("{}_totals", stream.name),
    };
    let sql = statement(stream, &name, key.as_deref(), windows(&found));
    let example_key = key.map(|key| example(stream, &found, &key)).unwrap_or_default();
    let event_clock = age > (2 * DAY).as_micros() as i64;
    Ok(FirstView { name, example_key, sql, why, event_clock, why_clock: why_clock(found.latest, event_clock) })
}

fn why_clock(latest: Option<Micros>, event_clock: bool) -> String {
    let newest = match latest {
        Some(latest) => format!("the newest event is of {}", format_timestamp(latest)),
        None => "the file has no event".to_owned(),
    };
    match event_clock {
        true => format!("{newest}, more than two days ago, and windows are to end at event times"),
        false => format!("{newest}, and windows are to end at the time of the machine"),
    }
}

/// Returns a key for a lookup: that of the newest event, so every window has it. A value that does not print well on a
/// command line is left out.
fn example(stream: &StreamDefinition, found: &FileSurvey, key: &str) -> String {
    let at = stream.columns.iter().position(|column| column.name == key);
    let value = at.and_then(|at| found.newest.get(at)).and_then(Option::as_deref);
    let shown = value.filter(|value| value.chars().count() <= 60 && !value.contains(char::is_control));
    format!("{key}={}", shown.unwrap_or(".."))
}

/// Returns windows that distinguish events within the file's time span.
fn windows(found: &FileSurvey) -> &'static str {
    let span = found.earliest.zip(found.latest).map_or(0, |(earliest, latest)| latest.saturating_sub(earliest));
    match u64::try_from(span).unwrap_or_default() / DAY.as_micros() as u64 {
        0..=6 => "1h, 1d, 7d",
        7..=119 => "1d, 7d, 30d",
        _ => "7d, 30d, 365d",
    }
}

/// Words in names of keys, the most likely first.
const KEY_NAMES: [&str; 18] = [
    "customer", "user", "account", "device", "card", "member", "client", "player", "merchant", "seller", "session", "host", "ip",
    "product", "sku", "item", "sensor", "name",
];

fn why(stream: &StreamDefinition, found: &FileSurvey, key: Option<&str>) -> String {
    let at = stream.columns.iter().position(|column| Some(column.name.as_str()) == key);
    match (key, at.and_then(|at| found.distinct.get(at))) {
        (Some(key), Some(distinct)) => format!("{key}, with {distinct} different values in {} records", found.events),
        _ => "none, because no column looks like a key: the view has one row".into(),
    }
}

/// Returns the column most likely to be queried by: neither unique nor constant, preferably with repeated values, and
/// with a name typical of keys.
fn key_of(stream: &StreamDefinition, found: &FileSurvey) -> Option<String> {
    let mut best: Option<((bool, u32), &str)> = None;
    for (column, distinct) in stream.columns.iter().zip(&found.distinct) {
        let typed = matches!(column.column_type, ColumnType::Text | ColumnType::Uuid | ColumnType::Int | ColumnType::BigInt);
        let tells_apart = *distinct > 1 && (*distinct as u64) < found.events.max(3);
        if !typed || !tells_apart || !may_be_key(stream, &column.name) {
            continue;
        }
        let by_name = KEY_NAMES.iter().position(|part| column.name.split('_').any(|word| word == *part)).map_or(0, |at| 100 - at as u32);
        let by_ending = if column.name.ends_with("_id") { 50 } else { 0 };
        let by_type = if matches!(column.column_type, ColumnType::Text | ColumnType::Uuid) { 20 } else { 0 };
        let score = by_name + by_ending + by_type;
        let comes_again = 2 * (*distinct as u64) <= found.events;
        if score > 0 && best.is_none_or(|(other, _)| (comes_again, score) > other) {
            best = Some(((comes_again, score), &column.name));
        }
    }
    best.map(|(_, name)| name.to_owned())
}

/// Whether a column may be a key: text or a whole number, neither a time nor the event's id.
fn may_be_key(stream: &StreamDefinition, name: &str) -> bool {
    stream.id.as_deref() != Some(name) && stream.event_time != name
}

/// Last words of names whose numbers are identifiers, places or levels, not amounts.
const NO_SUMS: &str = "id no nr number status code type lat lon lng long latitude longitude x y z altitude year month day week \
    weekday hour minute port pid zip plz postcode version level rank position line row index temperature age rate ratio \
    rating elo percent pct";

/// Whether a column holds numbers whose sum is meaningful.
fn may_be_summed(column: &Column) -> bool {
    let last = column.name.rsplit('_').next().unwrap_or_default();
    is_number(&column.column_type) && !NO_SUMS.split(' ').any(|word| word == last)
}

/// Whether a column can be summed.
fn is_number(column_type: &ColumnType) -> bool {
    matches!(column_type, ColumnType::Int | ColumnType::BigInt | ColumnType::Double | ColumnType::Decimal { .. })
}

fn statement(stream: &StreamDefinition, name: &str, key: Option<&str>, windows: &str) -> String {
    let summed: Vec<&str> = stream
        .columns
        .iter()
        .filter(|column| may_be_summed(column) && may_be_key(stream, &column.name) && key != Some(&column.name))
        .map(|column| column.name.as_str())
        .take(SUMS)
        .collect();
    let alias = |wanted: &str| {
        let taken = key == Some(wanted) || summed.contains(&wanted);
        if taken { format!("{wanted}_") + "seen" } else { wanted.to_owned() }
    };
    let time = quoted(&stream.event_time);
    let mut items: Vec<String> = key.iter().map(|key| quoted(key)).collect();
    items.push(format!("count(*) AS {}", alias("events")));
    items.extend(summed.iter().map(|column| format!("sum({0}) AS {0}", quoted(column))));
    let amount = stream.columns.iter().find(|column| {
        let exact = matches!(column.column_type, ColumnType::Decimal { .. } | ColumnType::Double);
        exact && summed.contains(&column.name.as_str())
    });
    let largest = amount.map(|column| column.name.as_str()).or(summed.first().copied());
    items.extend(largest.map(|column| format!("max({}) AS {}", quoted(column), alias(&format!("largest_{column}")))));
    items.push(format!("max({time}) FILTER (WHERE within({time}, 'all')) AS {}", alias("last_seen")));
    let group = key.map(|key| format!("\nGROUP BY {}", quoted(key))).unwrap_or_default();
    format!(
        "-- A first view: each aggregate below is kept for every window (columns {first}_{window} and so on).\n\
         CREATE VIEW {name} WITH (windows = '{windows}', every = '1h') AS\nSELECT {items}\nFROM {stream}{group};\n",
        first = alias("events"),
        window = windows.split(',').next().unwrap_or_default(),
        items = items.join(",\n       "),
        stream = quoted(&stream.name),
    )
}
