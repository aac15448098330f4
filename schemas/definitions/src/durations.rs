//! Durations and sizes as users write them: `10m`, `90d`, `500ms`; `256MiB`, `1GB`.
//!
//! Each is one whole number and one unit, so that the text is unambiguous and can name a column (`txns_90d`). What
//! names no column, such as a `retention`, may have several parts: `31d 5m`.

use std::time::Duration;

use types::{Error, Result};

/// Parses `500ms`, `10s`, `10m` or `10min`, `1h`, `90d`, `1w`. Days are 24 hours, weeks 7 days.
///
/// Refused: zero, fractions, combinations (`1h30m`), and more than 63 bits of microseconds (292,000 years).
pub fn parse_duration(text: &str) -> Result<Duration> {
    parse_one(text).map(|(duration, _)| duration)
}

/// Parses a duration of one or several parts, the longest unit first: `90d`, `31d 5m`, `1h 30m`.
///
/// Refused in addition to what [`parse_duration`] refuses in each part: a unit after one that is not longer.
pub(crate) fn parse_duration_parts(text: &str) -> Result<Duration> {
    if let Some(one_word) = unit_apart(text) {
        return Err(wrong(text, "duration", "has a space before its unit", &format!("expected '{one_word}'")));
    }
    let mut parts = text.split_whitespace();
    let (mut total, mut unit_us) = parse_one(parts.next().unwrap_or_default())?;
    for part in parts {
        let (length, next_us) = parse_one(part)?;
        if next_us >= unit_us {
            let problem = format!("has '{part}' after a unit that is not longer");
            return Err(wrong(text, "duration", &problem, "expected the longest unit first, such as '31d 5m'"));
        }
        total += length;
        unit_us = next_us;
    }
    match i64::try_from(total.as_micros()) {
        Ok(_) => Ok(total),
        Err(_) => Err(too_long(text)),
    }
}

/// The duration that `3 days` means, in the form that is read: `3d`.
fn unit_apart(text: &str) -> Option<String> {
    let (number, unit) = text.trim().split_once(char::is_whitespace)?;
    let unit = match unit.trim_start().to_ascii_lowercase().as_str() {
        "ms" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "second" | "seconds" => "s",
        "m" | "min" | "minute" | "minutes" => "m",
        "h" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "w" | "week" | "weeks" => "w",
        _ => return None,
    };
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("{number}{unit}"))
}

/// Parses a duration of one or several parts, or a zero of any unit, where "not at all" is a choice: `0s`.
pub(crate) fn parse_duration_or_zero(text: &str) -> Result<Duration> {
    let unit = text.trim_start_matches('0');
    let is_zero = unit.len() < text.len() && unit.starts_with(char::is_alphabetic) && parse_one(&format!("1{unit}")).is_ok();
    if is_zero { Ok(Duration::ZERO) } else { parse_duration_parts(text) }
}

/// Parses a number and its unit. Returns the unit's length in microseconds as well.
fn parse_one(text: &str) -> Result<(Duration, u64)> {
    let (number, unit) = split(text, "duration", "a whole number and a unit (ms, s, m, h, d, w), such as '10m' or '90d'")?;
    let unit_us: u64 = match unit {
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        "w" => 604_800_000_000,
        "" => return Err(wrong(text, "duration", "has no unit", "add one of ms, s, m, h, d, w")),
        _ => return Err(wrong(text, "duration", &format!("has the unknown unit '{unit}'"), "expected ms, s, m or min, h, d or w")),
    };
    match number.checked_mul(unit_us).filter(|us| i64::try_from(*us).is_ok()) {
        Some(0) => Err(wrong(text, "duration", "is zero", "expected more than zero")),
        Some(us) => Ok((Duration::from_micros(us), unit_us)),
        None => Err(too_long(text)),
    }
}

fn too_long(text: &str) -> Error {
    wrong(text, "duration", "is too long", "expected at most 106751991d")
}

/// Parses a size in bytes: `512B`, `64KiB`, `256MiB`, `4GiB`, `1TiB`, and the decimal `kB`, `MB`, `GB`, `TB`.
///
/// Refused: zero, fractions, a number without a unit, and more than 63 bits.
pub(crate) fn parse_bytes(text: &str) -> Result<u64> {
    let (number, unit) = split(text, "size", "a whole number and a unit (B, KiB, MiB, GiB, TiB), such as '256MiB'")?;
    let unit_bytes: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "" => return Err(wrong(text, "size", "has no unit", "add one of B, KiB, MiB, GiB, TiB")),
        _ => {
            return Err(wrong(text, "size", &format!("has the unknown unit '{unit}'"), "expected B, KiB, MiB, GiB, TiB, kB, MB, GB or TB"));
        }
    };
    match number.checked_mul(unit_bytes).filter(|bytes| i64::try_from(*bytes).is_ok()) {
        Some(0) => Err(wrong(text, "size", "is zero", "expected more than zero")),
        Some(bytes) => Ok(bytes),
        None => Err(wrong(text, "size", "is too large", "expected less than 8388608TiB")),
    }
}

/// Units of formatted durations, in milliseconds.
const UNITS: [(u128, &str); 5] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];

/// Formats a duration so that `parse_duration_parts` reads it back, in the units that a person uses (`31d 5m`, `7d
/// 1h`, `1s 500ms`). Anything finer than a millisecond is cut off.
pub fn format_duration_parts(duration: Duration) -> String {
    let mut ms = duration.as_millis();
    let mut parts = Vec::new();
    for (unit_ms, unit) in UNITS {
        if ms >= unit_ms {
            parts.push(format!("{}{unit}", ms / unit_ms));
            ms %= unit_ms;
        }
    }
    if parts.is_empty() { "0ms".to_owned() } else { parts.join(" ") }
}

/// Formats a duration so that [`parse_duration`] reads it back, in the largest unit that divides it (`90d`, `1h`,
/// `1500ms`). Anything finer than a millisecond is cut off.
pub fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit_ms, unit) in UNITS {
        if ms >= unit_ms && ms.is_multiple_of(unit_ms) {
            return format!("{}{unit}", ms / unit_ms);
        }
    }
    format!("{ms}ms")
}

/// Formats a size so that `parse_bytes` reads it back, in the largest binary unit that divides it.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit_bytes, unit) in UNITS {
        if bytes >= unit_bytes && bytes.is_multiple_of(unit_bytes) {
            return format!("{}{unit}", bytes / unit_bytes);
        }
    }
    format!("{bytes}B")
}

/// Returns the leading number and the letters after it. Ignores surrounding spaces; inner spaces are an error.
fn split<'a>(text: &'a str, what: &str, expected: &str) -> Result<(u64, &'a str)> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digits);
    let only_letters = unit.chars().all(char::is_alphabetic);
    if number.is_empty() || !only_letters {
        return Err(wrong(text, what, "is not understood", &format!("expected {expected}")));
    }
    let number = number.parse().map_err(|_| wrong(text, what, "has too large a number", &format!("expected {expected}")))?;
    Ok((number, unit))
}

fn wrong(text: &str, what: &str, problem: &str, expected: &str) -> Error {
    Error::input(format!("the {what} '{text}' {problem}; {expected}"))
}

#[cfg(test)]
mod tests;
