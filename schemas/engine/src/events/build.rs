//! Builds record batches of the archive's schema from decoded events.

use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int32Builder,
    Int64Builder, ListArray, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{Field, SchemaRef};

use super::schemas::event_schema;
use super::value::ColumnValue;
use super::{Event, headers_to_json};
use definitions::{ColumnType, StreamDefinition};
use types::record::Record;
use types::{Error, Result};

/// The most bytes in one batch: Arrow's texts and lists count in 32 bits.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// Key, value and headers.
const RAW_COLUMNS: usize = 3;

/// Collects accepted events in log order.
#[derive(Debug)]
pub struct EventBatchBuilder {
    schema: SchemaRef,
    source: Arc<str>,
    columns: Vec<ColumnBuilder>,
    event_time: TimestampMicrosecondBuilder,
    partition: Int32Builder,
    offset: Int64Builder,
    timestamp: TimestampMicrosecondBuilder,
    /// Key, value and headers, with `keep_raw`.
    raw: Option<[BinaryBuilder; RAW_COLUMNS]>,
    bytes: usize,
}

impl EventBatchBuilder {
    /// Creates an empty batch of a stream's events.
    pub fn new(stream: &StreamDefinition) -> Self {
        let time = || TimestampMicrosecondBuilder::new().with_timezone("UTC");
        Self {
            schema: event_schema(stream),
            source: stream.name.clone(),
            columns: stream.columns.iter().map(|column| ColumnBuilder::new(&column.column_type)).collect(),
            event_time: time(),
            partition: Int32Builder::new(),
            offset: Int64Builder::new(),
            timestamp: time(),
            raw: stream.keep_raw.then(Default::default),
            bytes: 0,
        }
    }

    /// Reserves room for as many events as were just finished: a builder that grows from empty copies its content
    /// repeatedly.
    fn expect(&mut self, rows: usize, finished: &[ArrayRef]) {
        let time = || TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC");
        for (column, finished) in self.columns.iter_mut().zip(finished) {
            column.expect(rows, finished);
        }
        (self.event_time, self.timestamp) = (time(), time());
        (self.partition, self.offset) = (Int32Builder::with_capacity(rows), Int64Builder::with_capacity(rows));
        if let Some(raw) = &mut self.raw {
            for (builder, finished) in raw.iter_mut().zip(&finished[finished.len() - RAW_COLUMNS..]) {
                *builder = BinaryBuilder::with_capacity(rows, finished.as_binary::<i32>().value_data().len());
            }
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.offset.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The approximate memory that the events take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds one event, which a decoder of the same stream read from `record`.
    ///
    /// Errors: `Limit`, with nothing changed, if the batch would exceed 1 GiB: finish it first.
    pub fn append(&mut self, event: &Event<'_>, partition: i32, record: &Record) -> Result<()> {
        let headers = if self.raw.is_some() { headers_to_json(&record.headers) } else { None };
        let bytes = self.size_of(event, record, headers.as_deref());
        if self.bytes + bytes > MAX_BATCH_BYTES {
            return Err(Error::limit("the batch of events is full").with("bytes", self.bytes).with("events", self.len()));
        }
        if event.values().len() != self.columns.len() {
            return Err(Error::internal("the event was decoded for another stream").with("stream", &self.source));
        }
        self.bytes += bytes;
        for (column, value) in self.columns.iter_mut().zip(event.values()) {
            column.append(value);
        }
        self.event_time.append_value(event.event_time());
        self.partition.append_value(partition);
        self.offset.append_value(record.offset.0);
        self.timestamp.append_value(record.timestamp);
        if let Some([key, value, headers_builder]) = &mut self.raw {
            key.append_option(record.key.as_ref());
            value.append_option(record.value.as_ref());
            headers_builder.append_option(headers);
        }
        Ok(())
    }

    /// Returns the events so far. The builder is empty afterwards and can be used again.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let rows = self.len();
        self.bytes = 0;
        let mut arrays = self.columns.iter_mut().map(ColumnBuilder::finish).collect::<Result<Vec<_>>>()?;
        let source = StringArray::from_iter_values(std::iter::repeat_n(&*self.source, rows));
        arrays.extend([
            Arc::new(self.event_time.finish()) as ArrayRef,
            Arc::new(source),
            Arc::new(self.partition.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.timestamp.finish()),
        ]);
        if let Some(raw) = &mut self.raw {
            arrays.extend(raw.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef));
        }
        self.expect(rows, &arrays);
        Ok(RecordBatch::try_new(self.schema.clone(), arrays)?)
    }

