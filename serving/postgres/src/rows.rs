//! Rows as PostgreSQL writes them, as text and as binary.
//!
//! ```text
//! batch       the rows of a batch; most columns in binary are written from here
//!   values    the value in a row of a column: the same whatever Arrow's type, a text and a view of one alike
//!     text    that value as text; times in the client's zone
//!     binary  that value as PostgreSQL's binary formats
//! ```

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use bytes::{BufMut, BytesMut};
use types::Result;
use types::value_texts::ArrayItemText;

use crate::columns::WireType;

mod batch;
mod binary;
mod text;
mod values;
mod zone;

pub(crate) use batch::BatchWriter;
pub(crate) use zone::Zone;

pub(crate) const TEXT: i16 = 0;
pub(crate) const BINARY: i16 = 1;

/// How an answer's columns are written.
#[derive(Debug, Clone)]
pub(crate) struct RowFormat {
    pub(crate) types: Vec<WireType>,
    /// Of each column: [`TEXT`] or [`BINARY`].
    pub(crate) formats: Vec<i16>,
    pub(crate) zone: Zone,
}

impl RowFormat {
    /// Appends a value with its length in front; NULL is the length -1.
    fn field(&self, out: &mut BytesMut, index: usize, column: &ArrayRef, row: usize) -> Result<()> {
        if column.is_null(row) || *column.data_type() == DataType::Null {
            out.put_i32(-1);
            return Ok(());
        }
        let at = out.len();
        out.put_i32(0);
        self.value(out, index, column, row)?;
        binary::set_length(out, at, size_of::<i32>());
        Ok(())
    }

    /// Appends a value that is not NULL.
    pub(crate) fn value(&self, out: &mut BytesMut, index: usize, column: &ArrayRef, row: usize) -> Result<()> {
        let wire_type = self.types[index];
        match (wire_type.is_list, self.formats[index] == BINARY) {
            (true, true) => self.array(out, wire_type, &list(column, row)),
            (true, false) => self.array_text(out, wire_type, &list(column, row)),
            (false, true) => binary::put_value(out, wire_type.kind, column, row),
            (false, false) => text::put_value(out, wire_type.kind, column, row, self.zone),
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
            binary::put_value(out, wire_type.kind, items, row)?;
            binary::set_length(out, at, size_of::<i32>());
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
            text::put_value(&mut item, wire_type.kind, items, row, self.zone)?;
            // Memory takes everything.
            let _ = write!(out, "{}", ArrayItemText(&String::from_utf8_lossy(&item)));
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

fn list(column: &ArrayRef, row: usize) -> ArrayRef {
    match column.data_type() {
        DataType::LargeList(_) => column.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => column.as_fixed_size_list().value(row),
        _ => column.as_list::<i32>().value(row),
    }
}

#[cfg(test)]
mod tests;
