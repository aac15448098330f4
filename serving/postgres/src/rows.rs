//! Rows as PostgreSQL writes them, as text and as binary. A value becomes the same whatever Arrow's type of its column:
//! a text and a view of one alike.

use std::fmt::{self, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, Field, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit,
    IntervalYearMonthType, Schema, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use bytes::{BufMut, BytesMut};
use chrono::{DateTime, Datelike, NaiveDate, Offset, TimeDelta, TimeZone};
use types::sql_errors::TIME_OUT_OF_RANGE;
use types::{Error, Reason, Result};

use crate::columns::{Kind, WireType};

pub(crate) const TEXT: i16 = 0;
pub(crate) const BINARY: i16 = 1;

const DAY_MICROS: i64 = 86_400_000_000;
/// 2000-01-01, from which PostgreSQL counts, in days since 1970.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;

/// The zone in which times are written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Zone(chrono_tz::Tz);

impl Zone {
    pub(crate) fn named(name: &str) -> Option<Zone> {
        let name = name.trim();
        // In the spelling that settings keep, which is looked for with each answer, it is found at once.
        let in_any_case = || chrono_tz::TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(name)).copied();
        name.parse().ok().or_else(in_any_case).map(Zone)
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self(chrono_tz::Tz::UTC)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// How an answer's columns are written.
#[derive(Debug, Clone)]
pub(crate) struct RowFormat {
    pub(crate) types: Vec<WireType>,
    /// Of each column: [`TEXT`] or [`BINARY`].
    pub(crate) formats: Vec<i16>,
    pub(crate) zone: Zone,
}

impl RowFormat {
    /// Appends a row as a DataRow message.
    pub(crate) fn data_row(&self, out: &mut BytesMut, batch: &RecordBatch, row: usize) -> Result<()> {
        out.put_u8(b'D');
        let at = out.len();
        out.put_i32(0);
        out.put_i16(batch.num_columns() as i16);
        for (index, column) in batch.columns().iter().enumerate() {
            self.field(out, index, column, row)?;
        }
        set_length(out, at, 0);
        Ok(())
    }

    /// Appends a value with its length in front; NULL is the length -1.
    pub(crate) fn field(&self, out: &mut BytesMut, index: usize, column: &ArrayRef, row: usize) -> Result<()> {
        if column.is_null(row) || *column.data_type() == DataType::Null {
            out.put_i32(-1);
            return Ok(());
        }
        let at = out.len();
        out.put_i32(0);
        self.value(out, index, column, row)?;
        set_length(out, at, size_of::<i32>());
        Ok(())
    }

    /// Appends a value that is not NULL.
    pub(crate) fn value(&self, out: &mut BytesMut, index: usize, column: &ArrayRef, row: usize) -> Result<()> {
        let wire_type = self.types[index];
        match (wire_type.is_list, self.formats[index] == BINARY) {
            (true, true) => self.array(out, wire_type, &list(column, row)),
            (true, false) => self.array_text(out, wire_type, &list(column, row)),
            (false, true) => binary(out, wire_type.kind, column, row),
            (false, false) => text(out, wire_type.kind, column, row, self.zone),
        }
    }

    fn array(&self, out: &mut BytesMut, wire_type: WireType, items: &ArrayRef) -> Result<()> {
        let item = WireType { is_list: false, ..wire_type };
        out.put_i32(i32::from(!items.is_empty()));
        out.put_i32(i32::from(items.null_count() > 0));
        out.put_u32(item.pg_type().oid());
        if items.is_empty() {
            return Ok(());
        }
        out.put_i32(items.len() as i32);
        out.put_i32(1);
        for row in 0..items.len() {
            if items.is_null(row) {
                out.put_i32(-1);
                continue;
            }
            let at = out.len();
            out.put_i32(0);
            binary(out, wire_type.kind, items, row)?;
            set_length(out, at, size_of::<i32>());
        }
        Ok(())
    }

    fn array_text(&self, out: &mut BytesMut, wire_type: WireType, items: &ArrayRef) -> Result<()> {
        out.put_u8(b'{');
        let mut item = BytesMut::new();
        for row in 0..items.len() {
            if row > 0 {
                out.put_u8(b',');
            }
            if items.is_null(row) {
                out.put_slice(b"NULL");
                continue;
            }
            item.clear();
            text(&mut item, wire_type.kind, items, row, self.zone)?;
            quoted_item(out, &item);
        }
        out.put_u8(b'}');
        Ok(())
    }
}

/// The same rows with dictionaries looked up.
pub(crate) fn plain(batch: RecordBatch) -> Result<RecordBatch> {
    if !batch.columns().iter().any(|column| matches!(column.data_type(), DataType::Dictionary(..))) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(|column| match column.data_type() {
        DataType::Dictionary(_, values) => cast(column, values),
        _ => Ok(column.clone()),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let fields = batch.schema_ref().fields().iter().zip(&columns);
    let fields: Vec<Field> = fields.map(|(field, column)| field.as_ref().clone().with_data_type(column.data_type().clone())).collect();
    let schema = Schema::new_with_metadata(fields, batch.schema_ref().metadata().clone());
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// Writes the length of what was appended after it. `uncounted` are the bytes of the length itself, where it does not
/// count them.
fn set_length(out: &mut BytesMut, at: usize, uncounted: usize) {
    let length = (out.len() - at - uncounted) as i32;
    out[at..at + size_of::<i32>()].copy_from_slice(&length.to_be_bytes());
}

fn quoted_item(out: &mut BytesMut, item: &[u8]) {
    let special = |byte: &u8| matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\') || byte.is_ascii_whitespace() || *byte == 0x0b;
    if !item.is_empty() && !item.eq_ignore_ascii_case(b"null") && !item.iter().any(special) {
        return out.put_slice(item);
    }
    out.put_u8(b'"');
    for byte in item {
        if matches!(byte, b'"' | b'\\') {
            out.put_u8(b'\\');
        }
        out.put_u8(*byte);
    }
    out.put_u8(b'"');
}

fn list(column: &ArrayRef, row: usize) -> ArrayRef {
    match column.data_type() {
        DataType::LargeList(_) => column.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => column.as_fixed_size_list().value(row),
        _ => column.as_list::<i32>().value(row),
    }
}

fn text(out: &mut BytesMut, kind: Kind, column: &ArrayRef, row: usize, zone: Zone) -> Result<()> {
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
        Kind::Json => out.put_slice(serving::json::value(column, row)?.get().as_bytes()),
    }
    Ok(())
}

fn binary(out: &mut BytesMut, kind: Kind, column: &ArrayRef, row: usize) -> Result<()> {
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

fn out_of_range(what: &str) -> Error {
    Error::input(format!("{TIME_OUT_OF_RANGE}: PostgreSQL has no such {what}")).with_reason(Reason::TimeOutOfRange)
}

fn unexpected(column: &ArrayRef) -> Error {
    Error::internal(format!("a column of the type {} cannot be written", column.data_type()))
}

fn primitive<T: ArrowPrimitiveType>(column: &ArrayRef, row: usize) -> T::Native {
    column.as_primitive::<T>().value(row)
}

fn integer(column: &ArrayRef, row: usize) -> Result<i64> {
    Ok(match column.data_type() {
        DataType::Int8 => primitive::<Int8Type>(column, row).into(),
        DataType::Int16 => primitive::<Int16Type>(column, row).into(),
        DataType::Int32 => primitive::<Int32Type>(column, row).into(),
        DataType::Int64 => primitive::<Int64Type>(column, row),
        DataType::UInt8 => primitive::<UInt8Type>(column, row).into(),
        DataType::UInt16 => primitive::<UInt16Type>(column, row).into(),
        DataType::UInt32 => primitive::<UInt32Type>(column, row).into(),
        _ => return Err(unexpected(column)),
    })
}

fn float4(column: &ArrayRef, row: usize) -> f32 {
    match column.data_type() {
        DataType::Float16 => primitive::<Float16Type>(column, row).to_f32(),
        _ => primitive::<Float32Type>(column, row),
    }
}

/// The digits of a decimal, with all of its scale.
fn decimal(column: &ArrayRef, row: usize) -> Result<String> {
    Ok(match column.data_type() {
        DataType::Decimal32(precision, scale) => Decimal32Type::format_decimal(primitive::<Decimal32Type>(column, row), *precision, *scale),
        DataType::Decimal64(precision, scale) => Decimal64Type::format_decimal(primitive::<Decimal64Type>(column, row), *precision, *scale),
        DataType::Decimal128(precision, scale) => {
            Decimal128Type::format_decimal(primitive::<Decimal128Type>(column, row), *precision, *scale)
        }
        DataType::Decimal256(precision, scale) => {
            Decimal256Type::format_decimal(primitive::<Decimal256Type>(column, row), *precision, *scale)
        }
        DataType::UInt64 => primitive::<UInt64Type>(column, row).to_string(),
        _ => return Err(unexpected(column)),
    })
}

fn text_of(column: &ArrayRef, row: usize) -> Result<&str> {
    Ok(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row),
        DataType::Utf8View => column.as_string_view().value(row),
        _ => return Err(unexpected(column)),
    })
}

fn bytes_of(column: &ArrayRef, row: usize) -> Result<&[u8]> {
    Ok(match column.data_type() {
        DataType::Binary => column.as_binary::<i32>().value(row),
        DataType::LargeBinary => column.as_binary::<i64>().value(row),
        DataType::BinaryView => column.as_binary_view().value(row),
        DataType::FixedSizeBinary(_) => column.as_fixed_size_binary().value(row),
        _ => return Err(unexpected(column)),
    })
}

fn uuid_of(text: &str) -> Result<u128> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let value = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten();
    value.ok_or_else(|| Error::internal(format!("the text \"{text}\" is no UUID")))
}

/// Days since 1970.
fn days(column: &ArrayRef, row: usize) -> Result<i32> {
    match column.data_type() {
        DataType::Date32 => Ok(primitive::<Date32Type>(column, row)),
        DataType::Date64 => i32::try_from(primitive::<Date64Type>(column, row).div_euclid(86_400_000)).map_err(|_| out_of_range("date")),
        _ => Err(unexpected(column)),
    }
}

fn days_of(micros: i64) -> Result<i32> {
    i32::try_from(micros.div_euclid(DAY_MICROS)).map_err(|_| out_of_range("timestamp"))
}

/// Microseconds since midnight.
fn time_micros(column: &ArrayRef, row: usize) -> Result<i64> {
    Ok(match column.data_type() {
        DataType::Time32(TimeUnit::Second) => i64::from(primitive::<Time32SecondType>(column, row)) * 1_000_000,
        DataType::Time32(_) => i64::from(primitive::<Time32MillisecondType>(column, row)) * 1_000,
        DataType::Time64(TimeUnit::Microsecond) => primitive::<Time64MicrosecondType>(column, row),
        DataType::Time64(_) => primitive::<Time64NanosecondType>(column, row) / 1_000,
        _ => return Err(unexpected(column)),
    })
}

/// Microseconds since 1970.
fn timestamp_micros(column: &ArrayRef, row: usize) -> Result<i64> {
    let DataType::Timestamp(unit, _) = column.data_type() else { return Err(unexpected(column)) };
    let micros = match unit {
        TimeUnit::Second => primitive::<TimestampSecondType>(column, row).checked_mul(1_000_000),
        TimeUnit::Millisecond => primitive::<TimestampMillisecondType>(column, row).checked_mul(1_000),
        TimeUnit::Microsecond => Some(primitive::<TimestampMicrosecondType>(column, row)),
        TimeUnit::Nanosecond => Some(primitive::<TimestampNanosecondType>(column, row).div_euclid(1_000)),
    };
    micros.ok_or_else(|| out_of_range("timestamp"))
}

/// An interval as PostgreSQL has it: `engine::events::Interval` counts nanoseconds, and more of them.
struct WireInterval {
    months: i32,
    days: i32,
    micros: i64,
}

fn interval(column: &ArrayRef, row: usize) -> Result<WireInterval> {
    let of_time = |value: i64, factor: i64| match value.checked_mul(factor) {
        Some(micros) => Ok(WireInterval { months: 0, days: 0, micros }),
        None => Err(out_of_range("interval")),
    };
    match column.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => {
            Ok(WireInterval { months: primitive::<IntervalYearMonthType>(column, row), days: 0, micros: 0 })
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = primitive::<IntervalDayTimeType>(column, row);
            Ok(WireInterval { months: 0, days: value.days, micros: i64::from(value.milliseconds) * 1_000 })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = primitive::<IntervalMonthDayNanoType>(column, row);
            Ok(WireInterval { months: value.months, days: value.days, micros: value.nanoseconds / 1_000 })
        }
        DataType::Duration(TimeUnit::Second) => of_time(primitive::<DurationSecondType>(column, row), 1_000_000),
        DataType::Duration(TimeUnit::Millisecond) => of_time(primitive::<DurationMillisecondType>(column, row), 1_000),
        DataType::Duration(TimeUnit::Microsecond) => of_time(primitive::<DurationMicrosecondType>(column, row), 1),
        DataType::Duration(TimeUnit::Nanosecond) => of_time(primitive::<DurationNanosecondType>(column, row) / 1_000, 1),
        _ => Err(unexpected(column)),
    }
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
    let seconds = zone.0.offset_from_utc_datetime(&utc.naive_utc()).fix().local_minus_utc();
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

#[cfg(test)]
mod tests;
