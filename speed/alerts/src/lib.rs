//! Alerts: a record when a key's row begins to satisfy a condition, while it still does, and when it ceases to.
//!
//! ```text
//! read view --keys that changed--+
//!                                +--> rows --WHERE--> transitions --commit--> catalog --once--> topic
//! clock ------keys that are due--+
//! ```
//!
//! What it promises:
//! - **One runner.** A version of an alert is run by one process, which holds a lease of the catalog. Another takes over
//!   where it died.
//! - **Once.** What begins is committed to the catalog with its record, under the lease and with the next sequence number;
//!   the log appends each number once ([`event_log::Log::append_output`]). So the record of a begin is in the topic once,
//!   whatever dies, and what is in the topic is never contradicted: a runner goes on from no earlier position.
//! - **Lag is not silence.** By the clock `wall`, an alert's time is the one before which every event of the log is
//!   counted. By the clock `event`, it is the newest event time.
//! - **No scan.** A round looks at the keys that have new events and at those that are due. All keys are looked at once
//!   after a start, a takeover, or a new version of the view.
//!
//! The files: [`Alerts`] is what a process has, and starts a `runner` for each alert; `evaluation` finds transitions;
//! `record` writes records; `outbox` commits them and puts them out; `lease` keeps the right to.

mod evaluation;
mod lease;
mod outbox;
mod record;
mod runner;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{Commit, DefinitionKind, Remove};
use event_log::Log;
use serving::Node;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;
use types::tiles::Clock;
use types::{Result, threads};
use uuid::Uuid;

pub use record::{ALERT_HEADER, alert_of};

/// What [`Alerts::lease`] is outside of tests.
pub const LEASE: Duration = Duration::from_secs(6);
/// How often the live alerts are compared with those that run.
const LOOK: Duration = Duration::from_millis(250);
/// How often what is left of dropped versions is looked for.
const CLEAN: Duration = Duration::from_secs(30);
/// Rows that one commit deletes.
const MOST_REMOVED: u32 = 10_000;

/// What a process needs to run alerts. Cheap to clone.
#[derive(Clone)]
pub struct Alerts {
    /// It reads the fresh layers of the workers.
    pub node: Node,
    pub log: Arc<dyn Log>,
    /// The workers' consumer group.
    pub group: String,
    /// The partitions of a topic that is created because it does not exist.
    pub partitions: u32,
    /// Identifies this process in leases.
    pub owner: String,
    /// After this time another process may take over from one that died.
    pub lease: Duration,
    pub clock: Clock,
}

/// An alert and its version.
type AlertVersion = (Arc<str>, u32);

impl Alerts {
    /// Runs the live alerts of the catalog until `stop`, each while this process holds its lease.
    pub async fn run(self, stop: CancellationToken) {
        let mut running: BTreeMap<AlertVersion, (CancellationToken, AbortOnDropHandle<()>)> = BTreeMap::new();
        let mut cleaned = Instant::now();
        while !stop.is_cancelled() {
            if let Some(loaded) = self.node.loaded() {
                let live: BTreeSet<AlertVersion> = loaded.registry.alerts.iter().map(|alert| (alert.name.clone(), alert.version)).collect();
                running.iter().filter(|(version, _)| !live.contains(*version)).for_each(|(_, (stop, _))| stop.cancel());
                running.retain(|_, (_, task)| !task.is_finished());
                for version in live {
                    running.entry(version.clone()).or_insert_with(|| self.start(version, stop.child_token()));
                }
            }
            if cleaned.elapsed() >= CLEAN {
                cleaned = Instant::now();
                if let Err(error) = self.remove_dropped().await {
                    warn!(%error, "what is left of dropped alerts could not be removed; trying again later");
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        for (_, (_, task)) in running {
            let _ = task.await;
        }
    }

    fn start(&self, (name, version): AlertVersion, stop: CancellationToken) -> (CancellationToken, AbortOnDropHandle<()>) {
        let (alerts, stopping) = (self.clone(), stop.clone());
        let task = threads::SPEED.spawn(async move { runner::run(&alerts, &name, version, &stopping).await });
        (stop, AbortOnDropHandle::new(task))
    }

    /// Removes a part of what is left of alerts and versions that are not live any more.
    async fn remove_dropped(&self) -> Result<()> {
        let catalog = self.node.catalog();
        let known = catalog.alert_progress().await?;
        let Some(loaded) = self.node.loaded() else { return Ok(()) };
        let is_known =
            |name: &str, version: u32| loaded.registry.alerts.iter().any(|alert| *alert.name == *name && alert.version == version);
        let left: Vec<_> = known.into_iter().filter(|progress| !is_known(&progress.alert, progress.version)).collect();
        if left.is_empty() {
            return Ok(());
        }
        // This node may not have loaded yet what another process runs.
        let state = catalog.state().await?;
        for progress in left {
            let is_live = |record: &catalog::DefinitionRecord| *record.name == *progress.alert && record.version == progress.version;
            if !state.live(DefinitionKind::Alert).any(is_live) {
                let remove = vec![Remove::Alert { alert: progress.alert, version: progress.version, most: MOST_REMOVED }];
                catalog.commit(Commit { id: Uuid::now_v7(), remove, ..Commit::default() }).await?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alerts").field("group", &self.group).field("owner", &self.owner).finish_non_exhaustive()
    }
}
