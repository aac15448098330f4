//! A node's local copy of a snapshot: one mapped file per bucket of each tier, fetched once, checked against the
//! manifest. The files have no names, so that nobody truncates or changes what is mapped. A tier that the next snapshot
//! names too is not fetched again; its files go with the last copy that has it. Rows are found in the buckets that are
//! there while the others still come; a bucket that is not there is an error, never no rows.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::BinaryArray;
use committed::registry::LiveView;
use engine::states::{SortedRun, bucket_of, buckets_of_part};
use futures::future::try_join_all;
use storage::{Manifest, ObjectStorage, Tier};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use types::outage::{Attempts, Outage};
use types::threads;
use types::{Error, Result};

pub(crate) use buckets::LocalFiles;
use buckets::{CopiedBuckets, fetch_tiers};

mod background;
mod buckets;

/// The number of the next query that asks for a copy.
static NEXT_QUERY: AtomicU64 = AtomicU64::new(1);

/// A snapshot, ready to be looked up bucket by bucket.
#[derive(Debug)]
pub struct SnapshotCopy {
    pub manifest: Manifest,
    /// As in the manifest.
    tiers: Vec<Arc<TierCopy>>,
    is_followed: AtomicBool,
    /// The number of the last query that asked for it, in this process.
    asked: AtomicU64,
    /// Whether what is fetched in the background comes.
    fetches: Attempts,
    /// Ends the fetching in the background.
    dropped: CancellationToken,
    _guard: DropGuard,
}

/// One tier of a snapshot. The copies of successive snapshots may share it.
#[derive(Debug)]
struct TierCopy {
    tier: Tier,
    buckets: Arc<CopiedBuckets>,
}

/// A run of state rows that has keys of one part of a scan.
pub(crate) struct PartRun<'s> {
    pub(crate) run: &'s SortedRun,
    /// Whether all its keys are of that part.
    pub(crate) is_of_part: bool,
}

impl SnapshotCopy {
    /// Fetches and maps all of it, but for what `before` has.
    pub async fn open(
        storage: &ObjectStorage,
        manifest: Manifest,
        live: &LiveView,
        cache: &Path,
        before: Option<&SnapshotCopy>,
    ) -> Result<Self> {
        let copy = Self::begin(storage, manifest, live, cache, before);
        fetch_tiers(&copy.all_buckets(), &threads::RUNS).await?;
        Ok(copy)
    }

    /// With nothing fetched yet, but for what `before` has.
    pub fn begin(storage: &ObjectStorage, manifest: Manifest, live: &LiveView, cache: &Path, before: Option<&SnapshotCopy>) -> Self {
        let copied = |tier: &Tier| {
            let known = before.iter().flat_map(|before| &before.tiers);
            known.into_iter().find(|known| known.tier == *tier && known.buckets.damage().is_none()).cloned()
        };
        let copy = |tier: &Tier| {
            copied(tier).unwrap_or_else(|| {
                let buckets = CopiedBuckets::new(storage, tier, live, cache);
                Arc::new(TierCopy { tier: tier.clone(), buckets: Arc::new(buckets) })
            })
        };
        let tiers = manifest.tiers().map(copy).collect();
        let dropped = CancellationToken::new();
        let asked = AtomicU64::new(before.map_or(0, SnapshotCopy::asked));
        let (is_followed, fetches) = (AtomicBool::new(false), Attempts::new("a snapshot cannot be copied"));
        Self { tiers, is_followed, asked, fetches, _guard: dropped.clone().drop_guard(), dropped, manifest }
    }

    /// The runs that may hold a key's rows, one of each tier.
    ///
    /// Errors: `Unavailable` where one was not fetched yet.
    pub fn runs_of(&self, key: &[u8]) -> impl Iterator<Item = Result<&SortedRun>> {
        self.tiers.iter().map(|tier| tier.bucket(tier.number_of(key)).ok_or_else(|| self.not_there()))
    }

    /// The number of parts in which a scan reads it.
    pub fn parts(&self) -> u32 {
        self.manifest.parts()
    }

