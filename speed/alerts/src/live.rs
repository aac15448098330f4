//! Runs the live alerts of the catalog, and removes what is left of those that were dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{AlertVersion, Commit, DefinitionKind, Remove};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;
use types::{Result, threads};
use uuid::Uuid;

use crate::lease::Leases;
use crate::{Alerts, runner};

/// How often the live alerts are compared with those that run.
const LOOK: Duration = Duration::from_millis(250);
/// How often what is left of dropped versions is looked for.
const CLEAN: Duration = Duration::from_secs(30);
/// Rows that one commit deletes.
const MOST_REMOVED: u32 = 10_000;

impl Alerts {
    /// Runs the live alerts of the catalog until `stop`, each while this process holds its lease. Paused alerts are not
    /// run.
    pub async fn run(self, stop: CancellationToken) {
        let leases = Leases::new(self.node.catalog().clone(), self.owner.clone(), self.lease, self.clock.clone());
        let (keeper, kept) = (leases.clone(), CancellationToken::new());
        // Runners that are stopping still need their leases.
        let stop_keeping = kept.clone().drop_guard();
        let keeping = AbortOnDropHandle::new(threads::SPEED.spawn(async move { keeper.keep(&kept).await }));
        let mut running: BTreeMap<AlertVersion, (CancellationToken, AbortOnDropHandle<()>)> = BTreeMap::new();
        let mut cleaned = Instant::now();
        while !stop.is_cancelled() {
            if let Some(loaded) = self.node.loaded() {
                let runs = loaded.registry.alerts.iter().filter(|alert| alert.paused_since.is_none());
                let live: BTreeSet<AlertVersion> = runs.map(|alert| (alert.name.clone(), alert.version)).collect();
                running.iter().filter(|(version, _)| !live.contains(*version)).for_each(|(_, (stop, _))| stop.cancel());
                running.retain(|_, (_, task)| !task.is_finished());
                for version in live {
                    running.entry(version.clone()).or_insert_with(|| self.start(version, &leases, stop.child_token()));
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
        drop(stop_keeping);
        let _ = keeping.await;
    }

    fn start(&self, version: AlertVersion, leases: &Arc<Leases>, stop: CancellationToken) -> (CancellationToken, AbortOnDropHandle<()>) {
        let (alerts, leases, stopping) = (self.clone(), leases.clone(), stop.clone());
        let task = threads::SPEED.spawn(async move { runner::run(&alerts, &leases, &version, &stopping).await });
        (stop, AbortOnDropHandle::new(task))
    }

    /// Removes a part of what is left of alerts and versions that are not live any more.
    async fn remove_dropped(&self) -> Result<()> {
        let catalog = self.node.catalog();
        let known = catalog.alert_progress().await?.into_iter().map(|progress| (progress.alert, progress.version));
        let runners = catalog.alert_runners().await?.into_iter().map(|runner| (runner.alert, runner.version));
        let known: BTreeSet<AlertVersion> = known.chain(runners).collect();
        let Some(loaded) = self.node.loaded() else { return Ok(()) };
        let is_known =
            |name: &str, version: u32| loaded.registry.alerts.iter().any(|alert| *alert.name == *name && alert.version == version);
        let left: Vec<AlertVersion> = known.into_iter().filter(|(alert, version)| !is_known(alert, *version)).collect();
        if left.is_empty() {
            return Ok(());
        }
        // This node may not have loaded yet what another process runs.
        let state = catalog.state().await?;
        for (alert, version) in left {
            if !state.live(DefinitionKind::Alert).any(|record| record.name == alert && record.version == version) {
                let remove = vec![Remove::Alert { alert, version, most: MOST_REMOVED }];
                catalog.commit(Commit { id: Uuid::now_v7(), remove, ..Commit::default() }).await?;
            }
        }
        Ok(())
    }
}
