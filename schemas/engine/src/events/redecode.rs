//! Decodes archived events again under another definition of their stream, from their raw values. Which records are
//! events, their ids and their event times were decided before and stay as they are.

use std::collections::BTreeSet;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::datatypes::{Int32Type, Int64Type};
use definitions::{Column, StreamDefinition};
use types::columns::{OFFSET, PARTITION, VALUE};
use types::vector::Offset;
use types::{Error, Result};

use super::build::ColumnBuilder;
use super::decode::{DecodeError, column_value, object_text};
use super::members::Members;
use super::schemas::event_schema;
use super::value::ColumnValue;

/// Returns the columns of `after` that events of `before` do not have as `after` reads them: they are new, or have
/// another type or place in the record, or may be NULL in the events.
pub fn columns_to_decode<'a>(before: &StreamDefinition, after: &'a StreamDefinition) -> Vec<&'a Column> {
    let is_as_before = |column: &&Column| before.columns.iter().any(|known| known.name == column.name && reads_alike(known, column));
    after.columns.iter().filter(|column| !is_as_before(column)).collect()
}

fn reads_alike(before: &Column, after: &Column) -> bool {
    let is_alike = before.column_type == after.column_type && before.path == after.path && before.unit == after.unit;
    is_alike && (after.nullable || !before.nullable)
}

/// What becomes of a record that does not fit a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnMisfit {
    Report,
    /// The column is NULL in it, if it may be.
    Null,
}

/// A record that does not fit a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    pub partition: i32,
    pub offset: Offset,
    pub column: String,
    /// The place in the record, what was found there and what was expected.
    pub reason: String,
}

/// Events that were decoded again.
#[derive(Debug)]
pub enum RedecodedEvents {
    Events(RecordBatch),
    /// They hold what the new definition reads: nothing is to be decoded, or they have no raw records and lack columns
    /// that may be NULL.
    AsBefore,
    /// In the order of the records.
    Misfits(Vec<Misfit>),
}

/// Decodes events again that one definition decoded, under another one. The definitions agree on event time, id and
/// key.
#[derive(Debug)]
pub struct Redecoder {
    before: StreamDefinition,
    after: StreamDefinition,
    columns: Vec<Column>,
    members: Members,
    on_misfit: OnMisfit,
}

impl Redecoder {
    /// Creates a decoder from the columns of `before` to those of `after`.
    pub fn new(before: &StreamDefinition, after: &StreamDefinition, on_misfit: OnMisfit) -> Self {
        let columns: Vec<Column> = columns_to_decode(before, after).into_iter().cloned().collect();
        Self { before: before.clone(), after: after.clone(), members: Members::new(&columns), columns, on_misfit }
    }

    /// The definition that decoded the events.
    pub fn before(&self) -> &StreamDefinition {
        &self.before
    }

