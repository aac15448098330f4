//! Gathers what is known about each live alert: how many keys are open, and who runs it.

use std::sync::Arc;

use catalog::{AlertRunner, AlertTransition, Catalog, CatalogState, DefinitionKind, LeaseRecord};
use committed::registry::Registry;
use engine::events::format_timestamp;
use event_alerts::ALERT_LEASE;
use serde::Serialize;
use types::Result;
use types::tiles::Micros;

/// A live alert, as it is displayed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlertStatus {
    pub alert: Arc<str>,
    pub version: u32,
    /// Keys that satisfy its condition.
    pub open: i64,
    /// What began, was repeated or was resolved so far, in this version.
    pub transitions: i64,
    /// The process that runs it; null if none does.
    pub run_by: Option<String>,
    /// When that process last evaluated it, and for which time.
    pub looked_at: Option<String>,
    pub at: Option<String>,
    /// Why it is not evaluated.
    pub waits: Option<String>,
}

/// What was observed of a live alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertFacts {
    pub alert: Arc<str>,
    pub version: u32,
    /// Since when it is defined.
    pub since: Micros,
    pub open: i64,
    pub transitions: i64,
    /// The process whose lease on it has not expired.
    pub run_by: Option<String>,
    /// What the process that ran it last reported of this version.
    pub runner: Option<AlertRunner>,
    /// Whether it is paused: nobody runs it then.
    pub is_paused: bool,
    /// Why it cannot be planned.
    pub refused: Option<Arc<str>>,
}

/// Reads them from the catalog. Nothing is asked where no alert is defined.
pub(super) async fn read(catalog: &Catalog, state: &CatalogState, registry: Option<&Registry>, now: Micros) -> Result<Vec<AlertFacts>> {
    let live: Vec<_> = state.live(DefinitionKind::Alert).collect();
    if live.is_empty() {
        return Ok(Vec::new());
    }
    let (open, progress, runners) = (catalog.open_alert_counts().await?, catalog.alert_progress().await?, catalog.alert_runners().await?);
    let facts = live.into_iter().map(|record| {
        let of_it = |alert: &str, version: u32| *record.name == *alert && record.version == version;
        let planned = registry.and_then(|registry| registry.alerts.iter().find(|alert| of_it(&alert.name, alert.version)));
        let held = |lease: &&LeaseRecord| lease.name.strip_prefix(ALERT_LEASE) == Some(&*record.name) && lease.expires_at > now;
        AlertFacts {
            alert: record.name.clone(),
            version: record.version,
            since: record.since,
            open: open.iter().find(|count| of_it(&count.alert, count.version)).map_or(0, |count| count.keys),
            transitions: progress.iter().find(|known| of_it(&known.alert, known.version)).map_or(0, |known| known.next_seq),
            run_by: state.leases.iter().find(held).map(|lease| lease.owner.clone()),
            runner: runners.iter().find(|runner| of_it(&runner.alert, runner.version)).cloned(),
            is_paused: state.paused_since(DefinitionKind::Alert, &record.name).is_some(),
            refused: planned.and_then(|alert| alert.plan.as_ref().err().cloned()),
        }
    });
    Ok(facts.collect())
}

/// Returns the last transition of each of these alerts, as far as there is one that is kept.
pub(super) async fn last_transitions(catalog: &Catalog, alerts: &[AlertFacts]) -> Result<Vec<AlertTransition>> {
    let mut last = Vec::new();
    for AlertFacts { alert, version, transitions, .. } in alerts {
        if *transitions > 0 {
            last.extend(catalog.alert_transitions(alert, *version, transitions - 1, 1).await?);
        }
    }
    Ok(last)
}

impl AlertFacts {
    /// What the process that runs it reports.
    pub(super) fn running(&self) -> Option<&AlertRunner> {
        self.runner.as_ref().filter(|runner| self.run_by.as_ref() == Some(&runner.owner))
    }

    /// `error`: why the node does not evaluate it, if it says so.
    pub(super) fn status(&self, error: Option<&str>) -> AlertStatus {
        let running = self.running();
        AlertStatus {
            alert: self.alert.clone(),
            version: self.version,
            open: self.open,
            transitions: self.transitions,
            run_by: self.run_by.clone(),
            looked_at: running.and_then(|runner| runner.evaluated_at).map(format_timestamp),
            at: running.and_then(|runner| runner.at).map(format_timestamp),
            waits: running.and_then(|runner| runner.waits.clone()).or_else(|| error.map(str::to_owned)),
        }
    }
}
