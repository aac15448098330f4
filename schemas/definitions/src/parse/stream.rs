//! `CREATE STREAM name (columns) WITH (options)`.

use std::sync::Arc;
use std::time::Duration;

use super::columns::{self, Declared};
use super::found::{DefinitionHead, Found};
use super::options::{OptionEntry, Options};
use super::tokens::Cursor;
use crate::{Column, ColumnType, Diagnostics, Origin, StreamDefinition};
use types::suggest;

const OPTIONS: [&str; 9] = ["topic", "format", "event_time", "id", "dedup_within", "key", "retention", "keep_raw", "cluster_by"];

/// More columns than these sort little: few rows are alike in the first ones.
const MOST_CLUSTERED: usize = 4;

/// How far back ids are compared if `dedup_within` is not given.
const DEFAULT_DEDUP_WITHIN: Duration = Duration::from_secs(600);

/// Reads what follows the name.
pub(super) fn parse(head: DefinitionHead, mut cursor: Cursor<'_>, problems: &mut Diagnostics) -> Option<Found> {
    let before = problems.len();
    let declared = columns::parse(&mut cursor, problems)?;
    let options_at = cursor.place();
    let options = match cursor.take_word("with") {
        true => Options::parse(&mut cursor, "stream", &OPTIONS, problems),
        false if cursor.is_at_end() => Options::none(),
        false => {
            problems.push(cursor.expected("WITH (event_time = '..', ..)"));
            return None;
        }
    };
    if !cursor.is_at_end() {
        problems.push(cursor.expected("';' or the end of the file"));
    }
    let event_time = match options.find("event_time") {
        Some(_) => event_time(&options, &declared, problems),
        None => {
            let mut problem = options_at.error(format!("the stream '{}' names no event time", head.name));
            problem = problem.help(missing_event_time(&declared));
            problems.push(problem);
            None
        }
    };
    let (topic, topic_at) = topic(&options, &head, problems);
    check_format(&options, problems);
    let id = key_column("id", &options, &declared, problems);
    let key = key_column("key", &options, &declared, problems);
    let dedup_within = dedup_within(&options, problems);
    let retention = retention(&options, dedup_within, problems);
    let keep_raw = options.flag("keep_raw", problems).unwrap_or(true);
    let cluster_by = cluster_by(&options, &declared, problems);
    if problems.len() > before {
        return None;
    }
    let definition = StreamDefinition {
        name: head.name,
        columns: declared.into_iter().filter_map(|declared| declared.column).collect(),
        topic,
        event_time: event_time?,
        id,
        dedup_within,
        key,
        retention,
        keep_raw,
        cluster_by,
        sql: head.sql,
        origin: Origin { file: None, line: head.line },
    };
    Some(Found::Stream { definition, name_at: head.name_at, topic_at })
}

fn event_time(options: &Options, declared: &[Declared], problems: &mut Diagnostics) -> Option<String> {
    let (name, entry) = options.text("event_time", problems)?;
    let found = named_column(name, entry, declared, problems)?;
    let column = found.column.as_ref()?;
    if !matches!(column.column_type, ColumnType::TimestampTz | ColumnType::Date) {
        let message = format!("the event time '{name}' is of type {}", column.column_type);
        problems.push(entry.value_at.error(message).help("expected a column of type TIMESTAMPTZ or DATE"));
    } else if column.nullable {
        let message = format!("the event time '{name}' may be NULL");
        problems.push(entry.value_at.error(message).help(format!("declare it as {name} {} NOT NULL", column.column_type)));
    }
    Some(column.name.clone())
}

fn missing_event_time(declared: &[Declared]) -> String {
    let is_time = |column: &&Column| matches!(column.column_type, ColumnType::TimestampTz | ColumnType::Date);
    let candidates: Vec<&Column> = declared.iter().filter_map(|declared| declared.column.as_ref()).filter(is_time).collect();
    match candidates.as_slice() {
        [only] => format!("write WITH (event_time = '{}')", only.name),
        _ => "write WITH (event_time = '..'), naming a column of type TIMESTAMPTZ or DATE that is NOT NULL".to_owned(),
    }
}

/// Returns the column that an option names, as written or in lower case.
fn named_column<'a>(name: &str, entry: &OptionEntry, declared: &'a [Declared], problems: &mut Diagnostics) -> Option<&'a Declared> {
    let lower = name.to_lowercase();
    let found = declared.iter().find(|column| column.name == name).or_else(|| declared.iter().find(|column| column.name == lower));
    if found.is_none() {
        let names: Vec<&str> = declared.iter().map(|column| column.name.as_str()).collect();
        let help = match suggest::nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("the columns are {}", names.join(", ")),
        };
        problems.push(entry.value_at.error(format!("{} names the column '{name}', which does not exist", entry.name)).help(help));
    }
    found
}

