//! The buckets of copied tiers. Each is fetched once, for the first query that needs it; other queries that need it
//! wait for the same fetch.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use committed::registry::LiveView;
use engine::states::{SortedFileWriter, SortedRun, StateRows, conform, map_file};
use futures::future::{BoxFuture, Shared, try_join_all};
use futures::{FutureExt, StreamExt, TryStreamExt};
use storage::{BucketFile, ObjectStorage, Tier, read_bucket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use types::threads::Group;
use types::{Error, ErrorKind, Result, failpoint};

/// This many buckets of a tier are fetched at once.
const AT_ONCE: usize = 4;
/// A tier of at most this many rows is indexed while it is copied, which takes a few percent of the time of copying and
/// about ten bytes of memory for each key. Of larger ones what many lookups search is indexed by one of these lookups.
const INDEXED_ROWS: i64 = 1 << 20;

/// How many files of a tier, or of a snapshot, are here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LocalFiles {
    pub(crate) here: usize,
    pub(crate) all: usize,
}

pub(super) struct CopiedBuckets {
    pub(super) live: LiveView,
    pub(super) given_up: CancellationToken,
    storage: ObjectStorage,
    permits: Semaphore,
    /// Whether keys are indexed while they are copied.
    indexed: bool,
    slots: Vec<Slot>,
    /// Once all are there.
    whole: OnceLock<Vec<Arc<SortedRun>>>,
    damage: OnceLock<Error>,
    /// The folder of files without names.
    cache: PathBuf,
    local_bytes: AtomicU64,
}

struct Slot {
    /// None where the tier has no rows.
    file: Option<BucketFile>,
    run: OnceLock<Arc<SortedRun>>,
    under_way: Mutex<Option<Fetch>>,
}

type Fetch = Shared<BoxFuture<'static, Result<(), Arc<Error>>>>;

/// Waits for every bucket of these tiers. What is not under way yet begins on these threads.
pub(super) async fn fetch_tiers(tiers: &[Arc<CopiedBuckets>], threads: &'static Group) -> Result<()> {
    try_join_all(tiers.iter().map(|tier| tier.fetch_all(threads))).await.map(drop)
}

