//! Writes one Arrow value as JSON that the decoder of its column reads.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, DecimalType, Field, Float32Type, Float64Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use definitions::ColumnType;
use engine::events::{Interval, format_date, format_timestamp};
use types::tiles::Micros;

use super::cell::{write_cell, write_string};
use super::numbers::NumberFormat;

const DAY_US: Micros = 86_400_000_000;

/// Casts an array to one of the fewer types that [`write_value`] handles, with the same values.
pub(super) fn simplified(array: &ArrayRef) -> Result<ArrayRef, arrow::error::ArrowError> {
    let target = match array.data_type() {
        DataType::Dictionary(_, value) => return simplified(&cast(array, value)?),
        DataType::RunEndEncoded(_, values) => return simplified(&cast(array, values.data_type())?),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int64,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => DataType::UInt64,
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => DataType::Decimal128(*precision, *scale),
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) | DataType::ListView(item) | DataType::LargeListView(item) => {
            DataType::List(Field::new("item", item.data_type().clone(), true).into())
        }
        DataType::Timestamp(TimeUnit::Second | TimeUnit::Millisecond, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        _ => return Ok(array.clone()),
    };
    // A value that does not fit (a time past the year 9999) is an error, not a null.
    let options = arrow::compute::CastOptions { safe: false, ..Default::default() };
    arrow::compute::cast_with_options(array, &target, &options)
}

/// Appends the JSON of a simplified array's value. Returns false for null, and appends nothing.
///
/// Errors: what was found, where a value has no JSON.
pub(super) fn write_value(array: &ArrayRef, row: usize, column_type: Option<&ColumnType>, out: &mut Vec<u8>) -> Result<bool, String> {
    if array.is_null(row) {
        return Ok(false);
    }
    match array.data_type() {
        DataType::Null => return Ok(false),
        DataType::Utf8 => return write_text(array.as_string::<i32>().value(row), column_type, out),
        DataType::Binary => return write_bytes(array.as_binary::<i32>().value(row), column_type, out),
        DataType::FixedSizeBinary(_) => return write_bytes(array.as_fixed_size_binary().value(row), column_type, out),
        DataType::List(_) => write_list(&array.as_list::<i32>().value(row), column_type, out)?,
        DataType::Struct(fields) => {
            let values = array.as_struct();
            let members = fields.iter().zip(values.columns()).map(|(field, values)| (field.name().clone(), values.clone(), row));
            write_object(members, out)?;
        }
        DataType::Map(..) => write_map(array, row, out)?,
        _ => write_scalar(&scalar(array, row, column_type)?, column_type, out),
    }
    Ok(true)
}

/// A value's text, and whether JSON writes it without quotes.
struct Scalar {
    text: String,
    bare: bool,
}

