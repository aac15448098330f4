//! Summarises the values of one column and guesses the type that fits them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use definitions::{ColumnType, TimeUnit};
use engine::events::{canonical_uuid, parse_date, parse_timestamp};
use serde_json::value::RawValue;

use crate::ingest::cell::{is_json, is_json_number, time_text};
use crate::ingest::column_names::{names_a_time, words};
use crate::ingest::number_detection::is_mostly;
use crate::ingest::numbers::NumberFormat;

/// A summary of a column's values.
#[derive(Debug, Default)]
pub(super) struct ColumnSummary {
    booleans: usize,
    numbers: usize,
    texts: usize,
    arrays: usize,
    objects: usize,
    /// Counts of the numbers.
    fractions: usize,
    exponents: usize,
    longest_whole: usize,
    longest_fraction: usize,
    shortest_fraction: Option<usize>,
    /// Numbers whose last digit after the decimal point is 0.
    closing_zeros: usize,
    /// The numbers as times, in each of [`EPOCH_UNITS`].
    epochs: [EpochNumbers; EPOCH_UNITS.len()],
    /// Counts of the strings.
    dates: usize,
    times: usize,
    /// Of the times, those of a CSV file without a zone.
    without_zone: usize,
    uuids: usize,
    /// Of the UUIDs, those that are not in lower case with hyphens, and those that are digits alone.
    respelled: usize,
    bare: usize,
    /// Strings of digits that are no numbers, such as `01234`.
    codes: usize,
    /// The first text, the first that is neither a time nor a date, the first that is no UUID, and the first UUID that
    /// is respelled.
    first_text: Option<Example>,
    first_undated: Option<Example>,
    first_no_uuid: Option<Example>,
    first_respelled: Option<Example>,
    /// Strings that are numbers with a decimal point.
    decimals: usize,
    /// The first value; a string without its quotes.
    first: Option<String>,
    /// The first value of each kind that JSON has.
    kinds: Vec<FirstOfKind>,
    distinct: HashSet<String>,
    items: Option<Box<ColumnSummary>>,
}

/// The first of a column's values of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FirstOfKind {
    kind: &'static str,
    /// As JSON.
    first: Example,
}

impl fmt::Display for FirstOfKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} ({})", self.kind, self.first.place(), self.first.value)
    }
}

/// A value that is shown, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Example {
    line: Option<usize>,
    /// Shortened.
    value: String,
}

impl Example {
    fn new(value: &str, line: Option<usize>) -> Example {
        Example { line, value: shortened(value) }
    }

    /// ` on line 7`, or nothing if it is not in a file of lines.
    fn place(&self) -> String {
        self.line.map_or_else(String::new, |line| format!(" on line {line}"))
    }
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"{}", self.value, self.place())
    }
}

/// The numbers of a column as times in one unit.
#[derive(Debug, Default)]
struct EpochNumbers {
    /// How many are times from 2000 to 2100.
    times: usize,
    first_other: Option<Example>,
}

/// What most values of a TEXT column are.
struct Majority<'a> {
    count: usize,
    /// In the plural.
    kind: &'static str,
    column_type: ColumnType,
    /// The first of the other values.
    exception: Option<&'a Example>,
}

/// Returns the beginning of a value on one line.
fn shortened(value: &str) -> String {
    let shown = value.chars().map(|character| if character.is_control() { ' ' } else { character }).take(SHOWN);
    let end = if value.chars().nth(SHOWN).is_some() { " .." } else { "" };
    shown.collect::<String>() + end
}

/// The most characters of an example that are shown.
const SHOWN: usize = 40;

/// The units of times that are numbers, with the number of each in a second.
const EPOCH_UNITS: [(TimeUnit, f64); 4] =
    [(TimeUnit::Seconds, 1.0), (TimeUnit::Millis, 1e3), (TimeUnit::Micros, 1e6), (TimeUnit::Nanos, 1e9)];
/// The years 2000 to 2100, in seconds since 1970.
pub(super) const EPOCH_SECONDS: Range<f64> = 946_684_800.0..4_102_444_800.0;

