//! Writes a file of rows: Parquet, CSV or JSON lines, by its name. The file appears only when it is complete.

use std::fs::{File, TryLockError};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use types::{Error, Result};

use crate::mistakes::Mistakes;

/// The formats of files of rows, those that are written and those that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFileFormat {
    Parquet,
    Csv,
    JsonLines,
}

impl RowFileFormat {
    /// The format that the extension names.
    ///
    /// Errors: `Input` for another extension.
    pub(crate) fn from_extension(path: &Path) -> Result<RowFileFormat> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Ok(RowFileFormat::Parquet),
            Some("csv") => Ok(RowFileFormat::Csv),
            Some("ndjson" | "jsonl") => Ok(RowFileFormat::JsonLines),
            _ => Err(Error::input(format!("the extension of {} names no format", path.display()))
                .with("expected", "a name that ends in .parquet, .csv, .ndjson or .jsonl")),
        }
    }
}

/// A file of rows, which has another name until it is whole. Where it is dropped before, nothing is left behind.
pub(crate) struct RowFile {
    // Dropped first: a file is closed before it is removed.
    writer: Writer,
    unfinished: UnfinishedFile,
}

/// The file under the name that it has until it is whole. It is removed with this, unless it was renamed.
struct UnfinishedFile {
    part_path: PathBuf,
    path: PathBuf,
    is_renamed: bool,
    /// The lock is held until the file is renamed or removed.
    _locked: File,
}

enum Writer {
    Parquet(Box<ArrowWriter<File>>),
    Csv(Box<csv::Writer<File>>),
    JsonLines(BufWriter<File>),
}

impl RowFile {
    /// Returns the format of a file that can be written. Mistakes: another extension, a folder that does not exist, a
    /// file that exists, unless it is replaced.
    pub(crate) fn check(path: &Path, force: bool, mistakes: &mut Mistakes) -> Option<RowFileFormat> {
        if let Some(missing) = missing_folder(path) {
            mistakes.add(missing);
        } else if path.is_dir() {
            mistakes.add(Error::input(format!("{} is a folder: expected the name of a file", path.display())));
        } else if path.exists() && !force {
            mistakes.add(Error::input(format!("{} already exists", path.display())).with("help", "--force replaces it"));
        }
        RowFileFormat::from_extension(path).map_err(|mistake| mistakes.add(mistake)).ok()
    }

    /// Errors: `Conflict` while another process writes the file.
    pub(crate) fn create(path: &Path, format: RowFileFormat, schema: &SchemaRef) -> Result<RowFile> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = open_unfinished(&part, path)?;
        let locked = file.try_clone().map_err(|error| Error::from(error).with("file", path.display()))?;
        let unfinished = UnfinishedFile { part_path: part, path: path.to_owned(), is_renamed: false, _locked: locked };
        let writer = match format {
            RowFileFormat::Parquet => Writer::Parquet(Box::new(ArrowWriter::try_new(file, schema.clone(), None).map_err(unwritable)?)),
            RowFileFormat::Csv => {
                let mut writer = csv::Writer::from_writer(file);
                writer.write_record(schema.fields().iter().map(|field| field.name())).map_err(unwritable_csv)?;
                Writer::Csv(Box::new(writer))
            }
            RowFileFormat::JsonLines => Writer::JsonLines(BufWriter::new(file)),
        };
        Ok(RowFile { writer, unfinished })
    }

    pub(crate) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match &mut self.writer {
            Writer::Parquet(writer) => writer.write(rows).map_err(unwritable)?,
            Writer::Csv(writer) => {
                for row in serving::json::rows(rows)? {
                    let row: serde_json::Value = serde_json::from_str(row.get()).map_err(unwritable)?;
                    writer.write_record(rows.schema_ref().fields().iter().map(|field| cell(&row[field.name()]))).map_err(unwritable_csv)?;
                }
            }
            Writer::JsonLines(writer) => {
                for row in serving::json::rows(rows)? {
                    serde_json::to_writer(&mut *writer, &row).map_err(|error| unwritable(std::io::Error::from(error)))?;
                    writer.write_all(b"\n").map_err(unwritable)?;
                }
            }
        }
        Ok(())
    }

    /// Syncs the file to the disk and gives it its name.
    pub(crate) fn finish(self) -> Result<()> {
        let RowFile { writer, mut unfinished } = self;
        let synced = match writer {
            // Its `into_inner` loses the error of the file.
            Writer::Parquet(mut writer) => writer.finish().map_err(unwritable).and_then(|_| sync(writer.inner())),
            Writer::Csv(writer) => writer.into_inner().map_err(|error| unwritable(error.into_error())).and_then(|file| sync(&file)),
            Writer::JsonLines(writer) => writer.into_inner().map_err(|error| unwritable(error.into_error())).and_then(|file| sync(&file)),
        };
        synced.and_then(|()| unfinished.rename()).map_err(|error| error.with("file", unfinished.path.display()))
    }

    /// Finishes the file if it was filled. Returns the outcome of filling it.
    pub(crate) fn finish_if<T>(self, filled: Result<T>) -> Result<T> {
        let filled = filled?;
        self.finish().map(|()| filled)
    }
}

impl UnfinishedFile {
    fn rename(&mut self) -> Result<()> {
        std::fs::rename(&self.part_path, &self.path)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = std::fs::remove_file(&self.part_path);
        }
    }
}

/// Opens the file under the name that it has until it is whole, locked and empty. A process that was killed may have
/// left it.
fn open_unfinished(part: &Path, path: &Path) -> Result<File> {
    let at = |error: std::io::Error| Error::from(error).with("file", path.display());
    loop {
        // Emptied once it is locked.
        let file = File::options().write(true).create(true).truncate(false).open(part).map_err(at)?;
        match file.try_lock() {
            // The process that had locked it has renamed it in between.
            Ok(()) if !is_named(&file, part) => continue,
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::conflict(format!("another process is writing {}", path.display()))
                    .with("help", "wait until it has ended, or name another --out"));
            }
        }
        if file.metadata().map_err(at)?.is_file() {
            file.set_len(0).map_err(at)?;
        }
        return Ok(file);
    }
}

/// Whether a path names an open file.
fn is_named(file: &File, path: &Path) -> bool {
    let (Ok(opened), Ok(named)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (opened.dev(), opened.ino()) == (named.dev(), named.ino())
}

/// The error for a file that is to be written into a folder that does not exist.
pub(crate) fn missing_folder(path: &Path) -> Option<Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())?;
    Some(Error::input(format!("there is no folder {}: expected one that exists", folder.display())).with("file", path.display()))
}

/// A value as a cell of CSV: NULL is empty, a text is written without the quotes of JSON.
fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn sync(file: &File) -> Result<()> {
    file.sync_all().map_err(unwritable)
}

fn unwritable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::unavailable("the rows cannot be written").caused_by(error)
}

/// An error of CSV has no source.
fn unwritable_csv(error: csv::Error) -> Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => unwritable(error),
        other => unwritable(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests;
