//! Implements `up`: runs all layers in one process; `speed`, `serve` and `scheduler` run them separately, on the same
//! URLs.
//!
//! ```text
//! start -> address bound -> definitions applied -> node loaded -> HTTP served
//!       -> speed (shares its fresh layers with the node), scheduler, collector -> ready
//! stop  -> HTTP closed -> speed drained and checkpointed -> jobs finished -> node, feed -> health -> catalog
//! ```
//!
//! A process without a node answers HTTP about its health alone, if its setting names an address.
//!
//! A part is started by the file that is named after it: the serving layer by `node`, the speed layer by `workers`,
//! what happens by the clock by `jobs`. The files `parts` and `waiting` stop them.

use std::future::Future;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use access::{audit, local_user};
use definitions::Definitions;
use definitions::settings::FreshKind;
use engine::fresh::Fresh;
use event_alerts::StalledAlerts;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::Result;

use crate::installation::Installation;
use crate::owner;
use crate::status::NodeReporter;

mod answers;
mod health;
mod jobs;
mod lag;
mod layers;
mod listeners;
mod metrics;
mod node;
mod outputs;
mod parts;
mod process;
mod protection;
mod shared;
mod signals;
mod waiting;
mod workers;

pub use metrics::recorder;
pub(crate) use signals::stop_on_signals;

use answers::probe_storage;
use health::Layer;
use listeners::{Listeners, bind_optional};
use node::{NodeReads, ServedNode};
use parts::Parts;
use waiting::StopWait;
use workers::SharedByWorkers;

/// The options of `up` besides the settings.
#[derive(Debug, Default)]
pub struct UpOptions {
    /// Definitions to apply first; without them the catalog's definitions are run.
    pub definitions: Option<Definitions>,
    /// Notified when everything runs. A process without HTTP does not notify it.
    pub ready: Option<oneshot::Sender<Ready>>,
    /// Do not print a line when ready.
    pub quiet: bool,
}

/// A process that is up and running.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The address of the HTTP server.
    pub http: SocketAddr,
    /// Whether it answers over TLS alone.
    pub tls: bool,
    /// Where PostgreSQL clients are answered, if they are.
    pub postgres: Option<SocketAddr>,
    /// Where Arrow Flight SQL clients are answered, if they are.
    pub flight: Option<SocketAddr>,
}

impl Ready {
    /// `http://127.0.0.1:8080`
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.http)
    }
}

/// Applies definitions and runs all layers until `stop` is cancelled; then shuts everything down in order. The first
/// part that fails stops all, and its error is returned.
pub async fn up(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    let settings = &installation.settings;
    warn_of(settings.without_effect_in_up());
    warn_of(settings.without_effect());
    let (listeners, protection) = Listeners::bind(&installation).await?;
    let offering = layers::bind(&installation).await?;
    installation.check_temp_dir().await?;
    installation.show_alive().await;
    let fresh = Fresh::default();
    let mut parts = Parts::new(installation.settings.serving.drain_timeout);
    let starting = async {
        owner::check_at_start(&installation.catalog, &installation.storage).await?;
        apply(&installation, &options).await?;
        let served = node::start(&mut parts, &installation, (listeners, protection), NodeReads::Shared(fresh.clone())).await?;
        let registration = layers::offer(&mut parts, &installation, offering, (&fresh, &served.sinks)).await?;
        Ok((served, registration))
    };
    if let Some((ServedNode { ready, node, sinks, alerts, log_answers }, registration)) = unless_stopped(&stop, starting).await? {
        let workers = workers::start(&mut parts, &installation, SharedByWorkers { fresh, sinks, registration });
        node.attach_status_reporter(Arc::new(NodeReporter::new(&installation, workers.clone())));
        node.attach_outages(move || log_answers.outage().into_iter().chain(health::stalled(&workers)).chain(alerts.outage()).collect());
        jobs::start(&mut parts, &installation);
        announce("basestream", Some(ready), options);
    }
    finish(installation, parts, &stop).await
}

