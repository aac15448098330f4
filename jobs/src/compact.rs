//! Compacts the archive: checkpoints behind all cuts and pins become fewer, and their files larger.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use batch::{Batch, COMPACTION_LEASE, Compacted, Compaction, KeepLease};
use catalog::{CatalogState, CheckpointRecord, CompactionRules, compactions};
use committed::damage::{Finder, report_damage};
use committed::registry::Registry;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use types::tiles::Clock;
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use crate::collect::{reads, without_staging};

/// The longest wait after a round that failed, unless rounds are further apart anyway.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// Compacts the archive of one installation. In a fleet one process at a time does so.
pub struct Compacting {
    pub batch: Batch,
    pub rules: CompactionRules,
    pub clock: Clock,
    /// Checkpoints whose files were written by other versions of their streams than the files before. They are found by
    /// reading the files, once in the life of a process.
    pub group_starts: Arc<Mutex<BTreeSet<Uuid>>>,
}

impl Compacting {
    /// Compacts again and again until `stop` is cancelled. It can be dropped at any point: a group is written under
    /// fresh names, then committed in one transaction.
    pub async fn run(&self, every: Duration, stop: CancellationToken) {
        let rounds = async {
            let (mut failures, mut registry) = (0, None);
            loop {
                tokio::time::sleep(wait(every, failures)).await;
                let outcome = self.compact_once(&mut registry).await;
                failures = if outcome.is_err() { failures + 1 } else { 0 };
                match outcome {
                    Ok(done) if done == Compacted::default() => {}
                    Ok(done) => info!(checkpoints = done.checkpoints, files = done.files_written, "the archive was compacted"),
                    Err(error) if error.kind() == ErrorKind::Conflict => debug!(%error, "the archive changed meanwhile; compacting later"),
                    Err(error) => {
                        let seconds = wait(every, failures).as_secs();
                        warn!(%error, seconds, "the archive could not be compacted; trying again later");
                    }
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = rounds => {}
        }
    }

    /// Compacts all that is due, and returns how much that was: nothing while another process does it.
    pub async fn compact(&self) -> Result<Compacted> {
        self.compact_once(&mut None).await
    }

    /// `registry`: the definitions that were loaded last, if any were.
    async fn compact_once(&self, registry: &mut Option<Registry>) -> Result<Compacted> {
        let (catalog, ttl) = (&self.batch.catalog, self.batch.settings.lease);
        if self.due(&*catalog.state().await?, registry).await?.is_empty() {
            return Ok(Compacted::default());
        }
        let lease = catalog.acquire_fenced_lease(COMPACTION_LEASE, &self.batch.worker, ttl, (self.clock)(), None).await?;
        let Some(lease) = lease else { return Ok(Compacted::default()) };
        let renewing = KeepLease::start(catalog.clone(), lease, ttl, self.clock.clone());
        let outcome = Box::pin(self.compact_all(&renewing, registry)).await;
        if let Err(error) = catalog.release_lease(&renewing.stop().await).await {
            warn!(%error, "the lease of the compaction was not released; it expires by itself");
        }
        outcome
    }

    /// Goes on past a group that fails, as one damaged file must not keep the others from being compacted; but not when
    /// the lease is lost, as nothing can be committed then.
    async fn compact_all(&self, lease: &KeepLease, registry: &mut Option<Registry>) -> Result<Compacted> {
        let mut all = Compacted::default();
        loop {
            let state = self.batch.catalog.state().await?;
            let groups = self.due(&state, registry).await?;
            let mut failed = None;
            for group in &groups {
                if !lease.is_held((self.clock)()) {
                    let lost = || Error::conflict("the lease of the compaction was lost: another process may have it");
                    return Err(failed.unwrap_or_else(lost));
                }
                let group: Vec<&CheckpointRecord> = group.iter().filter_map(|id| state.checkpoints.get(*id)).collect();
                match self.batch.compact(&state, &group, lease, &self.clock).await {
                    Ok(Compaction::MixedVersions(found)) => self.lock_group_starts().extend(found),
                    Ok(Compaction::Done(done)) => {
                        count(&done);
                        all = all.and(&done);
                    }
                    Err(error) => {
                        let finder = Finder { name: &self.batch.worker, now: (self.clock)() };
                        report_damage(&self.batch.catalog, &self.batch.storage, &state, &[error.copied()], finder).await;
                        failed = failed.or(Some(error));
                    }
                }
            }
            match failed {
                Some(error) => return Err(error),
                None if groups.is_empty() => return Ok(all),
                None => {}
            }
        }
    }

    /// Returns the groups of checkpoints that are due.
    async fn due(&self, state: &CatalogState, registry: &mut Option<Registry>) -> Result<Vec<Vec<Uuid>>> {
        let loaded = match registry.take().filter(|registry| !registry.has_other_definitions(state)) {
            Some(registry) => registry,
            None => Registry::load(state, &self.batch.functions).await?,
        };
        let registry = registry.insert(loaded);
        let starts = self.group_starts(state);
        let state = without_staging(state, registry);
        let groups = compactions(&state, &reads(registry), &self.rules, &starts, (self.clock)());
        Ok(groups.into_iter().map(|group| group.into_iter().map(|checkpoint| checkpoint.id).collect()).collect())
    }

    /// Returns the checkpoints that begin a group. Those that the catalog no longer has were compacted: they are
    /// forgotten.
    fn group_starts(&self, state: &CatalogState) -> BTreeSet<Uuid> {
        let mut starts = self.lock_group_starts();
        starts.retain(|id| state.checkpoints.get(*id).is_some());
        starts.clone()
    }

    fn lock_group_starts(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        self.group_starts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how long to wait after this many failures in a row: each may have read and written large files for nothing.
fn wait(every: Duration, failures: u32) -> Duration {
    every.saturating_mul(1 << failures.min(10)).min(every.max(LONGEST_WAIT))
}

fn count(done: &Compacted) {
    metrics::counter!("basestream_jobs_compacted_checkpoints_total").increment(done.checkpoints as u64);
    metrics::counter!("basestream_jobs_compacted_files_total").increment(done.files_read as u64);
    metrics::counter!("basestream_jobs_compacted_bytes_total").increment(done.bytes_read.max(0) as u64);
}

#[cfg(test)]
mod tests;
