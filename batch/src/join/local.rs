//! A run's edges in local files: written beside the snapshot's buckets, mapped to be walked.

use std::fs::File;
use std::path::PathBuf;

use arrow::datatypes::SchemaRef;
use schemas::states::StateRows;
use schemas::states::sorted::{SortedFileWriter, SortedRun, map_file};
use schemas::walk::Buckets;
use schemas::{Error, Result};

/// Where files without a name are made: nothing is left of them, however the process ends.
pub(crate) struct LocalEdges {
    folder: PathBuf,
    schema: SchemaRef,
}

/// The sorted rows of one bucket, being written.
pub(crate) struct LocalBucket {
    bucket: u32,
    writer: SortedFileWriter,
    file: File,
}

/// Likewise, written.
pub(crate) struct FinishedBucket {
    bucket: u32,
    file: File,
}

impl LocalEdges {
    /// In `folder`, or where the system's temporary files lie.
    pub(crate) fn new(folder: Option<PathBuf>, schema: SchemaRef) -> Self {
        Self { folder: folder.unwrap_or_else(std::env::temp_dir), schema }
    }

    pub(crate) fn begin(&self, bucket: u32) -> Result<LocalBucket> {
        let made = tempfile::tempfile_in(&self.folder).and_then(|file| Ok((file.try_clone()?, file)));
        let (to_write, file) = made.map_err(|error| Error::from(error).with("folder", self.folder.display()))?;
        Ok(LocalBucket { bucket, writer: SortedFileWriter::to_file(to_write, &self.schema)?, file })
    }
}

impl LocalBucket {
    pub(crate) fn push(&mut self, rows: &StateRows) -> Result<()> {
        self.writer.write(rows)
    }

    pub(crate) fn finish(self) -> Result<FinishedBucket> {
        self.writer.finish()?;
        Ok(FinishedBucket { bucket: self.bucket, file: self.file })
    }
}

/// All of so many buckets, mapped.
pub(crate) fn mapped(buckets: u32, finished: Vec<FinishedBucket>) -> Result<Buckets> {
    let mut runs = vec![SortedRun::default(); buckets as usize];
    for FinishedBucket { bucket, file } in finished {
        runs[bucket as usize] = map_file(&file)?;
    }
    Ok(Buckets(runs))
}
