//! Guesses a CREATE STREAM from a file: a start for its user to read and correct.

use std::path::Path;

use schemas::definitions::parse::parse_stream;
use schemas::definitions::{ColumnType, TimeUnit};
use schemas::events::Decoder;
use schemas::{Error, Result};

mod names;
mod sample;
mod seen;

use names::{column_name, path_text};
use sample::Sampled;

use super::input::Input;

/// How many records are looked at.
const SAMPLE_RECORDS: usize = 1_000;

/// The text of a CREATE STREAM called `name` that fits the first 1,000 records of a JSON lines, CSV or Parquet file.
///
/// Columns that are never null are NOT NULL; nested objects become columns with paths. The event time is the first TIMESTAMPTZ
/// column without nulls, else the first such DATE; the id is a column whose name names events and whose values are all different.
///
/// Fails as input when the file cannot be read, is empty or holds no time.
pub fn guess_stream(path: &Path, name: &str) -> Result<String> {
    let sampled = sample::read(path, SAMPLE_RECORDS).map_err(|error| match error.context().iter().any(|(key, _)| *key == "file") {
        true => error,
        false => error.with("file", path.display()),
    })?;
    if sampled.is_empty() {
        return Err(Error::input("the file holds no records to guess a stream from").with("file", path.display()));
    }
    let columns = columns(sampled);
    let name = column_name(name, &[]);
    let Some(event_time) = event_time(&columns) else {
        return Err(first_without_time(path, columns)?.with("file", path.display()));
    };
    Ok(statement(&name, &columns, event_time, id(&columns, &name)))
}

/// A guessed column.
struct Guess {
    name: String,
    path: Vec<String>,
    column_type: ColumnType,
    unit: Option<TimeUnit>,
    nullable: bool,
    all_distinct: bool,
    /// How many of its values are texts that are times, and such that are dates.
    times: usize,
    dates: usize,
    values: usize,
}

fn columns(sampled: Vec<Sampled>) -> Vec<Guess> {
    let mut guesses: Vec<Guess> = Vec::new();
    for column in sampled {
        let taken: Vec<&str> = guesses.iter().map(|guess| guess.name.as_str()).collect();
        let name = column_name(&column.path.join("_"), &taken);
        let (column_type, unit) = match column.known_type {
            Some(known) if known != ColumnType::BigInt => (known, None),
            known => {
                let (guessed, unit) = column.seen.guess(&name, column.from_text);
                // A file that says BIGINT means it, unless it is a time.
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
        });
    }
    guesses
}

fn event_time(columns: &[Guess]) -> Option<&Guess> {
    let first = |column_type: ColumnType| columns.iter().find(|column| column.column_type == column_type && !column.nullable);
    first(ColumnType::TimestampTz).or_else(|| first(ColumnType::Date))
}

/// Where the column that looks most like the event time holds none, in the words of the decoder; or that no column looks like one.
fn first_without_time(path: &Path, columns: Vec<Guess>) -> Result<Error> {
    let none = no_time(&columns);
    let looks_like_it = |guess: &Guess| match guess.column_type {
        ColumnType::TimestampTz | ColumnType::Date => guess.values,
        _ => guess.times.max(guess.dates),
    };
    let likely = columns.into_iter().filter(|guess| 2 * looks_like_it(guess) > guess.values).max_by_key(looks_like_it);
    let Some(mut guess) = likely else { return Ok(none) };
    if !matches!(guess.column_type, ColumnType::TimestampTz | ColumnType::Date) {
        guess.column_type = if guess.times >= guess.dates { ColumnType::TimestampTz } else { ColumnType::Date };
    }
    guess.nullable = false;
    let sql = statement("guessed", std::slice::from_ref(&guess), &guess, None);
    let stream = parse_stream(&sql).map_err(|error| Error::internal("the guessed stream does not parse").caused_by(error))?;
    let input = Input::File(path.to_path_buf());
    let mut records = input.open(input.format(None)?, None, &stream)?;
    let decoder = Decoder::new(stream.into())?;
    while let Some(record) = records.next()? {
        let wrong = record.error.clone().or_else(|| decoder.decode(Some(&record.value)).err().map(|error| error.to_string()));
        if let Some(wrong) = wrong {
            return Ok(Error::input(format!("the column \"{}\" looks like the event time, and one record has none: {wrong}", guess.name))
                .with("line", record.number)
                .with("help", "correct or remove the record; `ingest` leaves such records out and tells their lines"));
        }
    }
    Ok(none)
}

fn no_time(columns: &[Guess]) -> Error {
    let listed: Vec<String> = columns.iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
    Error::input(format!("no column holds a time in every record, which a stream needs as its event time: found {}", listed.join(", ")))
}

/// The names that name events, best first.
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
