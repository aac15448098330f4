//! Renews the leases of a consumer while it works, on the threads for leases: however busy the others are (with
//! queries, with records), no lease is lost for that.
//!
//! A consumer that makes no progress for [`MAX_STALL`] is not renewed any more: another one takes its partitions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::task::AbortOnDropHandle;

use super::Clock;
use super::lease::{FreePartitions, PartitionLeases, RENEW_EVERY};
use crate::TopicPartition;
use types::threads;

/// A worker that receives no event for this long loses its partitions (Kafka's max.poll.interval.ms).
pub(super) const MAX_STALL: Duration = Duration::from_secs(300);

/// Partitions that are held, each with the epoch of its lease.
pub(super) type HeldPartitions = BTreeMap<TopicPartition, i64>;

/// Renews until it is stopped or dropped.
#[derive(Debug)]
pub(super) struct Renewing {
    shared: Arc<Mutex<Shared>>,
    task: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    held: HeldPartitions,
    /// When the consumer last made progress.
    active: Instant,
}

impl Renewing {
    /// Renews this worker's membership and the partitions that it holds. It holds none yet.
    pub(super) fn start(leases: PartitionLeases, clock: Clock) -> Renewing {
        let shared = Arc::new(Mutex::new(Shared { held: HeldPartitions::new(), active: Instant::now() }));
        let task = threads::LEASES.spawn(renew(leases, clock, shared.clone()));
        Renewing { shared, task: AbortOnDropHandle::new(task) }
    }

    /// Renews these from now on.
    pub(super) fn hold(&self, held: &HeldPartitions) {
        lock(&self.shared).held.clone_from(held);
    }

    /// The consumer makes progress.
    pub(super) fn note_progress(&self) {
        lock(&self.shared).active = Instant::now();
    }

    /// Stops; nothing is renewed after this returns.
    pub(super) async fn stop(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

async fn renew(leases: PartitionLeases, clock: Clock, shared: Arc<Mutex<Shared>>) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        let Some(held) = held_by_active(&shared) else { continue };
        // What was given back meanwhile is not taken again: the renewal looks at who owns each lease.
        if let Err(error) = leases.renew(&held, clock(), FreePartitions::Leave).await {
            tracing::warn!(%error, worker = %leases.worker, "leases of the log were not renewed; trying again");
        }
    }
}

/// What to renew; `None` for a consumer that stalls.
fn held_by_active(shared: &Mutex<Shared>) -> Option<HeldPartitions> {
    let shared = lock(shared);
    (shared.active.elapsed() < MAX_STALL).then(|| shared.held.clone())
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
