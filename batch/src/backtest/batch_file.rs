//! Batches in a file without a name, so that nothing is left behind however the process ends.

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use types::Result;

use crate::temp_folder::at_folder;

pub(super) struct BatchFileWriter {
    writer: StreamWriter<BufWriter<File>>,
    file: File,
    folder: PathBuf,
}

impl BatchFileWriter {
    pub(super) fn create(folder: &Path, schema: &SchemaRef) -> Result<BatchFileWriter> {
        let made = tempfile::tempfile_in(folder).and_then(|file| Ok((file.try_clone()?, file)));
        let (to_write, file) = made.map_err(|error| at_folder(folder, error))?;
        let writer = StreamWriter::try_new_buffered(to_write, schema).map_err(|error| at_folder(folder, error))?;
        Ok(BatchFileWriter { writer, file, folder: folder.to_owned() })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.write(batch).map_err(|error| at_folder(&self.folder, error))
    }

    pub(super) fn finish(mut self) -> Result<BatchFile> {
        self.writer.finish().map_err(|error| at_folder(&self.folder, error))?;
        Ok(BatchFile { file: self.file })
    }
}

/// A completely written file.
pub(super) struct BatchFile {
    file: File,
}

/// The batches of a file, in their order.
pub(super) type FileBatches = StreamReader<BufReader<File>>;

impl BatchFile {
    /// Reads the batches from the first one on. An earlier reader becomes invalid, because both share one position in
    /// the file.
    pub(super) fn read(&self) -> Result<FileBatches> {
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        Ok(StreamReader::try_new_buffered(file, None)?)
    }
}
