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

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use access::{audit, local_user};
use definitions::Definitions;
use definitions::settings::{ClockKind, FreshKind};
use engine::fresh::Fresh;
use event_alerts::StalledAlerts;
use event_sinks::{Sinks, open_node};
use metrics_exporter_prometheus::PrometheusHandle;
use serving::Node;
use serving::http::{BoundListener, Protection, serve_health};
use speed::{EventSinks, Registration, Speed, WorkerProgress};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::outage::Attempts;
use types::{Result, threads};

use crate::collect;
use crate::installation::{Installation, clock};
use crate::pin;
use crate::scheduler::DueCheck;
use crate::status::NodeReporter;

mod answers;
mod health;
mod lag;
mod layers;
mod listeners;
mod metrics;
mod outputs;
mod parts;
mod process;
mod protection;
mod shared;
mod signals;
mod waiting;

pub use metrics::recorder;
pub(crate) use signals::stop_on_signals;

use answers::{ServiceAnswers, ask};
use health::{Health, Layer};
use listeners::{Listeners, bind_optional};
use parts::{Parts, Stage};
use waiting::StopWait;

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
    installation.show_alive().await;
    let fresh = Fresh::default();
    let mut parts = Parts::default();
    let starting = async {
        apply(&installation, &options).await?;
        let served = start_serving(&mut parts, &installation, (listeners, protection), Reads::Shared(fresh.clone())).await?;
        Ok((served, offer(&mut parts, &installation, offering, &fresh).await?))
    };
    if let Some((Serving { ready, node, sinks, alerts, log_answers }, registration)) = unless_stopped(&stop, starting).await? {
        let workers = start_speed(&mut parts, &installation, Shared { fresh, sinks, registration });
        node.attach_status_reporter(Arc::new(NodeReporter::new(&installation, workers.clone())));
        node.attach_outages(move || log_answers.outage().into_iter().chain(health::stalled(&workers)).chain(alerts.outage()).collect());
        start_jobs(&mut parts, &installation);
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
    apply(&installation, &options).await?;
    let mut parts = Parts::default();
    let recorder = start_upkeep(&mut parts);
    probe_storage(&installation);
    let fresh = Fresh::unread();
    let alerts = StalledAlerts::default();
    let sinks = installation.sinks(outputs::start(&mut parts, &installation, &fresh, alerts.clone()));
    let registration = offer(&mut parts, &installation, offering, &fresh).await?;
    let workers = start_speed(&mut parts, &installation, Shared { fresh, sinks, registration });
    let ready = listener.map(|bound| start_health(&mut parts, &installation, bound, recorder, Layer::Speed(workers, alerts)));
    announce("basestream speed", ready, options);
    finish(installation, parts, &stop).await
}

/// Runs the serving layer alone: it answers from checkpoints, snapshots and the fresh layers that workers offer, and
/// appends events to the log.
pub async fn serve(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    warn_of(installation.settings.without_effect());
    let (listeners, protection) = Listeners::bind(&installation).await?;
    let mut parts = Parts::default();
    let starting = async {
        apply(&installation, &options).await?;
        let reads = match installation.settings.serving.fresh {
            FreshKind::Stream => Reads::Followed,
            FreshKind::Committed => Reads::Committed,
        };
        start_serving(&mut parts, &installation, (listeners, protection), reads).await
    };
    if let Some(Serving { ready, node, .. }) = unless_stopped(&stop, starting).await? {
        node.attach_status_reporter(Arc::new(NodeReporter::new(&installation, Vec::new())));
        announce("basestream serve", Some(ready), options);
    }
    finish(installation, parts, &stop).await
}

