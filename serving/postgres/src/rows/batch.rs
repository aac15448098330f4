//! The rows of a batch, written one by one. What holds for all values of a column is found out once.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, StringViewArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use bytes::{BufMut, BytesMut};
use types::Result;

use super::binary::{DecimalFormat, micros_since_2000, set_length};
use super::{BINARY, RowFormat};
use crate::columns::Kind;

pub(crate) struct BatchWriter<'a> {
    pub(crate) format: &'a RowFormat,
    pub(crate) batch: &'a RecordBatch,
    columns: Vec<WrittenColumn<'a>>,
}

struct WrittenColumn<'a> {
    /// If any of its values is NULL.
    nulls: Option<&'a NullBuffer>,
    values: ColumnValues<'a>,
}

/// The values of a column, as they are written. Texts are in both formats, the others in binary.
enum ColumnValues<'a> {
    Nulls,
    Bools(&'a BooleanArray),
    Int2(&'a [i16]),
    Int4(&'a [i32]),
    Int8(&'a [i64]),
    Float8(&'a [f64]),
    Decimals(&'a [i128], DecimalFormat),
    /// Microseconds since 1970.
    Timestamps(&'a [i64]),
    Texts(&'a StringArray),
    TextViews(&'a StringViewArray),
    /// Those of another type or in another format: [`RowFormat::field`] writes them.
    Others,
}

impl<'a> BatchWriter<'a> {
    pub(crate) fn new(format: &'a RowFormat, batch: &'a RecordBatch) -> Self {
        let columns = batch.columns().iter().enumerate().map(|(index, column)| WrittenColumn {
            nulls: column.nulls().filter(|nulls| nulls.null_count() > 0),
            values: ColumnValues::find(format, index, column),
        });
        Self { format, batch, columns: columns.collect() }
    }

    /// Appends a row as a DataRow message.
    pub(crate) fn data_row(&self, out: &mut BytesMut, row: usize) -> Result<()> {
        out.put_u8(b'D');
        let at = out.len();
        out.put_i32(0);
        self.fields(out, row)?;
        set_length(out, at, 0);
        Ok(())
    }

    /// Appends the number of columns, and their values in a row.
    pub(crate) fn fields(&self, out: &mut BytesMut, row: usize) -> Result<()> {
        out.put_i16(self.columns.len() as i16);
        (0..self.columns.len()).try_for_each(|index| self.field(out, index, row))
    }

    /// Appends a value with its length in front; NULL is the length -1.
    fn field(&self, out: &mut BytesMut, index: usize, row: usize) -> Result<()> {
        let column = &self.columns[index];
        if column.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            out.put_i32(-1);
            return Ok(());
        }
        match &column.values {
            ColumnValues::Nulls => out.put_i32(-1),
            ColumnValues::Bools(values) => put_bytes(out, &[u8::from(values.value(row))]),
            ColumnValues::Int2(values) => put_bytes(out, &values[row].to_be_bytes()),
            ColumnValues::Int4(values) => put_bytes(out, &values[row].to_be_bytes()),
            ColumnValues::Int8(values) => put_bytes(out, &values[row].to_be_bytes()),
            ColumnValues::Float8(values) => put_bytes(out, &values[row].to_be_bytes()),
            ColumnValues::Decimals(values, format) => {
                let at = out.len();
                out.put_i32(0);
                format.put(out, values[row]);
                set_length(out, at, size_of::<i32>());
            }
            ColumnValues::Timestamps(values) => put_bytes(out, &micros_since_2000(values[row])?.to_be_bytes()),
            ColumnValues::Texts(values) => put_bytes(out, values.value(row).as_bytes()),
            ColumnValues::TextViews(values) => put_bytes(out, values.value(row).as_bytes()),
            ColumnValues::Others => return self.format.field(out, index, self.batch.column(index), row),
        }
        Ok(())
    }
}

impl<'a> ColumnValues<'a> {
    fn find(format: &RowFormat, index: usize, column: &'a ArrayRef) -> Self {
        let (wire_type, is_binary) = (format.types[index], format.formats[index] == BINARY);
        if wire_type.is_list {
            return ColumnValues::Others;
        }
        match (wire_type.kind, column.data_type()) {
            (_, DataType::Null) => ColumnValues::Nulls,
            (Kind::Text | Kind::Json, DataType::Utf8) => ColumnValues::Texts(column.as_string::<i32>()),
            (Kind::Text | Kind::Json, DataType::Utf8View) => ColumnValues::TextViews(column.as_string_view()),
            _ if !is_binary => ColumnValues::Others,
            (Kind::Bool, DataType::Boolean) => ColumnValues::Bools(column.as_boolean()),
            (Kind::Int2, DataType::Int16) => ColumnValues::Int2(column.as_primitive::<Int16Type>().values()),
            (Kind::Int4 | Kind::Oid, DataType::Int32) => ColumnValues::Int4(column.as_primitive::<Int32Type>().values()),
            (Kind::Int8, DataType::Int64) => ColumnValues::Int8(column.as_primitive::<Int64Type>().values()),
            (Kind::Float8, DataType::Float64) => ColumnValues::Float8(column.as_primitive::<Float64Type>().values()),
            (Kind::Numeric, DataType::Decimal128(precision, scale)) => {
                ColumnValues::Decimals(column.as_primitive::<Decimal128Type>().values(), DecimalFormat::new(*precision, *scale))
            }
            (Kind::Timestamp | Kind::TimestampTz, DataType::Timestamp(TimeUnit::Microsecond, _)) => {
                ColumnValues::Timestamps(column.as_primitive::<TimestampMicrosecondType>().values())
            }
            _ => ColumnValues::Others,
        }
    }
}

/// Appends bytes with their number in front.
fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_i32(bytes.len() as i32);
    out.put_slice(bytes);
}
