//! The ids of partitions that a worker of this process has released. A worker of the same process that takes such a
//! partition over need not read its ids again from the archive if nothing was committed to it meanwhile, because the
//! committed position determines which ids were accepted. This happens whenever the workers of a process start one
//! after the other, or their topics change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::PartitionRecord;
use definitions::StreamDefinition;
use tokio::time::Instant;
use types::vector::{Offset, PartitionId};

use crate::decide::{Decider, DedupSettings, IdSpace};

/// How long the ids are kept: partitions are reassigned in less. They take memory, and another process may have the
/// partition by now.
const KEPT: Duration = Duration::from_secs(30);

/// The ids that the workers of a process remember. Clones share them.
#[derive(Debug, Clone)]
pub struct ProcessIds(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    space: IdSpace,
    /// The released partitions, each with the time until which it is kept.
    released: Mutex<BTreeMap<PartitionId, (ReleasedPartition, Instant)>>,
}

/// A partition without uncommitted work.
#[derive(Debug)]
pub(crate) struct ReleasedPartition {
    pub(crate) at: Committed,
    pub(crate) decider: Decider,
}

/// The facts that determine the ids of a partition's accepted records.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Committed {
    /// The identity of the log.
    pub(crate) identity: String,
    pub(crate) next_offset: Offset,
    pub(crate) definition: Arc<StreamDefinition>,
    pub(crate) definition_version: u32,
}

impl ProcessIds {
    /// Creates it for this many workers.
    pub fn new(settings: DedupSettings, workers: usize) -> Self {
        Self(Arc::new(Inner { space: IdSpace::for_workers(settings, workers), released: Mutex::default() }))
    }

    pub(crate) fn space(&self) -> &IdSpace {
        &self.0.space
    }

    /// Keeps these partitions for a while.
    pub(crate) fn keep(&self, partitions: BTreeMap<PartitionId, ReleasedPartition>) {
        self.keep_for(KEPT, partitions);
    }

    fn keep_for(&self, time: Duration, partitions: BTreeMap<PartitionId, ReleasedPartition>) {
        if partitions.is_empty() {
            return;
        }
        let until = Instant::now() + time;
        self.0.lock().extend(partitions.into_iter().map(|(id, partition)| (id, (partition, until))));
        let ids = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if let Some(ids) = ids.upgrade() {
                ids.lock().retain(|_, (_, until)| Instant::now() < *until);
            }
        });
    }

    /// Returns the decider of a partition that continues where it was released; `known` is what the catalog has of it.
    pub(crate) fn take_back(&self, id: &PartitionId, at: &Committed, known: Option<&PartitionRecord>) -> Option<Decider> {
        let (ReleasedPartition { at: left_at, decider }, _) = self.0.lock().remove(id)?;
        let has_values = |known: &PartitionRecord| {
            (known.next_offset, known.clock, known.max_event_time) == (at.next_offset, decider.clock(), decider.max_event_time())
        };
        (left_at == *at && known.is_some_and(has_values)).then_some(decider)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PartitionId, (ReleasedPartition, Instant)>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