/// Runs the scheduler alone, with the collector.
pub async fn scheduler(installation: Installation, options: UpOptions, stop: CancellationToken) -> Result<()> {
    let listener = bind_optional("scheduler.http", installation.settings.scheduler.http.as_deref(), &installation).await?;
    installation.show_alive().await;
    apply(&installation, &options).await?;
    let mut parts = Parts::default();
    let recorder = start_upkeep(&mut parts);
    probe_storage(&installation);
    let due_check = start_jobs(&mut parts, &installation);
    let ready = listener.map(|bound| start_health(&mut parts, &installation, bound, recorder, Layer::Scheduler(due_check)));
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

/// What a node reads beside what is committed.
enum Reads {
    Committed,
    /// What workers of other processes offer.
    Followed,
    /// That, and what the workers of this process share.
    Shared(Fresh),
}

impl Reads {
    fn fresh(self) -> Option<Fresh> {
        match self {
            Reads::Committed => None,
            Reads::Followed => Some(Fresh::default()),
            Reads::Shared(fresh) => Some(fresh),
        }
    }
}

/// Offers the fresh layers of this process, if the settings name an address.
async fn offer(
    parts: &mut Parts,
    installation: &Installation,
    offering: Option<layers::Offering>,
    fresh: &Fresh,
) -> Result<Option<Registration>> {
    match offering {
        Some(offering) => layers::offer(parts, installation, offering, fresh).await.map(Some),
        None => Ok(None),
    }
}

/// A node whose users are answered.
struct Serving {
    ready: Ready,
    node: Node,
    /// What makes records of events, also for those who ask for one.
    sinks: Arc<Sinks>,
    /// Which alerts are not evaluated.
    alerts: StalledAlerts,
    /// Whether the log says where its partitions end. A node without workers answers without it.
    log_answers: Attempts,
}

async fn start_serving(
    parts: &mut Parts,
    installation: &Installation,
    (listeners, protection): (Listeners, Protection),
    reads: Reads,
) -> Result<Serving> {
    let recorder = start_upkeep(parts);
    probe_storage(installation);
    let reads_itself = matches!(reads, Reads::Shared(_));
    let node = installation.node_at_once(reads.fresh()).await?;
    let sinks = installation.sinks(open_node(node.clone()));
    node.attach_scorer(sinks.clone());
    layers::follow(parts, installation, &node);
    protection::follow(parts, Stage::Http, installation, &protection);
    let ready = start_protocols(parts, installation, &node, listeners, &protection, recorder)?;
    let alerts = StalledAlerts::default();
    if reads_itself {
        start_alerts(parts, installation, node.clone(), alerts.clone());
        watch_shared(parts, installation, node.clone());
    }
    let log_answers = ServiceAnswers::default().log;
    watch_lag(parts, Stage::Node, installation, lag::LagSource::Node(node.clone()), log_answers.clone());
    run_node(parts, node.clone());
    Ok(Serving { ready, node, sinks, alerts, log_answers })
}

/// Starts what answers clients, on the addresses that the settings name.
fn start_protocols(
    parts: &mut Parts,
    installation: &Installation,
    node: &Node,
    listeners: Listeners,
    protection: &Protection,
    recorder: Option<PrometheusHandle>,
) -> Result<Ready> {
    let Listeners { http, postgres, flight } = listeners;
    let ready = Ready {
        http: http.address,
        tls: protection.tls.is_some(),
        postgres: postgres.as_ref().map(|bound| bound.address),
        flight: flight.as_ref().map(|bound| bound.address),
    };
    let stopping = parts.token(Stage::Http);
    let task = serving::http::serve(node.clone(), installation.log.clone(), recorder, protection.clone(), http, stopping);
    parts.start(Stage::Http, "http", |_| async move {
        task.await?;
        Ok(())
    });
    if let Some(bound) = postgres {
        let task = postgres_wire::serve(node.clone(), protection, bound, parts.token(Stage::Http))?;
        parts.start(Stage::Http, "postgres", |_| async move { task.await? });
    }
    if let Some(bound) = flight {
        let task = flight_sql::serve(node.clone(), protection, bound, parts.token(Stage::Http));
        parts.start(Stage::Http, "flight", |_| async move { task.await? });
    }
    Ok(ready)
}

/// Starts what watches the fresh layers that the workers of this process share.
fn watch_shared(parts: &mut Parts, installation: &Installation, node: Node) {
    let (worker, interval) = (installation.worker.clone(), installation.settings.speed.checkpoint_interval);
    parts.start(Stage::Node, "shared", move |stop| async move {
        shared::watch(node, worker, interval, stop).await;
        Ok(())
    });
}

/// Starts what shows the lag of the partitions. `answered` gets whether the log answers.
fn watch_lag(parts: &mut Parts, stage: Stage, installation: &Installation, source: lag::LagSource, answered: Attempts) {
    let log = installation.log.clone();
    parts.start(stage, "lag", |stop| async move {
        lag::watch(source, log, answered, stop).await;
        Ok(())
    });
}

/// Loading and copying snapshots may take as long as it likes: queries come first.
fn run_node(parts: &mut Parts, node: Node) {
    parts.start(Stage::Node, "node", |stop| async move { Ok(threads::RUNS.spawn(async move { node.run(stop).await }).await?) });
}

/// Starts the HTTP of a process without a node, and what asks the services for it.
fn start_health(
    parts: &mut Parts,
    installation: &Installation,
    (listener, protection): (BoundListener, Protection),
    recorder: Option<PrometheusHandle>,
    layer: Layer,
) -> Ready {
    let answers = ServiceAnswers::default();
    ask_services(parts, installation, &answers);
    // The scheduler needs no log.
    if let Layer::Speed(..) = layer {
        watch_lag(parts, Stage::Health, installation, lag::LagSource::Catalog(installation.catalog.clone()), answers.log.clone());
    }
    protection::follow(parts, Stage::Health, installation, &protection);
    let ready = Ready { http: listener.address, tls: protection.tls.is_some(), postgres: None, flight: None };
    let stopping = parts.token(Stage::Health);
    let health = Health { installation: installation.clone(), layer, answers, stopping: parts.token(Stage::Http) };
    let limits = installation.serving_limits();
    let task = serve_health(Arc::new(health), recorder, protection, listener, &limits, stopping);
    parts.start(Stage::Health, "health", |_| async move {
        task.await?;
        Ok(())
    });
    ready
}

/// Starts what asks the catalog and the storage, so that `/readyz` knows whether they answer.
fn ask_services(parts: &mut Parts, installation: &Installation, answers: &ServiceAnswers) {
    let (catalog, answered) = (installation.catalog.clone(), answers.catalog.clone());
    let request = move || {
        let catalog = catalog.clone();
        async move { catalog.revision().await.map(drop) }
    };
    parts.start(Stage::Health, "catalog", |stop| async move {
        ask(answered, request, stop).await;
        Ok(())
    });
    let (storage, answered) = (installation.storage.clone(), answers.storage.clone());
    let request = move || {
        let storage = storage.clone();
        async move { storage.probe().await }
    };
    parts.start(Stage::Health, "storage", |stop| async move {
        ask(answered, request, stop).await;
        Ok(())
    });
}

/// An alert is run by one of the processes with workers.
fn start_alerts(parts: &mut Parts, installation: &Installation, node: Node, stalled: StalledAlerts) {
    let alerts = installation.alerts(node, stalled);
    parts.start(Stage::Jobs, "alerts", |stop| async move {
        alerts.run(stop).await;
        Ok(())
    });
}

/// What the workers of a process share with others.
struct Shared {
    /// Where their fresh layers are read.
    fresh: Fresh,
    /// What makes the records of sinks, with a node that reads them.
    sinks: Arc<Sinks>,
    /// Where nodes of other processes find them.
    registration: Option<Registration>,
}

/// Returns what each worker is doing.
fn start_speed(parts: &mut Parts, installation: &Installation, shared: Shared) -> Vec<WorkerProgress> {
    let mut workers = Vec::new();
    let Shared { fresh, sinks, registration } = shared;
    for speed in installation.speed_workers(Some(fresh)) {
        let sinks: Arc<dyn EventSinks> = sinks.clone();
        let speed = Speed { sinks: Some(sinks), registration: registration.clone(), ..speed };
        workers.push(speed.progress.clone());
        // Each worker has its own thread, and what it spawns stays among the speed layer's: decoding would block the
        // threads that answer HTTP.
        let work = |stop| threads::SPEED.spawn_blocking(move || Handle::current().block_on(speed.run(stop)));
        parts.start(Stage::Speed, "speed", |stop| async move { work(stop).await? });
    }
    workers
}

/// Returns whether the scheduler can look for due runs.
fn start_jobs(parts: &mut Parts, installation: &Installation) -> DueCheck {
    let scheduler = installation.scheduler();
    let due_check = scheduler.due_check.clone();
    // A run takes what queries and the speed layer leave of the processors.
    parts.start(Stage::Jobs, "scheduler", |stop| async move { threads::RUNS.spawn(async move { scheduler.run(stop).await }).await? });
    let (catalog, storage, functions) = (installation.catalog.clone(), installation.storage.clone(), installation.functions.clone());
    let every = installation.settings.batch.collect_every;
    let event_clock = installation.settings.serving.clock == ClockKind::Event;
    let pin_lease = installation.settings.serving.lease.min(pin::LEASE);
    parts.start(Stage::Jobs, "collector", move |stop| async move {
        let clock = (clock(), event_clock);
        Ok(threads::RUNS.spawn(async move { collect::run(catalog, storage, functions, every, clock, pin_lease, stop).await }).await?)
    });
    let compacting = installation.compacting();
    parts.start(Stage::Jobs, "compaction", move |stop| async move {
        Ok(threads::RUNS.spawn(async move { compacting.run(every, stop).await }).await?)
    });
    if let Some(trimming) = installation.trimming() {
        parts.start(Stage::Jobs, "log trimming", move |stop| async move {
            Ok(threads::RUNS.spawn(async move { trimming.run(every, stop).await }).await?)
        });
    }
    due_check
}

/// Starts before any other part: metrics recorded before the recorder exists are lost.
fn start_upkeep(parts: &mut Parts) -> Option<PrometheusHandle> {
    let recorder = recorder();
    let kept = recorder.clone();
    parts.start(Stage::Health, "metrics", |stop| async move {
        metrics::upkeep(kept, stop).await;
        Ok(())
    });
    recorder
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

/// `what` is the command that is up. One without HTTP is announced in the log alone.
fn announce(what: &str, ready: Option<Ready>, options: UpOptions) {
    let Some(ready) = ready else {
        info!("{what} is up");
        return;
    };
    if !options.quiet {
        println!("{what} is up: {}", ready.url());
        if let Some(address) = ready.postgres {
            println!("PostgreSQL clients: postgresql://{address}/basestream");
        }
        if let Some(address) = ready.flight {
            println!("Flight SQL clients: {}://{address}", if ready.tls { "grpc+tls" } else { "grpc" });
        }
    }
    info!(http = %ready.http, "{what} is up");
    if let Some(listener) = options.ready {
        let _ = listener.send(ready);
    }
}

async fn finish(installation: Installation, parts: Parts, stop: &CancellationToken) -> Result<()> {
    let outcome = parts.run(stop).await;
    StopWait::begin().until("the catalog to end what is under way", installation.close()).await;
    outcome
}

#[cfg(test)]
mod tests;
