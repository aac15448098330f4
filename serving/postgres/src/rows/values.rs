//! The value in a row of a column. It is the same whatever Arrow's type of the column: a text and a view of one alike.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use bytes::{BufMut, BytesMut};
use types::sql_errors::TIME_OUT_OF_RANGE;
use types::{Error, Reason, Result};

pub(super) const DAY_MICROS: i64 = 86_400_000_000;

pub(super) fn primitive<T: ArrowPrimitiveType>(column: &ArrayRef, row: usize) -> T::Native {
    column.as_primitive::<T>().value(row)
}

pub(super) fn integer(column: &ArrayRef, row: usize) -> Result<i64> {
    Ok(match column.data_type() {
        DataType::Int8 => primitive::<Int8Type>(column, row).into(),
        DataType::Int16 => primitive::<Int16Type>(column, row).into(),
        DataType::Int32 => primitive::<Int32Type>(column, row).into(),
        DataType::Int64 => primitive::<Int64Type>(column, row),
        DataType::UInt8 => primitive::<UInt8Type>(column, row).into(),
        DataType::UInt16 => primitive::<UInt16Type>(column, row).into(),
        DataType::UInt32 => primitive::<UInt32Type>(column, row).into(),
        DataType::UInt64 => {
            let value = primitive::<UInt64Type>(column, row);
            i64::try_from(value).map_err(|_| too_large(value))?
        }
        _ => return Err(unexpected(column)),
    })
}

pub(super) fn float4(column: &ArrayRef, row: usize) -> f32 {
    match column.data_type() {
        DataType::Float16 => primitive::<Float16Type>(column, row).to_f32(),
        _ => primitive::<Float32Type>(column, row),
    }
}

/// The digits of a decimal, with all of its scale.
pub(super) fn decimal(column: &ArrayRef, row: usize) -> Result<String> {
    Ok(match column.data_type() {
        DataType::Decimal32(precision, scale) => Decimal32Type::format_decimal(primitive::<Decimal32Type>(column, row), *precision, *scale),
        DataType::Decimal64(precision, scale) => Decimal64Type::format_decimal(primitive::<Decimal64Type>(column, row), *precision, *scale),
        DataType::Decimal128(precision, scale) => {
            Decimal128Type::format_decimal(primitive::<Decimal128Type>(column, row), *precision, *scale)
        }
        DataType::Decimal256(precision, scale) => {
            Decimal256Type::format_decimal(primitive::<Decimal256Type>(column, row), *precision, *scale)
        }
        _ => return Err(unexpected(column)),
    })
}

pub(super) fn text_of(column: &ArrayRef, row: usize) -> Result<&str> {
    Ok(match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row),
        DataType::Utf8View => column.as_string_view().value(row),
        _ => return Err(unexpected(column)),
    })
}

/// Appends a value as JSON. A text is JSON already.
pub(super) fn put_json(out: &mut BytesMut, column: &ArrayRef, row: usize) -> Result<()> {
    match column.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => out.put_slice(text_of(column, row)?.as_bytes()),
        _ => out.put_slice(serving::json::value(column, row)?.get().as_bytes()),
    }
    Ok(())
}

pub(super) fn bytes_of(column: &ArrayRef, row: usize) -> Result<&[u8]> {
    Ok(match column.data_type() {
        DataType::Binary => column.as_binary::<i32>().value(row),
        DataType::LargeBinary => column.as_binary::<i64>().value(row),
        DataType::BinaryView => column.as_binary_view().value(row),
        DataType::FixedSizeBinary(_) => column.as_fixed_size_binary().value(row),
        _ => return Err(unexpected(column)),
    })
}

/// Days since 1970.
pub(super) fn days(column: &ArrayRef, row: usize) -> Result<i32> {
    match column.data_type() {
        DataType::Date32 => Ok(primitive::<Date32Type>(column, row)),
        DataType::Date64 => i32::try_from(primitive::<Date64Type>(column, row).div_euclid(86_400_000)).map_err(|_| out_of_range("date")),
        _ => Err(unexpected(column)),
    }
}

/// Microseconds since midnight.
pub(super) fn time_micros(column: &ArrayRef, row: usize) -> Result<i64> {
    Ok(match column.data_type() {
        DataType::Time32(TimeUnit::Second) => i64::from(primitive::<Time32SecondType>(column, row)) * 1_000_000,
        DataType::Time32(_) => i64::from(primitive::<Time32MillisecondType>(column, row)) * 1_000,
        DataType::Time64(TimeUnit::Microsecond) => primitive::<Time64MicrosecondType>(column, row),
        DataType::Time64(_) => primitive::<Time64NanosecondType>(column, row) / 1_000,
        _ => return Err(unexpected(column)),
    })
}

/// Microseconds since 1970.
pub(super) fn timestamp_micros(column: &ArrayRef, row: usize) -> Result<i64> {
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
pub(super) struct WireInterval {
    pub(super) months: i32,
    pub(super) days: i32,
    pub(super) micros: i64,
}

pub(super) fn interval(column: &ArrayRef, row: usize) -> Result<WireInterval> {
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

pub(super) fn out_of_range(what: &str) -> Error {
    Error::input(format!("{TIME_OUT_OF_RANGE}: PostgreSQL has no such {what}")).with_reason(Reason::TimeOutOfRange)
}

fn too_large(value: u64) -> Error {
    Error::input(format!("a number is too large: {value} does not fit BIGINT; cast it to DECIMAL(20,0)"))
        .with_reason(Reason::NumberTooLarge)
}

fn unexpected(column: &ArrayRef) -> Error {
    Error::internal(format!("a column of the type {} cannot be written", column.data_type()))
}