/// Values with more digits than this after the decimal point are measurements, not decimals.
const LONGEST_FRACTION: usize = 4;
/// Prices with one digit in the sample have two elsewhere.
const LEAST_PLACES: usize = 2;
/// Archived events are decoded again when a type changes, and the sample is only the beginning of the file.
const SPARE_PLACES: usize = 2;

impl ColumnSummary {
    /// Returns how many values are not null.
    pub(super) fn values(&self) -> usize {
        self.booleans + self.numbers + self.texts + self.arrays + self.objects
    }

    /// Returns how many strings are times.
    pub(super) fn times(&self) -> usize {
        self.times
    }

    pub(super) fn is_without_zone(&self) -> bool {
        self.without_zone > 0
    }

    pub(super) fn dates(&self) -> usize {
        self.dates
    }

    pub(super) fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Returns the first value of each kind, in the order of their lines.
    pub(super) fn kinds(&self) -> &[FirstOfKind] {
        &self.kinds
    }

    /// Remembers where a JSON value that is not null is found, if it is the first of its kind.
    pub(super) fn note_kind(&mut self, json: &str, line: usize) {
        let kind = match json.as_bytes().first() {
            Some(b't' | b'f') => "a truth value",
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            _ => "a number",
        };
        if self.kinds.iter().all(|known| known.kind != kind) {
            self.kinds.push(FirstOfKind { kind, first: Example::new(json, Some(line)) });
        }
    }

    /// Returns the most digits after a decimal point.
    pub(super) fn places(&self) -> usize {
        self.longest_fraction
    }

    /// Returns how many values came before.
    pub(super) fn repeats(&self) -> usize {
        self.values() - self.distinct.len()
    }

