//! Guesses a CREATE STREAM from a file, as a starting point for the user to read and correct.

use std::path::Path;

use definitions::ColumnType;
use types::{Error, Result};

mod column;
mod sample;
mod seen;
mod statement;
mod without_time;

use column::Guess;
use sample::{Sample, Sampled};
use seen::FirstOfKind;
use statement::statement;

use super::column_names::{column_name, words};
use super::input::Shape;
use super::numbers::NumberFormat;

/// How many records are sampled.
const SAMPLE_RECORDS: usize = 1_000;

/// A guessed stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guessed {
    /// The text of a CREATE STREAM.
    pub sql: String,
    /// Types that may turn out too narrow, with the values they were guessed from: `amount DECIMAL(18,4): ..`.
    pub types: Vec<String>,
    /// Columns that are JSON because their values are of several kinds, each with an example of every kind.
    pub mixed: Vec<String>,
    /// Columns with a few values of another kind or in another spelling, each with their number and an example.
    pub odd: Vec<String>,
    /// How many records were read.
    pub records: usize,
    /// The columns were guessed from all records of the file.
    pub is_whole: bool,
    /// How the file writes its numbers, if not plainly; `ingest` needs it too.
    pub numbers: Option<NumberFormat>,
    /// Columns whose numbers can be read in two ways, each with how they are read.
    pub doubts: Vec<String>,
    /// Columns whose times have no zone, each with what is assumed.
    pub zones: Vec<String>,
    /// Without an id: a column that may be one.
    pub proposed_id: Option<String>,
    /// Without an id: a column with the name of one, with the number of records that repeat its value or lack it.
    pub nearly_id: Option<String>,
}

/// Guesses a CREATE STREAM called `name` that fits the first 1,000 records of a JSON lines, CSV or Parquet file.
///
/// If these are all records of the file, columns that are never null are NOT NULL; otherwise only the event time is.
/// Nested objects become columns with paths. Members whose values are of several kinds are JSON. The event time is the
/// first TIMESTAMPTZ column without nulls, else the first DATE column without nulls. The id is a column with a name
/// typical of event ids whose values are all different. Whole numbers are BIGINT. Decimals get two more places than
/// were found, and at least four, unless each is written with the same number of places, as amounts of money are.
///
/// Errors: `Input` if the file cannot be read, is empty or has no time.
pub(crate) fn guess_stream(path: &Path, shape: Shape, name: &str) -> Result<Guessed> {
    let in_file = |error: Error| match error.context().iter().any(|(key, _)| *key == "file") {
        true => error,
        false => error.with("file", path.display()),
    };
    let sample = sample::read(path, shape, SAMPLE_RECORDS).map_err(in_file)?;
    if sample.columns.is_empty() {
        return Err(in_file(Error::input("the file holds no records to guess a stream from")));
    }
    let Sample { columns, records, is_whole, numbers } = sample;
    let columns = guesses(columns);
    let name = column_name(name, &[]);
    let Some(event_time) = event_time(&columns) else {
        let shape = Shape { numbers: numbers.format.or(shape.numbers), ..shape };
        return Err(in_file(without_time::refusal(path, shape, columns).unwrap_or_else(|error| error)));
    };
    let id = id(&columns, &name);
    Ok(Guessed {
        sql: statement(&name, &columns, event_time, id, is_whole),
        types: final_types(&columns),
        mixed: mixed(&columns),
        odd: odd(&columns),
        records,
        is_whole,
        numbers: numbers.format,
        doubts: numbers.doubts,
        zones: zones(&columns, event_time),
        proposed_id: if id.is_none() { proposed_id(&columns, records) } else { None },
        nearly_id: if id.is_none() { nearly_id(&columns, &name, records) } else { None },
    })
}

fn guesses(sampled: Vec<Sampled>) -> Vec<Guess> {
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
            oddity: column.seen.oddity(&column_type, column.from_text),
            column_type,
            unit,
            nullable: column.nullable,
            repeats: column.seen.repeats(),
            is_without_zone: column.is_without_zone,
            times: column.seen.times(),
            dates: column.seen.dates(),
            values: column.seen.values(),
            first: column.seen.first().map(str::to_owned),
            outside_epoch: column.seen.outside_epoch(),
            places: column.known_type.is_none().then(|| column.seen.places()),
            kinds: column.seen.kinds().to_vec(),
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
            (ColumnType::Decimal { scale, .. }, Some(found)) if found > 0 && found == *scale as usize => said.push(format!(
                "{} {}: every value has {found} decimal places; records with more will be dead letters",
                column.name, column.column_type
            )),
            (ColumnType::Decimal { scale: scale @ 1..=i8::MAX, .. }, Some(found)) => said.push(format!(
                "{} {}: decimal places found: {found} at most; records with more than {scale} will be dead letters",
                column.name, column.column_type
            )),
            (ColumnType::BigInt, Some(_)) if column.name != "id" && !column.name.ends_with("_id") => whole.push(column.name.as_str()),
            _ => {}
        }
    }
    if !whole.is_empty() {
        said.push(format!("{} BIGINT: found whole numbers alone", whole.join(", ")));
    }
    said
}

