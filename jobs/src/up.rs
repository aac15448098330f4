//! `up`: all layers in one process; `speed`, `serve` and `scheduler` run them apart, on the same URLs.
//!
//! ```text
//! apply -> doors bound -> speed, node (sharing fresh layers), scheduler, collector -> HTTP opened -> ready
//! stop  -> HTTP closed -> speed drained and checkpointed -> jobs finished -> node -> catalog
//! ```

use std::net::SocketAddr;

use schemas::definitions::Definitions;
use schemas::fresh::Fresh;
use schemas::{Error, Result};
use serving::Node;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::collect;
use crate::installation::{Installation, clock};

mod doors;
mod metrics;
mod parts;
mod signals;

pub use metrics::recorder;
pub use signals::stop_on_signals;

use parts::{Parts, Stage};

/// What `up` is asked for besides the settings.
#[derive(Debug, Default)]
pub struct UpOptions {
    /// Put into the catalog first; without, what the catalog has is run.
    pub definitions: Option<Definitions>,
    /// Where HTTP is answered, bound already; by default what the settings say.
    pub http: Option<TcpListener>,
    /// Hears when everything runs.
    pub ready: Option<oneshot::Sender<Ready>>,
    /// Print no line when ready.
    pub quiet: bool,
}

/// A process that is up.
#[derive(Clone)]
pub struct Ready {
    pub http: SocketAddr,
    pub node: Node,
}

impl Ready {
    /// `http://127.0.0.1:8080`
    pub fn url(&self) -> String {
        format!("http://{}", self.http)
    }
}

/// Applies definitions and runs all layers until told to stop; then lets go of everything in order. The first part that fails stops
/// all, and its error is the outcome.
pub async fn up(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    let recorder = recorder();
    if let Some(definitions) = &options.definitions {
        installation.apply(definitions, false).await?;
    }
    let listener = bind(&installation, options.http).await?;
    let fresh = Fresh::default();
    let speed = installation.speed(&installation.worker, Some(fresh.clone())).await?;
    let mut parts = Parts::default();
    parts.start(Stage::Speed, "speed", |stop| async move { speed.run(stop).await });
    start_jobs(&mut parts, &installation);
    start_upkeep(&mut parts, recorder);
    let ready = start_serving(&mut parts, &installation, Some(fresh), listener).await;
    finish(installation, parts, ready, options.ready, options.quiet, stop).await
}

/// The speed layer alone: one worker of the installation's group.
pub async fn speed(installation: Installation, stop: CancellationToken) -> Result<()> {
    let recorder = recorder();
    let speed = installation.speed(&installation.worker, None).await?;
    let mut parts = Parts::default();
    parts.start(Stage::Speed, "speed", |stop| async move { speed.run(stop).await });
    start_upkeep(&mut parts, recorder);
    info!(worker = %installation.worker, "the speed layer is up");
    let outcome = parts.run(&stop).await;
    installation.close().await;
    outcome
}

/// The serving layer alone: answers from checkpoints and snapshots, and takes events into the log.
pub async fn serve(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    let recorder = recorder();
    if let Some(definitions) = &options.definitions {
        installation.apply(definitions, false).await?;
    }
    let listener = bind(&installation, options.http).await?;
    let mut parts = Parts::default();
    start_upkeep(&mut parts, recorder);
    let ready = start_serving(&mut parts, &installation, None, listener).await;
    finish(installation, parts, ready, options.ready, options.quiet, stop).await
}

/// The scheduler alone, with the collector.
pub async fn scheduler(installation: Installation, stop: CancellationToken) -> Result<()> {
    let recorder = recorder();
    let mut parts = Parts::default();
    start_jobs(&mut parts, &installation);
    start_upkeep(&mut parts, recorder);
    info!(worker = %installation.worker, "the scheduler is up");
    let outcome = parts.run(&stop).await;
    installation.close().await;
    outcome
}

/// Takes the port first: that it is taken is found before anything is started.
async fn bind(installation: &Installation, bound: Option<TcpListener>) -> Result<TcpListener> {
    if let Some(listener) = bound {
        return Ok(listener);
    }
    let address = &installation.settings.serving.http;
    let failed = |error: std::io::Error| {
        Error::unavailable("the address for HTTP cannot be used").with("setting", "serving.http").with("found", address).caused_by(error)
    };
    TcpListener::bind(address).await.map_err(failed)
}

fn start_jobs(parts: &mut Parts, installation: &Installation) {
    let scheduler = installation.scheduler();
    parts.start(Stage::Jobs, "scheduler", |stop| async move { scheduler.run(stop).await });
    let (catalog, storage) = (installation.catalog.clone(), installation.storage.clone());
    parts.start(Stage::Jobs, "collector", |stop| async move {
        collect::run(catalog, storage, clock(), stop).await;
        Ok(())
    });
}

fn start_upkeep(parts: &mut Parts, recorder: Option<metrics_exporter_prometheus::PrometheusHandle>) {
    if let Some(recorder) = recorder {
        parts.start(Stage::Node, "metrics", |stop| async move {
            metrics::upkeep(recorder, stop).await;
            Ok(())
        });
    }
}

async fn start_serving(parts: &mut Parts, installation: &Installation, fresh: Option<Fresh>, listener: TcpListener) -> Result<Ready> {
    let http = listener.local_addr()?;
    let node = installation.node(fresh).await?;
    let following = node.clone();
    parts.start(Stage::Node, "node", |stop| async move {
        following.run(stop).await;
        Ok(())
    });
    let doors = doors::http(installation, node.clone()).await?;
    parts.start(Stage::Doors, "http", |stop| doors::serve(doors, listener, stop));
    Ok(Ready { http, node })
}

/// Says that all is up, runs until the end, closes. Where serving could not begin, what was started is stopped in order too.
async fn finish(
    installation: Installation,
    parts: Parts,
    ready: Result<Ready>,
    listener: Option<oneshot::Sender<Ready>>,
    quiet: bool,
    stop: CancellationToken,
) -> Result<()> {
    let failed = match ready {
        Ok(ready) => {
            if !quiet {
                println!("basestream is up: {}", ready.url());
            }
            info!(http = %ready.http, worker = %installation.worker, "up");
            if let Some(listener) = listener {
                let _ = listener.send(ready);
            }
            None
        }
        Err(error) => {
            stop.cancel();
            Some(error)
        }
    };
    let outcome = parts.run(&stop).await;
    installation.close().await;
    failed.map_or(outcome, Err)
}
