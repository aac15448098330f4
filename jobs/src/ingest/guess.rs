//! Guesses a CREATE STREAM from a file, as a starting point for the user to read and correct.

use std::path::Path;

use definitions::{ColumnType, TimeUnit};
use types::{Error, Result};

mod names;
mod sample;
mod seen;
mod without_time;

use names::{column_name, path_text};
use sample::Sampled;

use super::input::Shape;

/// How many records are sampled.
const SAMPLE_RECORDS: usize = 1_000;

/// A guessed stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guessed {
    /// The text of a CREATE STREAM.
    pub sql: String,
    /// Types that may turn out too narrow, with the values they were guessed from: `amount DECIMAL(18,4), final: ..`.
    pub types: Vec<String>,
}

/// Guesses a CREATE STREAM called `name` that fits the first 1,000 records of a JSON lines, CSV or Parquet file.
///
/// Columns that are never null are NOT NULL; nested objects become columns with paths. The event time is the first
/// TIMESTAMPTZ column without nulls, else the first DATE column without nulls. The id is a column with a name typical
/// of event ids whose values are all different. Whole numbers are BIGINT. Decimals get two more places than were found,
/// because a type is final.
///
/// Errors: `Input` if the file cannot be read, is empty or has no time.
pub fn guess_stream(path: &Path, shape: Shape, name: &str) -> Result<Guessed> {
    let in_file = |error: Error| match error.context().iter().any(|(key, _)| *key == "file") {
        true => error,
        false => error.with("file", path.display()),
    };
    let sampled = sample::read(path, shape, SAMPLE_RECORDS).map_err(in_file)?;
    if sampled.is_empty() {
        return Err(in_file(Error::input("the file holds no records to guess a stream from")));
    }
    let columns = columns(sampled);
    let name = column_name(name, &[]);
    let Some(event_time) = event_time(&columns) else {
        return Err(in_file(without_time::refusal(path, shape, columns).unwrap_or_else(|error| error)));
    };
    Ok(Guessed { sql: statement(&name, &columns, event_time, id(&columns, &name)), types: final_types(&columns) })
}

/// A guessed column.
struct Guess {
    name: String,
    path: Vec<String>,
    column_type: ColumnType,
    unit: Option<TimeUnit>,
    nullable: bool,
    all_distinct: bool,
    /// How many of its values are strings with a time, and with a date.
    times: usize,
    dates: usize,
    values: usize,
    /// The first value; a string without its quotes.
    first: Option<String>,
    /// The most digits after a decimal point, if the type was guessed from numbers.
    places: Option<usize>,
}

fn columns(sampled: Vec<Sampled>) -> Vec<Guess> {
    let mut guesses: Vec<Guess> = Vec::new();
    for column in sampled {
        let taken: Vec<&str> = guesses.iter().map(|guess| guess.name.as_str()).collect();
        let name = column_name(&column.path.join("_"), &taken);
        let (column_type, unit) = match column.known_type.clone() {
            Some(known) if known != ColumnType::BigInt => (known, None),
            known => {
                let (guessed, unit) = column.seen.guess(&name, column.from_text);
                // A BIGINT declared by the file is kept, unless the values are times.
                (if guessed == ColumnType::TimestampTz { guessed } else { known.unwrap_or(guessed) }, unit)
            }
        };
        guesses.push(Guess {
            name,
            path: column.path,
            column_type,
            unit,
            nullable: column.nullable,
            all_distinct: column.seen.all_distinct(),
            times: column.seen.times(),
            dates: column.seen.dates(),
            values: column.seen.values(),
            first: column.seen.first().map(str::to_owned),
            places: column.known_type.is_none().then(|| column.seen.places()),
        });
    }
    guesses
}

fn event_time(columns: &[Guess]) -> Option<&Guess> {
    let first = |column_type: ColumnType| columns.iter().find(|column| column.column_type == column_type && !column.nullable);
    first(ColumnType::TimestampTz).or_else(|| first(ColumnType::Date))
}

/// Returns which guessed types later records may not fit.
fn final_types(columns: &[Guess]) -> Vec<String> {
    let mut said = Vec::new();
    let mut whole = Vec::new();
    for column in columns {
        match (&column.column_type, column.places) {
            (ColumnType::Decimal { scale: scale @ 1..=i8::MAX, .. }, Some(found)) => said.push(format!(
                "{} {}, final: found at most {found} places; records with more than {scale} will be dead letters",
                column.name, column.column_type
            )),
            (ColumnType::BigInt, Some(_)) if column.name != "id" && !column.name.ends_with("_id") => whole.push(column.name.as_str()),
            _ => {}
        }
    }
    if !whole.is_empty() {
        said.push(format!("{} BIGINT, final: found whole numbers alone", whole.join(", ")));
    }
    said
}

/// Names of event ids, best first.
const ID_NAMES: [&str; 13] = [
    "event_id",
    "event_uuid",
    "transaction_id",
    "txn_id",
    "tx_id",
    "order_id",
    "payment_id",
    "message_id",
    "request_id",
    "login_id",
    "record_id",
    "id",
    "uuid",
];

fn id<'a>(columns: &'a [Guess], stream: &str) -> Option<&'a Guess> {
    let own = format!("{}_id", stream.strip_suffix('s').unwrap_or(stream));
    let fits = |column: &&Guess| {
        let plain = matches!(column.column_type, ColumnType::Text | ColumnType::Uuid | ColumnType::Int | ColumnType::BigInt);
        plain && !column.nullable && column.all_distinct
    };
    let mut names = std::iter::once(own.as_str()).chain(ID_NAMES);
    names.find_map(|name| columns.iter().filter(fits).find(|column| column.name == name))
}

fn statement(name: &str, columns: &[Guess], event_time: &Guess, id: Option<&Guess>) -> String {
    let name_width = columns.iter().map(|column| column.name.len()).max().unwrap_or(0);
    let lines: Vec<String> = columns.iter().map(|column| column_line(column, name_width)).collect();
    let id = id.map(|id| format!(", id = '{}'", id.name)).unwrap_or_default();
    let columns = lines.join(",\n");
    format!("CREATE STREAM {name} (\n{columns}\n) WITH (topic = '{name}', format = 'json', event_time = '{}'{id});\n", event_time.name)
}

fn column_line(column: &Guess, name_width: usize) -> String {
    let not_null = if column.nullable { "" } else { " NOT NULL" };
    let mut options = Vec::new();
    if column.path != [column.name.as_str()] {
        options.push(format!("path = '{}'", path_text(&column.path).replace('\'', "''")));
    }
    if let Some(unit) = column.unit {
        let unit = match unit {
            TimeUnit::Seconds => "s",
            TimeUnit::Millis => "ms",
            TimeUnit::Micros => "us",
            TimeUnit::Nanos => "ns",
        };
        options.push(format!("unit = '{unit}'"));
    }
    let options = if options.is_empty() { String::new() } else { format!(" OPTIONS ({})", options.join(", ")) };
    format!("  {:name_width$}  {}{not_null}{options}", column.name, column.column_type)
}

#[cfg(test)]
mod tests;
