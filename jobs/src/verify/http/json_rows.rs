//! Converts JSON rows back to Arrow with the types of the expected columns: decimals and large integers arrive as
//! strings, timestamps as RFC 3339, intervals as ISO 8601, bytes as base64.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, Int64Array, IntervalMonthDayNanoArray, ListArray, RecordBatch, RecordBatchOptions, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, IntervalMonthDayNano, Schema, SchemaRef, TimeUnit};
use arrow::util::display::FormatOptions;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine::events::Interval;
use serde_json::{Map, Value};
use types::{Error, Result};

/// Returns the rows as a batch with the columns of the first row; a column that is not in `schema` is text.
pub(super) fn batch(rows: &[Map<String, Value>], schema: &SchemaRef) -> Result<RecordBatch> {
    let fields: Vec<Field> = match rows.first() {
        Some(first) => first.keys().map(|name| field(name, schema)).collect(),
        None => schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect(),
    };
    let columns = fields.iter().map(|field| {
        let values: Vec<&Value> = rows.iter().map(|row| row.get(field.name()).unwrap_or(&Value::Null)).collect();
        array(&values, field.data_type()).map_err(|error| error.with("column", field.name()))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

fn field(name: &str, schema: &SchemaRef) -> Field {
    let data_type = schema.field_with_name(name).map_or(DataType::Utf8, |field| field.data_type().clone());
    Field::new(name, data_type, true)
}

fn array(values: &[&Value], data_type: &DataType) -> Result<ArrayRef> {
    match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => bytes(values, data_type),
        DataType::Interval(_) | DataType::Duration(_) => intervals(values, data_type),
        DataType::List(item) => list(values, item),
        DataType::Struct(fields) => {
            let nulls: NullBuffer = values.iter().map(|value| !value.is_null()).collect();
            let columns = fields.iter().map(|field| {
                let members: Vec<&Value> = values.iter().map(|value| value.get(field.name()).unwrap_or(&Value::Null)).collect();
                array(&members, field.data_type())
            });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, Some(nulls), values.len())?))
        }
        other => scalars(values, other),
    }
}

/// Converts values with one text form that Arrow parses: numbers, decimals, texts, booleans, dates and times.
fn scalars(values: &[&Value], data_type: &DataType) -> Result<ArrayRef> {
    let texts: StringArray = values.iter().map(|value| text(value)).collect();
    strict_cast(&texts, data_type)
}

/// A value that does not fit is an error, not a null.
fn strict_cast(values: &dyn Array, data_type: &DataType) -> Result<ArrayRef> {
    let strict = CastOptions { safe: false, format_options: FormatOptions::default() };
    let wrong = |error| Error::corrupt(format!("a value of the answer is not a {data_type}: {error}"));
    cast_with_options(values, data_type, &strict).map_err(wrong)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn bytes(values: &[&Value], data_type: &DataType) -> Result<ArrayRef> {
    let decode = |value: &&Value| match value {
        Value::Null => Ok(None),
        Value::String(text) => {
            STANDARD.decode(text).map(Some).map_err(|error| Error::corrupt(format!("a value of the answer is not base64: {error}")))
        }
        other => Err(Error::corrupt(format!("a value of the answer is {other}: expected bytes as base64"))),
    };
    let decoded = values.iter().map(decode).collect::<Result<Vec<_>>>()?;
    let array: BinaryArray = decoded.iter().map(|value| value.as_deref()).collect();
    Ok(arrow::compute::cast(&array, data_type)?)
}

fn intervals(values: &[&Value], data_type: &DataType) -> Result<ArrayRef> {
    let DataType::Duration(unit) = data_type else {
        let parts =
            |interval: Interval| Some(IntervalMonthDayNano::new(interval.months, interval.days, i64::try_from(interval.nanos).ok()?));
        return strict_cast(&IntervalMonthDayNanoArray::from(intervals_as(values, parts)?), data_type);
    };
    let unit = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    // Not by way of nanoseconds in 64 bits, which end after 292 years.
    let units = |Interval { months, days, nanos }: Interval| {
        let is_whole = months == 0 && days == 0 && nanos % unit == 0;
        is_whole.then(|| i64::try_from(nanos / unit).ok()).flatten()
    };
    strict_cast(&Int64Array::from(intervals_as(values, units)?), data_type)
}

/// Converts intervals to values of a type. `convert` returns `None` for an interval that is not one.
fn intervals_as<T>(values: &[&Value], convert: impl Fn(Interval) -> Option<T>) -> Result<Vec<Option<T>>> {
    let wrong = |value: &Value| Error::corrupt(format!("a value of the answer is {value}: expected an interval as ISO 8601"));
    let read = |value: &Value| match value {
        Value::Null => Ok(None),
        Value::String(text) => text.parse::<Interval>().ok().and_then(&convert).map(Some).ok_or_else(|| wrong(value)),
        _ => Err(wrong(value)),
    };
    values.iter().copied().map(read).collect()
}

fn list(values: &[&Value], item: &Arc<Field>) -> Result<ArrayRef> {
    let mut items: Vec<&Value> = Vec::new();
    let mut lengths = Vec::with_capacity(values.len());
    for value in values {
        match value {
            Value::Null => lengths.push(0),
            Value::Array(elements) => {
                items.extend(elements);
                lengths.push(elements.len());
            }
            other => return Err(Error::corrupt(format!("a value of the answer is {other}: expected a list"))),
        }
    }
    let nulls: NullBuffer = values.iter().map(|value| !value.is_null()).collect();
    let items = array(&items, item.data_type())?;
    Ok(Arc::new(ListArray::try_new(item.clone(), OffsetBuffer::from_lengths(lengths), items, Some(nulls))?) as ArrayRef)
}
