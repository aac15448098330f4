//! What was seen in one column, and the type that fits it.

use std::collections::HashSet;

use schemas::definitions::{ColumnType, TimeUnit};
use schemas::events::{parse_date, parse_timestamp};
use serde_json::value::RawValue;

use super::names::words;
use crate::ingest::cell::{is_json, is_json_number, time_text};

/// The values of a column, summed up.
#[derive(Debug, Default)]
pub(super) struct Seen {
    booleans: usize,
    numbers: usize,
    texts: usize,
    arrays: usize,
    objects: usize,
    /// Of the numbers.
    fractions: usize,
    exponents: usize,
    longest_whole: usize,
    longest_fraction: usize,
    smallest: f64,
    largest: f64,
    /// Of the texts.
    dates: usize,
    times: usize,
    uuids: usize,
    distinct: HashSet<String>,
    items: Option<Box<Seen>>,
}

/// At most this many digits behind the point are taken for a decimal's; more for a measured value.
const LONGEST_FRACTION: usize = 4;
const PRECISION: u8 = 18;

impl Seen {
    /// How many values other than null.
    pub(super) fn values(&self) -> usize {
        self.booleans + self.numbers + self.texts + self.arrays + self.objects
    }

    /// How many are texts that are times.
    pub(super) fn times(&self) -> usize {
        self.times
    }

    pub(super) fn dates(&self) -> usize {
        self.dates
    }

    pub(super) fn all_distinct(&self) -> bool {
        self.distinct.len() == self.values()
    }

    /// Takes in a JSON value that is not null.
    pub(super) fn add_json(&mut self, json: &str) {
        self.distinct.insert(json.to_string());
        match json.as_bytes().first() {
            Some(b't' | b'f') => self.booleans += 1,
            Some(b'{') => self.objects += 1,
            Some(b'[') => self.add_array(json),
            Some(b'"') => match serde_json::from_str::<String>(json) {
                Ok(text) => self.add_text(&text, parse_timestamp(&text).is_ok()),
                Err(_) => self.objects += 1,
            },
            _ => self.add_number(json),
        }
    }

    /// Takes in a cell of a CSV file that is not empty.
    pub(super) fn add_cell(&mut self, cell: &str) {
        let text = cell.trim();
        self.distinct.insert(cell.to_string());
        if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            self.booleans += 1;
        } else if is_json_number(text) {
            self.add_number(text);
        } else if text.starts_with('{') && is_json(text) {
            self.objects += 1;
        } else if text.starts_with('[') && is_json(text) {
            self.add_array(text);
        } else {
            self.add_text(text, parse_date(text).is_none() && time_text(text).is_some());
        }
    }

    /// The type that fits all values. `from_text`: of a CSV file, where anything may be a text.
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
        } else if all(self.uuids) {
            ColumnType::Uuid
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

    fn guess_number(&self, name: &str) -> (ColumnType, Option<TimeUnit>) {
        if let Some(unit) = self.epoch_unit(name) {
            return (ColumnType::TimestampTz, Some(unit));
        }
        let column_type = if self.fractions > 0 || self.exponents > 0 {
            // Prices with one digit in the sample have two somewhere.
            let scale = self.longest_fraction.max(2);
            let fits = self.exponents == 0 && scale <= LONGEST_FRACTION && self.longest_whole + scale <= usize::from(PRECISION);
            if fits { ColumnType::Decimal { precision: PRECISION, scale: scale as i8 } } else { ColumnType::Double }
        } else if self.longest_whole > 18 {
            ColumnType::Decimal { precision: 38, scale: 0 }
        } else if self.largest.max(-self.smallest) > 1e9 || words(name).last().is_some_and(|word| word == "id") {
            ColumnType::BigInt
        } else {
            ColumnType::Int
        };
        (column_type, None)
    }

    /// The unit in which all numbers are times from 2000 to 2100, when the name speaks of time.
    fn epoch_unit(&self, name: &str) -> Option<TimeUnit> {
        const TIME_WORDS: [&str; 13] =
            ["ts", "time", "timestamp", "date", "datetime", "at", "on", "created", "updated", "modified", "when", "epoch", "occurred"];
        const FROM: f64 = 946_684_800.0;
        const TO: f64 = 4_102_444_800.0;
        if !words(name).iter().any(|word| TIME_WORDS.contains(&word.as_str())) {
            return None;
        }
        let units = [(TimeUnit::Seconds, 1.0), (TimeUnit::Millis, 1e3), (TimeUnit::Micros, 1e6), (TimeUnit::Nanos, 1e9)];
        units.into_iter().find(|(_, per)| self.smallest >= FROM * per && self.largest < TO * per).map(|(unit, _)| unit)
    }

    fn guess_array(&self, name: &str) -> ColumnType {
        match self.items.as_ref().map(|items| items.guess(name, false)) {
            // Arrays that were all empty may hold anything later.
            None => ColumnType::Json,
            Some((ColumnType::Array(_) | ColumnType::Json, _) | (_, Some(_))) => ColumnType::Json,
            Some((item, None)) => ColumnType::Array(Box::new(item)),
        }
    }

    fn add_number(&mut self, text: &str) {
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let value: f64 = text.parse().unwrap_or_default();
        self.smallest = if self.numbers == 0 { value } else { self.smallest.min(value) };
        self.largest = if self.numbers == 0 { value } else { self.largest.max(value) };
        self.numbers += 1;
        self.fractions += usize::from(mantissa.contains('.'));
        self.exponents += usize::from(mantissa.len() < text.len());
        self.longest_whole = self.longest_whole.max(whole.trim_start_matches('-').len());
        self.longest_fraction = self.longest_fraction.max(fraction.len());
    }

    fn add_text(&mut self, text: &str, is_time: bool) {
        self.texts += 1;
        self.times += usize::from(is_time);
        self.dates += usize::from(parse_date(text).is_some());
        self.uuids += usize::from(text.len() == 36 && uuid::Uuid::try_parse(text).is_ok());
    }

    fn add_array(&mut self, json: &str) {
        self.arrays += 1;
        for item in serde_json::from_str::<Vec<&RawValue>>(json).unwrap_or_default() {
            if item.get() != "null" {
                self.items.get_or_insert_default().add_json(item.get());
            }
        }
    }
}