    /// The columns that are decoded.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter()
    }

    /// Returns the columns that events without raw records cannot have: they would hold the values of another type or
    /// place, or NULL where none may be.
    pub fn lost_without_raw(&self) -> Vec<&Column> {
        let is_new = |column: &Column| !self.before.columns.iter().any(|known| known.name == column.name);
        self.columns.iter().filter(|column| !is_new(column) || !column.nullable).collect()
    }

    /// Decodes the events of a batch that has all columns of the archive. Rows and order stay as they are.
    pub fn redecode(&self, events: &RecordBatch) -> Result<RedecodedEvents> {
        if self.columns.is_empty() {
            return Ok(RedecodedEvents::AsBefore);
        }
        let decoded = match events.column_by_name(VALUE) {
            Some(raw) => self.decode(events, raw)?,
            None => self.without_raw(events)?,
        };
        match decoded {
            Decoded::Columns(decoded) => self.rebuilt(events, decoded).map(RedecodedEvents::Events),
            Decoded::Nothing => Ok(RedecodedEvents::AsBefore),
            Decoded::Misfits(misfits) => Ok(RedecodedEvents::Misfits(misfits)),
        }
    }

    fn decode(&self, events: &RecordBatch, raw: &ArrayRef) -> Result<Decoded> {
        let raw = raw.as_binary_opt::<i32>().ok_or_else(|| Error::internal("archived raw values are binary"))?;
        let mut builders: Vec<ColumnBuilder> = self.columns.iter().map(|column| ColumnBuilder::new(&column.column_type)).collect();
        let mut misfits = Vec::new();
        for row in 0..raw.len() {
            let value = raw.is_valid(row).then(|| raw.value(row));
            for (builder, (column, value)) in builders.iter_mut().zip(self.columns.iter().zip(self.values(value))) {
                match value {
                    Ok(value) => builder.append(&value),
                    Err(_) if self.on_misfit == OnMisfit::Null && column.nullable => builder.append_null(),
                    Err(error) => misfits.push(misfit(events, row, column, error.to_string())?),
                }
            }
        }
        if !misfits.is_empty() {
            return Ok(Decoded::Misfits(misfits));
        }
        Ok(Decoded::Columns(builders.iter_mut().map(ColumnBuilder::finish).collect::<Result<_>>()?))
    }

    /// The value of each column in one record.
    fn values<'a>(&self, value: Option<&'a [u8]>) -> Vec<Result<ColumnValue<'a>, DecodeError>> {
        let slots = object_text(value).and_then(|text| {
            self.members.find(text).map_err(|error| DecodeError {
                column: None,
                path: "$".into(),
                found: format!("invalid JSON ({error})"),
                expected: "one JSON object".into(),
            })
        });
        match slots {
            Ok(slots) => self.columns.iter().zip(slots).map(|(column, slot)| column_value(column, slot)).collect(),
            Err(error) => self.columns.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn without_raw(&self, events: &RecordBatch) -> Result<Decoded> {
        let lost = self.lost_without_raw();
        if lost.is_empty() {
            return Ok(Decoded::Nothing);
        }
        if self.on_misfit == OnMisfit::Null && lost.iter().all(|column| column.nullable) {
            let rows = events.num_rows();
            return Ok(Decoded::Columns(self.columns.iter().map(|column| new_null_array(&column.column_type.arrow(), rows)).collect()));
        }
        let misfit = |row| misfit(events, row, lost[0], "the raw record was not kept (keep_raw = false)".into());
        Ok(Decoded::Misfits((0..events.num_rows()).map(misfit).collect::<Result<_>>()?))
    }

    /// Puts the decoded columns between those that stay as they are. Raw columns stay if there are any.
    fn rebuilt(&self, events: &RecordBatch, decoded: Vec<ArrayRef>) -> Result<RecordBatch> {
        let has_raw = events.column_by_name(VALUE).is_some();
        let schema = event_schema(&StreamDefinition { keep_raw: has_raw, ..self.after.clone() });
        let names: BTreeSet<&str> = self.columns.iter().map(|column| &*column.name).collect();
        let mut decoded = decoded.into_iter();
        let columns = schema.fields().iter().map(|field| match names.contains(field.name().as_str()) {
            true => decoded.next().ok_or_else(|| Error::internal("a column was not decoded").with("column", field.name())),
            false => of_batch(events, field.name()).cloned(),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}

enum Decoded {
    Columns(Vec<ArrayRef>),
    Nothing,
    Misfits(Vec<Misfit>),
}

fn misfit(events: &RecordBatch, row: usize, column: &Column, reason: String) -> Result<Misfit> {
    let partitions = of_batch(events, PARTITION)?.as_primitive_opt::<Int32Type>();
    let offsets = of_batch(events, OFFSET)?.as_primitive_opt::<Int64Type>();
    let (Some(partitions), Some(offsets)) = (partitions, offsets) else {
        return Err(Error::internal("archived rows have a partition and an offset"));
    };
    Ok(Misfit { partition: partitions.value(row), offset: Offset(offsets.value(row)), column: column.name.clone(), reason })
}

fn of_batch<'b>(events: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    events.column_by_name(name).ok_or_else(|| Error::corrupt("an archive file lacks a column of its definition").with("column", name))
}

#[cfg(test)]
mod tests;
