//! The alerts that this process should evaluate and does not, for `/readyz`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use types::outage::Outage;

/// What the outage is called, in `/readyz` and in `status`.
pub const ALERT_STALLED: &str = "an alert is not evaluated";

/// How the error of an outage names alerts.
const THE_ALERT: &str = "the alert \"";
const BETWEEN_ALERTS: &str = "; ";

/// Cheap to clone. Clones share their content.
#[derive(Debug, Clone, Default)]
pub struct StalledAlerts(Arc<Mutex<StallsByAlert>>);

/// Since when each of them is not evaluated, and why.
type StallsByAlert = BTreeMap<Arc<str>, (Instant, String)>;

impl StalledAlerts {
    pub(crate) fn note(&self, alert: &str, why: String) {
        self.lock().entry(alert.into()).and_modify(|(_, known)| known.clone_from(&why)).or_insert_with(|| (Instant::now(), why));
    }

    pub(crate) fn clear(&self, alert: &str) {
        self.lock().remove(alert);
    }

    pub fn outage(&self) -> Option<Outage> {
        let known = self.lock();
        let since = known.values().map(|(since, _)| *since).min()?;
        let error = known.iter().map(|(alert, (_, why))| format!("{}{why}", naming(alert))).collect::<Vec<_>>().join(BETWEEN_ALERTS);
        Some(Outage { what: ALERT_STALLED, lasting: since.elapsed(), error })
    }

    fn lock(&self) -> MutexGuard<'_, StallsByAlert> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error of one alert from that of an outage ([`ALERT_STALLED`]).
pub fn error_of_alert<'e>(outage: &'e str, alert: &str) -> Option<&'e str> {
    let (_, error) = outage.split_once(&naming(alert))?;
    error.split(&format!("{BETWEEN_ALERTS}{THE_ALERT}")).next()
}

fn naming(alert: &str) -> String {
    format!("{THE_ALERT}{alert}\": ")
}

#[cfg(test)]
mod tests;
