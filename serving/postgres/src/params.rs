//! The values of `$1`, `$2`, .. as a client sends them: each by the OID of its type, as text or as binary.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use bytes::{Buf, Bytes};
use datafusion::common::ScalarValue;
use engine::functions::time_in_zone;
use postgres_types::{Kind, Type};
use serving::date_and_zone;
use types::sql_types::timestamp_type;
use types::value_texts::array_items;

use crate::problem::{INVALID_BINARY, INVALID_TEXT, NOT_SUPPORTED, OUT_OF_RANGE, SqlProblem};
use crate::rows::{BINARY, Zone};

const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;
/// Digits of a decimal that Arrow keeps in 128 bits, and in 256.
const DIGITS: usize = 38;
const MOST_DIGITS: usize = 76;

/// The Arrow type of a parameter that a client says is of this type; `None` where it says nothing.
pub(crate) fn data_type(oid: u32) -> Result<Option<DataType>, SqlProblem> {
    if oid == 0 || oid == Type::UNKNOWN.oid() {
        return Ok(None);
    }
    let unknown = || SqlProblem::new(NOT_SUPPORTED, format!("parameters of the type with the OID {oid} are not supported"));
    arrow_type(&Type::from_oid(oid).ok_or_else(unknown)?).map(Some).ok_or_else(unknown)
}

fn arrow_type(pg_type: &Type) -> Option<DataType> {
    if let Kind::Array(item) = pg_type.kind() {
        return arrow_type(item).map(|item| DataType::List(Arc::new(Field::new_list_field(item, true))));
    }
    Some(match *pg_type {
        Type::BOOL => DataType::Boolean,
        Type::INT2 => DataType::Int16,
        Type::INT4 => DataType::Int32,
        Type::INT8 | Type::OID => DataType::Int64,
        Type::FLOAT4 => DataType::Float32,
        Type::FLOAT8 => DataType::Float64,
        // The value says how many digits it has.
        Type::NUMERIC => DataType::Decimal128(DIGITS as u8, 10),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::CHAR | Type::JSON | Type::JSONB | Type::UUID | Type::UNKNOWN => {
            DataType::Utf8
        }
        Type::BYTEA => DataType::Binary,
        Type::DATE => DataType::Date32,
        Type::TIME => DataType::Time64(TimeUnit::Microsecond),
        Type::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::TIMESTAMPTZ => timestamp_type(),
        Type::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        _ => return None,
    })
}

/// Reads a value. `number` is that of its parameter; a time without an offset is one of `zone`.
pub(crate) fn value(number: usize, oid: u32, format: i16, bytes: Option<&Bytes>, zone: Zone) -> Result<ScalarValue, SqlProblem> {
    let pg_type = Type::from_oid(oid).unwrap_or(Type::TEXT);
    let data_type = arrow_type(&pg_type).unwrap_or(DataType::Utf8);
    let Some(bytes) = bytes else {
        return ScalarValue::try_new_null(&data_type).map_err(|error| SqlProblem::from(types::Error::from(error)));
    };
    let wrong = |state: &'static str| {
        let found =
            if format == BINARY { format!("{} bytes", bytes.len()) } else { format!("\"{}\"", shortened(&String::from_utf8_lossy(bytes))) };
        SqlProblem::new(state, format!("invalid value for the parameter ${number}: found {found}, expected the type {}", pg_type.name()))
    };
    let read = if format == BINARY { from_binary(&pg_type, bytes.clone()) } else { from_text(&pg_type, bytes, zone) };
    match read {
        Ok(value) => Ok(value),
        Err(ParamError::Invalid) => Err(wrong(if format == BINARY { INVALID_BINARY } else { INVALID_TEXT })),
        Err(ParamError::OutOfRange) => Err(wrong(OUT_OF_RANGE)),
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() > 60 { text.chars().take(60).chain("..".chars()).collect() } else { text.to_owned() }
}

/// Why the value of a parameter cannot be read.
enum ParamError {
    Invalid,
    OutOfRange,
}

type Read<T> = Result<T, ParamError>;

