//! A value as PostgreSQL writes it as text.

use std::fmt::{self, Write};

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Float64Type;
use bytes::{BufMut, BytesMut};
use chrono::{DateTime, Datelike, NaiveDate, TimeDelta};
use types::Result;
use types::value_texts::{DoubleText, FractionText, IntervalText, RealText};

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
        Kind::Float4 => put_display(out, RealText(float4(column, row))),
        Kind::Float8 => put_display(out, DoubleText(primitive::<Float64Type>(column, row))),
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
        Kind::Interval => {
            let WireInterval { months, days, micros } = interval(column, row)?;
            put_display(out, IntervalText { months, days, micros });
        }
        Kind::Json => put_json(out, column, row)?,
    }
    Ok(())
}

fn put_display(out: &mut BytesMut, value: impl fmt::Display) {
    // Memory takes everything.
    let _ = write!(out, "{value}");
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
    put_display(out, FractionText(micros % 1_000_000));
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
