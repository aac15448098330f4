//! Intervals as ISO 8601 texts: `P1Y2M3DT4H5M6.7S`.

use std::fmt;
use std::str::FromStr;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, IntervalDayTimeType,
    IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, TimeUnit,
};
use types::{Error, Result};

const MONTHS_A_YEAR: i32 = 12;
const DAYS_A_WEEK: i32 = 7;
const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;

/// An SQL interval. A month and a day have no fixed length, so that the three parts stay apart; the difference of two
/// times has only the last.
///
/// As a text it is ISO 8601 in the form of PostgreSQL: every part has its own sign, parts that are 0 are left out,
/// seconds have a fraction down to nanoseconds without zeros at its end, and nothing at all is `PT0S`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub nanos: i128,
}

impl Interval {
    /// Returns the value of an array of intervals or of differences of times; `None` for any other array.
    pub fn of_array(array: &dyn Array, row: usize) -> Option<Interval> {
        let of_time = |nanos| Interval { nanos, ..Interval::default() };
        Some(match array.data_type() {
            DataType::Interval(IntervalUnit::YearMonth) => {
                Interval { months: array.as_primitive::<IntervalYearMonthType>().value(row), ..Interval::default() }
            }
            DataType::Interval(IntervalUnit::DayTime) => {
                let value = array.as_primitive::<IntervalDayTimeType>().value(row);
                Interval { days: value.days, nanos: i128::from(value.milliseconds) * 1_000_000, months: 0 }
            }
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
                Interval { months: value.months, days: value.days, nanos: value.nanoseconds.into() }
            }
            DataType::Duration(TimeUnit::Second) => of_time(i128::from(array.as_primitive::<DurationSecondType>().value(row)) * SECOND),
            DataType::Duration(TimeUnit::Millisecond) => {
                of_time(i128::from(array.as_primitive::<DurationMillisecondType>().value(row)) * 1_000_000)
            }
            DataType::Duration(TimeUnit::Microsecond) => {
                of_time(i128::from(array.as_primitive::<DurationMicrosecondType>().value(row)) * 1_000)
            }
            DataType::Duration(TimeUnit::Nanosecond) => of_time(array.as_primitive::<DurationNanosecondType>().value(row).into()),
            _ => return None,
        })
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Interval::default() {
            return f.write_str("PT0S");
        }
        f.write_str("P")?;
        for (number, unit) in [(self.months / MONTHS_A_YEAR, 'Y'), (self.months % MONTHS_A_YEAR, 'M'), (self.days, 'D')] {
            if number != 0 {
                write!(f, "{number}{unit}")?;
            }
        }
        if self.nanos == 0 {
            return Ok(());
        }
        f.write_str("T")?;
        for (number, unit) in [(self.nanos / HOUR, 'H'), (self.nanos % HOUR / MINUTE, 'M')] {
            if number != 0 {
                write!(f, "{number}{unit}")?;
            }
        }
        write_seconds(f, self.nanos % MINUTE)
    }
}

fn write_seconds(f: &mut fmt::Formatter<'_>, nanos: i128) -> fmt::Result {
    if nanos == 0 {
        return Ok(());
    }
    let sign = if nanos < 0 { "-" } else { "" };
    write!(f, "{sign}{}", nanos.abs() / SECOND)?;
    let fraction = format!("{:09}", nanos.abs() % SECOND);
    match fraction.trim_end_matches('0') {
        "" => f.write_str("S"),
        digits => write!(f, ".{digits}S"),
    }
}

impl FromStr for Interval {
    type Err = Error;

    /// Reads an ISO 8601 duration, also with weeks.
    fn from_str(text: &str) -> Result<Interval> {
        let wrong = || Error::input(format!("found \"{text}\", expected an interval as ISO 8601, such as P1DT2H30M"));
        let (date, time) = text.strip_prefix('P').map(|rest| rest.split_once('T').unwrap_or((rest, ""))).ok_or_else(wrong)?;
        let is_empty = date.is_empty() && time.is_empty();
        if is_empty || (text.contains('T') && time.is_empty()) {
            return Err(wrong());
        }
        let mut interval = Interval::default();
        for (number, unit) in parts(date).ok_or_else(wrong)? {
            let number: i32 = number.parse().map_err(|_| wrong())?;
            let (slot, factor) = match unit {
                'Y' => (&mut interval.months, MONTHS_A_YEAR),
                'M' => (&mut interval.months, 1),
                'W' => (&mut interval.days, DAYS_A_WEEK),
                'D' => (&mut interval.days, 1),
                _ => return Err(wrong()),
            };
            *slot = number.checked_mul(factor).and_then(|more| slot.checked_add(more)).ok_or_else(wrong)?;
        }
        for (number, unit) in parts(time).ok_or_else(wrong)? {
            let nanos = match unit {
                'H' => whole(number, HOUR),
                'M' => whole(number, MINUTE),
                'S' => seconds(number),
                _ => None,
            };
            interval.nanos = nanos.and_then(|nanos| interval.nanos.checked_add(nanos)).ok_or_else(wrong)?;
        }
        Ok(interval)
    }
}

/// Returns the numbers and their units. `None` if a number has no unit.
fn parts(text: &str) -> Option<Vec<(&str, char)>> {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let unit = rest[at..].chars().next()?;
        found.push((&rest[..at], unit));
        rest = &rest[at + 1..];
    }
    Some(found)
}

fn whole(number: &str, factor: i128) -> Option<i128> {
    i128::from(number.parse::<i64>().ok()?).checked_mul(factor)
}

/// Reads seconds with up to nine digits of a fraction.
fn seconds(number: &str) -> Option<i128> {
    let (before, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: i128 = format!("{fraction:0<9}").parse().ok()?;
    let sign = if before.starts_with('-') { -1 } else { 1 };
    Some(whole(before, SECOND)? + sign * nanos)
}

#[cfg(test)]
mod tests;
