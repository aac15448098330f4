//! The node that reads the views of sinks, in a process of workers alone: it is open while there are sinks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{DefinitionKind, Revision};
use engine::fresh::Fresh;
use serving::Node;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::{Result, threads};

use super::parts::{Parts, Stage};
use crate::installation::Installation;

/// How often the catalog is asked whether there are sinks.
const LOOK: Duration = Duration::from_secs(1);
/// How long a node stays open after the last sink was dropped: a worker may learn of that a moment later.
const KEPT_OPEN: Duration = Duration::from_secs(60);

/// Starts what opens the node when there are sinks, and closes it when there are none any more.
pub(super) fn start(parts: &mut Parts, installation: &Installation, fresh: &Fresh) -> watch::Receiver<Option<Node>> {
    let (shown, node) = watch::channel(None);
    let keeping = Keeping { installation: installation.clone(), fresh: fresh.clone(), shown: Arc::new(shown), open: None };
    parts.start(Stage::Node, "node for sinks", |stop| keeping.run(stop));
    node
}

struct Keeping {
    installation: Installation,
    /// What the workers of this process share.
    fresh: Fresh,
    shown: Arc<watch::Sender<Option<Node>>>,
    open: Option<Open>,
}

struct Open {
    stop: CancellationToken,
    runs: JoinHandle<()>,
}

impl Keeping {
    async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let mut looked: Option<(Revision, bool)> = None;
        let mut needed = Instant::now();
        while !stop.is_cancelled() {
            match self.has_sinks(looked).await {
                Ok(found) => looked = Some(found),
                Err(error) => warn!(%error, "the catalog does not say whether there are sinks"),
            }
            let has_sinks = looked.is_some_and(|(_, has_sinks)| has_sinks);
            if has_sinks {
                needed = Instant::now();
            }
            match (has_sinks, self.open.is_some()) {
                (true, false) => self.open().await,
                (false, true) if needed.elapsed() >= KEPT_OPEN => self.close().await,
                _ => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        self.close().await;
        Ok(())
    }

    /// Reads the catalog's state only where its revision is another than the one that was looked at.
    async fn has_sinks(&self, looked: Option<(Revision, bool)>) -> Result<(Revision, bool)> {
        let catalog = &self.installation.catalog;
        let revision = catalog.revision().await?;
        if let Some(known) = looked.filter(|(known, _)| *known == revision) {
            return Ok(known);
        }
        let state = catalog.state().await?;
        Ok((state.revision, state.live(DefinitionKind::Sink).next().is_some()))
    }

    async fn open(&mut self) {
        // Before the node reads the catalog: what is committed from then on stays until it has loaded that.
        self.fresh.set_read(true);
        match self.installation.node_at_once(Some(self.fresh.clone())).await {
            Ok(node) => {
                let stop = CancellationToken::new();
                let (running, of_node) = (node.clone(), stop.clone());
                let runs = threads::RUNS.spawn(async move { running.run(of_node).await });
                self.open = Some(Open { stop, runs });
                self.shown.send_replace(Some(node));
                info!("there are sinks: the views that they join are read in this process");
            }
            Err(error) => {
                self.fresh.set_read(false);
                warn!(%error, "the views that sinks join cannot be read yet; trying again");
            }
        }
    }

    async fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.shown.send_replace(None);
        open.stop.cancel();
        if let Err(error) = open.runs.await {
            warn!(%error, "the node for sinks ended abnormally");
        }
        self.fresh.set_read(false);
    }
}
