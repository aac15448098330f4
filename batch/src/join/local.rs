//! A run's edges in local files: written beside the snapshot's buckets, mapped to be walked.

use std::fs::File;
use std::path::PathBuf;

use arrow::datatypes::SchemaRef;
use schemas::states::StateRows;
use schemas::states::sorted::{SortedFileWriter, SortedRun, map_file};
use schemas::walk::Buckets;
use schemas::{Error, Result};

/// Files without a name: nothing is left of them, however the process ends.
pub(crate) struct LocalEdges {
    folder: PathBuf,
    schema: SchemaRef,
    open: Option<(u32, SortedFileWriter)>,
    buckets: Vec<Option<File>>,
}

impl LocalEdges {
    /// In `folder`, or where the system's temporary files lie.
    pub(crate) fn new(folder: Option<PathBuf>, schema: SchemaRef, buckets: u32) -> Self {
        let folder = folder.unwrap_or_else(std::env::temp_dir);
        Self { folder, schema, open: None, buckets: (0..buckets).map(|_| None).collect() }
    }

    /// Sorted rows, bucket after bucket.
    pub(crate) fn push(&mut self, bucket: u32, rows: &StateRows) -> Result<()> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != bucket) {
            self.close()?;
            let made = tempfile::tempfile_in(&self.folder).and_then(|file| Ok((file.try_clone()?, file)));
            let (to_write, to_map) = made.map_err(|error| Error::from(error).with("folder", self.folder.display()))?;
            self.open = Some((bucket, SortedFileWriter::to_file(to_write, &self.schema)?));
            self.buckets[bucket as usize] = Some(to_map);
        }
        match &mut self.open {
            Some((_, writer)) => writer.write(rows),
            None => Ok(()),
        }
    }

    /// All buckets, mapped.
    pub(crate) fn finish(mut self) -> Result<Buckets> {
        self.close()?;
        let mapped = self.buckets.iter().map(|file| file.as_ref().map_or_else(|| Ok(SortedRun::default()), map_file));
        Ok(Buckets(mapped.collect::<Result<_>>()?))
    }

    fn close(&mut self) -> Result<()> {
        match self.open.take() {
            Some((_, writer)) => writer.finish(),
            None => Ok(()),
        }
    }
}
