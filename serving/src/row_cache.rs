//! Finished rows of hot keys, reused by the next lookup that asks for the same. A row is valid as long as it would be
//! made from the same states ([`RowBasis`]): until a layer has events of its key, a snapshot or a checkpoint replaces
//! what it was made from, or the edge of a window moves.
//!
//! The cache takes a part of the queries' memory. The least recently used rows are dropped first.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use datafusion::execution::memory_pool::MemoryPool;
use metrics::Counter;

use crate::answers::Answers;
use crate::kept_keys::KeyName;
use crate::recently_used::{Limit, RecentlyUsed};

mod basis;

pub(crate) use basis::{Part, RowBasis, RowInputs, RowValidity};

/// The cache keeps at most this many rows.
const MAX_ROWS: usize = 10_000;

/// One row, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RowName {
    pub(crate) key: KeyName,
    /// Indices of the plan's columns.
    pub(crate) columns: Arc<[usize]>,
}

/// A row, and what it was made from.
pub(crate) struct CachedRow {
    pub(crate) basis: RowBasis,
    pub(crate) answers: Answers,
}

/// The finished rows that a node keeps.
pub(crate) struct RowCache {
    /// `None` if no rows are kept.
    rows: Option<Mutex<RecentlyUsed<RowName, Arc<CachedRow>>>>,
    hits: OnceLock<Counter>,
    misses: OnceLock<Counter>,
}

impl RowCache {
    /// Creates a cache with room for this many bytes.
    pub(crate) fn new(limit_bytes: usize, pool: &Arc<dyn MemoryPool>) -> Self {
        let limit = Limit { bytes: limit_bytes, entries: MAX_ROWS };
        let rows = (limit_bytes > 0).then(|| Mutex::new(RecentlyUsed::new(limit, "RowCache", pool)));
        Self { rows, hits: OnceLock::new(), misses: OnceLock::new() }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.rows.is_some()
    }

    /// Returns the last row under this name. [`RowInputs::compared`] says whether it is still valid.
    pub(crate) fn get(&self, name: &RowName) -> Option<Arc<CachedRow>> {
        self.lock()?.get(name)
    }

    /// Counts a lookup that was answered with a row of the cache.
    pub(crate) fn count_hit(&self) {
        self.hits.get_or_init(|| metrics::counter!("basestream_serving_row_cache_hits_total")).increment(1);
    }

    /// Counts a lookup of a hot key whose row has to be computed.
    pub(crate) fn count_miss(&self) {
        self.misses.get_or_init(|| metrics::counter!("basestream_serving_row_cache_misses_total")).increment(1);
    }

    pub(crate) fn put(&self, name: RowName, basis: RowBasis, answers: &Answers) {
        let Some(mut rows) = self.lock() else { return };
        let bytes = name.key.key.len() + size_of_val(&*name.columns) + basis.memory_bytes() + answers.memory_bytes();
        let gone = rows.put(name, Arc::new(CachedRow { basis, answers: answers.clone() }), bytes);
        metrics::gauge!("basestream_serving_row_cache_bytes").set(rows.bytes() as f64);
        drop(rows);
        drop(gone);
    }

    fn lock(&self) -> Option<MutexGuard<'_, RecentlyUsed<RowName, Arc<CachedRow>>>> {
        self.rows.as_ref().map(|rows| rows.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for RowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowCache({} rows)", self.lock().map_or(0, |rows| rows.len()))
    }
}

#[cfg(test)]
mod tests;
