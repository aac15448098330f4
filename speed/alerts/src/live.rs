//! Runs the live alerts of the catalog. Puts out what those that were dropped or changed left, and removes the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use catalog::{AlertProgress, AlertVersion, CatalogState, Commit, DefinitionKind, Expect, Remove};
use definitions::parse::parse_alert;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;
use types::{Result, threads};
use uuid::Uuid;

use crate::lease::AlertLeases;
use crate::outbox::put_out_left;
use crate::{Alerts, runner};

/// How often the live alerts are compared with those that run.
const COMPARE: Duration = Duration::from_millis(250);
/// How often what is left of dropped versions is looked for.
const CLEAN: Duration = Duration::from_secs(30);
/// Rows that one commit deletes.
const MOST_REMOVED: u32 = 10_000;

impl Alerts {
    /// Runs the live alerts of the catalog until `stop`, each while this process holds its lease. Paused alerts are not
    /// run.
    pub async fn run(self, stop: CancellationToken) {
        let leases = AlertLeases::new(self.node.catalog().clone(), self.owner.clone(), self.lease, self.clock.clone());
        let kept = CancellationToken::new();
        // Runners that are stopping still need their leases.
        let stop_keeping = kept.clone().drop_guard();
        let keeping = leases.keep(kept);
        // Apart: it waits for a log that does not answer.
        let cleaner = self.clone();
        let _cleaning = AbortOnDropHandle::new(threads::SPEED.spawn(async move { cleaner.clean().await }));
        let mut running: BTreeMap<AlertVersion, (CancellationToken, AbortOnDropHandle<()>)> = BTreeMap::new();
        while !stop.is_cancelled() {
            if let Some(loaded) = self.node.loaded() {
                let runs = loaded.registry.alerts.iter().filter(|alert| alert.paused_since.is_none());
                let live: BTreeSet<AlertVersion> =
                    runs.map(|alert| AlertVersion { name: alert.name.clone(), version: alert.version }).collect();
                running.iter().filter(|(version, _)| !live.contains(*version)).for_each(|(_, (stop, _))| stop.cancel());
                running.retain(|_, (_, task)| !task.is_finished());
                for version in live {
                    running.entry(version.clone()).or_insert_with(|| self.start(version, &leases, stop.child_token()));
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(COMPARE) => {}
            }
        }
        for (_, (_, task)) in running {
            let _ = task.await;
        }
        drop(stop_keeping);
        let _ = keeping.await;
    }

    fn start(
        &self,
        version: AlertVersion,
        leases: &Arc<AlertLeases>,
        stop: CancellationToken,
    ) -> (CancellationToken, AbortOnDropHandle<()>) {
        let (alerts, leases, stopping) = (self.clone(), leases.clone(), stop.clone());
        let task = threads::SPEED.spawn(async move { runner::run(&alerts, &leases, &version, &stopping).await });
        (stop, AbortOnDropHandle::new(task))
    }

    /// Removes what is left of dropped versions, again and again.
    async fn clean(&self) {
        loop {
            if self.node.loaded().is_none() {
                tokio::time::sleep(COMPARE).await;
                continue;
            }
            if let Err(error) = self.remove_dropped().await {
                warn!(%error, "what is left of dropped alerts could not be removed; trying again later");
            }
            tokio::time::sleep(CLEAN).await;
        }
    }

    /// Removes a part of what is left of alerts and versions that are not live any more.
    async fn remove_dropped(&self) -> Result<()> {
        let catalog = self.node.catalog();
        let progress = catalog.alert_progress().await?;
        let known = progress.iter().map(|progress| AlertVersion { name: progress.alert.clone(), version: progress.version });
        let runners = catalog.alert_runners().await?.into_iter();
        let runners = runners.map(|runner| AlertVersion { name: runner.alert, version: runner.version });
        let known: BTreeSet<AlertVersion> = known.chain(runners).collect();
        let Some(loaded) = self.node.loaded() else { return Ok(()) };
        let is_known = |known: &AlertVersion| {
            let mut alerts = loaded.registry.alerts.iter();
            alerts.any(|alert| alert.name == known.name && alert.version == known.version)
        };
        let left: Vec<AlertVersion> = known.into_iter().filter(|version| !is_known(version)).collect();
        if left.is_empty() {
            return Ok(());
        }
        // This node may not have loaded yet what another process runs.
        let state = catalog.state().await?;
        let mut first = Ok(());
        for gone in left {
            if !state.live(DefinitionKind::Alert).any(|record| record.name == gone.name && record.version == gone.version) {
                let progress = progress.iter().find(|progress| progress.alert == gone.name && progress.version == gone.version);
                let removed = self.remove_one(&state, gone, progress).await;
                first = first.and(removed);
            }
        }
        first
    }

    /// Removes a part of what is left of a version that is not live, once all of its transitions are in the topic.
    async fn remove_one(&self, state: &CatalogState, gone: AlertVersion, progress: Option<&AlertProgress>) -> Result<()> {
        let definition = state.definitions.get(DefinitionKind::Alert, &gone.name, gone.version);
        let left = progress.filter(|progress| progress.published < progress.next_seq);
        if let Some((left, definition)) = left.zip(definition) {
            let topic = parse_alert(&definition.sql)?.topic;
            put_out_left(self, gone.clone(), &topic, left).await?;
        }
        // A process that does not know yet that the version is not live may have added more.
        let next = progress.map_or(0, |progress| progress.next_seq);
        let AlertVersion { name: alert, version } = gone;
        let expect = vec![Expect::AlertSequence { alert: alert.clone(), version, next }];
        let remove = vec![Remove::Alert { alert, version, most: MOST_REMOVED }];
        self.node.catalog().commit(Commit { id: Uuid::now_v7(), expect, remove, ..Commit::default() }).await.map(drop)
    }
}