fn from_text(pg_type: &Type, bytes: &[u8], zone: Zone) -> Read<ScalarValue> {
    let text = std::str::from_utf8(bytes).map_err(|_| ParamError::Invalid)?;
    if text.contains('\0') {
        return Err(ParamError::Invalid);
    }
    if let Kind::Array(item) = pg_type.kind() {
        let items = array_items(text).ok_or(ParamError::Invalid)?;
        let null = || ScalarValue::try_new_null(&arrow_type(item).ok_or(ParamError::Invalid)?).map_err(|_| ParamError::Invalid);
        let items = items.into_iter().map(|text| text.map_or_else(null, |text| from_text(item, text.as_bytes(), zone)));
        return array(item, items.collect::<Read<Vec<_>>>()?);
    }
    match *pg_type {
        Type::NUMERIC => decimal(text.trim()),
        Type::BYTEA => bytea(text).map(|bytes| ScalarValue::Binary(Some(bytes))).ok_or(ParamError::Invalid),
        Type::FLOAT4 => text.trim().parse().map(|value| ScalarValue::Float32(Some(value))).map_err(|_| ParamError::Invalid),
        Type::FLOAT8 => text.trim().parse().map(|value| ScalarValue::Float64(Some(value))).map_err(|_| ParamError::Invalid),
        _ => {
            let data_type = arrow_type(pg_type).ok_or(ParamError::Invalid)?;
            let text = match (pg_type, date_and_zone(text)) {
                // The zone of a date means nothing.
                (&Type::DATE | &Type::TIMESTAMP, Some((date, _))) => date.to_owned(),
                (&Type::TIMESTAMPTZ, Some((date, zone))) => format!("{date} 00:00:00{zone}"),
                _ if data_type == DataType::Utf8 => text.to_owned(),
                _ => text.trim().to_owned(),
            };
            if *pg_type == Type::TIMESTAMPTZ
                && let Some(zone) = zone.other_than_utc()
            {
                let micros = time_in_zone(&text, &zone).ok_or(ParamError::Invalid)?;
                return Ok(ScalarValue::TimestampMicrosecond(Some(micros), Some("UTC".into())));
            }
            let value = ScalarValue::Utf8(Some(text)).cast_to(&data_type).map_err(|_| ParamError::Invalid)?;
            if value.is_null() { Err(ParamError::Invalid) } else { Ok(value) }
        }
    }
}

fn from_binary(pg_type: &Type, mut bytes: Bytes) -> Read<ScalarValue> {
    if let Kind::Array(item) = pg_type.kind() {
        return array(item, binary_items(item, bytes)?);
    }
    let length = bytes.len();
    let sized = |expected: usize| if length == expected { Ok(()) } else { Err(ParamError::Invalid) };
    let text = |bytes: &Bytes| match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(ScalarValue::Utf8(Some(text.to_owned()))),
        _ => Err(ParamError::Invalid),
    };
    Ok(match *pg_type {
        Type::BOOL => sized(1).map(|()| ScalarValue::Boolean(Some(bytes[0] != 0)))?,
        Type::INT2 => sized(2).map(|()| ScalarValue::Int16(Some(bytes.get_i16())))?,
        Type::INT4 => sized(4).map(|()| ScalarValue::Int32(Some(bytes.get_i32())))?,
        Type::OID => sized(4).map(|()| ScalarValue::Int64(Some(bytes.get_u32().into())))?,
        Type::INT8 => sized(8).map(|()| ScalarValue::Int64(Some(bytes.get_i64())))?,
        Type::FLOAT4 => sized(4).map(|()| ScalarValue::Float32(Some(bytes.get_f32())))?,
        Type::FLOAT8 => sized(8).map(|()| ScalarValue::Float64(Some(bytes.get_f64())))?,
        Type::NUMERIC => decimal(&numeric(bytes)?)?,
        Type::UUID => {
            sized(16)?;
            let digits = format!("{:032x}", bytes.get_u128());
            let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
            ScalarValue::Utf8(Some(format!("{a}-{b}-{c}-{d}-{e}")))
        }
        Type::BYTEA => ScalarValue::Binary(Some(bytes.to_vec())),
        Type::DATE => {
            sized(4)?;
            ScalarValue::Date32(Some(bytes.get_i32().checked_add(EPOCH_DAYS).ok_or(ParamError::OutOfRange)?))
        }
        Type::TIME => sized(8).map(|()| ScalarValue::Time64Microsecond(Some(bytes.get_i64())))?,
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            sized(8)?;
            let micros = bytes.get_i64().checked_add(EPOCH_MICROS).ok_or(ParamError::OutOfRange)?;
            ScalarValue::TimestampMicrosecond(Some(micros), (*pg_type == Type::TIMESTAMPTZ).then(|| "UTC".into()))
        }
        Type::INTERVAL => {
            sized(16)?;
            let (micros, days, months) = (bytes.get_i64(), bytes.get_i32(), bytes.get_i32());
            let nanos = micros.checked_mul(1_000).ok_or(ParamError::OutOfRange)?;
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, nanos)))
        }
        Type::JSONB => match bytes.first() {
            Some(1) => text(&bytes.slice(1..))?,
            _ => return Err(ParamError::Invalid),
        },
        _ => text(&bytes)?,
    })
}

fn array(item: &Type, items: Vec<ScalarValue>) -> Read<ScalarValue> {
    let data_type = arrow_type(item).ok_or(ParamError::Invalid)?;
    // Each decimal says its own number of digits.
    let data_type = match items.iter().find(|value| !value.is_null()) {
        Some(ScalarValue::Decimal128(..) | ScalarValue::Decimal256(..)) => widest(&items),
        _ => data_type,
    };
    let items = items.iter().map(|value| value.cast_to(&data_type)).collect::<Result<Vec<_>, _>>().map_err(|_| ParamError::OutOfRange)?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&items, &data_type)))
}

