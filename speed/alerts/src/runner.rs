//! Runs one version of one alert: waits for its lease, takes over what is open (`taking_over`), and then evaluates it
//! round after round.

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{AlertVersion, Revision};
use committed::registry::{LiveAlert, LiveView};
use engine::alerts::AlertPlan;
use serving::ReadView;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use types::vector::Vector;
use types::{Error, ErrorKind, Result};

use crate::Alerts;
use crate::evaluation::Evaluation;
use crate::lease::{AlertLeases, HeldLease};
use crate::log_ends::LogEnds;
use crate::outbox::Outbox;
use crate::waiting::ReadViewWait;

mod edge_index;
mod failures;
mod gauges;
mod open_pages;
mod taking_over;

pub use edge_index::NO_ROOM_FOR_INDEX;
use failures::FailureCounts;
use gauges::AlertGauge;

/// The time between two rounds.
const ROUND: Duration = Duration::from_millis(50);
/// How long to wait after an error, or if something is not available yet.
const PAUSE: Duration = Duration::from_millis(250);
/// How often old transitions are removed.
const FORGET: Duration = Duration::from_secs(60);
/// A warning is repeated after this many failures of its kind.
const WARN_AGAIN: u64 = 300;
/// How long a stop waits for what is being committed or put out.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// Runs the alert until `stop`, whenever this process holds its lease.
pub(crate) async fn run(alerts: &Alerts, leases: &Arc<AlertLeases>, version: &AlertVersion, stop: &CancellationToken) {
    run_until(alerts, leases, version, stop).await;
    alerts.stalled.clear(&version.name);
}

async fn run_until(alerts: &Alerts, leases: &Arc<AlertLeases>, of_version: &AlertVersion, stop: &CancellationToken) {
    let (name, version) = (&*of_version.name, of_version.version);
    let mut failures = FailureCounts::default();
    while !stop.is_cancelled() {
        let outcome = tokio::select! {
            outcome = run_under_lease(alerts, leases, of_version, &mut failures, stop) => outcome,
            // A service that does not answer does not block others: the lease expires.
            () = stopped_long_ago(stop) => return,
        };
        let Err(error) = outcome else {
            failures = FailureCounts::default();
            alerts.stalled.clear(name);
            // The process that runs it may die at any time.
            sleep(PAUSE.min(alerts.lease / 6), stop).await;
            continue;
        };
        // It is ordinary that another process has taken over, or that something is not available for a moment.
        let is_ordinary = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict);
        let reported = failures.count(is_ordinary);
        if reported > 0 {
            alerts.stalled.note(name, error.to_string());
        }
        match reported % WARN_AGAIN {
            1 => warn!(alert = name, version, %error, "an alert cannot be run; trying again"),
            _ => debug!(alert = name, version, %error, "an alert begins again"),
        }
        // Others look this often whether the lease is free.
        sleep(if reported == 0 { PAUSE } else { alerts.lease / 6 }, stop).await;
    }
}

async fn stopped_long_ago(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STOPS_WITHIN).await;
}

/// Runs the alert while this process holds its lease. Returns at once if another process holds it.
async fn run_under_lease(
    alerts: &Alerts,
    leases: &Arc<AlertLeases>,
    of_version: &AlertVersion,
    failures: &mut FailureCounts,
    stop: &CancellationToken,
) -> Result<()> {
    let Some((alert, plan)) = planned(alerts, of_version)? else { return Ok(()) };
    // A process that cannot read the view leaves the alert to others.
    let view = readable_view(alerts, &plan.view.view).await?;
    let Some((held, last_round)) = HeldLease::acquire(leases, of_version).await? else { return Ok(()) };
    let lease = held.record();
    let mut running = match RunningAlert::take_over(alerts, &alert, plan, &view, held, last_round).await {
        Ok(running) => running,
        Err(error) => {
            // Another process may be able to. Where the catalog does not answer either, the lease expires.
            if let Some(lease) = lease
                && let Err(unreleased) = alerts.node.catalog().release_lease(&lease).await
            {
                debug!(alert = &*alert.name, error = %unreleased, "the lease of an alert cannot be released");
            }
            return Err(error);
        }
    };
    let outcome = running.rounds(failures, stop).await;
    let released = running.outbox.release().await;
    outcome.and(released)
}

/// The alert with its plan; `None` if it is not live or is paused.
fn planned(alerts: &Alerts, version: &AlertVersion) -> Result<Option<(LiveAlert, Arc<AlertPlan>)>> {
    let Some(alert) = live(&alerts.node.read_view()?, &version.name, version.version) else { return Ok(None) };
    let plan = alert.plan.clone().map_err(|found| broken(&alert, &found))?;
    Ok(Some((alert, plan)))
}

