//! The load during a fault: a node that follows the catalog, lookups, batch runs. It counts them, so that a test can
//! report how a fault affected them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use batch::RunTime;
use engine::fresh::Fresh;
use serving::{Node, ServingClock};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::harness::{Engines, table};

/// Runs lookups and batch until it is stopped.
pub struct Load {
    counts: Arc<Counts>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub struct Counts {
    pub lookups: AtomicU64,
    pub slowest_lookup_ms: AtomicU64,
    pub runs: AtomicU64,
    pub failed_runs: AtomicU64,
}

impl Load {
    /// A node without fresh layers answers from committed data only, so its answers never go back.
    pub async fn start(engines: &Arc<Engines>, fresh: Option<Fresh>) -> Load {
        let may_go_back = fresh.is_some();
        let node = engines.harness.node(ServingClock::Event, fresh).await.unwrap();
        let (counts, stop) = (Arc::new(Counts::default()), CancellationToken::new());
        let following = tokio::spawn({
            let (node, stop) = (node.clone(), stop.clone());
            async move { node.run(stop).await }
        });
        let asking = tokio::spawn(ask(node, may_go_back, counts.clone(), stop.clone()));
        let running = tokio::spawn(run(engines.clone(), counts.clone(), stop.clone()));
        Load { counts, stop, tasks: vec![following, asking, running] }
    }

    pub fn lookups(&self) -> u64 {
        self.counts.lookups.load(Ordering::SeqCst)
    }

    pub fn runs(&self) -> u64 {
        self.counts.runs.load(Ordering::SeqCst)
    }

    pub fn failed_runs(&self) -> u64 {
        self.counts.failed_runs.load(Ordering::SeqCst)
    }

    pub async fn finish(self) -> Arc<Counts> {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
        println!("{:?}", self.counts);
        self.counts
    }
}

async fn ask(node: Node, may_go_back: bool, counts: Arc<Counts>, stop: CancellationToken) {
    let mut most = 0;
    while !stop.is_cancelled() {
        let (began, asked) = (Instant::now(), node.clone());
        let lines = tokio::task::spawn_blocking(move || table(&asked)).await.unwrap();
        let events: u64 = lines.iter().map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()).sum();
        assert!(may_go_back || events >= most, "an answer went back from {most} events to {events}");
        most = events.max(most);
        counts.lookups.fetch_add(1, Ordering::SeqCst);
        counts.slowest_lookup_ms.fetch_max(began.elapsed().as_millis() as u64, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn run(engines: Arc<Engines>, counts: Arc<Counts>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match engines.harness.batch("by_account", RunTime::EventClock).await {
            Ok(_) => counts.runs.fetch_add(1, Ordering::SeqCst),
            Err(error) => {
                tracing::info!(%error, "a run failed");
                counts.failed_runs.fetch_add(1, Ordering::SeqCst)
            }
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
