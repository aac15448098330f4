//! The limits of queries in a node: `[serving.limits]`.

use std::time::Duration;

use definitions::settings::LimitSettings;

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

/// Those of the default settings.
impl Default for ServingLimits {
    fn default() -> Self {
        Self::from(&LimitSettings::default())
    }
}

impl From<&LimitSettings> for ServingLimits {
    fn from(settings: &LimitSettings) -> Self {
        let count = |number: u32| number as usize;
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Self {
            concurrent_queries: count(settings.concurrent_queries),
            concurrent_queries_per_principal: count(settings.concurrent_queries_per_principal),
            queued_queries: count(settings.queued_queries),
            queued_queries_per_principal: count(settings.queued_queries_per_principal),
            queue_wait: settings.queue_wait,
            query_time: settings.query_time,
            query_memory_bytes: settings.query_memory.map(bytes),
            memory_per_principal_bytes: settings.memory_per_principal.map(bytes),
            result_rows: settings.result_rows.map(u64::from),
            cursors_per_principal: count(settings.cursors_per_principal),
            cursor_idle: settings.cursor_idle,
            http_connections: count(settings.http_connections),
            postgres_connections: count(settings.postgres_connections),
        }
    }
}
