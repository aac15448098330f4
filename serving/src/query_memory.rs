//! The memory of one query: its share, that of its principal, and the limit of all queries together. An error names the
//! limit that was reached.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use types::Error;

/// A pool for one query within those that it shares with others. Operators that can spill share each of them fairly.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    limit_bytes: usize,
    /// The query's own, then those around it.
    levels: Vec<MemoryLevel>,
    /// The place of the level that refused memory last.
    refused: AtomicUsize,
}

/// A limit, and what is reserved within it.
#[derive(Debug)]
pub(crate) struct MemoryLevel {
    scope: MemoryScope,
    limit_bytes: usize,
    pool: Arc<dyn MemoryPool>,
}

/// What shares the memory of a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MemoryScope {
    Query,
    Principal,
    Node,
}

/// No level refused memory.
const NONE: usize = usize::MAX;

impl QueryMemory {
    pub(crate) fn new(limit_bytes: usize, around: impl IntoIterator<Item = MemoryLevel>) -> Self {
        let own = MemoryLevel::new(MemoryScope::Query, limit_bytes, Arc::new(FairSpillPool::new(limit_bytes)));
        let levels = std::iter::once(own).chain(around).collect();
        Self { limit_bytes, levels, refused: AtomicUsize::new(NONE) }
    }

    /// The same error; one for want of memory says which limit was reached.
    pub(crate) fn named(&self, error: DataFusionError) -> DataFusionError {
        if !matches!(Error::datafusion_root(&error), DataFusionError::ResourcesExhausted(_)) {
            return error;
        }
        metrics::counter!("basestream_serving_queries_refused_total", "reason" => "memory").increment(1);
        let Some(MemoryLevel { scope, limit_bytes, .. }) = self.levels.get(self.refused.load(Ordering::Relaxed)) else { return error };
        let (message, setting) = match scope {
            MemoryScope::Query => ("the query needs more memory than one may have", "serving.limits.query_memory"),
            MemoryScope::Principal => {
                ("the principal's queries need more memory than those of one may have", "serving.limits.memory_per_principal")
            }
            MemoryScope::Node => ("the queries under way need more memory than all may have", "serving.memory_limit"),
        };
        let error = Error::limit(message).with("limit", setting).with("bytes", limit_bytes).caused_by(Error::from(error));
        error.with("help", "select less, group by fewer values, or raise the setting").into()
    }
}

impl MemoryLevel {
    pub(crate) fn new(scope: MemoryScope, limit_bytes: usize, pool: Arc<dyn MemoryPool>) -> Self {
        Self { scope, limit_bytes, pool }
    }
}

/// The memory that the queries of each principal share.
#[derive(Debug)]
pub(crate) struct PrincipalMemory {
    limit_bytes: usize,
    /// Of the principals that have queries.
    pools: Mutex<HashMap<Arc<str>, Weak<FairSpillPool>>>,
}

impl PrincipalMemory {
    /// Each principal has this many bytes.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, pools: Mutex::default() }
    }

    pub(crate) fn level(&self, name: &Arc<str>) -> MemoryLevel {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pools.get(name).and_then(Weak::upgrade);
        let pool = known.unwrap_or_else(|| {
            pools.retain(|_, pool| pool.strong_count() > 0);
            let pool = Arc::new(FairSpillPool::new(self.limit_bytes));
            pools.insert(name.clone(), Arc::downgrade(&pool));
            pool
        });
        MemoryLevel::new(MemoryScope::Principal, self.limit_bytes, pool)
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "query"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.levels.iter().for_each(|level| level.pool.register(consumer));
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.levels.iter().for_each(|level| level.pool.unregister(consumer));
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.levels.iter().for_each(|level| level.pool.grow(reservation, additional));
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.levels.iter().for_each(|level| level.pool.shrink(reservation, shrink));
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        for (place, level) in self.levels.iter().enumerate() {
            level.pool.try_grow(reservation, additional).inspect_err(|_| {
                self.levels[..place].iter().for_each(|within| within.pool.shrink(reservation, additional));
                self.refused.store(place, Ordering::Relaxed);
            })?;
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.levels.first().map_or(0, |own| own.pool.reserved())
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit_bytes)
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "query(limit: {})", self.limit_bytes)
    }
}

#[cfg(test)]
mod tests;
