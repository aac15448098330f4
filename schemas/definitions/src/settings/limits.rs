//! `[serving.limits]`: the limits of queries in a process that answers them.

use std::time::Duration;

use serde::Deserialize;

use super::fields;

/// `[serving.limits]`: what is beyond a limit waits, or is refused, so that the others are answered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSettings {
    /// SQL queries that run at a time. Those that read a few keys and no more do not count. Default: 32.
    #[serde(deserialize_with = "fields::count")]
    pub concurrent_queries: u32,
    /// The same of one principal. Default: 16.
    #[serde(deserialize_with = "fields::count")]
    pub concurrent_queries_per_principal: u32,
    /// Queries that wait for their turn; one more is refused. Default: 256.
    #[serde(deserialize_with = "fields::count")]
    pub queued_queries: u32,
    /// The same of one principal. Default: 128.
    #[serde(deserialize_with = "fields::count")]
    pub queued_queries_per_principal: u32,
    /// How long a query waits for its turn before it is refused. Default: `10s`.
    #[serde(deserialize_with = "fields::duration")]
    pub queue_wait: Duration,
    /// How long a query may take in all, with the sending of its rows. Default: absent, as long as it takes.
    #[serde(deserialize_with = "fields::optional_duration")]
    pub query_time: Option<Duration>,
    /// Memory of one query (bytes), within `serving.memory_limit`. Default: absent, half of that.
    #[serde(deserialize_with = "fields::optional_bytes")]
    pub query_memory: Option<u64>,
    /// Memory of all queries of one principal (bytes), within `serving.memory_limit`. Default: absent, all of that.
    #[serde(deserialize_with = "fields::optional_bytes")]
    pub memory_per_principal: Option<u64>,
    /// Rows of one answer. Default: absent, any number.
    #[serde(deserialize_with = "fields::optional_count")]
    pub result_rows: Option<u32>,
    /// Answers in pages (`page_rows`) that one principal may have open. Default: 16.
    #[serde(deserialize_with = "fields::count")]
    pub cursors_per_principal: u32,
    /// An answer in pages ends when its next page is not asked for in this time. Default: `1m`.
    #[serde(deserialize_with = "fields::duration")]
    pub cursor_idle: Duration,
    /// Connections of HTTP at a time; others are refused with 503. No more than half of the files that the process may
    /// open. Default: 4096.
    #[serde(deserialize_with = "fields::count")]
    pub http_connections: u32,
    /// PostgreSQL clients at a time; others are refused with SQLSTATE 53300. Default: 500.
    #[serde(deserialize_with = "fields::count")]
    pub postgres_connections: u32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            concurrent_queries: 32,
            concurrent_queries_per_principal: 16,
            queued_queries: 256,
            queued_queries_per_principal: 128,
            queue_wait: Duration::from_secs(10),
            query_time: None,
            query_memory: None,
            memory_per_principal: None,
            result_rows: None,
            cursors_per_principal: 16,
            cursor_idle: Duration::from_secs(60),
            http_connections: 4096,
            postgres_connections: 500,
        }
    }
}
