//! Implements `up`: runs all layers in one process; `speed`, `serve` and `scheduler` run them separately, on the same
//! URLs.
//!
//! ```text
//! start -> address bound -> definitions applied -> node loaded -> HTTP served
//!       -> speed (shares its fresh layers with the node), scheduler, collector -> ready
//! stop  -> HTTP closed -> speed drained and checkpointed -> jobs finished -> node -> catalog
//! ```

use std::net::SocketAddr;

use definitions::Definitions;
use definitions::settings::ClockKind;
use engine::fresh::Fresh;
use metrics_exporter_prometheus::PrometheusHandle;
use serving::http::{BoundListener, listen};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::{Error, Result, threads};

use crate::collect;
use crate::installation::{Installation, clock};

mod metrics;
mod parts;
mod shared;
mod signals;

pub use metrics::recorder;
pub use signals::stop_on_signals;

use parts::{Parts, Stage};

/// The options of `up` besides the settings.
#[derive(Debug, Default)]
pub struct UpOptions {
    /// Definitions to apply first; without them the catalog's definitions are run.
    pub definitions: Option<Definitions>,
    /// Notified when everything runs.
    pub ready: Option<oneshot::Sender<Ready>>,
    /// Do not print a line when ready.
    pub quiet: bool,
}

/// A process that is up and running.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The address of the HTTP server.
    pub http: SocketAddr,
}

impl Ready {
    /// `http://127.0.0.1:8080`
    pub fn url(&self) -> String {
        format!("http://{}", self.http)
    }
}

/// Applies definitions and runs all layers until `stop` is cancelled; then shuts everything down in order. The first
/// part that fails stops all, and its error is returned.
pub async fn up(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    let listener = bind_listener(&installation).await?;
    apply(&installation, &options).await?;
    let fresh = Fresh::default();
    let mut parts = Parts::default();
    let ready = start_serving(&mut parts, &installation, listener, Some(fresh.clone())).await?;
    start_speed(&mut parts, &installation, Some(fresh));
    start_jobs(&mut parts, &installation);
    announce("basestream", ready, options);
    finish(installation, parts, &stop).await
}

/// Runs the speed layer alone: workers of the installation's group.
pub async fn speed(installation: Installation, stop: CancellationToken) -> Result<()> {
    let mut parts = Parts::default();
    start_upkeep(&mut parts);
    probe_storage(&installation);
    start_speed(&mut parts, &installation, None);
    info!(worker = %installation.worker, "the speed layer is up");
    finish(installation, parts, &stop).await
}

/// Runs the serving layer alone: it answers from checkpoints and snapshots, and appends events to the log.
pub async fn serve(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    let listener = bind_listener(&installation).await?;
    apply(&installation, &options).await?;
    let mut parts = Parts::default();
    let ready = start_serving(&mut parts, &installation, listener, None).await?;
    announce("basestream serve", ready, options);
    finish(installation, parts, &stop).await
}

/// Runs the scheduler alone, with the collector.
pub async fn scheduler(installation: Installation, stop: CancellationToken) -> Result<()> {
    let mut parts = Parts::default();
    start_upkeep(&mut parts);
    probe_storage(&installation);
    start_jobs(&mut parts, &installation);
    info!(worker = %installation.worker, "the scheduler is up");
    finish(installation, parts, &stop).await
}

async fn apply(installation: &Installation, options: &UpOptions) -> Result<()> {
    if let Some(definitions) = &options.definitions {
        installation.apply(definitions, false).await?;
    }
    Ok(())
}

/// Binds the address first, so an address in use is reported before any work starts. Clients that connect while the
/// node is loading wait for it.
async fn bind_listener(installation: &Installation) -> Result<BoundListener> {
    listen(http_address(&installation.settings.serving.http).await?).await
}

async fn start_serving(parts: &mut Parts, installation: &Installation, listener: BoundListener, fresh: Option<Fresh>) -> Result<Ready> {
    let recorder = start_upkeep(parts);
    probe_storage(installation);
    let reads_itself = fresh.is_some();
    let node = installation.node_at_once(fresh).await?;
    let (http, stopping) = (listener.address, parts.token(Stage::Http));
    let task = serving::http::serve(node.clone(), installation.log.clone(), recorder, listener, stopping);
    parts.start(Stage::Http, "http", |_| async move { task.await? });
    if reads_itself {
        let (node, worker, interval) = (node.clone(), installation.worker.clone(), installation.settings.speed.checkpoint_interval);
        parts.start(Stage::Node, "shared", move |stop| async move {
            shared::watch(node, worker, interval, stop).await;
            Ok(())
        });
    }
    // Loading and copying snapshots may take as long as it likes: questions come first.
    parts.start(Stage::Node, "node", |stop| async move { Ok(threads::RUNS.spawn(async move { node.run(stop).await }).await?) });
    Ok(Ready { http })
}

async fn http_address(setting: &str) -> Result<SocketAddr> {
    let wrong = || Error::input("the address for HTTP cannot be found").with("setting", "serving.http").with("found", setting);
    let mut found = tokio::net::lookup_host(setting).await.map_err(|error| wrong().caused_by(error))?;
    found.next().ok_or_else(wrong)
}

fn start_speed(parts: &mut Parts, installation: &Installation, fresh: Option<Fresh>) {
    for speed in installation.speed_workers(fresh) {
        // Each worker has its own thread, and what it spawns stays among the speed layer's: decoding would block the threads
        // that answer HTTP.
        let work = |stop| threads::SPEED.spawn_blocking(move || Handle::current().block_on(speed.run(stop)));
        parts.start(Stage::Speed, "speed", |stop| async move { work(stop).await? });
    }
}

fn start_jobs(parts: &mut Parts, installation: &Installation) {
    let scheduler = installation.scheduler();
    // A run takes what questions and the speed layer leave of the processors.
    parts.start(Stage::Jobs, "scheduler", |stop| async move { threads::RUNS.spawn(async move { scheduler.run(stop).await }).await? });
    let (catalog, storage, functions) = (installation.catalog.clone(), installation.storage.clone(), installation.functions.clone());
    let every = installation.settings.batch.collect_every;
    let event_clock = installation.settings.serving.clock == ClockKind::Event;
    parts.start(Stage::Jobs, "collector", move |stop| async move {
        Ok(threads::RUNS.spawn(async move { collect::run(catalog, storage, functions, every, (clock(), event_clock), stop).await }).await?)
    });
}

/// Starts before any other part: metrics recorded before the recorder exists are lost.
fn start_upkeep(parts: &mut Parts) -> Option<PrometheusHandle> {
    let recorder = recorder()?;
    let kept = recorder.clone();
    parts.start(Stage::Node, "metrics", |stop| async move {
        metrics::upkeep(kept, stop).await;
        Ok(())
    });
    Some(recorder)
}

/// Asks the object storage once: one that does not answer is logged by then, and not when a checkpoint needs it.
fn probe_storage(installation: &Installation) {
    let storage = installation.storage.clone();
    tokio::spawn(async move {
        if let Err(error) = storage.probe().await {
            warn!(%error, "the object storage does not answer");
        }
    });
}

/// `what` is the command that is up.
fn announce(what: &str, ready: Ready, options: UpOptions) {
    if !options.quiet {
        println!("{what} is up: {}", ready.url());
    }
    info!(http = %ready.http, "{what} is up");
    if let Some(listener) = options.ready {
        let _ = listener.send(ready);
    }
}

async fn finish(installation: Installation, parts: Parts, stop: &CancellationToken) -> Result<()> {
    let outcome = parts.run(stop).await;
    installation.close().await;
    outcome
}

#[cfg(test)]
mod tests;
