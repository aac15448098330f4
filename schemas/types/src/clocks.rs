//! Clocks that are wrong: one that differs from that of the catalog's database, and one that went back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::outage::Outage;
use crate::tiles::Micros;

/// What the outages are called, in `/readyz` and in `status`.
pub const CLOCK_DIFFERS: &str = "the clock differs from that of the catalog's database";
pub const CLOCK_WENT_BACK: &str = "the clock went back";

/// Whether an outage is of a clock: the process still answers.
pub fn is_of_clock(outage: &Outage) -> bool {
    [CLOCK_DIFFERS, CLOCK_WENT_BACK].contains(&outage.what)
}

/// Clocks that are kept in time differ by less.
const TOLERATED: Micros = 5_000_000;

/// A clock that may be wrong, and since when it is.
#[derive(Debug)]
pub struct WatchedClock {
    what: &'static str,
    since: Mutex<Option<Instant>>,
}

impl WatchedClock {
    /// `what` says what an outage means: [`CLOCK_DIFFERS`].
    pub fn new(what: &'static str) -> Self {
        Self { what, since: Mutex::default() }
    }

    /// Returns the outage if the clock is wrong by more than five seconds, in either direction. `error` describes it
    /// by the whole seconds.
    pub fn outage(&self, wrong_by: Micros, error: impl FnOnce(u64) -> String) -> Option<Outage> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong_by.unsigned_abs() <= TOLERATED.unsigned_abs() {
            *since = None;
            return None;
        }
        let begun = *since.get_or_insert_with(Instant::now);
        let error = error(wrong_by.unsigned_abs() / 1_000_000);
        Some(Outage { what: self.what, lasting: begun.elapsed(), error, errors: BTreeMap::new() })
    }
}

/// The latest time that was used, where times must not decrease although the clock may.
#[derive(Debug)]
pub struct LatestTime {
    latest: AtomicI64,
    clock: WatchedClock,
}

impl Default for LatestTime {
    fn default() -> Self {
        Self { latest: AtomicI64::new(Micros::MIN), clock: WatchedClock::new(CLOCK_WENT_BACK) }
    }
}

impl LatestTime {
    /// Notes a time, and returns the latest one.
    pub fn note(&self, time: Micros) -> Micros {
        self.latest.fetch_max(time, Ordering::Relaxed).max(time)
    }

    /// Returns the outage while the latest time is ahead of the clock by more than five seconds. `error` describes it
    /// by the whole seconds.
    pub fn outage(&self, now: Micros, error: impl FnOnce(u64) -> String) -> Option<Outage> {
        let ahead = self.latest.load(Ordering::Relaxed).saturating_sub(now);
        self.clock.outage(ahead.max(0), error)
    }
}

#[cfg(test)]
mod tests;