/// Runs the speed layer alone: workers of the installation's group.
pub async fn speed(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    warn_of(installation.settings.without_effect());
    let listener = bind_optional("speed.http", installation.settings.speed.http.as_deref(), &installation).await?;
    let offering = layers::bind(&installation).await?;
    installation.show_alive().await;
    owner::check_at_start(&installation.catalog, &installation.storage).await?;
    apply(&installation, &options).await?;
    let mut parts = Parts::new(installation.settings.serving.drain_timeout);
    let recorder = metrics::start(&mut parts);
    probe_storage(&installation);
    let fresh = Fresh::unread();
    let alerts = StalledAlerts::default();
    let sinks = installation.sinks(outputs::start(&mut parts, &installation, &fresh, alerts.clone()));
    let registration = layers::offer(&mut parts, &installation, offering, (&fresh, &sinks)).await?;
    let workers = workers::start(&mut parts, &installation, SharedByWorkers { fresh, sinks, registration });
    let ready = listener.map(|bound| health::start(&mut parts, &installation, bound, recorder, Layer::Speed(workers, alerts)));
    announce("basestream speed", ready, options);
    finish(installation, parts, &stop).await
}

/// Runs the serving layer alone: it answers from checkpoints, snapshots and the fresh layers that workers offer, and
/// appends events to the log.
pub async fn serve(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    warn_of(installation.settings.without_effect());
    let (listeners, protection) = Listeners::bind(&installation).await?;
    let mut parts = Parts::new(installation.settings.serving.drain_timeout);
    let starting = async {
        owner::check_before_reading(&installation.catalog, &installation.storage).await?;
        apply(&installation, &options).await?;
        let reads = match installation.settings.serving.fresh {
            FreshKind::Stream => NodeReads::Followed,
            FreshKind::Committed => NodeReads::Committed,
        };
        node::start(&mut parts, &installation, (listeners, protection), reads).await
    };
    if let Some(ServedNode { ready, node, .. }) = unless_stopped(&stop, starting).await? {
        node.attach_status_reporter(Arc::new(NodeReporter::new(&installation, Vec::new())));
        announce("basestream serve", Some(ready), options);
    }
    finish(installation, parts, &stop).await
}

/// Runs the scheduler alone, with the collector.
pub async fn scheduler(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    let listener = bind_optional("scheduler.http", installation.settings.scheduler.http.as_deref(), &installation).await?;
    installation.check_temp_dir().await?;
    installation.show_alive().await;
    owner::check_at_start(&installation.catalog, &installation.storage).await?;
    apply(&installation, &options).await?;
    let mut parts = Parts::new(installation.settings.serving.drain_timeout);
    let recorder = metrics::start(&mut parts);
    probe_storage(&installation);
    let due_check = jobs::start(&mut parts, &installation);
    let ready = listener.map(|bound| health::start(&mut parts, &installation, bound, recorder, Layer::Scheduler(due_check)));
    announce("basestream scheduler", ready, options);
    finish(installation, parts, &stop).await
}

fn warn_of(settings: Vec<String>) {
    settings.iter().for_each(|line| warn!("{line}"));
}

/// Starts something; `None` if `stop` came first, for a large catalog takes long to load. What is dropped then is as if
/// the process had died.
pub(crate) async fn unless_stopped<T>(stop: &CancellationToken, starting: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(None),
        started = starting => started.map(Some),
    }
}

async fn apply(installation: &Installation, options: &UpOptions) -> Result<()> {
    if let Some(definitions) = &options.definitions {
        let applied = installation.apply(definitions, false).await;
        audit(local_user(), "apply", "the project's definitions", &applied);
        applied?;
    }
    Ok(())
}

/// `what` is the command that is up. One without HTTP is announced in the log alone.
fn announce(what: &str, ready: Option<Ready>, options: UpOptions) {
    let Some(ready) = ready else {
        info!("{what} is up");
        return;
    };
    if !options.quiet {
        // Nobody has to read it: a full disk or a closed pipe ends no process.
        let _ = write!(std::io::stdout(), "{}", announcement(what, &ready));
    }
    info!(http = %ready.http, "{what} is up");
    if let Some(listener) = options.ready {
        let _ = listener.send(ready);
    }
}

fn announcement(what: &str, ready: &Ready) -> String {
    let mut lines = vec![format!("{what} is up: {}", ready.url())];
    lines.extend(ready.postgres.map(|address| format!("PostgreSQL clients: postgresql://{address}/basestream")));
    let scheme = if ready.tls { "grpc+tls" } else { "grpc" };
    lines.extend(ready.flight.map(|address| format!("Flight SQL clients: {scheme}://{address}")));
    lines.join("\n") + "\n"
}

async fn finish(installation: Installation, parts: Parts, stop: &CancellationToken) -> Result<()> {
    let outcome = parts.run(stop).await;
    StopWait::begin().until("the catalog to end what is under way", installation.close()).await;
    outcome
}

#[cfg(test)]
mod tests;
