//! Faults of the engines themselves: brokers and databases that are killed, connections that are cut, replies that are
//! lost or slow, groups that rebalance, logs that lost unread records. Each test asserts that its fault fired.
//!
//! They need Kafka, PostgreSQL and S3: `just services up`, then `just test-outages`.

#![allow(clippy::unwrap_used)]

use basestream_tests::until;

mod feed;
mod front;
mod harness;
mod kafka;
mod load;
mod log_lost;
mod overload;
mod postgres;
mod proxy;
mod rebalance;
mod s3;
mod service;
mod transactions;

/// Tests that stop a service hold this exclusively; all others share it.
static SERVICES: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

/// Enables logs as RUST_LOG requests.
fn show_logs() {
    let logs = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).with_test_writer();
    let _ = logs.try_init();
}
