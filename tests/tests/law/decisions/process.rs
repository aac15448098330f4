//! A process with a worker, its sinks, its alerts and the node that they read.

use std::sync::Arc;
use std::time::Duration;

use basestream_tests::{Harness, now};
use engine::fresh::Fresh;
use event_alerts::{Alerts, StalledAlerts};
use event_sinks::{SinkSettings, Sinks, open_node};
use serving::ServingClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use types::Result;

/// Of each topic that records are put into.
const PARTITIONS: u32 = 1;
const LEASE: Duration = Duration::from_millis(600);

pub struct Process {
    worker: JoinHandle<Result<()>>,
    /// The node and the alerts.
    others: [JoinHandle<()>; 2],
    stop: CancellationToken,
}

impl Process {
    pub async fn start(harness: &Harness, checkpoint_interval: Duration) -> Process {
        Self::start_before_its_worker(harness, checkpoint_interval, Duration::ZERO).await
    }

    /// The worker begins this much later: until then, its alerts see what was committed.
    pub async fn start_before_its_worker(harness: &Harness, checkpoint_interval: Duration, later: Duration) -> Process {
        let fresh = Fresh::default();
        let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
        let (catalog, log, functions) = (harness.catalog.clone(), harness.log.clone(), harness.functions.clone());
        let mut speed = harness.speed("law", checkpoint_interval, Some(fresh));
        let (group, max_future) = (speed.settings.group.clone(), speed.settings.max_future);
        let settings = SinkSettings { group: group.clone(), partitions: PARTITIONS, max_future };
        speed.sinks = Some(Arc::new(Sinks::new(open_node(node.clone()), log.clone(), catalog, functions, settings)));
        let (owner, stalled) = ("law".to_owned(), StalledAlerts::default());
        let clock = Arc::new(now);
        let alerts = Alerts { node: node.clone(), log, group, partitions: PARTITIONS, owner, lease: LEASE, clock, stalled };
        let stop = CancellationToken::new();
        let (of_worker, of_node, of_alerts) = (stop.clone(), stop.clone(), stop.clone());
        let worker = tokio::spawn(async move {
            tokio::time::sleep(later).await;
            speed.run(of_worker).await
        });
        let others = [tokio::spawn(async move { node.run(of_node).await }), tokio::spawn(async move { alerts.run(of_alerts).await })];
        Process { worker, others, stop }
    }

    pub fn has_ended(&self) -> bool {
        self.worker.is_finished()
    }

    /// As if the process had died: nothing is drained.
    pub async fn kill(self) {
        self.worker.abort();
        self.others.iter().for_each(JoinHandle::abort);
        let _ = self.worker.await;
        for other in self.others {
            let _ = other.await;
        }
    }

    /// Commits what is read, and ends.
    pub async fn finish(self) {
        self.stop.cancel();
        self.worker.await.unwrap().unwrap();
        for other in self.others {
            other.await.unwrap();
        }
    }
}