impl CopiedBuckets {
    pub(super) fn new(storage: &ObjectStorage, tier: &Tier, live: &LiveView, cache: &Path) -> Self {
        let slots = (0..tier.bucket_count).map(|number| Slot::new(tier.file_of(number))).collect();
        let (whole, damage) = (OnceLock::new(), OnceLock::new());
        let permits = Semaphore::new(AT_ONCE);
        // Links are walked by nodes, not by whole keys.
        let indexed = live.plan.links().is_none() && tier.rows() <= INDEXED_ROWS;
        Self {
            live: live.clone(),
            given_up: CancellationToken::new(),
            storage: storage.clone(),
            permits,
            indexed,
            slots,
            whole,
            damage,
            cache: cache.to_path_buf(),
            local_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<&SortedRun> {
        match self.whole.get() {
            Some(runs) => runs.get(number as usize).map(|run| &**run),
            None => self.slots.get(number as usize)?.run.get().map(|run| &**run),
        }
    }

    pub(super) fn whole(&self) -> Option<&[Arc<SortedRun>]> {
        self.whole.get().map(Vec::as_slice)
    }

    pub(super) fn damage(&self) -> Option<&Error> {
        self.damage.get()
    }

    pub(super) fn local(&self) -> LocalFiles {
        let with_file = || self.slots.iter().filter(|slot| slot.file.is_some());
        LocalFiles { here: with_file().filter(|slot| slot.run.get().is_some()).count(), all: with_file().count() }
    }

    pub(super) fn local_bytes(&self) -> u64 {
        self.local_bytes.load(Ordering::Relaxed)
    }

    /// Like [`CopiedBuckets::fetch`], of all of them.
    pub(super) async fn fetch_all(self: &Arc<Self>, threads: &'static Group) -> Result<()> {
        if self.whole.get().is_none() {
            self.fetch(0..self.slots.len() as u32, threads).await?;
            let runs: Option<Vec<Arc<SortedRun>>> = self.slots.iter().map(|slot| slot.run.get().cloned()).collect();
            let runs = runs.ok_or_else(|| Error::internal("a bucket that was fetched is not there"))?;
            self.whole.get_or_init(|| runs);
        }
        Ok(())
    }

    /// Waits for these buckets. The fetch of one that nobody awaits yet begins on these threads.
    pub(super) async fn fetch(self: &Arc<Self>, wanted: impl IntoIterator<Item = u32>, threads: &'static Group) -> Result<()> {
        let missing = wanted.into_iter().filter(|number| self.get(*number).is_none());
        // Collected first: a closure in the stream would make this future one that cannot be spawned.
        let fetches: Vec<_> = missing.map(|number| self.clone().fetch_one(number, threads)).collect();
        futures::stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn fetch_one(self: Arc<Self>, number: u32, threads: &'static Group) -> Result<()> {
        let slot = self.slots.get(number as usize).ok_or_else(|| Error::internal("the tier has no such bucket"))?;
        let fetch = {
            let mut under_way = slot.under_way();
            if slot.run.get().is_some() {
                return Ok(());
            }
            under_way.get_or_insert_with(|| self.clone().begin(number, threads)).clone()
        };
        let outcome = fetch.clone().await;
        let mut under_way = slot.under_way();
        if under_way.as_ref().is_some_and(|known| known.ptr_eq(&fetch)) {
            *under_way = None;
        }
        outcome.map_err(|error| error.copied())
    }

    /// On a task of its own: the one who waits may leave.
    fn begin(self: Arc<Self>, number: u32, threads: &'static Group) -> Fetch {
        let task = threads.spawn(async move {
            let slot = &self.slots[number as usize];
            let loaded = tokio::select! {
                () = self.given_up.cancelled() => Err(Error::unavailable("the copy of a snapshot was abandoned: try again")),
                loaded = self.load(slot) => loaded,
            };
            let outcome = loaded.map(|run| slot.run.set(Arc::new(run))).map_err(|error| Arc::new(self.noted(error)));
            *slot.under_way() = None;
            outcome.map(|_| ())
        });
        async move { task.await.unwrap_or_else(|error| Err(Arc::new(Error::from(error)))) }.boxed().shared()
    }

    fn noted(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Corrupt => {
                self.damage.get_or_init(|| error.copied());
            }
            // Of the cache folder: what was asked for is there.
            ErrorKind::NotFound => return Error::unavailable("a snapshot could not be copied: try again").caused_by(error),
            _ => {}
        }
        error
    }

    async fn load(&self, slot: &Slot) -> Result<SortedRun> {
        let Some(bucket) = &slot.file else { return Ok(SortedRun::default()) };
        let _permit = self.permits.acquire().await.map_err(|_| Error::internal("a semaphore was closed"))?;
        let file = self.write(bucket).await?;
        self.local_bytes.fetch_add(file.metadata().map_or(0, |found| found.len()), Ordering::Relaxed);
        let run = map_file(&file).map_err(|error| self.in_cache(error))?;
        if self.indexed {
            for chunk in run.chunks() {
                chunk.index_keys();
                tokio::task::yield_now().await;
            }
        }
        Ok(run)
    }

    async fn write(&self, bucket: &BucketFile) -> Result<File> {
        let plan = &self.live.plan;
        let (file, to_write) = self.create_file().map_err(|error| self.in_cache(error.into()))?;
        let mut writer = SortedFileWriter::to_file(to_write, plan.state_schema()).map_err(|error| self.in_cache(error))?;
        let mut batches = read_bucket(&self.storage, bucket).await?;
        while let Some(batch) = batches.next().await {
            let batch = conform(plan.state_schema(), &batch?)?;
            let keys = self.live.codec.encode(&batch.columns()[..plan.keys.len()], batch.num_rows())?;
            writer.write(&StateRows::from_sorted(batch, keys)).map_err(|error| self.in_cache(error))?;
            failpoint::hit("serving.copying")?;
            // Lookups that need none of this go first.
            tokio::task::yield_now().await;
        }
        writer.finish().map_err(|error| self.in_cache(error))?;
        Ok(file)
    }

    /// Creates a file without a name; both handles are of it.
    fn create_file(&self) -> std::io::Result<(File, File)> {
        // Somebody may have removed the folder since.
        std::fs::create_dir_all(&self.cache)?;
        let file = tempfile::tempfile_in(&self.cache)?;
        let to_write = file.try_clone()?;
        Ok((file, to_write))
    }

    /// An error of the cache folder, not of the storage.
    fn in_cache(&self, error: Error) -> Error {
        error.with("folder", self.cache.display()).with("setting", "serving.cache_dir")
    }

    /// Ends what is under way.
    pub(super) fn give_up(&self) {
        self.given_up.cancel();
    }
}

impl Slot {
    fn new(file: Option<&BucketFile>) -> Self {
        let run = OnceLock::new();
        if file.is_none() {
            run.get_or_init(Arc::default);
        }
        Self { file: file.cloned(), run, under_way: Mutex::default() }
    }

    fn under_way(&self) -> MutexGuard<'_, Option<Fetch>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CopiedBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LocalFiles { here, all } = self.local();
        write!(f, "CopiedBuckets({here} of {all})")
    }
}
