//! A run's edges in local files: written beside the snapshot's buckets, mapped to be walked.

use std::path::{Path, PathBuf};

use arrow::datatypes::SchemaRef;
use schemas::states::StateRows;
use schemas::states::sorted::{SortedFileWriter, SortedRun, map};
use schemas::walk::Buckets;
use schemas::{Error, Result};
use tempfile::TempDir;

pub(crate) struct LocalEdges {
    folder: TempDir,
    schema: SchemaRef,
    open: Option<(u32, SortedFileWriter)>,
    buckets: Vec<Option<PathBuf>>,
}

impl LocalEdges {
    /// A fresh folder in `parent`, or among the system's temporary ones.
    pub(crate) fn create(parent: Option<&Path>, schema: SchemaRef, buckets: u32) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("basestream-run-");
        let folder = parent.map_or_else(|| builder.tempdir(), |parent| builder.tempdir_in(parent));
        let folder = folder.map_err(|error| Error::from(error).with("doing", "making a folder for a run's edges"))?;
        Ok(Self { folder, schema, open: None, buckets: vec![None; buckets as usize] })
    }

    /// Sorted rows, bucket after bucket.
    pub(crate) fn push(&mut self, bucket: u32, rows: &StateRows) -> Result<()> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != bucket) {
            self.close()?;
            let path = self.folder.path().join(format!("{bucket:05}.arrow"));
            self.open = Some((bucket, SortedFileWriter::create(&path, &self.schema)?));
            self.buckets[bucket as usize] = Some(path);
        }
        match &mut self.open {
            Some((_, writer)) => writer.write(rows),
            None => Ok(()),
        }
    }

    /// All buckets, mapped. The files are unlinked: the mapped pages are all that is left of them.
    pub(crate) fn finish(mut self) -> Result<Buckets> {
        self.close()?;
        let mapped = self.buckets.iter().map(|path| path.as_deref().map_or_else(|| Ok(SortedRun::default()), map));
        Ok(Buckets(mapped.collect::<Result<_>>()?))
    }

    fn close(&mut self) -> Result<()> {
        match self.open.take() {
            Some((_, writer)) => writer.finish(),
            None => Ok(()),
        }
    }
}