    fn size_of(&self, event: &Event<'_>, record: &Record, headers: Option<&str>) -> usize {
        let typed: usize = event.values().iter().map(size_of_value).sum();
        let length = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        let raw = if self.raw.is_some() { length(&record.key) + length(&record.value) + headers.map_or(0, str::len) + 12 } else { 0 };
        typed + raw + self.source.len() + 32
    }
}

fn size_of_value(value: &ColumnValue<'_>) -> usize {
    match value {
        ColumnValue::Null | ColumnValue::Boolean(_) | ColumnValue::Int(_) | ColumnValue::Date(_) => 4,
        ColumnValue::BigInt(_) | ColumnValue::Double(_) | ColumnValue::Timestamp(_) => 8,
        ColumnValue::Decimal { .. } => 16,
        ColumnValue::Text(text) => 4 + text.len(),
        ColumnValue::Bytes(bytes) => 4 + bytes.len(),
        ColumnValue::List(items) => 4 + items.iter().map(size_of_value).sum::<usize>(),
    }
}

#[derive(Debug)]
pub(super) enum ColumnBuilder {
    Text(StringBuilder),
    Boolean(BooleanBuilder),
    Int(Int32Builder),
    BigInt(Int64Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder, u8, i8),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Bytes(BinaryBuilder),
    List(Box<ListBuilder>),
}

/// Builds lists. Arrow's own list builder needs the type of its items' builder at compile time.
#[derive(Debug)]
pub(super) struct ListBuilder {
    item: ColumnType,
    items: ColumnBuilder,
    ends: Vec<i32>,
    valid: Vec<bool>,
}