fn scalar(array: &ArrayRef, row: usize, column_type: Option<&ColumnType>) -> Result<Scalar, String> {
    let bare = |text: String| Scalar { text, bare: true };
    let quoted = |text: String| Scalar { text, bare: false };
    Ok(match array.data_type() {
        DataType::Boolean => bare(array.as_boolean().value(row).to_string()),
        DataType::Int64 => bare(array.as_primitive::<Int64Type>().value(row).to_string()),
        DataType::UInt64 => bare(array.as_primitive::<UInt64Type>().value(row).to_string()),
        DataType::Float32 => float(format!("{:?}", array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => float(format!("{:?}", array.as_primitive::<Float64Type>().value(row))),
        DataType::Decimal128(precision, scale) => {
            bare(Decimal128Type::format_decimal(array.as_primitive::<Decimal128Type>().value(row), *precision, *scale))
        }
        DataType::Decimal256(precision, scale) => {
            bare(Decimal256Type::format_decimal(array.as_primitive::<Decimal256Type>().value(row), *precision, *scale))
        }
        DataType::Date32 => quoted(date(array.as_primitive::<Date32Type>().value(row), column_type)),
        DataType::Date64 => {
            let days = array.as_primitive::<Date64Type>().value(row).div_euclid(DAY_US / 1000);
            quoted(date(i32::try_from(days).map_err(|_| format!("found a date out of range: day {days} since 1970"))?, column_type))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            quoted(time(array.as_primitive::<TimestampMicrosecondType>().value(row), column_type))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let nanos = array.as_primitive::<arrow::datatypes::TimestampNanosecondType>().value(row);
            quoted(time(nanos.div_euclid(1000), column_type))
        }
        DataType::Interval(_) | DataType::Duration(_) => quoted(Interval::of_array(array, row).unwrap_or_default().to_string()),
        _ => {
            let formatter = ArrayFormatter::try_new(array, &FormatOptions::default()).map_err(|error| error.to_string())?;
            quoted(formatter.value(row).try_to_string().map_err(|error| error.to_string())?)
        }
    })
}

/// Returns the shortest text that reads back as the same float; JSON has no NaN and no infinity.
fn float(text: String) -> Scalar {
    Scalar { bare: !text.contains(['N', 'i']), text }
}

/// A date in a TIMESTAMPTZ column becomes its midnight.
fn date(days: i32, column_type: Option<&ColumnType>) -> String {
    let date = format_date(days);
    if column_type == Some(&ColumnType::TimestampTz) { format!("{date}T00:00:00Z") } else { date }
}

/// A midnight in a DATE column becomes its date.
fn time(micros: Micros, column_type: Option<&ColumnType>) -> String {
    match i32::try_from(micros.div_euclid(DAY_US)) {
        Ok(days) if column_type == Some(&ColumnType::Date) && micros.rem_euclid(DAY_US) == 0 => format_date(days),
        _ => format_timestamp(micros),
    }
}

/// Writes a scalar; numbers and booleans become strings where the column is TEXT.
fn write_scalar(scalar: &Scalar, column_type: Option<&ColumnType>, out: &mut Vec<u8>) {
    if scalar.bare && column_type != Some(&ColumnType::Text) {
        out.extend_from_slice(scalar.text.as_bytes());
    } else {
        write_string(&scalar.text, out);
    }
}

fn write_text(text: &str, column_type: Option<&ColumnType>, out: &mut Vec<u8>) -> Result<bool, String> {
    match column_type {
        // Unlike in a CSV file, the empty string is not null here.
        None | Some(ColumnType::Text) => write_string(text, out),
        Some(column_type) => return write_cell(column_type, NumberFormat::Plain, text, out),
    }
    Ok(true)
}

/// Writes bytes as base64, unless they are an identifier or a text.
fn write_bytes(bytes: &[u8], column_type: Option<&ColumnType>, out: &mut Vec<u8>) -> Result<bool, String> {
    match (column_type, <[u8; 16]>::try_from(bytes), std::str::from_utf8(bytes)) {
        (Some(ColumnType::Uuid), Ok(uuid), _) => write_string(&uuid::Uuid::from_bytes(uuid).to_string(), out),
        (None | Some(ColumnType::Bytea), ..) | (_, _, Err(_)) => write_string(&STANDARD.encode(bytes), out),
        (Some(_), _, Ok(text)) => return write_text(text, column_type, out),
    }
    Ok(true)
}

fn write_list(items: &ArrayRef, column_type: Option<&ColumnType>, out: &mut Vec<u8>) -> Result<(), String> {
    let item_type = match column_type {
        Some(ColumnType::Array(item)) => Some(&**item),
        _ => None,
    };
    let items = simplified(items).map_err(|error| error.to_string())?;
    out.push(b'[');
    for row in 0..items.len() {
        if row > 0 {
            out.push(b',');
        }
        if !write_value(&items, row, item_type, out)? {
            out.extend_from_slice(b"null");
        }
    }
    out.push(b']');
    Ok(())
}

fn write_map(array: &ArrayRef, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let entries = array.as_map().value(row);
    let keys = cast(entries.column(0), &DataType::Utf8).map_err(|error| error.to_string())?;
    let keys = keys.as_string::<i32>();
    let values = entries.column(1);
    write_object((0..entries.len()).map(|entry| (keys.value(entry).to_string(), values.clone(), entry)), out)
}

fn write_object(members: impl Iterator<Item = (String, ArrayRef, usize)>, out: &mut Vec<u8>) -> Result<(), String> {
    out.push(b'{');
    let mut first = true;
    for (name, values, row) in members {
        let value = simplified(&values.slice(row, 1)).map_err(|error| error.to_string())?;
        if value.is_null(0) {
            continue;
        }
        if !first {
            out.push(b',');
        }
        first = false;
        write_string(&name, out);
        out.push(b':');
        if !write_value(&value, 0, None, out)? {
            out.extend_from_slice(b"null");
        }
    }
    out.push(b'}');
    Ok(())
}
