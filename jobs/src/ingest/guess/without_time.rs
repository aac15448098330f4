//! Explains why a file has no event time: which column comes nearest, what it holds, and what to do.

use std::path::Path;

use definitions::ColumnType;
use definitions::parse::parse_stream;
use engine::events::{Decoder, TimeError, parse_date, parse_timestamp};
use types::{Error, Result};

use super::column::Guess;
use super::seen::EPOCH_SECONDS;
use super::statement::{statement, unit_text};
use crate::ingest::column_names::names_a_time;
use crate::ingest::input::{Input, Shape};

const EXPECTED: &str = "2026-11-22T10:00:00Z or with another zone as +02:00; in CSV also 2026-11-22 10:00 (UTC) and 2026-11-22; \
    a whole number of s, ms, us or ns since 1970 in a column with a name like ts, time or created_at";
/// Smaller numbers are something else.
const EARLY_SECONDS: f64 = 100_000_000.0;
const ALL_IN_EPOCH: &str = "numbers are read as times if all of a column are from 2000 to 2100";
const REWRITE: &str = "write it as 2026-11-22T10:00:00Z before (a spreadsheet: as text, by the format yyyy-mm-dd hh:mm:ss)";

/// Returns the error for a file without an event time: the decoder's message for the first record without one in the
/// most likely column, or the column that is nearest to a time.
pub(super) fn refusal(path: &Path, shape: Shape, columns: Vec<Guess>) -> Result<Error> {
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
    let sql = statement("guessed", std::slice::from_ref(&guess), &guess, None, true);
    let stream = parse_stream(&sql).map_err(|error| Error::internal("the guessed stream does not parse").caused_by(error))?;
    let input = Input::File(path.to_path_buf());
    let mut records = input.open(input.format(shape.format)?, shape, &stream)?;
    let decoder = Decoder::new(stream.into())?;
    while let Some(record) = records.next()? {
        let wrong = record.error.clone().or_else(|| decoder.decode(Some(&record.value)).err().map(|error| error.to_string()));
        if let Some(wrong) = wrong {
            return Ok(Error::input(format!("the column \"{}\" looks like the event time, and one record has none: {wrong}", guess.name))
                .with("line", record.number)
                .with("help", "correct or remove the record; `ingest` leaves such records out and reports their lines"));
        }
    }
    Ok(none)
}

fn no_time(columns: &[Guess]) -> Error {
    let listed: Vec<String> = columns.iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
    let error = Error::input(format!(
        "no column holds a time in every record, which a stream needs as its event time: found {}",
        listed.join(", ")
    ));
    // The first of equally likely columns.
    let likeliest = columns.iter().rev().map(|column| (likelihood(column), column)).max_by_key(|(likelihood, _)| *likelihood);
    let (error, help) = match likeliest {
        Some((1..=u8::MAX, column)) => {
            let value: String = column.first.iter().flat_map(|first| first.chars()).take(40).collect();
            let looks = looks(column).unwrap_or(LooksLike { like: "no known format".to_owned(), help: REWRITE.to_owned() });
            (error.with("likeliest", format!("\"{}\", which holds \"{value}\": {}", column.path.join("."), looks.like)), looks.help)
        }
        _ => (error, "add a column with the time of each record".to_owned()),
    };
    error.with("expected", EXPECTED).with("help", help)
}

/// Returns how likely a column is meant as a time; 0 for not at all.
fn likelihood(column: &Guess) -> u8 {
    let Some(first) = &column.first else { return 0 };
    let digits = first.chars().filter(char::is_ascii_digit).count();
    let separators = first.chars().filter(|character| "-/.: T".contains(*character)).count();
    let named = if names_a_time(&column.name) { 2 } else { 0 };
    let formed = if looks(column).is_some() { 4 } else { u8::from(digits >= 6 && separators >= 2) };
    // A number means little unless the column's name is that of a time.
    if formed == 4 && first.parse::<f64>().is_ok() && named == 0 { 2 } else { named + formed }
}

struct LooksLike {
    like: String,
    help: String,
}

/// Returns what a value looks like that is not accepted as a time.
fn looks(column: &Guess) -> Option<LooksLike> {
    let first = column.first.as_deref()?;
    let found = |like: &str, help: &str| Some(LooksLike { like: like.to_owned(), help: help.to_owned() });
    if let Some((unit, other)) = column.outside_epoch.as_ref().filter(|_| names_a_time(&column.name)) {
        let unit = unit_text(*unit);
        let like = format!("like a number of {unit} since 1970, except {other}: {ALL_IN_EPOCH}");
        let help = format!(
            "correct or remove the record; if it is right, `basestream init DIR` without --from makes a stream to write by hand: \
             TIMESTAMPTZ OPTIONS (unit = '{unit}')"
        );
        return Some(LooksLike { like, help });
    }
    if let Ok(number) = first.parse::<f64>() {
        let by_hand = "`basestream init DIR` without --from makes a stream to write by hand: TIMESTAMPTZ OPTIONS (unit = 's'), or 'ms'";
        return match number {
            20_000.0..80_000.0 if names_a_time(&column.name) => found("like a day of a spreadsheet, counted from 1900", REWRITE),
            19_000_101.0..21_001_231.0 if names_a_time(&column.name) => found("like a date without hyphens", REWRITE),
            _ if (EARLY_SECONDS..EPOCH_SECONDS.start).contains(&number) && names_a_time(&column.name) => {
                found(&format!("like a number of s since 1970, before 2000: {ALL_IN_EPOCH}"), by_hand)
            }
            946_684_800.0..4_102_444_800.0 => found("like seconds since 1970, under a name that does not say so", by_hand),
            946_684_800_000.0..4_102_444_800_000.0 => found("like milliseconds since 1970, under a name that does not say so", by_hand),
            _ => None,
        };
    }
    if parse_timestamp(first) == Err(TimeError::NoZone) {
        let with_zone = format!("add the zone first: `jq -c '.{} += \"Z\"' FILE` where it is UTC", column.path.join("."));
        return found("a time without a zone, which only CSV may have (as UTC)", &with_zone);
    }
    let outline = outline(first);
    match outline.split(' ').next().unwrap_or_default() {
        "9.9.9" if first.len() >= 8 => found("like day.month.year", REWRITE),
        "9/9/9" if first.find('/') == Some(4) => found("like year/month/day", REWRITE),
        "9/9/9" if first.len() >= 8 => found("like month/day/year or day/month/year, which cannot be told apart", REWRITE),
        "9-9-9" if first.len() >= 8 && parse_date(first).is_none() => found("like a day in another order than year-month-day", REWRITE),
        "9/a/9:9:9:9" => found("like the time of a web server's log", REWRITE),
        "9-a-9" | "9/a/9" => found("like a date with the name of its month", REWRITE),
        _ => None,
    }
}

/// Replaces runs of digits by one `9` and runs of letters by one `a`.
fn outline(text: &str) -> String {
    let mut outline = String::new();
    for character in text.chars() {
        let class = if character.is_ascii_digit() {
            '9'
        } else if character.is_alphabetic() {
            'a'
        } else {
            character
        };
        if !(outline.ends_with(class) && matches!(class, '9' | 'a')) {
            outline.push(class);
        }
    }
    outline
}
