//! Compares this machine's clock with the clock of the database's server, which is the reference. Clocks have to agree
//! because one machine sets the time at which a lease or a pin expires, and another one decides whether it has expired.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use types::clocks::{CLOCK_DIFFERS, WatchedClock};
use types::outage::Outage;
use types::tiles::Micros;

/// How often they are compared.
const EVERY: Duration = Duration::from_secs(60);
/// How long the server may take to say its time.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// PostgreSQL's time in microseconds.
pub(super) const NOW: &str = "SELECT CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000) AS BIGINT)";

/// The outcome of the last comparison.
#[derive(Debug)]
pub(super) struct ComparedClock {
    asked: Mutex<Option<Instant>>,
    ahead: AtomicI64,
    watched: WatchedClock,
}

/// The server's time, asked for between two times of this machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockComparison {
    pub(super) before: Micros,
    pub(super) server: Micros,
    pub(super) after: Micros,
}

impl Default for ComparedClock {
    fn default() -> Self {
        Self { asked: Mutex::default(), ahead: AtomicI64::new(0), watched: WatchedClock::new(CLOCK_DIFFERS) }
    }
}

impl ComparedClock {
    /// Whether it is time to compare them. If so, the caller does.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = asked.is_none_or(|asked| now.saturating_duration_since(asked) >= EVERY);
        if is_due {
            *asked = Some(now);
        }
        is_due
    }

    /// Notes a comparison. Returns how far this machine is ahead; negative where it is behind.
    pub(super) fn note(&self, compared: ClockComparison) -> Micros {
        let ahead = compared.ahead();
        self.ahead.store(ahead, Ordering::Relaxed);
        // An outage lasts from now on, whenever it is asked for.
        self.outage();
        ahead
    }

    pub(super) fn outage(&self) -> Option<Outage> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let way = if ahead > 0 { "ahead" } else { "behind" };
        self.watched.outage(ahead, |seconds| format!("it is {seconds} s {way}"))
    }
}

impl ClockComparison {
    /// How far this machine is ahead at least: the answer may have been on its way for all of the time between.
    fn ahead(self) -> Micros {
        let ClockComparison { before, server, after } = self;
        before.saturating_sub(server).max(0) + after.saturating_sub(server).min(0)
    }
}

#[cfg(test)]
mod tests;
