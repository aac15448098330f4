//! A value as PostgreSQL writes it as text.

use std::fmt::{self, Write};

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Float64Type;
use bytes::{BufMut, BytesMut};
use chrono::{DateTime, Datelike, NaiveDate, TimeDelta};
use types::Result;

use super::values::{
    DAY_MICROS, WireInterval, bytes_of, days, decimal, float4, integer, interval, out_of_range, primitive, put_json, text_of, time_micros,
    timestamp_micros,
};
use super::zone::Zone;
use crate::columns::Kind;

/// Appends the value in a row; it is not NULL.
pub(super) fn put_value(out: &mut BytesMut, kind: Kind, column: &ArrayRef, row: usize, zone: Zone) -> Result<()> {
    match kind {
        Kind::Bool => out.put_u8(if column.as_boolean().value(row) { b't' } else { b'f' }),
        Kind::Int2 | Kind::Int4 | Kind::Int8 => put_display(out, integer(column, row)?),
        Kind::Oid => put_display(out, integer(column, row)? as u32),
        Kind::Float4 => put_float(out, f64::from(float4(column, row)), &format!("{:e}", float4(column, row)), 6),
        Kind::Float8 => {
            let value = primitive::<Float64Type>(column, row);
            put_float(out, value, &format!("{value:e}"), 15);
        }
        Kind::Numeric => out.put_slice(decimal(column, row)?.as_bytes()),
        Kind::Text | Kind::Char => out.put_slice(text_of(column, row)?.as_bytes()),
        // Stored in the one spelling that PostgreSQL writes.
        Kind::Uuid => out.put_slice(text_of(column, row)?.as_bytes()),
        Kind::Bytes => {
            out.put_slice(b"\\x");
            for byte in bytes_of(column, row)? {
                put_display(out, format_args!("{byte:02x}"));
            }
        }
        Kind::Date => put_date(out, days(column, row)?)?,
        Kind::Time => put_time(out, time_micros(column, row)?),
        Kind::Timestamp => put_timestamp(out, timestamp_micros(column, row)?, "")?,
        Kind::TimestampTz => put_timestamptz(out, timestamp_micros(column, row)?, zone)?,
        Kind::Interval => put_interval(out, interval(column, row)?),
        Kind::Json => put_json(out, column, row)?,
    }
    Ok(())
}

fn put_display(out: &mut BytesMut, value: impl fmt::Display) {
    // Memory takes everything.
    let _ = write!(out, "{value}");
}

/// The shortest digits that read back as the same number; with an exponent where PostgreSQL writes one. `scientific` is
/// the number as `1.5e-7`, `digits` how many there may be before the point without one.
fn put_float(out: &mut BytesMut, value: f64, scientific: &str, digits: i32) {
    if value.is_nan() {
        return out.put_slice(b"NaN");
    }
    if value.is_infinite() {
        return out.put_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..digits).contains(&exponent) {
        let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |digits| ("-", digits));
        let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
        let whole = (exponent + 1).max(0) as usize;
        let zeros = "0".repeat((-exponent - 1).max(0) as usize);
        let padded = format!("{zeros}{digits:0<whole$}");
        let (before, after) = if exponent < 0 { ("0", padded.as_str()) } else { padded.split_at(whole) };
        let point = if after.is_empty() { "" } else { "." };
        return put_display(out, format_args!("{sign}{before}{point}{after}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    put_display(out, format_args!("{mantissa}e{sign}{:02}", exponent.unsigned_abs()));
}

fn put_date(out: &mut BytesMut, days: i32) -> Result<()> {
    let era = put_day(out, days)?;
    out.put_slice(era.as_bytes());
    Ok(())
}

/// Returns what is to follow: there is no year 0, before it come those of BC.
fn put_day(out: &mut BytesMut, days: i32) -> Result<&'static str> {
    let date = NaiveDate::from_ymd_opt(1970, 1, 1).and_then(|first| first.checked_add_signed(TimeDelta::days(days.into())));
    let date = date.ok_or_else(|| out_of_range("date"))?;
    let (year, era) = if date.year() > 0 { (date.year(), "") } else { (1 - date.year(), " BC") };
    put_display(out, format_args!("{year:04}-{:02}-{:02}", date.month(), date.day()));
    Ok(era)
}

fn days_of(micros: i64) -> Result<i32> {
    i32::try_from(micros.div_euclid(DAY_MICROS)).map_err(|_| out_of_range("timestamp"))
}

fn put_time(out: &mut BytesMut, micros: i64) {
    let seconds = micros / 1_000_000;
    put_display(out, format_args!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60));
    put_fraction(out, micros % 1_000_000);
}

fn put_fraction(out: &mut BytesMut, micros: i64) {
    if micros != 0 {
        let digits = format!("{:06}", micros.abs());
        put_display(out, format_args!(".{}", digits.trim_end_matches('0')));
    }
}

fn put_timestamp(out: &mut BytesMut, micros: i64, offset: &str) -> Result<()> {
    let era = put_day(out, days_of(micros)?)?;
    out.put_u8(b' ');
    put_time(out, micros.rem_euclid(DAY_MICROS));
    put_display(out, format_args!("{offset}{era}"));
    Ok(())
}

fn put_timestamptz(out: &mut BytesMut, micros: i64, zone: Zone) -> Result<()> {
    let utc = DateTime::from_timestamp_micros(micros).ok_or_else(|| out_of_range("timestamp"))?;
    let seconds = zone.offset_seconds(utc);
    let local = micros.checked_add(i64::from(seconds) * 1_000_000).ok_or_else(|| out_of_range("timestamp"))?;
    let (sign, seconds) = if seconds < 0 { ('-', -seconds) } else { ('+', seconds) };
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let offset = match (minutes, seconds) {
        (0, 0) => format!("{sign}{hours:02}"),
        (_, 0) => format!("{sign}{hours:02}:{minutes:02}"),
        _ => format!("{sign}{hours:02}:{minutes:02}:{seconds:02}"),
    };
    put_timestamp(out, local, &offset)
}

/// `1 year 2 mons -3 days +04:05:06.7`: what follows a negative part has its sign.
fn put_interval(out: &mut BytesMut, WireInterval { months, days, micros }: WireInterval) {
    let mut parts = Vec::new();
    let mut after_negative = false;
    for (count, name) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if count != 0 {
            let (plus, many) = (if after_negative && count > 0 { "+" } else { "" }, if count == 1 { "" } else { "s" });
            parts.push(format!("{plus}{count} {name}{many}"));
            after_negative = count < 0;
        }
    }
    if micros != 0 || parts.is_empty() {
        let sign = if micros < 0 {
            "-"
        } else if after_negative {
            "+"
        } else {
            ""
        };
        let mut time = BytesMut::new();
        let seconds = (micros / 1_000_000).unsigned_abs();
        put_display(&mut time, format_args!("{sign}{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60));
        put_fraction(&mut time, micros % 1_000_000);
        parts.push(String::from_utf8_lossy(&time).into_owned());
    }
    out.put_slice(parts.join(" ").as_bytes());
}
