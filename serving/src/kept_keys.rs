//! Keeps the merged values of hot keys for their next queries ([`KeptKey`]). Of the queries for one key, one at a time
//! merges; the others wait for it and use its result.
//!
//! Kept states take a part of the queries' memory. Those that were used longest ago go first.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use datafusion::execution::memory_pool::MemoryPool;
use engine::fresh::ViewVersion;
use engine::states::KeptKey;

use crate::recently_used::{Limit, RecentlyUsed};

/// At most one of this many parts of the queries' memory is for kept states.
const PART: usize = 4;

/// A key of a view version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct KeyName {
    pub(crate) view: ViewVersion,
    pub(crate) key: Arc<[u8]>,
}

/// The kept keys of a node.
pub(crate) struct KeptKeys {
    limit_bytes: usize,
    kept: Mutex<RecentlyUsed<KeyName, Arc<KeptKey>>>,
    /// For each key, one query at a time merges.
    turns: Mutex<HashMap<KeyName, Weak<tokio::sync::Mutex<()>>>>,
}

impl KeptKeys {
    /// With room for a part of these queries' memory.
    pub(crate) fn new(queries_limit_bytes: usize, pool: &Arc<dyn MemoryPool>) -> Self {
        let limit = Limit { bytes: queries_limit_bytes / PART, entries: usize::MAX };
        Self { limit_bytes: limit.bytes, kept: Mutex::new(RecentlyUsed::new(limit, "KeptKeys", pool)), turns: Mutex::default() }
    }

    /// What is kept of a key, if anything is.
    pub(crate) fn get(&self, name: &KeyName) -> Option<Arc<KeptKey>> {
        self.lock().get(name)
    }

    /// Keeps what was merged of a key, as far as there is room.
    pub(crate) fn put(&self, name: KeyName, kept: &Arc<KeptKey>) {
        if kept.memory_bytes() > self.limit_bytes {
            kept.drop_sets();
        }
        let bytes = kept.memory_bytes() + name.key.len();
        let mut all = self.lock();
        let gone = all.put(name, kept.clone(), bytes);
        metrics::gauge!("basestream_serving_kept_bytes").set(all.bytes() as f64);
        drop(all);
        // After the lock: it may take a while.
        drop(gone);
    }

    /// The turn of a key: its holder merges, in the order of requests.
    pub(crate) fn turn(&self, name: &KeyName) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(name).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        turns.insert(name.clone(), Arc::downgrade(&turn));
        turn
    }

    fn lock(&self) -> MutexGuard<'_, RecentlyUsed<KeyName, Arc<KeptKey>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeptKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptKeys({} keys)", self.lock().len())
    }
}

#[cfg(test)]
mod tests;
