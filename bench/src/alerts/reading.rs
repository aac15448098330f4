//! Reads the alert's topic as it grows.

use std::sync::Arc;
use std::time::Duration;

use event_log::{Log, TopicPartition};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::Result;
use types::tiles::Micros;
use types::vector::Offset;

use super::clock::now;
use crate::payments::PARTITIONS;

const AT_ONCE: usize = 20_000;
/// How often it looks for new records.
const POLL: Duration = Duration::from_millis(2);

pub(super) struct Reader {
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

impl Reader {
    /// `take` gets each record, and when it could be read.
    pub(super) fn start(log: Arc<dyn Log>, topic: &'static str, take: impl Fn(&Value, Micros) + Send + Sync + 'static) -> Reader {
        let stop = CancellationToken::new();
        Reader { stop: stop.clone(), task: tokio::spawn(async move { read(&*log, topic, &take, &stop).await }) }
    }

    /// Stops once it has read everything.
    pub(super) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.task.await?
    }
}

/// The device that a record is of, and since when.
pub(super) fn device_since(record: &Value) -> Option<(u64, Micros)> {
    let device = record["device_id"].as_str()?.strip_prefix('d')?.parse().ok()?;
    let since = chrono::DateTime::parse_from_rfc3339(record["_since"].as_str()?).ok()?;
    Some((device, since.timestamp_micros()))
}

async fn read(log: &dyn Log, topic: &str, take: &(impl Fn(&Value, Micros) + Sync), stop: &CancellationToken) -> Result<()> {
    let mut next = vec![Offset::ZERO; PARTITIONS as usize];
    loop {
        let stops = stop.is_cancelled();
        let mut found = 0;
        for (partition, next) in next.iter_mut().enumerate() {
            let source = TopicPartition { topic: topic.into(), partition: partition as i32 };
            let fetched = log.read(&source, *next, AT_ONCE).await?;
            let at = now();
            for record in &fetched.records {
                let value = record.value.as_deref().unwrap_or_default();
                take(&serde_json::from_slice(value).unwrap_or_default(), at);
            }
            found += fetched.records.len();
            *next = fetched.position;
        }
        if stops && found == 0 {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}