    /// The runs that hold keys of one of `parts` parts: the keys that hash to it. Errors: likewise.
    pub(crate) fn runs_of_part(&self, part: u32, parts: u32) -> Result<Vec<PartRun<'_>>> {
        let mut runs = Vec::with_capacity(self.tiers.len());
        for tier in &self.tiers {
            let count = tier.tier.bucket_count;
            for number in buckets_of_part(part, parts, count) {
                let run = tier.bucket(number).ok_or_else(|| self.not_there())?;
                runs.push(PartRun { run, is_of_part: count == parts });
            }
        }
        Ok(runs)
    }

    /// All runs; likewise.
    pub fn runs(&self) -> Result<Vec<&SortedRun>> {
        let of_tiers = self.tiers.iter().map(|tier| tier.buckets.whole().ok_or_else(|| self.not_there()));
        Ok(of_tiers.collect::<Result<Vec<_>>>()?.into_iter().flatten().map(|run| &**run).collect())
    }

    /// True when every bucket is here.
    pub fn is_whole(&self) -> bool {
        self.tiers.iter().all(|tier| tier.buckets.whole().is_some())
    }

    pub(crate) fn local(&self) -> LocalFiles {
        let of_tiers = self.tiers.iter().map(|tier| tier.buckets.local());
        of_tiers.fold(LocalFiles::default(), |sum, tier| LocalFiles { here: sum.here + tier.here, all: sum.all + tier.all })
    }

    /// The bytes of its local files.
    pub(crate) fn local_bytes(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.buckets.local_bytes()).sum()
    }

    /// A query asks for it.
    pub(crate) fn note_asked(&self) {
        self.asked.store(NEXT_QUERY.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The number of the last query that asked for it; 0 if none did.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// What is wrong with a bucket that was fetched and is not what the manifest says.
    pub fn damage(&self) -> Option<&Error> {
        self.tiers.iter().find_map(|tier| tier.buckets.damage())
    }

    /// Waits for the buckets of these encoded keys, for a query: they are copied on the threads of queries, where
    /// no batch run delays them.
    ///
    /// Errors: `Corrupt` where one is damaged, which [`SnapshotCopy::damage`] says from then on; others may pass.
    pub async fn fetch(&self, keys: &BinaryArray) -> Result<()> {
        let of_tiers = self.tiers.iter().map(|tier| {
            let wanted: BTreeSet<u32> = keys.iter().flatten().map(|key| tier.number_of(key)).collect();
            tier.buckets.fetch(wanted, &threads::QUERIES)
        });
        try_join_all(of_tiers.collect::<Vec<_>>()).await.map(drop)
    }

    /// Waits for every bucket; likewise.
    pub async fn fetch_all(&self) -> Result<()> {
        fetch_tiers(&self.all_buckets(), &threads::QUERIES).await
    }

    /// Sees to it, from the first call on, that every bucket comes, until `stop`. `damaged` hears when one cannot.
    pub(crate) fn fetch_in_background(&self, damaged: &Arc<Notify>, stop: &CancellationToken) {
        if !self.is_whole() && !self.is_followed.swap(true, Ordering::Relaxed) {
            let (view, tiers) = (self.manifest.view.clone(), self.all_buckets());
            let copy = background::Fetching { view, tiers, fetches: self.fetches.clone(), dropped: self.dropped.clone() };
            threads::RUNS.spawn(background::fetch_all(copy, damaged.clone(), stop.clone()));
        }
    }

    /// Why what is fetched in the background does not come at the moment.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.fetches.outage()
    }

    fn all_buckets(&self) -> Vec<Arc<CopiedBuckets>> {
        self.tiers.iter().map(|tier| tier.buckets.clone()).collect()
    }

    fn not_there(&self) -> Error {
        Error::unavailable("a bucket of the snapshot is not copied yet: try again")
            .with("view", &self.manifest.view)
            .with("run", self.manifest.run)
    }
}

impl TierCopy {
    fn bucket(&self, number: u32) -> Option<&SortedRun> {
        self.buckets.get(number)
    }

    fn number_of(&self, key: &[u8]) -> u32 {
        bucket_of(key, self.tier.bucket_count)
    }
}

impl Drop for TierCopy {
    fn drop(&mut self) {
        self.buckets.give_up();
    }
}

#[cfg(test)]
mod tests;
