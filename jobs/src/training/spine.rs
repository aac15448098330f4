//! A file as a spine: its own columns, with the keys of the views and the time as they are asked for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use batch::{Spine, SpineRows, Training};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use types::sql_types::timestamp_type;
use types::suggest::nearest;
use types::{Error, Result};

use super::text::{TextFile, TextFormat};
use super::typed::{TypeMismatch, keys, times};
use crate::input_file::open_input_file;
use crate::row_file::RowFileFormat;

/// Rows of Parquet that are read together.
const ROWS: usize = 4_096;

/// Opens a file as a spine of these views. Rows are read, and refused, as they are asked for.
///
/// Errors: `Input` for a file that lacks a key or the time.
pub(super) fn open(path: &Path, format: RowFileFormat, training: &Training, time: &str) -> Result<Spine> {
    match format {
        RowFileFormat::Parquet => parquet(path, training, time),
        RowFileFormat::Csv => text(path, TextFormat::Csv, training, time),
        RowFileFormat::JsonLines => text(path, TextFormat::JsonLines, training, time),
    }
}

fn parquet(path: &Path, training: &Training, time: &str) -> Result<Spine> {
    let path_of_errors = path.to_path_buf();
    let unreadable = move |error: &dyn std::fmt::Display| {
        Error::input(format!("the Parquet file cannot be read: {error}")).with("file", path_of_errors.display())
    };
    let file = open_input_file(path)?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| unreadable(&error))?;
    let own = builder.schema().clone();
    let columns = SpineColumns::new(path, &own, training, time)?;
    let reader = builder.with_batch_size(ROWS).build().map_err(|error| unreadable(&error))?;
    let mut read = 0;
    let rows = reader.map(move |batch| {
        let batch = batch.map_err(|error| unreadable(&error))?;
        let first = read + 1;
        read += batch.num_rows() as u64;
        columns.batch(batch.columns().to_vec(), batch.columns(), |row| ("row", first + row as u64))
    });
    Ok(Spine::new(own, Box::new(rows)))
}

fn text(path: &Path, form: TextFormat, training: &Training, time: &str) -> Result<Spine> {
    let file = TextFile::survey(path, form)?;
    let fields = file.columns.iter().enumerate().map(|(column, name)| Field::new(name, file.data_type(column), true));
    let own: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let columns = SpineColumns::new(path, &own, training, time)?;
    let types: Vec<DataType> = own.fields().iter().map(|field| field.data_type().clone()).collect();
    let rows = file.rows()?.map(move |rows| {
        let rows = rows?;
        let typed = rows.columns.iter().zip(&types).map(|(column, data_type)| Ok(cast(column, data_type)?)).collect::<Result<_>>()?;
        columns.batch(typed, &rows.columns, |row| ("line", rows.lines[row]))
    });
    let rows: SpineRows = Box::new(rows);
    Ok(Spine::new(own, rows))
}

/// Which columns of a file are the keys of the views, and which one is the time.
struct SpineColumns {
    path: PathBuf,
    keys: Vec<KeyColumn>,
    time: (String, usize),
    schema: SchemaRef,
}

struct KeyColumn {
    name: String,
    data_type: DataType,
    is_uuid: bool,
    column: usize,
}

impl SpineColumns {
    fn new(path: &Path, own: &Schema, training: &Training, time: &str) -> Result<SpineColumns> {
        let names: Vec<&str> = own.fields().iter().map(|field| field.name().as_str()).collect();
        if let Some(twice) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            return Err(Error::input(format!("two columns are named \"{}\"", twice.1)).with("file", path.display()));
        }
        let column = |name: &str, what: String| {
            names.iter().position(|known| *known == name).ok_or_else(|| {
                let near = nearest(name, names.iter().copied()).map(|near| format!(": did you mean \"{near}\"?")).unwrap_or_default();
                Error::input(format!("the spine has no column \"{name}\", {what}{near}"))
                    .with("file", path.display())
                    .with("columns", names.join(", "))
            })
        };
        let mut keys = Vec::new();
        for view in training.views() {
            for (index, key) in view.plan.answer_keys().iter().enumerate() {
                let column = column(key.name(), format!("a key of the view \"{}\"", view.name))?;
                let is_uuid = view.plan.is_uuid(index);
                keys.push(KeyColumn { name: key.name().clone(), data_type: key.data_type().clone(), is_uuid, column });
            }
        }
        let time_column = column(time, "the time of each row (--time names another one)".to_owned())?;
        let of_keys = keys.iter().map(|key| Arc::new(Field::new(format!("__{}", key.name), key.data_type.clone(), false)));
        let of_time = Arc::new(Field::new("__t", timestamp_type(), false));
        let fields: Vec<Arc<Field>> = own.fields().iter().cloned().chain(of_keys).chain([of_time]).collect();
        let schema = Arc::new(Schema::new(fields));
        Ok(SpineColumns { path: path.to_path_buf(), keys, time: (time.to_owned(), time_column), schema })
    }

    /// A batch of a spine. `read`: the columns as they are in the file; `place`: where a row is.
    fn batch(&self, own: Vec<ArrayRef>, read: &[ArrayRef], place: impl Fn(usize) -> (&'static str, u64)) -> Result<RecordBatch> {
        let at = |mismatch: TypeMismatch, column: &str| {
            let error = Error::input(format!("found {}, expected {}", mismatch.found, mismatch.expected));
            let error = error.with("file", self.path.display());
            let error = match mismatch.row.map(&place) {
                Some((what, number)) => error.with(what, number),
                None => error,
            };
            error.with("column", column)
        };
        let mut columns = own;
        for key in &self.keys {
            columns.push(keys(&read[key.column], &key.data_type, key.is_uuid).map_err(|mismatch| at(mismatch, &key.name))?);
        }
        let (name, time) = &self.time;
        columns.push(times(&read[*time]).map_err(|mismatch| at(mismatch, name))?);
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}
