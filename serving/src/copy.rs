//! A node's local copy of a snapshot: one mapped file per bucket, fetched once, checked against the manifest, dropped with its run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use schemas::plan::ViewPlan;
use schemas::states::KeyCodec;
use schemas::states::rows::{StateRows, conform};
use schemas::storage::{Manifest, ObjectStorage, bucket_of, read_bucket};
use schemas::{Result, failpoint};

use schemas::states::sorted::{SortedFileWriter, SortedRun, map};

/// A snapshot, ready to be looked up.
#[derive(Debug)]
pub struct SnapshotCopy {
    pub manifest: Manifest,
    /// Per bucket; empty where the snapshot has no file.
    buckets: Vec<Arc<SortedRun>>,
    folder: PathBuf,
}

impl SnapshotCopy {
    /// Fetches what is not yet in `cache` and maps all of it.
    pub async fn open(storage: &ObjectStorage, manifest: Manifest, plan: &ViewPlan, codec: &KeyCodec, cache: &Path) -> Result<Self> {
        let folder = cache.join(&*manifest.view).join(manifest.version.to_string()).join(manifest.run.to_string());
        let mut buckets = vec![Arc::new(SortedRun::default()); manifest.bucket_count as usize];
        // Collected first: a closure in the stream would make this future one that cannot be spawned.
        let mut opening = Vec::with_capacity(manifest.files.len());
        for file in &manifest.files {
            let path = folder.join(format!("{:05}.arrow", file.bucket));
            opening.push(async move {
                if !path.exists() {
                    fetch(storage, file, plan, codec, &path).await?;
                }
                Ok::<_, schemas::Error>((file.bucket, map(&path)?))
            });
        }
        let fetched: Result<Vec<(u32, SortedRun)>> = futures::stream::iter(opening).buffer_unordered(4).try_collect().await;
        // A snapshot that cannot be loaded leaves nothing behind.
        let fetched = fetched.inspect_err(|_| drop(std::fs::remove_dir_all(&folder)))?;
        for (bucket, run) in fetched {
            if let Some(slot) = buckets.get_mut(bucket as usize) {
                *slot = Arc::new(run);
            }
        }
        Ok(Self { manifest, buckets, folder })
    }

    /// The run that holds a key's rows, if any does.
    pub fn bucket_of(&self, key: &[u8]) -> &Arc<SortedRun> {
        &self.buckets[bucket_of(key, self.manifest.bucket_count) as usize]
    }

    pub fn buckets(&self) -> &[Arc<SortedRun>] {
        &self.buckets
    }
}

impl Drop for SnapshotCopy {
    fn drop(&mut self) {
        // Mapped pages stay valid after the unlink.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn fetch(storage: &ObjectStorage, file: &schemas::storage::BucketFile, plan: &ViewPlan, codec: &KeyCodec, path: &Path) -> Result<()> {
    let partial = path.with_extension("partial");
    let mut writer = SortedFileWriter::create(&partial, plan.state_schema())?;
    let mut batches = read_bucket(storage, file).await?;
    while let Some(batch) = batches.next().await {
        let batch = conform(plan.state_schema(), &batch?)?;
        let keys = codec.encode(&batch.columns()[..plan.keys.len()], batch.num_rows())?;
        writer.write(&StateRows::from_sorted(batch, keys))?;
        failpoint::hit("serving.copying")?;
    }
    writer.finish()?;
    std::fs::rename(&partial, path)?;
    Ok(())
}
