//! A producer of numbered events, and the plain SQL answer over the first `n` of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use basestream_tests::patience::PATIENCE;
use bytes::Bytes;
use engine::events::format_timestamp;
use event_log::{Log, NewRecord};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::tiles::Micros;
use types::timed_out;

const ACCOUNTS: u64 = 61;

pub const STREAM: &str = "CREATE STREAM payments (id TEXT NOT NULL, n BIGINT NOT NULL, ts TIMESTAMPTZ NOT NULL, account TEXT NOT NULL, \
    amount DECIMAL(18,2) NOT NULL) WITH (topic = 'TOPIC', format = 'json', event_time = 'ts', id = 'id', dedup_within = '1h', key = 'account')";
pub const VIEW: &str = "CREATE VIEW by_account AS SELECT account, count(*) AS events, sum(amount) AS total, min(n) AS first, \
    max(n) AS last, count(DISTINCT n) AS numbers FROM payments GROUP BY account";

/// Event number `n`. Its account is its key, so that a repeated append reaches the same partition.
pub fn event(n: u64, base: Micros) -> NewRecord {
    let account = format!("a{}", n % ACCOUNTS);
    let ts = format_timestamp(base + n as Micros * 100);
    let value = format!(r#"{{"id":"e{n}","n":{n},"ts":"{ts}","account":"{account}","amount":{}.{:02}}}"#, n % 97, n % 100);
    NewRecord { key: Some(Bytes::from(account)), value: Some(Bytes::from(value)), headers: Vec::new(), partition_by: None }
}

/// The view's rows over the events with these numbers, as sorted text.
pub fn truth(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    let mut rows: BTreeMap<u64, (u64, u64, u64, u64)> = BTreeMap::new();
    for n in numbers {
        let cents = n % 97 * 100 + n % 100;
        let row = rows.entry(n % ACCOUNTS).or_insert((0, 0, n, n));
        *row = (row.0 + 1, row.1 + cents, row.2.min(n), row.3.max(n));
    }
    let line = |(account, (events, cents, first, last)): (u64, (u64, u64, u64, u64))| {
        format!("a{account} {events} {}.{:02} {first} {last} {events}", cents / 100, cents % 100)
    };
    let mut lines: Vec<String> = rows.into_iter().map(line).collect();
    lines.sort();
    lines
}

/// Appends events until it is stopped. A failed append is repeated: ids make duplicates of what the log already has.
pub struct Feed {
    sent: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What was appended.
#[derive(Debug, Clone, Copy)]
pub struct Fed {
    pub events: u64,
    pub failed_appends: u64,
}

impl Feed {
    pub fn start(log: Arc<dyn Log>, topic: &str, batch: u64, pause: Duration) -> Feed {
        Feed::from(0, log, topic, batch, pause)
    }

    /// Starts with event number `first`.
    pub fn from(first: u64, log: Arc<dyn Log>, topic: &str, batch: u64, pause: Duration) -> Feed {
        let (sent, failed, stop) = (Arc::new(AtomicU64::new(first)), Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let base = basestream_tests::now() - 3_600_000_000;
        let (counts, token, topic) = ((sent.clone(), failed.clone()), stop.clone(), topic.to_owned());
        let task = tokio::spawn(async move {
            while !token.is_cancelled() {
                let first = counts.0.load(Ordering::SeqCst);
                let records: Vec<NewRecord> = (first..first + batch).map(|n| event(n, base)).collect();
                while let Err(error) = log.append(&topic, records.clone()).await {
                    tracing::info!(%error, "an append failed and is repeated");
                    counts.1.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                counts.0.store(first + batch, Ordering::SeqCst);
                tokio::time::sleep(pause).await;
            }
        });
        Feed { sent, failed, stop, task }
    }

    /// Events that the log has acknowledged.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Appends that failed so far.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    pub async fn finish(self) -> Fed {
        self.stop.cancel();
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.unwrap_or_else(|_| timed_out::fail("the log takes no records")).unwrap();
        Fed { events: self.sent.load(Ordering::SeqCst), failed_appends: self.failed.load(Ordering::SeqCst) }
    }
}