impl ColumnBuilder {
    pub(super) fn new(column_type: &ColumnType) -> Self {
        match column_type {
            ColumnType::Text | ColumnType::Uuid | ColumnType::Json => Self::Text(StringBuilder::new()),
            ColumnType::Boolean => Self::Boolean(BooleanBuilder::new()),
            ColumnType::Int => Self::Int(Int32Builder::new()),
            ColumnType::BigInt => Self::BigInt(Int64Builder::new()),
            ColumnType::Double => Self::Double(Float64Builder::new()),
            ColumnType::Decimal { precision, scale } => Self::Decimal(Decimal128Builder::new(), *precision, *scale),
            ColumnType::Date => Self::Date(Date32Builder::new()),
            ColumnType::TimestampTz => Self::Timestamp(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            ColumnType::Bytea => Self::Bytes(BinaryBuilder::new()),
            ColumnType::Array(item) => {
                let item = (**item).clone();
                Self::List(Box::new(ListBuilder { items: Self::new(&item), item, ends: vec![0], valid: Vec::new() }))
            }
        }
    }

    /// Replaces the builder by an empty one with room for this many values, and for as many bytes of text as `finished`
    /// has.
    fn expect(&mut self, rows: usize, finished: &ArrayRef) {
        match self {
            Self::Text(builder) => *builder = StringBuilder::with_capacity(rows, finished.as_string::<i32>().value_data().len()),
            Self::BigInt(builder) => *builder = Int64Builder::with_capacity(rows),
            Self::Double(builder) => *builder = Float64Builder::with_capacity(rows),
            Self::Decimal(builder, ..) => *builder = Decimal128Builder::with_capacity(rows),
            Self::Timestamp(builder) => *builder = TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC"),
            _ => {}
        }
    }

    /// Appends a value. The decoder gives each column values of its own type or null; any other value would become
    /// null.
    pub(super) fn append(&mut self, value: &ColumnValue<'_>) {
        match (self, value) {
            (Self::Text(builder), ColumnValue::Text(text)) => builder.append_value(text),
            (Self::Boolean(builder), ColumnValue::Boolean(value)) => builder.append_value(*value),
            (Self::Int(builder), ColumnValue::Int(value)) => builder.append_value(*value),
            (Self::BigInt(builder), ColumnValue::BigInt(value)) => builder.append_value(*value),
            (Self::Double(builder), ColumnValue::Double(value)) => builder.append_value(*value),
            (Self::Decimal(builder, ..), ColumnValue::Decimal { unscaled, .. }) => builder.append_value(*unscaled),
            (Self::Date(builder), ColumnValue::Date(days)) => builder.append_value(*days),
            (Self::Timestamp(builder), ColumnValue::Timestamp(time)) => builder.append_value(*time),
            (Self::Bytes(builder), ColumnValue::Bytes(bytes)) => builder.append_value(bytes),
            (Self::List(builder), ColumnValue::List(items)) => builder.append(Some(items)),
            (builder, _) => builder.append_null(),
        }
    }

    pub(super) fn append_null(&mut self) {
        match self {
            Self::Text(builder) => builder.append_null(),
            Self::Boolean(builder) => builder.append_null(),
            Self::Int(builder) => builder.append_null(),
            Self::BigInt(builder) => builder.append_null(),
            Self::Double(builder) => builder.append_null(),
            Self::Decimal(builder, ..) => builder.append_null(),
            Self::Date(builder) => builder.append_null(),
            Self::Timestamp(builder) => builder.append_null(),
            Self::Bytes(builder) => builder.append_null(),
            Self::List(builder) => builder.append(None),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(builder) => builder.len(),
            Self::Boolean(builder) => builder.len(),
            Self::Int(builder) => builder.len(),
            Self::BigInt(builder) => builder.len(),
            Self::Double(builder) => builder.len(),
            Self::Decimal(builder, ..) => builder.len(),
            Self::Date(builder) => builder.len(),
            Self::Timestamp(builder) => builder.len(),
            Self::Bytes(builder) => builder.len(),
            Self::List(builder) => builder.valid.len(),
        }
    }

    pub(super) fn finish(&mut self) -> Result<ArrayRef> {
        Ok(match self {
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Boolean(builder) => Arc::new(builder.finish()),
            Self::Int(builder) => Arc::new(builder.finish()),
            Self::BigInt(builder) => Arc::new(builder.finish()),
            Self::Double(builder) => Arc::new(builder.finish()),
            Self::Decimal(builder, precision, scale) => Arc::new(builder.finish().with_precision_and_scale(*precision, *scale)?),
            Self::Date(builder) => Arc::new(builder.finish()),
            Self::Timestamp(builder) => Arc::new(builder.finish()),
            Self::Bytes(builder) => Arc::new(builder.finish()),
            Self::List(builder) => Arc::new(builder.finish()?),
        })
    }
}

impl ListBuilder {
    fn append(&mut self, items: Option<&Vec<ColumnValue<'_>>>) {
        for item in items.into_iter().flatten() {
            self.items.append(item);
        }
        // The batch's limit in bytes keeps this far below 32 bits.
        self.ends.push(self.items.len() as i32);
        self.valid.push(items.is_some());
    }

    fn finish(&mut self) -> Result<ListArray> {
        let field = Field::new("item", self.item.arrow(), true);
        let ends = std::mem::replace(&mut self.ends, vec![0]);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let nulls = NullBuffer::from(std::mem::take(&mut self.valid));
        Ok(ListArray::try_new(Arc::new(field), offsets, self.items.finish()?, Some(nulls))?)
    }
}

#[cfg(test)]
mod tests;
