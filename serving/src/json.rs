//! Answers as JSON, with nothing lost: decimals and integers past 2^53 are strings (a quotient without the zeros at its
//! end), timestamps RFC 3339, intervals ISO 8601, bytes base64, NaN and infinities null; lists and structs nest.
//! Columns keep their order.
//!
//! Not `arrow-json` with an encoder factory: of its encoders only those of booleans, texts and small integers write
//! what is documented here. Ours would have to replace those of integers past 2^53, decimals, floats (theirs write
//! `1.0e16`), times, bytes and maps (whose keys have to be texts there); an encoder cannot fail; and columns of the
//! same name are written under the same name.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch, StructArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, DecimalType, Float16Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::events::{Interval, format_date, format_timestamp};
use engine::functions::QUOTIENT;
use serde_json::value::RawValue;
use types::{Error, Result};

/// The greatest integer up to which every reader of JSON keeps each exactly.
const EXACT: u64 = 1 << 53;

const MILLIS_A_DAY: i64 = 86_400_000;

/// Each row as a JSON object.
pub fn rows(batch: &RecordBatch) -> Result<Vec<Box<RawValue>>> {
    let writer = writer_of(batch.schema_ref());
    (0..batch.num_rows()).map(|row| writer.row(batch, row)).collect()
}

/// Appends one row's object.
pub fn write_row(out: &mut Vec<u8>, batch: &RecordBatch, row: usize) -> Result<()> {
    writer_of(batch.schema_ref()).write(out, batch, row)
}

/// Appends all rows, as an array of objects.
pub fn write_rows(out: &mut Vec<u8>, batch: &RecordBatch) -> Result<()> {
    let writer = writer_of(batch.schema_ref());
    out.push(b'[');
    for row in 0..batch.num_rows() {
        if row > 0 {
            out.push(b',');
        }
        writer.write(out, batch, row)?;
    }
    out.push(b']');
    Ok(())
}

/// The writers of this many schemas, those written last, are kept.
const WRITERS: usize = 32;

thread_local! {
    static KEPT: RefCell<VecDeque<(SchemaRef, Rc<RowWriter>)>> = const { RefCell::new(VecDeque::new()) };
}

/// A writer of a schema. Answers of one view have one schema, and this thread writes the names of its columns once.
fn writer_of(schema: &SchemaRef) -> Rc<RowWriter> {
    KEPT.with_borrow_mut(|kept| {
        if let Some((_, writer)) = kept.iter().find(|(known, _)| Arc::ptr_eq(known, schema)) {
            return writer.clone();
        }
        let writer = Rc::new(RowWriter::new(schema));
        kept.truncate(WRITERS - 1);
        kept.push_front((schema.clone(), writer.clone()));
        writer
    })
}

/// Writes rows of one schema; the members' names are made once.
pub struct RowWriter {
    /// `"name":`, as JSON.
    names: Vec<String>,
}

impl RowWriter {
    /// Columns of the same name (of a join, say) are numbered from the second on: `id`, `id_2`.
    pub fn new(schema: &SchemaRef) -> Self {
        let mut taken: Vec<String> = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let mut name = field.name().clone();
            let mut number = 1;
            while taken.contains(&name) {
                number += 1;
                name = format!("{}_{number}", field.name());
            }
            taken.push(name);
        }
        Self { names: taken.into_iter().map(|name| format!("{}:", serde_json::Value::String(name))).collect() }
    }

    /// Returns one row as an object.
    pub fn row(&self, batch: &RecordBatch, row: usize) -> Result<Box<RawValue>> {
        let mut text = Vec::with_capacity(16 * self.names.len());
        self.write(&mut text, batch, row)?;
        let text = String::from_utf8(text).map_err(|error| Error::internal("a row did not become text").caused_by(error))?;
        Ok(RawValue::from_string(text)?)
    }

    /// Appends one row's object.
    pub fn write(&self, out: &mut Vec<u8>, batch: &RecordBatch, row: usize) -> Result<()> {
        out.push(b'{');
        for (index, (name, column)) in self.names.iter().zip(batch.columns()).enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(name.as_bytes());
            write_value(out, column, row)?;
        }
        out.push(b'}');
        Ok(())
    }
}

