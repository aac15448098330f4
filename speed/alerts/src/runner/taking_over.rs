//! Takes an alert over from the process that ran it before: what is committed of it, which keys are open, and which
//! have ceased because a new version of the view does not have them.

use std::collections::HashMap;
use std::sync::Arc;

use catalog::{AlertProgress, AlertTransition, AlertVersion, OpenKey};
use committed::registry::{LiveAlert, LiveView};
use engine::alerts::{AlertPlan, OpenState};
use serving::encoded_keys;
use tracing::info;
use types::tiles::Micros;
use types::vector::Vector;
use types::{ErrorKind, Result, TransitionKind};

use super::RunningAlert;
use super::gauges::AlertGauge;
use super::open_pages::OpenPages;
use crate::Alerts;
use crate::evaluation::{EncodedKey, Evaluation, RecoveredState};
use crate::lease::HeldLease;
use crate::log_ends::LogEnds;
use crate::outbox::{Outbox, TransitionOrigin};
use crate::record::{id, is_put_out, json, keys_json, parsed_keys, record_key};
use crate::waiting::ReadViewWait;

/// How many open keys or transitions are read at once.
const PAGE: u32 = 10_000;

impl<'a> RunningAlert<'a> {
    /// Takes over under a lease. `last_round` is the time of the last round of the process before.
    pub(super) async fn take_over(
        alerts: &'a Alerts,
        alert: &'a LiveAlert,
        plan: Arc<AlertPlan>,
        view: &'a LiveView,
        held: HeldLease,
        last_round: Option<Micros>,
    ) -> Result<Self> {
        // The process before may have used values of parameters that this node has not loaded yet.
        let revision = alerts.node.catalog().revision().await?;
        let progress = committed_progress(alerts, alert).await?;
        let of_version = AlertVersion { name: alert.name.clone(), version: alert.version };
        let mut outbox = Outbox::take_over(alerts, of_version, &alert.definition.topic, held, &progress).await?;
        let (open, gone) = open_keys(alerts, alert, view, &mut outbox).await?;
        let ceased = ceased_keys(alerts, &progress, view, &mut outbox).await?;
        resolve_gone(alert, &plan, &gone, &progress, &mut outbox).await?;
        info!(alert = &*alert.name, version = alert.version, open = open.len(), "an alert runs");
        let recovered = RecoveredState { open, ceased, at: progress.at, last_round };
        let evaluation = Evaluation::new(alert, plan, recovered, alerts.node.reverse_index());
        Ok(RunningAlert {
            alerts,
            alert,
            view,
            begun_at: (progress.position, revision),
            evaluation,
            outbox,
            log_ends: LogEnds::default(),
            waiting: ReadViewWait::default(),
            open_keys: AlertGauge::open_keys(&alert.name),
            index_bytes: AlertGauge::index_bytes(&alert.name),
            without_room_since: None,
        })
    }
}

/// How far the alert is committed. An alert that never ran has no transitions.
async fn committed_progress(alerts: &Alerts, alert: &LiveAlert) -> Result<AlertProgress> {
    let progress = alerts.node.catalog().alert_progress().await?;
    let progress = progress.into_iter().find(|progress| progress.alert == alert.name && progress.version == alert.version);
    Ok(progress.unwrap_or_else(|| AlertProgress {
        alert: alert.name.clone(),
        version: alert.version,
        next_seq: 0,
        published: 0,
        position: Vector::new(),
        at: i64::MIN,
    }))
}

/// The open keys of the catalog as the view encodes them, and those that the view no longer has.
async fn open_keys(
    alerts: &Alerts,
    alert: &LiveAlert,
    view: &LiveView,
    outbox: &mut Outbox<'_>,
) -> Result<(HashMap<EncodedKey, OpenState>, Vec<OpenKey>)> {
    let (mut open, mut gone) = (HashMap::new(), Vec::new());
    let version = AlertVersion { name: alert.name.clone(), version: alert.version };
    let mut pages = OpenPages::read(alerts.node.catalog().clone(), version, PAGE);
    while let Some(page) = pages.next().await? {
        let keys = encoded(view, &page.iter().map(|open| &*open.keys).collect::<Vec<_>>())?;
        for (key, of_key) in keys.into_iter().zip(&page) {
            match key {
                Some(key) => {
                    open.insert(key, OpenState { since: of_key.since, last: of_key.last_put_out });
                }
                None => gone.push(of_key.clone()),
            }
        }
        outbox.held.note_progress()?;
    }
    Ok((open, gone))
}

