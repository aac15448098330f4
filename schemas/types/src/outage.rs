//! Outages: what this process tries to do and cannot, known from the outcomes of its attempts. `/readyz`, `status` and
//! the metrics report them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{ErrorKind, Result};

/// How long an outage lasts after its last failure. A success ends it at once, but there may be no further
/// attempt.
const LASTS: Duration = Duration::from_secs(30);

/// Something that fails at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// `the catalog cannot be written`
    pub what: &'static str,
    /// How long it has failed.
    pub lasting: Duration,
    /// The last attempt's error.
    pub error: String,
    /// The error of each sink or alert that fails, by its name, where it is of those.
    pub errors: BTreeMap<Arc<str>, String>,
}

/// The outcomes of one kind of attempt. Clones share them.
#[derive(Debug, Clone)]
pub struct Attempts {
    what: &'static str,
    failing: Arc<Mutex<Option<Failing>>>,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    last: Instant,
    error: String,
}

impl Attempts {
    /// `what` says what an outage means: `the catalog cannot be written`.
    pub fn new(what: &'static str) -> Self {
        Self { what, failing: Arc::default() }
    }

    /// Takes note of an outcome. Only `Unavailable` is an outage: any other error is an answer.
    pub fn note<T>(&self, outcome: &Result<T>) {
        self.note_at(outcome, Instant::now());
    }

    /// Returns the outage, if there is one.
    pub fn outage(&self) -> Option<Outage> {
        self.outage_at(Instant::now())
    }

    fn note_at<T>(&self, outcome: &Result<T>, now: Instant) {
        let mut failing = self.lock();
        *failing = match outcome {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                let since = failing.as_ref().filter(|known| known.is_current(now)).map_or(now, |known| known.since);
                Some(Failing { since, last: now, error: error.to_string() })
            }
            _ => None,
        };
    }

    fn outage_at(&self, now: Instant) -> Option<Outage> {
        let failing = self.lock();
        let current = failing.as_ref().filter(|known| known.is_current(now))?;
        let (lasting, error) = (now.saturating_duration_since(current.since), current.error.clone());
        Some(Outage { what: self.what, lasting, error, errors: BTreeMap::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failing {
    fn is_current(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < LASTS
    }
}

#[cfg(test)]
mod tests;