/// Returns the column of `id` or `key`.
fn key_column(option: &str, options: &Options, declared: &[Declared], problems: &mut Diagnostics) -> Option<String> {
    let (name, entry) = options.text(option, problems)?;
    let column = named_column(name, entry, declared, problems)?.column.as_ref()?;
    if matches!(column.column_type, ColumnType::Array(_) | ColumnType::Json) {
        let message = format!("the {option} '{name}' is of type {}", column.column_type);
        problems.push(entry.value_at.error(message).help("expected a column with one plain value: no array, no JSON"));
    }
    Some(column.name.clone())
}

/// Returns the columns of `cluster_by`, which are separated by commas.
fn cluster_by(options: &Options, declared: &[Declared], problems: &mut Diagnostics) -> Vec<String> {
    let Some((text, entry)) = options.text("cluster_by", problems) else { return Vec::new() };
    let mut columns: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let Some(column) = named_column(name, entry, declared, problems).and_then(|found| found.column.as_ref()) else { continue };
        if !has_order(&column.column_type) {
            let message = format!("cluster_by names '{name}', which is of type {}", column.column_type);
            problems.push(entry.value_at.error(message).help("expected a column with an exact order: no DOUBLE, BYTEA, JSON or array"));
        } else if columns.contains(&column.name) {
            problems.push(entry.value_at.error(format!("cluster_by names '{name}' twice")).help("name each column once"));
        } else {
            columns.push(column.name.clone());
        }
    }
    if columns.len() > MOST_CLUSTERED {
        let message = format!("cluster_by names {} columns", columns.len());
        problems.push(entry.value_at.error(message).help(format!("expected at most {MOST_CLUSTERED}")));
    }
    columns
}

fn has_order(column_type: &ColumnType) -> bool {
    !matches!(column_type, ColumnType::Double | ColumnType::Bytea | ColumnType::Json | ColumnType::Array(_))
}

pub(super) fn topic(options: &Options, head: &DefinitionHead, problems: &mut Diagnostics) -> (Arc<str>, super::tokens::TextPosition) {
    const LONGEST: usize = 249; // Kafka's
    let Some((topic, entry)) = options.text("topic", problems) else { return (head.name.clone(), head.name_at) };
    let odd = topic.chars().position(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-'));
    let help = "topics are letters (a to z), digits, '.', '_' and '-', up to 249 of them";
    if let Some(odd) = odd {
        problems.push(entry.inside(odd).error(format!("the topic '{topic}' holds a character that topics do not have")).help(help));
    } else if topic.is_empty() || topic.len() > LONGEST || topic == "." || topic == ".." {
        problems.push(entry.value_at.error(format!("'{topic}' cannot be a topic's name")).help(help));
    }
    (topic.into(), entry.value_at)
}

pub(super) fn check_format(options: &Options, problems: &mut Diagnostics) {
    if let Some((format, entry)) = options.text("format", problems)
        && format != "json"
    {
        problems.push(entry.value_at.error(format!("unknown format '{format}'")).help("expected 'json'"));
    }
}

/// Defaults to ten minutes for a stream with an id.
fn dedup_within(options: &Options, problems: &mut Diagnostics) -> Option<Duration> {
    let has_id = options.find("id").is_some();
    if !has_id && let Some(entry) = options.find("dedup_within") {
        problems
            .push(entry.name_at.error("dedup_within is given without an id").help("name the column that tells events apart: id = '..'"));
        return None;
    }
    match options.find("dedup_within") {
        Some(_) => options.duration("dedup_within", problems).map(|(duration, _)| duration),
        None => has_id.then_some(DEFAULT_DEDUP_WITHIN),
    }
}

/// The archive must reach back at least as far as `dedup_within`, as ids are reread from it.
fn retention(options: &Options, dedup_within: Option<Duration>, problems: &mut Diagnostics) -> Option<Duration> {
    let (retention, entry) = options.duration("retention", problems)?;
    if dedup_within.is_some_and(|within| within > retention) {
        problems.push(
            entry.value_at.error("retention is shorter than dedup_within").help("keep events at least as long as their ids are compared"),
        );
    }
    Some(retention)
}
