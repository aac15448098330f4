//! Reads Parquet: one record per row. Members of structures are found by dotted names.

use std::fs::File;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Fields};
use definitions::StreamDefinition;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use types::{Error, Result};

use super::arrow_json::{simplified, write_value};
use super::layout::Layout;
use super::records::{InputRecord, Records};

const BATCH_ROWS: usize = 4096;

pub(super) struct ParquetRows {
    reader: ParquetRecordBatchReader,
    /// The place of each of the layout's names: indices from the row down through structures.
    places: Vec<Vec<usize>>,
    layout: Layout,
    batch: CurrentRows,
    rows_done: u64,
    rows_total: u64,
    bytes_total: u64,
}

/// The current rows: for each place the arrays along its path, outermost first. A value is null if one of them is.
#[derive(Default)]
struct CurrentRows {
    columns: Vec<Vec<ArrayRef>>,
    rows: usize,
    next: usize,
}

impl ParquetRows {
    pub(super) fn new(file: File, stream: &StreamDefinition) -> Result<Self> {
        let bytes_total = file.metadata()?.len();
        let builder = open(file)?;
        let rows_total = builder.metadata().file_metadata().num_rows().max(0) as u64;
        let (mut names, mut places) = (Vec::new(), Vec::new());
        list_places(builder.schema().fields(), "", &[], &mut names, &mut places);
        let layout = Layout::new(stream, &names, |index| places[index].len() == 1)?;
        let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(unreadable)?;
        Ok(Self { reader, places, layout, batch: CurrentRows::default(), rows_done: 0, rows_total, bytes_total })
    }

    /// Makes sure that a row is available; false at the end.
    fn fill(&mut self) -> Result<bool> {
        while self.batch.next == self.batch.rows {
            let Some(batch) = self.reader.next() else { return Ok(false) };
            self.batch = CurrentRows::new(&batch.map_err(unreadable)?, &self.places)?;
        }
        Ok(true)
    }
}

/// Opens a Parquet file for reading.
pub(super) fn open(file: File) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(unreadable)
}

impl Records for ParquetRows {
    fn next(&mut self) -> Result<Option<InputRecord>> {
        if !self.fill()? {
            return Ok(None);
        }
        let row = self.batch.next;
        self.batch.next += 1;
        self.rows_done += 1;
        let mut value = Vec::with_capacity(256);
        let columns = &self.batch.columns;
        let written = self.layout.write_record(&mut value, &mut |place, column_type, out| {
            let arrays = &columns[place];
            match arrays.last() {
                Some(array) if arrays.iter().all(|array| !array.is_null(row)) => write_value(array, row, column_type, out),
                _ => Ok(false),
            }
        });
        let error = written.err();
        if error.is_some() {
            value = b"null".to_vec();
        }
        Ok(Some(InputRecord { number: self.rows_done, value: value.into(), error, unterminated: false }))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let mut skipped = 0;
        while skipped < count && self.fill()? {
            let rows = (count - skipped).min((self.batch.rows - self.batch.next) as u64);
            self.batch.next += rows as usize;
            skipped += rows;
        }
        self.rows_done += skipped;
        Ok(skipped)
    }

    fn bytes_done(&self) -> u64 {
        let share = u128::from(self.bytes_total) * u128::from(self.rows_done) / u128::from(self.rows_total.max(1));
        share as u64
    }
}

impl CurrentRows {
    fn new(batch: &RecordBatch, places: &[Vec<usize>]) -> Result<Self> {
        let columns = places.iter().map(|place| arrays_at(batch, place)).collect::<Result<_, _>>()?;
        Ok(Self { columns, rows: batch.num_rows(), next: 0 })
    }
}

fn arrays_at(batch: &RecordBatch, place: &[usize]) -> Result<Vec<ArrayRef>, arrow::error::ArrowError> {
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(place.len());
    for index in place {
        let array = match arrays.last() {
            None => batch.column(*index).clone(),
            Some(parent) => parent.as_struct().column(*index).clone(),
        };
        arrays.push(simplified(&array)?);
    }
    Ok(arrays)
}

/// Lists every column, and every member of a structure under its dotted name.
fn list_places(fields: &Fields, prefix: &str, above: &[usize], names: &mut Vec<String>, places: &mut Vec<Vec<usize>>) {
    for (index, field) in fields.iter().enumerate() {
        let name = format!("{prefix}{}", field.name());
        let place = [above, &[index]].concat();
        names.push(name.clone());
        places.push(place.clone());
        if let DataType::Struct(members) = field.data_type() {
            list_places(members, &format!("{name}."), &place, names, places);
        }
    }
}

pub(super) fn unreadable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::input("the Parquet file cannot be read").caused_by(error)
}
