//! The node that reads the views of sinks and alerts, in a process of workers alone: it is open while there are any, or
//! something is left of dropped alerts. The alerts run beside it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{DefinitionKind, Revision};
use engine::fresh::Fresh;
use event_alerts::StalledAlerts;
use serving::Node;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::{Error, Result, threads};

use super::layers;
use super::parts::{Parts, Stage};
use crate::installation::Installation;

/// How often the catalog is asked whether there are sinks or alerts.
const LOOK: Duration = Duration::from_secs(1);
/// How long a node stays open after the last of them was dropped: a worker may learn of that a moment later.
const KEPT_OPEN: Duration = Duration::from_secs(60);

/// Starts what opens the node when there are sinks or alerts, and closes it when there are none any more.
/// `stalled` has the alerts that are not evaluated.
pub(super) fn start(
    parts: &mut Parts,
    installation: &Installation,
    fresh: &Fresh,
    stalled: StalledAlerts,
) -> watch::Receiver<Option<Node>> {
    let (shown, node) = watch::channel(None);
    let keeping = Keeping { installation: installation.clone(), fresh: fresh.clone(), stalled, shown: Arc::new(shown), open: None };
    parts.start(Stage::Node, "node for outputs", |stop| keeping.run(stop));
    node
}

struct Keeping {
    installation: Installation,
    /// What the workers of this process share.
    fresh: Fresh,
    stalled: StalledAlerts,
    shown: Arc<watch::Sender<Option<Node>>>,
    open: Option<Open>,
}

struct Open {
    stop: CancellationToken,
    /// The node, the alerts, and what follows workers of other processes.
    runs: JoinHandle<()>,
}

impl Keeping {
    async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let mut looked: Option<(Revision, bool)> = None;
        let mut needed = Instant::now();
        while !stop.is_cancelled() {
            match self.has_outputs(looked).await {
                Ok(found) => looked = Some(found),
                Err(error) => warn!(%error, "the catalog does not say whether there are sinks or alerts"),
            }
            let has_outputs = looked.is_some_and(|(_, has_outputs)| has_outputs);
            if has_outputs {
                needed = Instant::now();
            }
            match (has_outputs, self.open.is_some()) {
                (true, false) => self.open().await,
                (false, true) if needed.elapsed() >= KEPT_OPEN => self.close().await,
                _ => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                error = failed(&mut self.open) => {
                    self.withdraw();
                    return Err(error);
                }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        self.close().await;
        Ok(())
    }

    /// Reads the catalog's state only where its revision is another than the one that was looked at.
    async fn has_outputs(&self, looked: Option<(Revision, bool)>) -> Result<(Revision, bool)> {
        let catalog = &self.installation.catalog;
        let revision = catalog.revision().await?;
        if let Some(known) = looked.filter(|(known, _)| *known == revision) {
            return Ok(known);
        }
        let state = catalog.state().await?;
        let kinds = [DefinitionKind::Sink, DefinitionKind::Alert];
        let has_live = kinds.into_iter().any(|kind| state.live(kind).next().is_some());
        // What dropped alerts left is put out and removed beside the alerts that run.
        Ok((state.revision, has_live || !catalog.alert_progress().await?.is_empty()))
    }

    async fn open(&mut self) {
        // Before the node reads the catalog: what is committed from then on stays until it has loaded that.
        self.fresh.set_read(true);
        match self.installation.node_at_once(Some(self.fresh.clone())).await {
            Ok(node) => {
                let stop = CancellationToken::new();
                let (running, of_node) = (node.clone(), stop.clone());
                let (alerts, of_alerts) = (self.installation.alerts(node.clone(), self.stalled.clone()), stop.clone());
                let following = layers::following(&self.installation, &node, stop.clone());
                let runs = threads::RUNS.spawn(async move {
                    tokio::join!(running.run(of_node), alerts.run(of_alerts), following);
                });
                self.open = Some(Open { stop, runs });
                self.shown.send_replace(Some(node));
                info!("there are sinks or alerts: their views are read in this process");
            }
            Err(error) => {
                self.fresh.set_read(false);
                warn!(%error, "the views of sinks and alerts cannot be read yet; trying again");
            }
        }
    }

    async fn close(&mut self) {
        let Some(open) = self.withdraw() else { return };
        if let Err(error) = open.runs.await {
            warn!(%error, "the node for sinks and alerts ended abnormally");
        }
        self.fresh.set_read(false);
    }
    /// From here on nobody gets the node, and what runs beside it is asked to stop.
    fn withdraw(&mut self) -> Option<Open> {
        let open = self.open.take()?;
        self.shown.send_replace(None);
        open.stop.cancel();
        Some(open)
    }
}

/// Waits until what runs ends without being asked to: until then sinks would stall and alerts would be silent.
async fn failed(open: &mut Option<Open>) -> Error {
    let Some(open) = open else { return std::future::pending().await };
    let error = Error::internal("the node for sinks and alerts ended abnormally");
    match (&mut open.runs).await {
        Ok(()) => error,
        Err(ended) => error.caused_by(ended),
    }
}

#[cfg(test)]
mod tests;