    /// Adds a JSON value that is not null. `line`: where it is in a file of lines.
    pub(super) fn add_json(&mut self, json: &str, line: Option<usize>) {
        self.add_distinct(json, json.trim_matches('"'));
        self.first.get_or_insert_with(|| serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned()));
        match json.as_bytes().first() {
            Some(b't' | b'f') => self.booleans += 1,
            Some(b'{') => self.objects += 1,
            Some(b'[') => self.add_array(json, line),
            Some(b'"') => match serde_json::from_str::<String>(json) {
                Ok(text) => {
                    self.add_text(&text, parse_timestamp(&text).is_ok(), line);
                    if is_json_number(&text) && text.contains('.') && !text.contains(['e', 'E']) {
                        self.decimals += 1;
                        self.measure(&text);
                    }
                }
                Err(_) => self.objects += 1,
            },
            _ => self.add_number(json, line),
        }
    }

    /// Adds a CSV cell that is not empty, of a file that writes numbers like this.
    pub(super) fn add_cell(&mut self, cell: &str, line: usize, numbers: NumberFormat) {
        let text = cell.trim();
        let number = match numbers {
            NumberFormat::Plain => Some(text.to_owned()),
            _ => numbers.plain(text),
        };
        self.add_distinct(cell, text);
        self.first.get_or_insert_with(|| text.to_owned());
        if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            self.booleans += 1;
        } else if let Some(number) = number.filter(|number| is_json_number(number)) {
            self.add_number(&number, Some(line));
        } else if text.starts_with('{') && is_json(text) {
            self.objects += 1;
        } else if text.starts_with('[') && is_json(text) {
            self.add_array(text, Some(line));
        } else {
            let is_time = parse_date(text).is_none() && time_text(text).is_some();
            self.without_zone += usize::from(is_time && !text.ends_with(" UTC") && parse_timestamp(text).is_err());
            self.add_text(text, is_time, Some(line));
        }
    }

    /// Returns the type that fits all values. `from_text`: the values are from a CSV file, where anything may be a
    /// text.
    pub(super) fn guess(&self, name: &str, from_text: bool) -> (ColumnType, Option<TimeUnit>) {
        let all = |count: usize| count > 0 && count == self.values();
        let column_type = if all(self.booleans) {
            ColumnType::Boolean
        } else if all(self.numbers) {
            return self.guess_number(name);
        } else if all(self.times) {
            ColumnType::TimestampTz
        } else if all(self.dates) {
            ColumnType::Date
        } else if from_text && all(self.times + self.dates) {
            ColumnType::TimestampTz
        } else if all(self.uuids) && self.bare < self.uuids {
            // Digits alone may be the hash of something.
            ColumnType::Uuid
        } else if self.are_amounts() && !words(name).iter().any(|word| word == "version") {
            // A string in JSON loses no digit. Some producers write amounts as numbers where they can.
            self.decimal().unwrap_or(if self.numbers == 0 { ColumnType::Text } else { ColumnType::Json })
        } else if all(self.texts) || self.values() == 0 {
            ColumnType::Text
        } else if all(self.arrays) {
            self.guess_array(name)
        } else if from_text && !all(self.objects + self.arrays) {
            ColumnType::Text
        } else {
            ColumnType::Json
        };
        (column_type, None)
    }

    /// Returns what is odd about the values of a column with the type that was guessed, and what to do about it.
    pub(super) fn oddity(&self, column_type: &ColumnType, from_text: bool) -> Option<String> {
        let values = self.values();
        match column_type {
            ColumnType::Uuid => {
                let first = self.first_respelled.as_ref()?;
                let respelled = self.respelled;
                Some(format!(
                    "{respelled} of {values} values are spelled in another way, such as {first}; each is the same UUID in every spelling"
                ))
            }
            ColumnType::Text => {
                let Majority { count, kind, column_type: other_type, exception } = self.majority(from_text)?;
                let first = exception.map_or(String::new(), |first| format!(", the first {first}"));
                let (others, are) = (values - count, if values - count == 1 { "is" } else { "are" });
                Some(format!(
                    "{count} of {values} values are {kind}, {others} {are} not{first}; \
                     if all should be {kind}, declare it {other_type}, and records with another value will be dead letters"
                ))
            }
            _ => None,
        }
    }

    /// What most values of a TEXT column are.
    fn majority(&self, from_text: bool) -> Option<Majority<'_>> {
        let (times, time_type) = match self.times {
            0 => (self.dates, ColumnType::Date),
            times => (if from_text { times + self.dates } else { times }, ColumnType::TimestampTz),
        };
        let (numbers, number_type) = (if from_text && self.codes == 0 { self.numbers } else { 0 }, self.guess_number("").0);
        let uuids = if self.bare < self.uuids { self.uuids } else { 0 };
        let kinds = [
            Majority { count: numbers, kind: "numbers", column_type: number_type, exception: self.first_text.as_ref() },
            Majority { count: times, kind: "times", column_type: time_type, exception: self.first_undated.as_ref() },
            Majority { count: uuids, kind: "UUIDs", column_type: ColumnType::Uuid, exception: self.first_no_uuid.as_ref() },
        ];
        let values = self.values();
        kinds.into_iter().find(|Majority { count, .. }| *count < values && *count > 0 && is_mostly(*count, values))
    }

    fn guess_number(&self, name: &str) -> (ColumnType, Option<TimeUnit>) {
        if let Some(unit) = self.epoch_unit(name) {
            return (ColumnType::TimestampTz, Some(unit));
        }
        let column_type = if self.exponents > 0 || self.longest_fraction > LONGEST_FRACTION {
            ColumnType::Double
        } else if self.fractions > 0 {
            self.decimal().unwrap_or(ColumnType::Double)
        } else if self.longest_whole > 18 {
            ColumnType::Decimal { precision: 38, scale: 0 }
        } else {
            ColumnType::BigInt
        };
        (column_type, None)
    }

    /// Returns whether all values are strings with a decimal point, or some of them are and the others are plain
    /// numbers.
    fn are_amounts(&self) -> bool {
        let are_short = self.exponents == 0 && self.longest_fraction <= LONGEST_FRACTION;
        self.decimals > 0 && (self.decimals == self.values() || are_short && self.decimals + self.numbers == self.values())
    }

    /// Returns a decimal type that holds all numbers, with spare places unless the places are fixed.
    fn decimal(&self) -> Option<ColumnType> {
        let scale = self.fixed_places().unwrap_or(self.longest_fraction.max(LEAST_PLACES) + SPARE_PLACES);
        let precision = [18u8, 38].into_iter().find(|precision| self.longest_whole + scale <= usize::from(*precision))?;
        Some(ColumnType::Decimal { precision, scale: scale as i8 })
    }

    /// Returns how many places each number is written with, zeros included, as amounts of money are: a sum of 6027.90
    /// is answered as 6027.90.
    fn fixed_places(&self) -> Option<usize> {
        let is_fixed = self.shortest_fraction == Some(self.longest_fraction) && self.closing_zeros > 0;
        (is_fixed && self.longest_fraction >= LEAST_PLACES).then_some(self.longest_fraction)
    }

    /// Returns the unit in which all numbers are times from 2000 to 2100, if the name suggests a time.
    fn epoch_unit(&self, name: &str) -> Option<TimeUnit> {
        let mut units = EPOCH_UNITS.into_iter().zip(&self.epochs);
        let ((unit, _), _) = units.find(|(_, numbers)| numbers.times > 0 && numbers.first_other.is_none())?;
        names_a_time(name).then_some(unit)
    }

    /// Returns the unit in which most values are times from 2000 to 2100, and the first value that is none.
    pub(super) fn outside_epoch(&self) -> Option<(TimeUnit, String)> {
        let ((unit, _), numbers) = EPOCH_UNITS.into_iter().zip(&self.epochs).max_by_key(|(_, numbers)| numbers.times)?;
        let other = numbers.first_other.as_ref()?;
        (2 * numbers.times > self.values() && self.numbers == self.values()).then(|| (unit, other.to_string()))
    }

    fn guess_array(&self, name: &str) -> ColumnType {
        match self.items.as_ref().map(|items| items.guess(name, false)) {
            // Arrays that were all empty may contain anything later.
            None => ColumnType::Json,
            Some((ColumnType::Array(_) | ColumnType::Json, _) | (_, Some(_))) => ColumnType::Json,
            Some((item, None)) => ColumnType::Array(Box::new(item)),
        }
    }

    /// A UUID is the same value in every spelling.
    fn add_distinct(&mut self, value: &str, text: &str) {
        self.distinct.insert(canonical_uuid(text).map_or_else(|| value.to_owned(), Cow::into_owned));
    }

    fn add_number(&mut self, text: &str, line: Option<usize>) {
        let value: f64 = text.parse().unwrap_or_default();
        for ((_, per_second), numbers) in EPOCH_UNITS.iter().zip(&mut self.epochs) {
            if EPOCH_SECONDS.contains(&(value / per_second)) {
                numbers.times += 1;
            } else {
                numbers.first_other.get_or_insert_with(|| Example::new(text, line));
            }
        }
        self.numbers += 1;
        self.measure(text);
    }

    fn measure(&mut self, text: &str) {
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        self.fractions += usize::from(mantissa.contains('.'));
        self.exponents += usize::from(mantissa.len() < text.len());
        self.longest_whole = self.longest_whole.max(whole.trim_start_matches('-').len());
        self.longest_fraction = self.longest_fraction.max(fraction.len());
        self.shortest_fraction = Some(self.shortest_fraction.map_or(fraction.len(), |shortest| shortest.min(fraction.len())));
        self.closing_zeros += usize::from(fraction.ends_with('0'));
    }

    fn add_text(&mut self, text: &str, is_time: bool, line: Option<usize>) {
        let is_date = parse_date(text).is_some();
        self.texts += 1;
        self.times += usize::from(is_time);
        self.dates += usize::from(is_date);
        self.codes += usize::from(text.bytes().all(|byte| byte.is_ascii_digit()));
        self.first_text.get_or_insert_with(|| Example::new(text, line));
        if !is_time && !is_date {
            self.first_undated.get_or_insert_with(|| Example::new(text, line));
        }
        match canonical_uuid(text) {
            None => {
                self.first_no_uuid.get_or_insert_with(|| Example::new(text, line));
            }
            Some(uuid) => {
                self.uuids += 1;
                self.bare += usize::from(text.len() == 32);
                if *uuid != *text {
                    self.respelled += 1;
                    self.first_respelled.get_or_insert_with(|| Example::new(text, line));
                }
            }
        }
    }

    fn add_array(&mut self, json: &str, line: Option<usize>) {
        self.arrays += 1;
        for item in serde_json::from_str::<Vec<&RawValue>>(json).unwrap_or_default() {
            if item.get() != "null" {
                self.items.get_or_insert_default().add_json(item.get(), line);
            }
        }
    }
}