/// The keys that ceased and had begun at the time of the last transitions or later, by encoded key, each with its
/// `since`.
async fn ceased_keys(
    alerts: &Alerts,
    progress: &AlertProgress,
    view: &LiveView,
    outbox: &mut Outbox<'_>,
) -> Result<HashMap<EncodedKey, Micros>> {
    let mut ceased = HashMap::new();
    let mut end = progress.next_seq;
    while end > 0 {
        let from = (end - i64::from(PAGE)).max(0);
        let mut page = alerts.node.catalog().alert_transitions(&progress.alert, progress.version, from, (end - from) as u32).await?;
        let is_whole = page.first().is_none_or(|first| first.at < progress.at);
        page.retain(|transition| transition.since >= progress.at && transition.kind == TransitionKind::Resolved);
        let keys = encoded(view, &page.iter().map(|transition| &*transition.keys).collect::<Vec<_>>())?;
        for (key, transition) in keys.into_iter().zip(&page) {
            let Some(key) = key else { continue };
            let since: &mut Micros = ceased.entry(key).or_insert(transition.since);
            *since = transition.since.max(*since);
        }
        outbox.held.note_progress()?;
        if is_whole {
            break;
        }
        end = from;
    }
    Ok(ceased)
}

/// Keys as the view encodes them. `None` for a key the view does not have, or whose spelling changed with its type.
fn encoded(view: &LiveView, keys: &[&str]) -> Result<Vec<Option<EncodedKey>>> {
    let parsed = || keys.iter().map(|keys| parsed_keys(keys)).collect::<Result<Vec<_>>>();
    let encoded: Vec<Option<EncodedKey>> = match encoded_keys(view, parsed()?) {
        Ok(encoded) => encoded.into_iter().map(Some).collect(),
        // At least one key is invalid: encode them one by one.
        Err(error) if error.kind() == ErrorKind::Input => {
            let one = |keys| encoded_keys(view, vec![keys]).ok().and_then(|encoded| encoded.into_iter().next());
            parsed()?.into_iter().map(one).collect()
        }
        Err(error) => return Err(error),
    };
    let found: Vec<EncodedKey> = encoded.iter().flatten().cloned().collect();
    let mut texts = keys_json(view, &found)?.into_iter();
    Ok(encoded.into_iter().zip(keys).map(|(key, text)| key.filter(|_| texts.next().as_deref() == Some(*text))).collect())
}

/// Resolves the open alerts of keys that the view no longer has.
async fn resolve_gone(
    alert: &LiveAlert,
    plan: &AlertPlan,
    gone: &[OpenKey],
    progress: &AlertProgress,
    outbox: &mut Outbox<'_>,
) -> Result<()> {
    if gone.is_empty() {
        return Ok(());
    }
    let transitions = gone.iter().map(|open| resolved(alert, plan, open, progress.at)).collect::<Result<Vec<_>>>()?;
    outbox.put(transitions, &progress.position, progress.at, TransitionOrigin::TakeOver).await
}

/// The transition that resolves one of them.
fn resolved(alert: &LiveAlert, plan: &AlertPlan, open: &OpenKey, at: Micros) -> Result<AlertTransition> {
    let mut transition = AlertTransition {
        alert: alert.name.clone(),
        version: alert.version,
        seq: 0,
        id: id((&alert.name, alert.version), &open.keys, open.since),
        kind: TransitionKind::Resolved,
        keys: open.keys.clone(),
        since: open.since,
        at,
        record: None,
        record_key: Some(record_key(&open.keys)?),
    };
    if is_put_out(transition.kind, alert.definition.resolve) {
        transition.record = Some(json(&transition, Err("the view has other keys now"), &plan.parameters)?);
    }
    Ok(transition)
}
