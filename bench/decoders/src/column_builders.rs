//! The Arrow columns that a decoder without its own Arrow output fills: texts, times and amounts.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Builder, RecordBatch, StringBuilder, TimestampMicrosecondBuilder};
use arrow::compute::kernels::cast_utils::parse_decimal;
use arrow::datatypes::{DataType, Decimal128Type, SchemaRef};

use crate::events::{parse_timestamp, user_schema};
use crate::records::Records;

pub type Failed = String;

pub struct Columns {
    schema: SchemaRef,
    columns: Vec<Column>,
}

enum Column {
    Text(StringBuilder),
    Time(TimestampMicrosecondBuilder),
    Amount(Decimal128Builder),
}

impl Columns {
    pub fn for_records(records: &Records) -> Self {
        let (schema, rows) = (user_schema(&records.stream), records.records.len());
        let column = |data_type: &DataType| match data_type {
            DataType::Timestamp(..) => Column::Time(TimestampMicrosecondBuilder::with_capacity(rows).with_timezone("UTC")),
            DataType::Decimal128(..) => Column::Amount(Decimal128Builder::with_capacity(rows)),
            _ => Column::Text(StringBuilder::with_capacity(rows, rows * 36)),
        };
        let columns = schema.fields().iter().map(|field| column(field.data_type())).collect();
        Self { schema, columns }
    }

    /// The index of a member's column; tries the position after the previous member's first.
    pub fn place(&self, name: &str, expected: &mut usize) -> Option<usize> {
        let fields = self.schema.fields();
        let at = match fields.get(*expected) {
            Some(field) if field.name() == name => *expected,
            _ => fields.iter().position(|field| field.name() == name)?,
        };
        *expected = at + 1;
        Some(at)
    }

    /// The content of a JSON string, as text or as a time.
    pub fn text(&mut self, at: usize, text: &str) -> Result<(), Failed> {
        match &mut self.columns[at] {
            Column::Text(builder) => builder.append_value(text),
            Column::Time(builder) => builder.append_value(parse_timestamp(text).map_err(|_| format!("{text} is no time"))?),
            Column::Amount(_) => return Err(format!("{text} is a text")),
        }
        Ok(())
    }

    /// A number's text, without a float.
    pub fn number(&mut self, at: usize, json: &str) -> Result<(), Failed> {
        let amount = parse_decimal::<Decimal128Type>(json, 18, 2).map_err(|error| error.to_string())?;
        self.unscaled(at, amount)
    }

    /// For a decoder that only has floats: digits past the 15th are lost.
    pub fn float(&mut self, at: usize, number: f64) -> Result<(), Failed> {
        self.unscaled(at, (number * 100.0).round() as i128)
    }

    fn unscaled(&mut self, at: usize, amount: i128) -> Result<(), Failed> {
        let Column::Amount(builder) = &mut self.columns[at] else { return Err(format!("{amount} is a number")) };
        builder.append_value(amount);
        Ok(())
    }

    /// A value as the text in the record.
    pub fn raw(&mut self, at: usize, json: &str) -> Result<(), Failed> {
        let Some(content) = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')) else { return self.number(at, json) };
        let text = match memchr::memchr(b'\\', content.as_bytes()) {
            None => Cow::Borrowed(content),
            Some(_) => Cow::Owned(serde_json::from_str(json).map_err(|error| error.to_string())?),
        };
        self.text(at, &text)
    }

    pub fn finish(self) -> Result<RecordBatch, Failed> {
        let array = |column: Column| -> Result<ArrayRef, Failed> {
            Ok(match column {
                Column::Text(mut builder) => Arc::new(builder.finish()),
                Column::Time(mut builder) => Arc::new(builder.finish()),
                Column::Amount(mut builder) => {
                    Arc::new(builder.finish().with_precision_and_scale(18, 2).map_err(|error| error.to_string())?)
                }
            })
        };
        let arrays = self.columns.into_iter().map(array).collect::<Result<_, _>>()?;
        RecordBatch::try_new(self.schema, arrays).map_err(|error| error.to_string())
    }
}