/// One value of a column.
pub fn value(column: &ArrayRef, row: usize) -> Result<Box<RawValue>> {
    let mut text = Vec::new();
    write_value(&mut text, column, row)?;
    Ok(RawValue::from_string(String::from_utf8(text).map_err(|error| Error::internal("a value did not become text").caused_by(error))?)?)
}

fn write_value(out: &mut Vec<u8>, column: &ArrayRef, row: usize) -> Result<()> {
    if column.is_null(row) {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    match column.data_type() {
        DataType::Null => out.extend_from_slice(b"null"),
        DataType::Boolean => out.extend_from_slice(if column.as_boolean().value(row) { b"true" } else { b"false" }),
        DataType::Int8 => integer(out, column.as_primitive::<Int8Type>().value(row).into())?,
        DataType::Int16 => integer(out, column.as_primitive::<Int16Type>().value(row).into())?,
        DataType::Int32 => integer(out, column.as_primitive::<Int32Type>().value(row).into())?,
        DataType::Int64 => integer(out, column.as_primitive::<Int64Type>().value(row))?,
        DataType::UInt8 => unsigned(out, column.as_primitive::<UInt8Type>().value(row).into())?,
        DataType::UInt16 => unsigned(out, column.as_primitive::<UInt16Type>().value(row).into())?,
        DataType::UInt32 => unsigned(out, column.as_primitive::<UInt32Type>().value(row).into())?,
        DataType::UInt64 => unsigned(out, column.as_primitive::<UInt64Type>().value(row))?,
        DataType::Decimal128(precision, scale) => decimal(out, column.as_primitive::<Decimal128Type>().value(row), *precision, *scale)?,
        data_type if *data_type == QUOTIENT => quotient(out, column.as_primitive::<Decimal256Type>().value(row))?,
        DataType::Float16 => float(out, f32::from(column.as_primitive::<Float16Type>().value(row)))?,
        DataType::Float32 => float(out, column.as_primitive::<Float32Type>().value(row))?,
        DataType::Float64 => double(out, column.as_primitive::<Float64Type>().value(row))?,
        DataType::Utf8 => text(out, column.as_string::<i32>().value(row))?,
        DataType::LargeUtf8 => text(out, column.as_string::<i64>().value(row))?,
        DataType::Utf8View => text(out, column.as_string_view().value(row))?,
        DataType::Binary => bytes(out, column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes(out, column.as_binary::<i64>().value(row)),
        DataType::BinaryView => bytes(out, column.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => bytes(out, column.as_fixed_size_binary().value(row)),
        DataType::Date32 => text(out, &format_date(column.as_primitive::<Date32Type>().value(row)))?,
        DataType::Date64 => text(out, &date_of_millis(column.as_primitive::<Date64Type>().value(row)))?,
        DataType::Timestamp(unit, _) => text(out, &format_timestamp(micros(column, row, *unit)))?,
        DataType::List(_) => list::<i32>(out, column, row)?,
        DataType::LargeList(_) => list::<i64>(out, column, row)?,
        DataType::FixedSizeList(..) => items(out, &column.as_fixed_size_list().value(row))?,
        DataType::Struct(_) => members(out, column.as_struct(), row)?,
        DataType::Map(..) => entries(out, &column.as_map().value(row))?,
        DataType::Dictionary(_, values) => write_value(out, &arrow::compute::cast(&column.slice(row, 1), values)?, 0)?,
        // Other decimals, times of day, intervals and differences of times: as text.
        _ => text(out, &displayed(column, row)?)?,
    }
    Ok(())
}

fn integer(out: &mut Vec<u8>, value: i64) -> Result<()> {
    quoted_when(out, value.unsigned_abs() > EXACT, |out| Ok(serde_json::to_writer(out, &value)?))
}

fn unsigned(out: &mut Vec<u8>, value: u64) -> Result<()> {
    quoted_when(out, value > EXACT, |out| Ok(serde_json::to_writer(out, &value)?))
}

fn quoted_when(out: &mut Vec<u8>, quoted: bool, digits: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    let quote: &[u8] = if quoted { b"\"" } else { b"" };
    out.extend_from_slice(quote);
    digits(out)?;
    out.extend_from_slice(quote);
    Ok(())
}

/// All digits, as a text.
fn decimal(out: &mut Vec<u8>, value: i128, precision: u8, scale: i8) -> Result<()> {
    let one = u32::try_from(scale).ok().filter(|scale| *scale > 0).and_then(|scale| 10u64.checked_pow(scale));
    match (u64::try_from(value.unsigned_abs()), one) {
        (Ok(digits), Some(one)) => {
            out.extend_from_slice(if value < 0 { b"\"-" } else { b"\"" });
            serde_json::to_writer(&mut *out, &(digits / one))?;
            out.push(b'.');
            fraction(out, digits % one, scale as usize);
            out.push(b'"');
            Ok(())
        }
        _ => text(out, &Decimal128Type::format_decimal(value, precision, scale)),
    }
}

/// The digits after the point, with zeros in front where there are fewer.
fn fraction(out: &mut Vec<u8>, mut digits: u64, places: usize) {
    let from = out.len();
    out.resize(from + places, b'0');
    for place in out[from..].iter_mut().rev() {
        *place += (digits % 10) as u8;
        digits /= 10;
    }
}

/// All digits but the zeros at the end: few quotients need all of their places.
fn quotient(out: &mut Vec<u8>, value: i256) -> Result<()> {
    let DataType::Decimal256(precision, scale) = QUOTIENT else { return Err(Error::internal("a quotient is a decimal")) };
    let digits = Decimal256Type::format_decimal(value, precision, scale);
    text(out, digits.trim_end_matches('0').trim_end_matches('.'))
}

/// serde_json writes NaN and infinities as null.
fn double(out: &mut Vec<u8>, value: f64) -> Result<()> {
    Ok(serde_json::to_writer(out, &value)?)
}

fn float(out: &mut Vec<u8>, value: f32) -> Result<()> {
    Ok(serde_json::to_writer(out, &value)?)
}

fn text(out: &mut Vec<u8>, value: &str) -> Result<()> {
    Ok(serde_json::to_writer(out, value)?)
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(STANDARD.encode(value).as_bytes());
    out.push(b'"');
}

fn date_of_millis(millis: i64) -> String {
    match i32::try_from(millis.div_euclid(MILLIS_A_DAY)) {
        Ok(days) => format_date(days),
        Err(_) => format!("{millis}ms"),
    }
}

/// A timestamp in microseconds; finer digits are cut off.
fn micros(column: &ArrayRef, row: usize, unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => column.as_primitive::<TimestampSecondType>().value(row).saturating_mul(1_000_000),
        TimeUnit::Millisecond => column.as_primitive::<TimestampMillisecondType>().value(row).saturating_mul(1_000),
        TimeUnit::Microsecond => column.as_primitive::<TimestampMicrosecondType>().value(row),
        TimeUnit::Nanosecond => column.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1_000),
    }
}

fn list<O: OffsetSizeTrait>(out: &mut Vec<u8>, column: &ArrayRef, row: usize) -> Result<()> {
    items(out, &column.as_list::<O>().value(row))
}

fn items(out: &mut Vec<u8>, values: &ArrayRef) -> Result<()> {
    out.push(b'[');
    for index in 0..values.len() {
        if index > 0 {
            out.push(b',');
        }
        write_value(out, values, index)?;
    }
    out.push(b']');
    Ok(())
}

fn members(out: &mut Vec<u8>, values: &StructArray, row: usize) -> Result<()> {
    out.push(b'{');
    for (index, (name, column)) in values.column_names().into_iter().zip(values.columns()).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text(out, name)?;
        out.push(b':');
        write_value(out, column, row)?;
    }
    out.push(b'}');
    Ok(())
}

/// A map as an object; keys that are no text become one.
fn entries(out: &mut Vec<u8>, entries: &StructArray) -> Result<()> {
    let (keys, values) = (entries.column(0), entries.column(1));
    out.push(b'{');
    for index in 0..entries.len() {
        if index > 0 {
            out.push(b',');
        }
        text(out, &displayed(keys, index)?)?;
        out.push(b':');
        write_value(out, values, index)?;
    }
    out.push(b'}');
    Ok(())
}

fn displayed(column: &ArrayRef, row: usize) -> Result<String> {
    if let Some(interval) = Interval::of_array(column, row) {
        return Ok(interval.to_string());
    }
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options)?;
    formatter.value(row).try_to_string().map_err(Error::from)
}

#[cfg(test)]
mod tests;