/// Returns which columns are JSON because no other type fits all of their values.
fn mixed(columns: &[Guess]) -> Vec<String> {
    let of_json = columns.iter().filter(|column| column.column_type == ColumnType::Json);
    let said = of_json.filter_map(|column| {
        let (last, first) = column.kinds.split_last().filter(|(_, first)| !first.is_empty())?;
        let first: Vec<String> = first.iter().map(FirstOfKind::to_string).collect();
        Some(format!("{} JSON: {} and {last}", column.name, first.join(", ")))
    });
    said.collect()
}

/// Returns which columns have a few values that are unlike the others.
fn odd(columns: &[Guess]) -> Vec<String> {
    columns.iter().filter_map(|column| Some(format!("{} {}: {}", column.name, column.column_type, column.oddity.as_ref()?))).collect()
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
    let own = own_id(stream);
    let fits = |column: &&Guess| column.may_be_id() && column.repeats == 0;
    let mut names = std::iter::once(own.as_str()).chain(ID_NAMES);
    names.find_map(|name| columns.iter().filter(fits).find(|column| column.name == name))
}

/// The id of the stream `orders` is likely `order_id`.
fn own_id(stream: &str) -> String {
    format!("{}_id", stream.strip_suffix('s').unwrap_or(stream))
}

/// Fewer records say little about whether a column is different in each.
const RECORDS_FOR_AN_ID: usize = 100;
/// Words at the end of names that may identify an event.
const ID_WORDS: [&str; 10] = ["id", "uuid", "guid", "number", "no", "nr", "nummer", "key", "ref", "reference"];

/// Returns the column most likely to be an id that has no typical name. It is for the user to decide: an id that comes
/// again makes duplicates of different events.
fn proposed_id(columns: &[Guess], records: usize) -> Option<String> {
    let likelihood = |column: &Guess| {
        let ends_like_one = words(&column.name).last().is_some_and(|word| ID_WORDS.contains(&word.as_str()));
        match column.column_type {
            ColumnType::Uuid => 3,
            ColumnType::Text | ColumnType::Int | ColumnType::BigInt if ends_like_one => 2,
            ColumnType::Text => 1,
            _ => 0,
        }
    };
    let unique = columns.iter().filter(|column| !column.nullable && column.repeats == 0 && records >= RECORDS_FOR_AN_ID);
    // The first of equally likely columns.
    let likeliest = unique.rev().map(|column| (likelihood(column), column)).max_by_key(|(likelihood, _)| *likelihood);
    likeliest.filter(|(likelihood, _)| *likelihood > 0).map(|(_, column)| column.name.clone())
}

/// If more than one record in twenty repeats a value of a column or lacks it, the column does not identify events: it
/// says which user or device an event belongs to.
const RECORDS_PER_EXCEPTION: usize = 20;

/// Returns the column that would be the id but for a few records that repeat its value or lack it, with their number.
fn nearly_id(columns: &[Guess], stream: &str, records: usize) -> Option<String> {
    let own = own_id(stream);
    let is_typical = |column: &Guess| column.name == own || ID_NAMES.contains(&column.name.as_str());
    let is_named_so = |column: &Guess| is_typical(column) || words(&column.name).last().is_some_and(|word| word == "id" || word == "uuid");
    let missing = |column: &Guess| records.saturating_sub(column.values);
    let exceptions = |column: &Guess| column.repeats + missing(column);
    let is_rare = |exceptions: usize| exceptions > 0 && exceptions * RECORDS_PER_EXCEPTION <= records;
    let near = columns.iter().filter(|column| column.has_type_of_id() && is_rare(exceptions(column)) && is_named_so(column));
    // Of equally likely columns the first.
    let likeliest = near.min_by_key(|column| (!is_typical(column), exceptions(column)))?;
    let (id, repeats) = (&likeliest.name, likeliest.repeats);
    Some(match (repeats, missing(likeliest)) {
        (_, 0) => format!("{id} repeats in {repeats} of {records} records: if these are repeats, set id = '{id}'"),
        (0, missing) => format!(
            "{id} is missing in {missing} of {records} records, and different in the others: set id = '{id}' if it identifies events"
        ),
        (_, missing) => format!(
            "{id} repeats in {repeats} of {records} records, and is missing in {missing}: if the first are repeats, set id = '{id}'"
        ),
    })
}

/// Returns what is assumed of times without a zone, and of days as times.
fn zones(columns: &[Guess], event_time: &Guess) -> Vec<String> {
    let said = columns.iter().filter_map(|column| {
        let first = column.first.as_deref().unwrap_or_default();
        match column.column_type {
            ColumnType::TimestampTz if column.is_without_zone => {
                Some(format!("{} has times without a zone, such as {first}: they are read as UTC", column.name))
            }
            ColumnType::Date if column.name == event_time.name => {
                Some(format!("{} has days, such as {first}: an event's time is the beginning of its day in UTC", column.name))
            }
            _ => None,
        }
    });
    said.collect()
}

#[cfg(test)]
mod tests;
