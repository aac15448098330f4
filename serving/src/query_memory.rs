//! The memory of one query: its share, and the limit of all queries together. An error names the limit that was
//! reached.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use types::Error;

/// A pool for one query within that of the node. Operators that can spill share the query's part fairly.
#[derive(Debug)]
pub(crate) struct QueryMemory {
    of_query: FairSpillPool,
    limit_bytes: usize,
    of_node: Arc<dyn MemoryPool>,
    node_limit_bytes: usize,
    refused: AtomicU8,
}

/// Which limit refused memory last.
const BY_QUERY: u8 = 1;
const BY_NODE: u8 = 2;

impl QueryMemory {
    pub(crate) fn new(limit_bytes: usize, of_node: Arc<dyn MemoryPool>, node_limit_bytes: usize) -> Self {
        let of_query = FairSpillPool::new(limit_bytes);
        Self { of_query, limit_bytes, of_node, node_limit_bytes, refused: AtomicU8::new(0) }
    }

    /// The same error; one for want of memory says which limit was reached.
    pub(crate) fn named(&self, error: DataFusionError) -> DataFusionError {
        if !matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) {
            return error;
        }
        metrics::counter!("basestream_serving_queries_refused_total", "reason" => "memory").increment(1);
        let (message, limit, bytes) = match self.refused.load(Ordering::Relaxed) {
            BY_QUERY => ("the query needs more memory than one may have", "serving.limits.query_memory", self.limit_bytes),
            BY_NODE => ("the queries under way need more memory than all may have", "serving.memory_limit", self.node_limit_bytes),
            _ => return error,
        };
        let error = Error::limit(message).with("limit", limit).with("bytes", bytes).caused_by(Error::from(error));
        error.with("help", "select less, group by fewer values, or raise the setting").into()
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "query"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.of_query.register(consumer);
        self.of_node.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.of_query.unregister(consumer);
        self.of_node.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.of_query.grow(reservation, additional);
        self.of_node.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.of_query.shrink(reservation, shrink);
        self.of_node.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        self.of_query.try_grow(reservation, additional).inspect_err(|_| self.refused.store(BY_QUERY, Ordering::Relaxed))?;
        self.of_node.try_grow(reservation, additional).inspect_err(|_| {
            self.of_query.shrink(reservation, additional);
            self.refused.store(BY_NODE, Ordering::Relaxed);
        })
    }

    fn reserved(&self) -> usize {
        self.of_query.reserved()
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
