//! The alerts that this process should evaluate and does not, for `/readyz`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use types::outage::Outage;

/// What the outage is called, in `/readyz` and in `status`.
pub const ALERT_STALLED: &str = "an alert is not evaluated";

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

    /// Returns which alerts of the process are not evaluated, and why, if there are any.
    pub fn outage(&self) -> Option<Outage> {
        let known = self.lock();
        let since = known.values().map(|(since, _)| *since).min()?;
        let error = known.iter().map(|(alert, (_, why))| format!("the alert \"{alert}\": {why}")).collect::<Vec<_>>().join("; ");
        let errors = known.iter().map(|(alert, (_, why))| (alert.clone(), why.clone())).collect();
        Some(Outage { what: ALERT_STALLED, lasting: since.elapsed(), error, errors })
    }

    fn lock(&self) -> MutexGuard<'_, StallsByAlert> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
