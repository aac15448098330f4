//! Reads the alert's topic as it grows.

use std::sync::Arc;
use std::time::Duration;

use event_log::{Log, TopicPartition};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::Result;
use types::vector::Offset;

use super::fleet::{ALERT_TOPIC, Fleet, now};
use crate::payments::PARTITIONS;

const AT_ONCE: usize = 20_000;
/// How often it looks for new records.
const POLL: Duration = Duration::from_millis(2);

pub(super) struct Reader {
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

impl Reader {
    pub(super) fn start(log: Arc<dyn Log>, fleet: Fleet) -> Reader {
        let stop = CancellationToken::new();
        Reader { stop: stop.clone(), task: tokio::spawn(async move { read(&*log, &fleet, &stop).await }) }
    }

    /// Stops once it has read everything.
    pub(super) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.task.await?
    }
}

async fn read(log: &dyn Log, fleet: &Fleet, stop: &CancellationToken) -> Result<()> {
    let mut next = vec![Offset::ZERO; PARTITIONS as usize];
    loop {
        let stops = stop.is_cancelled();
        let mut found = 0;
        for (partition, next) in next.iter_mut().enumerate() {
            let source = TopicPartition { topic: ALERT_TOPIC.into(), partition: partition as i32 };
            let fetched = log.read(&source, *next, AT_ONCE).await?;
            let at = now();
            for record in &fetched.records {
                let value = record.value.as_deref().unwrap_or_default();
                fleet.take(&serde_json::from_slice(value).unwrap_or_default(), at);
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
