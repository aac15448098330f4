//! Parses and formats times: microseconds since 1970-01-01 UTC, and days since 1970-01-01, in the years 0001 to 9999.

use chrono::{DateTime, Datelike, NaiveDate, Timelike};

use types::tiles::Micros;

/// 0001-01-01T00:00:00Z.
const EARLIEST: Micros = -62_135_596_800_000_000;
/// 9999-12-31T23:59:59.999999Z.
const LATEST: Micros = 253_402_300_799_999_999;

const SECOND: Micros = 1_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Why a text is not a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeError {
    /// A date and time without a zone: the point in time is unknown.
    NoZone,
    /// Not in the form of RFC 3339, or a day or time that does not exist.
    Invalid,
    /// Before the year 0001 or after 9999.
    OutOfRange,
}

/// Parses RFC 3339 text (`2024-05-01T12:30:00.25+02:00`; also with a space for the `T`, and offsets like `+02` and
/// `+0200`) to microseconds UTC. Digits finer than a microsecond are cut off.
pub fn parse_timestamp(text: &str) -> Result<Micros, TimeError> {
    let (date, rest) = text.as_bytes().split_at_checked(10).ok_or(TimeError::Invalid)?;
    let days = date_days(date).ok_or(TimeError::Invalid)?;
    let [b'T' | b't' | b' ', rest @ ..] = rest else { return Err(TimeError::Invalid) };
    let (time, rest) = rest.split_at_checked(8).ok_or(TimeError::Invalid)?;
    let seconds = time_seconds(time).ok_or(TimeError::Invalid)?;
    let (fraction_us, zone) = fraction(rest).ok_or(TimeError::Invalid)?;
    if zone.is_empty() {
        return Err(TimeError::NoZone);
    }
    let offset = zone_seconds(zone).ok_or(TimeError::Invalid)?;
    in_range((i64::from(days) * DAY_SECONDS + seconds - offset) * SECOND + fraction_us).ok_or(TimeError::OutOfRange)
}

/// Parses `YYYY-MM-DD` to days since 1970-01-01, in the years 0001 to 9999.
pub fn parse_date(text: &str) -> Option<i32> {
    date_days(text.as_bytes())
}

/// Formats as RFC 3339 in UTC, with as many digits as needed: `2024-05-01T10:30:00.25Z`.
pub fn format_timestamp(time: Micros) -> String {
    let Some(at) = DateTime::from_timestamp_micros(time) else { return format!("{time}us") };
    let mut text = String::with_capacity("2024-05-01T10:30:00.123456Z".len());
    push_date(&mut text, at.date_naive());
    for (mark, part) in [('T', at.hour()), (':', at.minute()), (':', at.second())] {
        text.push(mark);
        push_digits(&mut text, part, 2);
    }
    let micros = at.timestamp_subsec_micros();
    if micros > 0 {
        text.push('.');
        push_digits(&mut text, micros, 6);
        let needed = text.trim_end_matches('0').len();
        text.truncate(needed);
    }
    text.push('Z');
    text
}

/// Formats as `YYYY-MM-DD`.
pub fn format_date(days: i32) -> String {
    match NaiveDate::from_epoch_days(days) {
        Some(date) => {
            let mut text = String::with_capacity("2024-05-01".len());
            push_date(&mut text, date);
            text
        }
        None => format!("{days}d"),
    }
}

/// Appends `YYYY-MM-DD`. Not by chrono's formats, which are parsed again for each time: an answer has three.
fn push_date(text: &mut String, date: NaiveDate) {
    match u32::try_from(date.year()) {
        Ok(year @ 0..=9_999) => {
            push_digits(text, year, 4);
            for part in [date.month(), date.day()] {
                text.push('-');
                push_digits(text, part, 2);
            }
        }
        // With a sign, and with as many digits as it needs.
        _ => text.push_str(&date.format("%Y-%m-%d").to_string()),
    }
}

fn push_digits(text: &mut String, number: u32, digits: u32) {
    let mut unit = 10u32.pow(digits - 1);
    while unit > 0 {
        text.push(char::from(b'0' + (number / unit % 10) as u8));
        unit /= 10;
    }
}

/// Returns the time if it is in the years 0001 to 9999.
pub(super) fn in_range(time: Micros) -> Option<Micros> {
    (EARLIEST..=LATEST).contains(&time).then_some(time)
}

/// Returns midnight UTC of a day.
pub(super) fn midnight(days: i32) -> Micros {
    i64::from(days) * DAY_SECONDS * SECOND
}

fn date_days(text: &[u8]) -> Option<i32> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text else { return None };
    let year = number(&[*y1, *y2, *y3, *y4])?;
    let date = NaiveDate::from_ymd_opt(year as i32, number(&[*m1, *m2])?, number(&[*d1, *d2])?)?;
    (year >= 1).then(|| date.num_days_from_ce() - 719_163)
}

/// Parses `HH:MM:SS`. Second 60 is a leap second: the first second of the next minute.
fn time_seconds(text: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = text else { return None };
    let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
    (hour < 24 && minute < 60 && second <= 60).then(|| i64::from(hour * 3600 + minute * 60 + second))
}

/// Parses an optional `.digits` to microseconds, and returns the rest of the text.
fn fraction(text: &[u8]) -> Option<(Micros, &[u8])> {
    let [b'.', rest @ ..] = text else { return Some((0, text)) };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, zone) = rest.split_at(length);
    let micros = (0..6).fold(0, |micros, i| micros * 10 + digits.get(i).map_or(0, |digit| i64::from(digit - b'0')));
    (length > 0).then_some((micros, zone))
}

/// Parses `Z`, `+HH:MM`, `+HHMM` or `+HH` to seconds east of UTC.
fn zone_seconds(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'Z' | b'z'] => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [h1, h2, b':', m1, m2] | [h1, h2, m1, m2] => (number(&[*h1, *h2])?, number(&[*m1, *m2])?),
        [h1, h2] => (number(&[*h1, *h2])?, 0),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then(|| sign * i64::from(hours * 3600 + minutes * 60))
}

fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| digit.is_ascii_digit().then(|| value * 10 + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests;