fn widest(items: &[ScalarValue]) -> DataType {
    let (mut whole, mut scale) = (1, 0);
    for item in items.iter().filter(|item| !item.is_null()) {
        if let DataType::Decimal128(precision, of) | DataType::Decimal256(precision, of) = item.data_type() {
            whole = whole.max(i16::from(precision) - i16::from(of));
            scale = scale.max(of);
        }
    }
    match whole + i16::from(scale) {
        digits if digits <= DIGITS as i16 => DataType::Decimal128(digits as u8, scale),
        digits => DataType::Decimal256(digits.min(MOST_DIGITS as i16) as u8, scale),
    }
}

fn binary_items(item: &Type, mut bytes: Bytes) -> Read<Vec<ScalarValue>> {
    let i32 = |bytes: &mut Bytes| if bytes.len() < 4 { Err(ParamError::Invalid) } else { Ok(bytes.get_i32()) };
    let dimensions = i32(&mut bytes)?;
    i32(&mut bytes)?;
    if i32(&mut bytes)? as u32 != item.oid() || !(0..=1).contains(&dimensions) {
        return Err(ParamError::Invalid);
    }
    if dimensions == 0 {
        return Ok(Vec::new());
    }
    let count = i32(&mut bytes)?;
    i32(&mut bytes)?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(match i32(&mut bytes)? {
            -1 => ScalarValue::try_new_null(&arrow_type(item).ok_or(ParamError::Invalid)?).map_err(|_| ParamError::Invalid)?,
            length => {
                let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len()).ok_or(ParamError::Invalid)?;
                from_binary(item, bytes.split_to(length))?
            }
        });
    }
    if bytes.is_empty() { Ok(items) } else { Err(ParamError::Invalid) }
}

/// `\x00ff`, or the older spelling with `\000`.
fn bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        return if digits.len().is_multiple_of(2) && digits.iter().all(u8::is_ascii_hexdigit) {
            digits.chunks(2).map(byte).collect()
        } else {
            None
        };
    }
    let mut found = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        match (byte, after) {
            (b'\\', [b'\\', after @ ..]) => {
                found.push(b'\\');
                rest = after;
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                found.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
                rest = after;
            }
            (b'\\', _) => return None,
            (byte, after) => {
                found.push(*byte);
                rest = after;
            }
        }
    }
    Some(found)
}

/// A decimal of as many digits as the text has.
fn decimal(text: &str) -> Read<ScalarValue> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().map_err(|_| ParamError::Invalid)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParamError::Invalid);
    }
    let scale = i32::try_from(fraction.len()).ok().and_then(|scale| scale.checked_sub(exponent)).ok_or(ParamError::OutOfRange)?;
    let kept = all.trim_start_matches('0');
    let (kept, scale) = match scale {
        scale if scale >= 0 => (kept.to_owned(), scale as usize),
        zeros if zeros.unsigned_abs() as usize <= MOST_DIGITS => (format!("{kept}{}", "0".repeat(zeros.unsigned_abs() as usize)), 0),
        _ => return Err(ParamError::OutOfRange),
    };
    let precision = kept.len().max(scale).max(1);
    if precision > MOST_DIGITS {
        return Err(ParamError::OutOfRange);
    }
    let signed = format!("{sign}{}", if kept.is_empty() { "0" } else { &kept });
    if precision <= DIGITS {
        let value = signed.parse().map_err(|_| ParamError::OutOfRange)?;
        return Ok(ScalarValue::Decimal128(Some(value), precision as u8, scale as i8));
    }
    let value = arrow::datatypes::i256::from_string(&signed).ok_or(ParamError::OutOfRange)?;
    Ok(ScalarValue::Decimal256(Some(value), precision as u8, scale as i8))
}

/// The digits of PostgreSQL's binary form: groups of four. It has no place for what is no number here.
fn numeric(mut bytes: Bytes) -> Read<String> {
    if bytes.len() < 8 {
        return Err(ParamError::Invalid);
    }
    let (count, weight, sign, scale) = (bytes.get_u16() as usize, bytes.get_i16(), bytes.get_u16(), bytes.get_u16() as usize);
    if bytes.len() != 2 * count || !matches!(sign, 0 | 0x4000) {
        return Err(ParamError::Invalid);
    }
    if count > MOST_DIGITS || scale > MOST_DIGITS || i32::from(weight).abs() > MOST_DIGITS as i32 {
        return Err(ParamError::OutOfRange);
    }
    let groups: Vec<u16> = (0..count).map(|_| bytes.get_u16()).collect();
    if groups.iter().any(|group| *group > 9_999) {
        return Err(ParamError::Invalid);
    }
    let group =
        |place: i32| usize::try_from(i32::from(weight) - place).ok().and_then(|index| groups.get(index)).copied().unwrap_or_default();
    let whole: String = (0..=i32::from(weight).max(0)).rev().map(|place| format!("{:04}", group(place))).collect();
    let fraction: String = (1..=scale.div_ceil(4) as i32).map(|place| format!("{:04}", group(-place))).collect();
    let sign = if sign == 0 { "" } else { "-" };
    Ok(format!("{sign}{whole}.{}", &fraction[..scale]))
}

#[cfg(test)]
mod tests;
