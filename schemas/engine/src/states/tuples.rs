//! Encodes tuples of values, which are keys or parts of keys, as bytes that sort like the tuples.

use std::borrow::Cow;

use arrow::array::{ArrayRef, BinaryArray};
use arrow::datatypes::{DataType, FieldRef};
use arrow_row::{RowConverter, SortField};
use types::sql_types::one_zero;
use types::{Error, Result};

/// Encodes tuples of these types, NULLs first.
#[derive(Debug)]
pub(super) struct TupleCodec {
    converter: RowConverter,
    types: Vec<DataType>,
}

impl TupleCodec {
    pub(super) fn new(fields: &[FieldRef]) -> Result<Self> {
        let types: Vec<DataType> = fields.iter().map(|field| field.data_type().clone()).collect();
        let fields = types.iter().cloned().map(SortField::new).collect();
        let converter = RowConverter::new(fields).map_err(|error| Error::input(format!("a key cannot be of this type: {error}")))?;
        Ok(Self { converter, types })
    }

    /// Returns one encoded tuple per row: an empty one if it has no values.
    pub(super) fn encode(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray> {
        if self.types.is_empty() {
            return Ok(BinaryArray::from_iter_values(std::iter::repeat_n(b"", rows)));
        }
        Ok(self.converter.convert_columns(&self.canonical(columns))?.try_into_binary()?)
    }

    /// Returns the values that are encoded for these. They are the same for equal tuples.
    pub(super) fn canonical<'c>(&self, columns: &'c [ArrayRef]) -> Cow<'c, [ArrayRef]> {
        match self.types.iter().any(DataType::is_floating) {
            true => Cow::Owned(columns.iter().map(one_zero).collect()),
            false => Cow::Borrowed(columns),
        }
    }

    /// Returns the columns that were encoded.
    pub(super) fn decode<'a>(&self, tuples: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        if self.types.is_empty() {
            return Ok(Vec::new());
        }
        let parser = self.converter.parser();
        Ok(self.converter.convert_rows(tuples.map(|tuple| parser.parse(tuple)))?)
    }
}
