//! The limits of queries in a node: `[serving.limits]`.

use std::time::Duration;

/// The limits of a node, of each principal and of each query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingLimits {
    /// Queries that run at a time; those that read a few keys and no more do not count.
    pub concurrent_queries: usize,
    /// The same of one principal.
    pub concurrent_queries_per_principal: usize,
    /// Queries that wait for their turn.
    pub queued_queries: usize,
    /// The same of one principal.
    pub queued_queries_per_principal: usize,
    /// How long a query waits for its turn.
    pub queue_wait: Duration,
    /// How long a query may take in all, with the sending of its rows; `None`: as long as it takes.
    pub query_time: Option<Duration>,
    /// Memory of one query; `None`: half of what all queries have.
    pub query_memory_bytes: Option<usize>,
    /// Memory of all queries of one principal; `None`: what all queries have.
    pub memory_per_principal_bytes: Option<usize>,
    /// Rows of one answer; `None`: any number.
    pub result_rows: Option<u64>,
    /// Answers in pages that one principal may have open.
    pub cursors_per_principal: usize,
    /// An answer in pages ends when its next page is not asked for in this time.
    pub cursor_idle: Duration,
    /// Connections of HTTP at a time.
    pub http_connections: usize,
    /// PostgreSQL clients at a time.
    pub postgres_connections: usize,
}

impl Default for ServingLimits {
    fn default() -> Self {
        Self {
            concurrent_queries: 32,
            concurrent_queries_per_principal: 16,
            queued_queries: 256,
            queued_queries_per_principal: 128,
            queue_wait: Duration::from_secs(10),
            query_time: None,
            query_memory_bytes: None,
            memory_per_principal_bytes: None,
            result_rows: None,
            cursors_per_principal: 16,
            cursor_idle: Duration::from_secs(60),
            http_connections: 4096,
            postgres_connections: 500,
        }
    }
}
