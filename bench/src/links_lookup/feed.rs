//! Events that arrive while lookups are asked: appended to the embedded log at a rate, from this process.
//!
//! Nine of ten are logins, and all repeat edges of the graph: its degrees stay what they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use jobs::Installation;
use schemas::Result;
use schemas::events::format_timestamp;
use schemas::log::{Log, NewRecord};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::events::END;
use crate::graph::{Graph, Stream, device_text, user_text};

const TICK: Duration = Duration::from_millis(50);

pub(super) struct Feed {
    appended: Arc<AtomicU64>,
    began: Instant,
    before: u64,
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

/// What arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fed {
    pub(super) appended_per_second: f64,
    pub(super) counted_per_second: f64,
}

impl Feed {
    /// Begins, and waits until it is under way. Feeds of different numbers have different events.
    pub(super) async fn start(installation: &Installation, graph: Graph, rate: u64, number: u64) -> Result<Feed> {
        let appended = Arc::new(AtomicU64::new(0));
        let stop = CancellationToken::new();
        let source = Source { graph, number, next: 0 };
        let task = tokio::spawn(append(installation.log.clone(), source, rate, appended.clone(), stop.clone()));
        tokio::time::sleep(TICK * 10).await;
        let before = appended.load(Ordering::Relaxed);
        Ok(Feed { appended, began: Instant::now(), before, stop, task })
    }

    /// Ends; `from` and `to` are how many events answers counted, and when.
    pub(super) async fn finish(self, from: (u64, Instant), to: (u64, Instant)) -> Result<Fed> {
        let appended = self.appended.load(Ordering::Relaxed) - self.before;
        let appended_per_second = appended as f64 / self.began.elapsed().as_secs_f64();
        self.stop.cancel();
        self.task.await??;
        let counted_per_second = to.0.saturating_sub(from.0) as f64 / (to.1 - from.1).as_secs_f64().max(1e-9);
        Ok(Fed { appended_per_second, counted_per_second })
    }
}

async fn append(log: Arc<dyn Log>, mut source: Source, rate: u64, appended: Arc<AtomicU64>, stop: CancellationToken) -> Result<()> {
    let began = Instant::now();
    let mut made = 0u64;
    while !stop.is_cancelled() {
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        // What is late is made up for, a tick's worth at a time.
        let now = due.saturating_sub(made).min(rate.div_ceil(10));
        let (accounts, logins) = source.take(now);
        for (stream, records) in [(Stream::Account, accounts), (Stream::Login, logins)] {
            let count = records.len() as u64;
            log.append(stream.name(), records).await?;
            appended.fetch_add(count, Ordering::Relaxed);
        }
        made += now;
        if made >= due {
            tokio::time::sleep(TICK).await;
        }
    }
    Ok(())
}

struct Source {
    graph: Graph,
    number: u64,
    next: u64,
}

impl Source {
    fn take(&mut self, count: u64) -> (Vec<NewRecord>, Vec<NewRecord>) {
        let (mut accounts, mut logins) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (stream, into) = match self.next % 10 {
                0 => (Stream::Account, &mut accounts),
                _ => (Stream::Login, &mut logins),
            };
            into.push(self.record(stream));
            self.next += 1;
        }
        (accounts, logins)
    }

    /// An edge of the graph, seen again after its end.
    fn record(&self, stream: Stream) -> NewRecord {
        let event = self.graph.event(stream, self.graph.pick(self.next, self.graph.count(stream)));
        let ts = format_timestamp(END + self.next as i64);
        let user = user_text(event.user);
        let value = format!(
            r#"{{"event_id":"f{}-{}","ts":"{ts}","user_id":"{user}","device_id":"{}"}}"#,
            self.number,
            self.next,
            device_text(event.device)
        );
        NewRecord { key: Some(Bytes::from(user)), value: Some(Bytes::from(value)), headers: Vec::new(), partition_by: None }
    }
}