/// The view as this process can read it.
async fn readable_view(alerts: &Alerts, name: &Arc<str>) -> Result<LiveView> {
    let read_view = alerts.node.read_view_of(std::slice::from_ref(name)).await?;
    Ok(read_view.view(name)?.live.clone())
}

/// An alert that this process runs, over one version of its view.
struct RunningAlert<'a> {
    alerts: &'a Alerts,
    alert: &'a LiveAlert,
    view: &'a LiveView,
    /// What is committed was made from this position, with values of parameters no newer than this revision. No round
    /// evaluates an earlier position.
    begun_at: (Vector, Revision),
    evaluation: Evaluation,
    outbox: Outbox<'a>,
    log_ends: LogEnds,
    waiting: ReadViewWait,
    open_keys: AlertGauge,
    index_bytes: AlertGauge,
    /// When the index of near edges was found to have no room.
    without_room_since: Option<Instant>,
}

impl RunningAlert<'_> {
    /// Evaluates round after round, until `stop` or until the alert or its view has another version.
    async fn rounds(&mut self, failures: &mut FailureCounts, stop: &CancellationToken) -> Result<()> {
        let mut forgotten = Instant::now();
        while !stop.is_cancelled() {
            self.outbox.held.note_progress()?;
            match self.alerts.node.read_view_of(std::slice::from_ref(&self.view.name)).await {
                Ok(read_view) => {
                    let Some(present) = self.present(&read_view)? else { return Ok(()) };
                    if self.round(&present, &read_view).await? {
                        *failures = FailureCounts::default();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => return Err(error),
            }
            if forgotten.elapsed() >= FORGET {
                forgotten = Instant::now();
                self.outbox.forget(self.evaluation.at()).await?;
            }
            sleep(ROUND, stop).await;
        }
        Ok(())
    }

    /// The alert as a read view has it; `None` if it or its view has another version, or if it is paused.
    fn present(&self, read_view: &ReadView) -> Result<Option<LiveAlert>> {
        let is_same = read_view.live(&self.view.name)?.version == self.view.version;
        Ok(live(read_view, &self.alert.name, self.alert.version).filter(|_| is_same))
    }

    /// Evaluates a read view, unless the read view is behind the position that sent records were made from, or its
    /// edges have no room. Returns whether it was evaluated.
    async fn round(&mut self, present: &LiveAlert, read_view: &ReadView) -> Result<bool> {
        self.evaluation.follow(present.plan.as_ref().map_err(|found| broken(present, found))?);
        let (begun_at, revision) = &self.begun_at;
        let needed = self.evaluation.position().unwrap_or(begun_at).of_streams(&self.view.streams());
        if !read_view.vector.covers(&needed) {
            if let Some(why) = self.waiting.reason(&needed, read_view, &*self.alerts.log, self.alerts.lease).await {
                wait(self.alerts, self.alert, why, &self.outbox);
            }
            return Ok(false);
        }
        if read_view.loaded.state.revision < *revision {
            return Ok(false);
        }
        self.waiting.end();
        if let Some(why) = self.index_edges(read_view).await? {
            wait(self.alerts, self.alert, &why, &self.outbox);
            return Ok(false);
        }
        let complete_to = self.log_ends.complete_to(self.alerts, read_view, self.view).await;
        let evaluated = self.evaluation.round(read_view, complete_to, &mut self.outbox).await?;
        if let Some(at) = evaluated {
            self.outbox.held.note_evaluated(at);
        }
        self.alerts.stalled.clear(&self.alert.name);
        self.open_keys.set(self.evaluation.open());
        Ok(evaluated.is_some())
    }
}

/// Reports why the alert is not evaluated: in the log, in `/readyz`, and with the lease in the catalog.
fn wait(alerts: &Alerts, alert: &LiveAlert, why: &str, outbox: &Outbox<'_>) {
    if outbox.held.note_waiting(why) {
        warn!(alert = %alert.name, version = alert.version, reason = why, "an alert is not evaluated");
    }
    alerts.stalled.note(&alert.name, why.to_owned());
}

fn live(read_view: &ReadView, name: &str, version: u32) -> Option<LiveAlert> {
    let alerts = &read_view.loaded.registry.alerts;
    let runs = |alert: &&LiveAlert| *alert.name == *name && alert.version == version && alert.paused_since.is_none();
    alerts.iter().find(runs).cloned()
}

fn broken(alert: &LiveAlert, found: &str) -> Error {
    Error::input(format!("the alert \"{}\" cannot be planned any more: {found}", alert.name))
        .with("help", "change the alert or the view that it watches, and run `basestream apply`")
}

async fn sleep(time: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(time) => {}
    }
}
