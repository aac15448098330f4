//! A node's local copy of a snapshot: one mapped file per bucket, fetched once, checked against the manifest, dropped with its run.
//! Rows are found in the buckets that are there while the others still come; a bucket that is not there is an error, never no rows.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::BinaryArray;
use committed::registry::LiveView;
use engine::states::{SortedRun, bucket_of};
use storage::{Manifest, ObjectStorage};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use types::{Error, Result};

use buckets::CopiedBuckets;

mod background;
mod buckets;

/// A snapshot, ready to be looked up bucket by bucket.
#[derive(Debug)]
pub struct SnapshotCopy {
    pub manifest: Manifest,
    buckets: Arc<CopiedBuckets>,
    is_followed: AtomicBool,
}

impl SnapshotCopy {
    /// Fetches and maps all of it.
    pub async fn open(storage: &ObjectStorage, manifest: Manifest, live: &LiveView, cache: &Path) -> Result<Self> {
        let copy = Self::begin(storage, manifest, live, cache);
        copy.fetch_all().await?;
        Ok(copy)
    }

    /// With nothing fetched yet.
    pub fn begin(storage: &ObjectStorage, manifest: Manifest, live: &LiveView, cache: &Path) -> Self {
        let buckets = Arc::new(CopiedBuckets::new(storage, &manifest, live, cache));
        Self { manifest, buckets, is_followed: AtomicBool::new(false) }
    }

    /// The run that holds a key's rows, if any does.
    ///
    /// Errors: `Unavailable` where it was not fetched yet.
    pub fn bucket_of(&self, key: &[u8]) -> Result<&SortedRun> {
        self.bucket(self.number_of(key))
    }

    /// One bucket; likewise.
    pub fn bucket(&self, number: u32) -> Result<&SortedRun> {
        self.buckets.get(number).ok_or_else(|| self.not_there())
    }

    /// All buckets; likewise.
    pub fn buckets(&self) -> Result<&[Arc<SortedRun>]> {
        self.buckets.whole().ok_or_else(|| self.not_there())
    }

    /// True when every bucket is here.
    pub fn is_whole(&self) -> bool {
        self.buckets.whole().is_some()
    }

    /// How many of how many files are here.
    pub fn local(&self) -> (usize, usize) {
        self.buckets.local()
    }

    /// What is wrong with a bucket that was fetched and is not what the manifest says.
    pub fn damage(&self) -> Option<&Error> {
        self.buckets.damage()
    }

    /// Waits for the buckets of these encoded keys.
    ///
    /// Errors: `Corrupt` where one is damaged, which [`SnapshotCopy::damage`] says from then on; others may pass.
    pub async fn fetch(&self, keys: &BinaryArray) -> Result<()> {
        let wanted: BTreeSet<u32> = keys.iter().flatten().map(|key| self.number_of(key)).collect();
        self.buckets.fetch(wanted).await
    }

    /// Waits for every bucket; likewise.
    pub async fn fetch_all(&self) -> Result<()> {
        self.buckets.fetch_all().await
    }

    /// Sees to it, from the first call on, that every bucket comes, until `stop`. `damaged` hears when one cannot.
    pub fn fetch_in_background(&self, damaged: &Arc<Notify>, stop: &CancellationToken) {
        if !self.is_whole() && !self.is_followed.swap(true, Ordering::Relaxed) {
            tokio::spawn(background::fetch_all(self.buckets.clone(), damaged.clone(), stop.clone()));
        }
    }

    fn number_of(&self, key: &[u8]) -> u32 {
        bucket_of(key, self.manifest.bucket_count)
    }

    fn not_there(&self) -> Error {
        Error::unavailable("a bucket of the snapshot is not copied yet: try again")
            .with("view", &self.manifest.view)
            .with("run", self.manifest.run)
    }
}

impl Drop for SnapshotCopy {
    fn drop(&mut self) {
        self.buckets.give_up();
    }
}

#[cfg(test)]
mod tests;
