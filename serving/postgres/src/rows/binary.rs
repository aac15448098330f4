//! A value in PostgreSQL's binary format of its type.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Float64Type;
use bytes::{BufMut, BytesMut};
use types::{Error, Result};

use super::values::{
    DAY_MICROS, bytes_of, days, decimal, float4, integer, interval, out_of_range, primitive, text_of, time_micros, timestamp_micros,
};
use crate::columns::Kind;

/// 2000-01-01, from which PostgreSQL counts, in days since 1970.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;

/// Appends the value in a row; it is not NULL.
pub(super) fn put_value(out: &mut BytesMut, kind: Kind, column: &ArrayRef, row: usize) -> Result<()> {
    match kind {
        Kind::Bool => out.put_u8(u8::from(column.as_boolean().value(row))),
        Kind::Int2 => out.put_i16(integer(column, row)? as i16),
        Kind::Int4 | Kind::Oid => out.put_i32(integer(column, row)? as i32),
        Kind::Int8 => out.put_i64(integer(column, row)?),
        Kind::Float4 => out.put_f32(float4(column, row)),
        Kind::Float8 => out.put_f64(primitive::<Float64Type>(column, row)),
        Kind::Numeric => put_numeric(out, &decimal(column, row)?),
        Kind::Text => out.put_slice(text_of(column, row)?.as_bytes()),
        Kind::Char => out.put_u8(text_of(column, row)?.bytes().next().unwrap_or_default()),
        Kind::Uuid => out.put_u128(uuid_of(text_of(column, row)?)?),
        Kind::Bytes => out.put_slice(bytes_of(column, row)?),
        Kind::Date => out.put_i32(days(column, row)?.checked_sub(EPOCH_DAYS).ok_or_else(|| out_of_range("date"))?),
        Kind::Time => out.put_i64(time_micros(column, row)?),
        Kind::Timestamp | Kind::TimestampTz => {
            let micros = timestamp_micros(column, row)?;
            out.put_i64(micros.checked_sub(EPOCH_MICROS).ok_or_else(|| out_of_range("timestamp"))?);
        }
        Kind::Interval => {
            let interval = interval(column, row)?;
            out.put_i64(interval.micros);
            out.put_i32(interval.days);
            out.put_i32(interval.months);
        }
        Kind::Json => out.put_slice(serving::json::value(column, row)?.get().as_bytes()),
    }
    Ok(())
}

fn uuid_of(text: &str) -> Result<u128> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let value = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
    value.ok_or_else(|| Error::internal(format!("the text \"{text}\" is no UUID")))
}

/// Digits in groups of four, as PostgreSQL keeps them.
fn put_numeric(out: &mut BytesMut, text: &str) {
    let (sign, digits) = text.strip_prefix('-').map_or((0, text), |digits| (0x4000, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let scale = fraction.len();
    let before = whole.len().div_ceil(4);
    let padded = format!("{whole:0>width$}{fraction:0<end$}", width = before * 4, end = scale.div_ceil(4) * 4);
    let group = |group: &[u8]| group.iter().fold(0, |value: i16, digit| value * 10 + i16::from(digit - b'0'));
    let groups: Vec<i16> = padded.as_bytes().chunks(4).map(group).collect();
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    let kept = groups.iter().rposition(|group| *group != 0).map_or(zeros, |last| last + 1);
    let weight = if kept == zeros { 0 } else { before as i16 - 1 - zeros as i16 };
    out.put_i16((kept - zeros) as i16);
    out.put_i16(weight);
    out.put_u16(if kept == zeros { 0 } else { sign });
    out.put_i16(scale as i16);
    groups[zeros..kept].iter().for_each(|group| out.put_i16(*group));
}
