//! The health of a process that runs one layer without a node: the speed layer, or the scheduler.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use event_alerts::StalledAlerts;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};
use serving::http::{BoundListener, Protection, Readiness, serve_health};
use speed::{Activity, WorkerProgress};
use tokio_util::sync::CancellationToken;
use types::outage::Outage;
use types::{Error, Result};

use super::answers::{ServiceAnswers, ask_services};
use super::lag::{self, LagSource};
use super::parts::{Parts, Stage};
use super::{Ready, protection};
use crate::installation::Installation;
use crate::output::count_of;
use crate::scheduler::DueCheck;

/// A worker without a partition is a spare after this time: others have all of them. Those of a worker that died are
/// assigned again sooner (`session.timeout.ms` on Kafka).
const ASSIGNED_WITHIN: Duration = Duration::from_secs(30);

/// What `/readyz` of such a process is answered from.
struct Health {
    installation: Installation,
    layer: Layer,
    answers: ServiceAnswers,
    stopping: CancellationToken,
}

/// The layer that the process runs.
pub(super) enum Layer {
    /// With its workers, and the alerts that are not evaluated.
    Speed(Vec<WorkerProgress>, StalledAlerts),
    Scheduler(DueCheck),
}

impl Readiness for Health {
    fn outages(&self) -> Vec<Outage> {
        let Installation { catalog, storage, log, .. } = &self.installation;
        let mut outages = catalog.outages();
        outages.extend(storage.outages());
        outages.extend(self.answers.outages());
        if let Layer::Speed(workers, alerts) = &self.layer {
            outages.extend(log.outages());
            // The workers fail together: the longest outage says it for all.
            outages.extend(workers.iter().filter_map(WorkerProgress::outage).max_by_key(|outage| outage.lasting));
            outages.extend(stalled(workers));
            outages.extend(alerts.outage());
        }
        outages
    }

    fn ready(&self) -> Result<Value> {
        let mut reasons: Vec<String> = self.stopping.is_cancelled().then(|| "the process is stopping".to_owned()).into_iter().collect();
        reasons.extend(self.outages().iter().map(|outage| format!("{} ({} s: {})", outage.what, outage.lasting.as_secs(), outage.error)));
        reasons.extend(self.layer.hindrances(Instant::now()));
        if !reasons.is_empty() {
            return Err(Error::unavailable(format!("{} is not ready: {}", self.layer.name(), reasons.join("; "))));
        }
        let catalog = self.installation.catalog.identity();
        Ok(match &self.layer {
            Layer::Speed(workers, _) => {
                let partitions: usize = workers.iter().map(|worker| partitions(worker.activity())).sum();
                json!({ "status": "ready", "catalog": catalog, "workers": workers.len(), "partitions": partitions })
            }
            Layer::Scheduler(_) => json!({ "status": "ready", "catalog": catalog }),
        })
    }
}

impl Layer {
    fn name(&self) -> &'static str {
        match self {
            Layer::Speed(..) => "the speed layer",
            Layer::Scheduler(_) => "the scheduler",
        }
    }

    /// Returns what it does first, before it can do its work.
    fn hindrances(&self, now: Instant) -> BTreeSet<String> {
        match self {
            Layer::Speed(workers, _) => workers.iter().filter_map(|worker| hindrance(worker.activity(), now)).collect(),
            Layer::Scheduler(due_check) => due_check.hindrance().into_iter().collect(),
        }
    }
}

/// Starts the HTTP of a process without a node, and what asks the services for it.
pub(super) fn start(
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
        lag::start(parts, Stage::Health, installation, LagSource::Catalog(installation.catalog.clone()), answers.log.clone());
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

/// Which streams the workers leave out, because a sink fails or a file is damaged: of several workers, the one where it
/// lasts longest.
pub(super) fn stalled(workers: &[WorkerProgress]) -> Vec<Outage> {
    let by_sink = workers.iter().filter_map(WorkerProgress::stalled).max_by_key(|outage| outage.lasting);
    let by_damage = workers.iter().filter_map(WorkerProgress::damaged).max_by_key(|outage| outage.lasting);
    by_sink.into_iter().chain(by_damage).collect()
}

fn hindrance(activity: Activity, now: Instant) -> Option<String> {
    match activity {
        Activity::Starting => Some("a worker is joining its group".to_owned()),
        Activity::Joined { since } => {
            (now.saturating_duration_since(since) < ASSIGNED_WITHIN).then(|| "a worker waits for its partitions".to_owned())
        }
        Activity::TakingOver { partitions } => Some(format!("a worker is taking {} over", count_of(partitions, "partition"))),
        Activity::Idle | Activity::Reading { .. } => None,
    }
}

fn partitions(activity: Activity) -> usize {
    match activity {
        Activity::Reading { partitions } => partitions,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
