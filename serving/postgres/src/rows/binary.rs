//! A value in PostgreSQL's binary format of its type.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, DecimalType, Float64Type};
use bytes::{BufMut, BytesMut};
use types::{Error, Result};

use super::values::{
    DAY_MICROS, bytes_of, days, decimal, float4, integer, interval, out_of_range, primitive, put_json, text_of, time_micros,
    timestamp_micros,
};
use crate::columns::Kind;

/// 2000-01-01, from which PostgreSQL counts, in days since 1970.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;

/// A numeric is written in groups of this many digits.
const GROUP_DIGITS: u32 = 4;
/// A number of 64 bits has no more of them.
const MOST_GROUPS: usize = 5;
/// The sign of a numeric below zero.
const NEGATIVE: u16 = 0x4000;

/// Appends the value in a row; it is not NULL.
pub(super) fn put_value(out: &mut BytesMut, kind: Kind, column: &ArrayRef, row: usize) -> Result<()> {
    match kind {
        Kind::Bool => out.put_u8(u8::from(column.as_boolean().value(row))),
        Kind::Int2 => out.put_i16(integer(column, row)? as i16),
        Kind::Int4 | Kind::Oid => out.put_i32(integer(column, row)? as i32),
        Kind::Int8 => out.put_i64(integer(column, row)?),
        Kind::Float4 => out.put_f32(float4(column, row)),
        Kind::Float8 => out.put_f64(primitive::<Float64Type>(column, row)),
        Kind::Numeric => put_decimal(out, column, row)?,
        Kind::Text => out.put_slice(text_of(column, row)?.as_bytes()),
        Kind::Char => out.put_u8(text_of(column, row)?.bytes().next().unwrap_or_default()),
        Kind::Uuid => out.put_u128(uuid_of(text_of(column, row)?)?),
        Kind::Bytes => out.put_slice(bytes_of(column, row)?),
        Kind::Date => out.put_i32(days(column, row)?.checked_sub(EPOCH_DAYS).ok_or_else(|| out_of_range("date"))?),
        Kind::Time => out.put_i64(time_micros(column, row)?),
        Kind::Timestamp | Kind::TimestampTz => out.put_i64(micros_since_2000(timestamp_micros(column, row)?)?),
        Kind::Interval => {
            let interval = interval(column, row)?;
            out.put_i64(interval.micros);
            out.put_i32(interval.days);
            out.put_i32(interval.months);
        }
        Kind::Json => put_json(out, column, row)?,
    }
    Ok(())
}

/// As PostgreSQL counts, of what Arrow counts since 1970.
pub(super) fn micros_since_2000(micros: i64) -> Result<i64> {
    micros.checked_sub(EPOCH_MICROS).ok_or_else(|| out_of_range("timestamp"))
}

fn uuid_of(text: &str) -> Result<u128> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let value = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
    value.ok_or_else(|| Error::internal(format!("the text \"{text}\" is no UUID")))
}

fn put_decimal(out: &mut BytesMut, column: &ArrayRef, row: usize) -> Result<()> {
    match column.data_type() {
        DataType::Decimal128(precision, scale) => {
            DecimalFormat::new(*precision, *scale).put(out, primitive::<Decimal128Type>(column, row));
        }
        _ => put_numeric(out, &decimal(column, row)?),
    }
    Ok(())
}

/// How decimals of one type are written. Those of up to 64 bits need no text.
#[derive(Debug, Clone, Copy)]
pub(super) struct DecimalFormat {
    precision: u8,
    scale: i8,
    /// More than their digits can be, if 64 bits hold it.
    limit: Option<u64>,
    /// The digits are multiplied with it, so that the point is between two groups of four; `None` where zeros follow
    /// them before the point.
    padding: Option<u64>,
}

impl DecimalFormat {
    pub(super) fn new(precision: u8, scale: i8) -> Self {
        let zeros = u32::try_from(scale).ok().map(|scale| scale.next_multiple_of(GROUP_DIGITS) - scale);
        let limit = 10_u64.checked_pow(precision.into());
        Self { precision, scale, limit, padding: zeros.map(|zeros| 10_u64.pow(zeros)) }
    }

    pub(super) fn put(&self, out: &mut BytesMut, value: i128) {
        match self.padded(value) {
            Some(digits) => put_groups(out, digits, value < 0, self.scale as usize),
            None => put_numeric(out, &Decimal128Type::format_decimal(value, self.precision, self.scale)),
        }
    }

    /// The digits without a sign, padded; `None` if there are more than 64 bits hold, or than its type has.
    fn padded(&self, value: i128) -> Option<u64> {
        let digits = u64::try_from(value.unsigned_abs()).ok()?;
        let is_of_type = self.limit.is_none_or(|limit| digits < limit);
        digits.checked_mul(self.padding?).filter(|_| is_of_type)
    }
}

/// Writes a number whose last groups of four digits are the fraction of `scale` digits.
fn put_groups(out: &mut BytesMut, digits: u64, is_negative: bool, scale: usize) {
    // The last one comes first.
    let mut groups = [0_i16; MOST_GROUPS];
    let (mut rest, mut count) = (digits, 0);
    while rest > 0 {
        groups[count] = (rest % 10_000) as i16;
        rest /= 10_000;
        count += 1;
    }
    let zeros = groups[..count].iter().take_while(|group| **group == 0).count();
    let weight = if count == 0 { 0 } else { count as i16 - 1 - scale.div_ceil(GROUP_DIGITS as usize) as i16 };
    out.put_i16((count - zeros) as i16);
    out.put_i16(weight);
    out.put_u16(if count > 0 && is_negative { NEGATIVE } else { 0 });
    out.put_i16(scale as i16);
    groups[zeros..count].iter().rev().for_each(|group| out.put_i16(*group));
}

/// Digits in groups of four, as PostgreSQL keeps them.
pub(super) fn put_numeric(out: &mut BytesMut, text: &str) {
    let (sign, digits) = text.strip_prefix('-').map_or((0, text), |digits| (NEGATIVE, digits));
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

/// Writes the length of what was appended after it. `uncounted` are the bytes of the length itself, where it does not
/// count them.
pub(super) fn set_length(out: &mut BytesMut, at: usize, uncounted: usize) {
    let length = (out.len() - at - uncounted) as i32;
    out[at..at + size_of::<i32>()].copy_from_slice(&length.to_be_bytes());
}
