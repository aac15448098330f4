//! Runs one version of one alert: waits for its lease, takes over what is open, and then looks round after round.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use catalog::{AlertProgress, OpenAlert};
use committed::registry::{LiveAlert, LiveView};
use engine::alerts::Open;
use serving::{ReadView, encoded_keys};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use types::vector::Vector;
use types::{Error, ErrorKind, Result};

use crate::Alerts;
use crate::evaluation::{Evaluation, Key};
use crate::lease::Held;
use crate::outbox::Outbox;
use crate::record::parsed_keys;

/// The time between two rounds.
const ROUND: Duration = Duration::from_millis(50);
/// How long to wait for what is not there yet, or after an error.
const PAUSE: Duration = Duration::from_millis(250);
/// How often old transitions are removed.
const FORGET: Duration = Duration::from_secs(60);
/// After so many failures in a row a warning is repeated.
const WARN_AGAIN: u64 = 300;
/// How long a stop waits for what is being committed or put out.
const STOPS_WITHIN: Duration = Duration::from_secs(5);
/// Open alerts that are read together.
const PAGE: u32 = 10_000;

/// Runs it until `stop`, whenever this process holds its lease.
pub(crate) async fn run(alerts: &Alerts, name: &str, version: u32, stop: &CancellationToken) {
    let mut failures: u64 = 0;
    while !stop.is_cancelled() {
        let outcome = tokio::select! {
            outcome = hold(alerts, name, version, stop) => outcome,
            // A service that does not answer holds nobody up: the lease expires.
            () = stopped_long_ago(stop) => return,
        };
        let Err(error) = outcome else {
            failures = 0;
            sleep(alerts.lease / 6, stop).await;
            continue;
        };
        // What is lost to another process, or not there for a moment, is ordinary.
        let is_ordinary = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict);
        match (is_ordinary, failures) {
            (false, 0) | (true, 10) => warn!(alert = name, version, %error, "an alert cannot be run; trying again"),
            _ => debug!(alert = name, version, %error, "an alert begins again"),
        }
        failures = (failures + 1) % WARN_AGAIN;
        sleep(if is_ordinary { PAUSE } else { alerts.lease / 6 }, stop).await;
    }
}

async fn stopped_long_ago(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STOPS_WITHIN).await;
}

/// Runs it while this process holds its lease. Returns at once while another does.
async fn hold(alerts: &Alerts, name: &str, version: u32, stop: &CancellationToken) -> Result<()> {
    let read_view = alerts.node.read_view()?;
    let Some(alert) = live(&read_view, name, version) else { return Ok(()) };
    let plan = alert.plan.clone().map_err(|found| broken(&alert, &found))?;
    // A process that cannot read the view leaves the alert to others.
    let read_view = alerts.node.read_view_of(std::slice::from_ref(&plan.view.view)).await?;
    let view = read_view.view(&plan.view.view)?.live.clone();
    let Some(held) = Held::acquire(alerts, name).await? else { return Ok(()) };
    let progress = alerts.node.catalog().alert_progress().await?;
    let progress = progress.into_iter().find(|progress| *progress.alert == *name && progress.version == version);
    let progress = progress.unwrap_or_else(|| AlertProgress {
        alert: name.into(),
        version,
        next_seq: 0,
        published: 0,
        position: Vector::new(),
        at: i64::MIN,
    });
    let numbers = (progress.next_seq, progress.published);
    let of_version = (alert.name.clone(), version);
    let mut outbox = Outbox::take_over(alerts, of_version.clone(), &alert.definition.topic, held, numbers).await?;
    let open = open_keys(alerts, &alert, &view, &mut outbox).await?;
    info!(alert = name, version, open = open.len(), "an alert runs");
    let definition = (of_version, alert.definition.resolve);
    let mut evaluation = Evaluation::new(definition, plan, alert.definition.repeat, open, progress.at);
    let outcome = rounds(alerts, (&alert, &view), &progress, &mut evaluation, &mut outbox, stop).await;
    let let_go = outbox.let_go().await;
    outcome.and(let_go)
}

/// Looks round after round, until `stop` or until the alert or its view is another.
async fn rounds(
    alerts: &Alerts,
    (alert, view): (&LiveAlert, &LiveView),
    progress: &AlertProgress,
    evaluation: &mut Evaluation,
    outbox: &mut Outbox<'_>,
    stop: &CancellationToken,
) -> Result<()> {
    let mut forgotten = Instant::now();
    while !stop.is_cancelled() {
        outbox.held.keep().await?;
        match alerts.node.read_view_of(std::slice::from_ref(&view.name)).await {
            Ok(read_view) => {
                let is_same = read_view.live(&view.name)?.version == view.version;
                if !is_same || live(&read_view, &alert.name, alert.version).is_none() {
                    return Ok(());
                }
                // What was put out is not contradicted: it was made from this position.
                if read_view.vector.covers(&progress.position) {
                    evaluation.round(&read_view, outbox).await?;
                    let name = alert.name.to_string();
                    metrics::gauge!("basestream_speed_alerts_open", "alert" => name).set(evaluation.open() as f64);
                }
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => return Err(error),
        }
        if forgotten.elapsed() >= FORGET {
            forgotten = Instant::now();
            outbox.forget().await?;
        }
        sleep(ROUND, stop).await;
    }
    Ok(())
}

fn live(read_view: &ReadView, name: &str, version: u32) -> Option<LiveAlert> {
    let alerts = &read_view.loaded.registry.alerts;
    alerts.iter().find(|alert| *alert.name == *name && alert.version == version).cloned()
}

/// What the catalog has open, by encoded key.
async fn open_keys(alerts: &Alerts, alert: &LiveAlert, view: &LiveView, outbox: &mut Outbox<'_>) -> Result<BTreeMap<Key, Open>> {
    let mut open = BTreeMap::new();
    let mut after: Option<OpenAlert> = None;
    loop {
        let page = alerts.node.catalog().open_alerts(Some(&alert.name), after.as_ref(), PAGE).await?;
        let of_version: Vec<&OpenAlert> = page.iter().filter(|open| open.version == alert.version).collect();
        let keys = of_version.iter().map(|open| parsed_keys(&open.keys)).collect::<Result<Vec<_>>>()?;
        let encoded = encoded_keys(view, keys)?;
        open.extend(encoded.into_iter().zip(of_version).map(|(key, open)| (key, Open { since: open.since, last: open.last_put_out })));
        outbox.held.keep().await?;
        match page.len() < PAGE as usize {
            true => return Ok(open),
            false => after = page.into_iter().last(),
        }
    }
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
