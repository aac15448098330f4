//! Records the latencies of single answers; percentiles by HdrHistogram, to three digits.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use types::{Error, Result};

use crate::report::{Figure, verdict};
use crate::spread::Spread;

/// Longer durations are recorded as this.
const LONGEST_NS: u64 = 600_000_000_000;

/// The durations of one stretch of measuring.
#[derive(Debug, Clone)]
pub struct Latencies {
    nanoseconds: Histogram<u64>,
    began: Instant,
    lasted: Duration,
}

impl Latencies {
    pub fn begin() -> Result<Latencies> {
        let nanoseconds =
            Histogram::new_with_bounds(1, LONGEST_NS, 3).map_err(|error| Error::internal(format!("no histogram: {error}")))?;
        Ok(Latencies { nanoseconds, began: Instant::now(), lasted: Duration::ZERO })
    }

    pub fn add(&mut self, took: Duration) {
        self.nanoseconds.saturating_record(took.as_nanos() as u64);
        self.lasted = self.began.elapsed();
    }

    /// Adds what another client measured in the same stretch.
    pub fn add_all(&mut self, other: &Latencies) -> Result<()> {
        self.lasted = self.lasted.max(other.lasted);
        self.nanoseconds.add(&other.nanoseconds).map_err(|error| Error::internal(format!("histograms do not add up: {error}")))
    }

    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    fn milliseconds(&self, quantile: f64) -> f64 {
        self.nanoseconds.value_at_quantile(quantile) as f64 / 1e6
    }

    fn per_second(&self) -> f64 {
        self.count() as f64 / self.lasted.as_secs_f64().max(1e-9)
    }
}

/// The columns of [`figures`].
pub const COLUMNS: [&str; 6] = ["lookups", "per second", "p50 ms", "p99 ms", "p99.9 ms", "slowest ms"];

/// Several stretches as one row: the median, with minimum and maximum.
pub fn figures(stretches: &[Latencies]) -> [Figure; COLUMNS.len()] {
    let spread = |of: &dyn Fn(&Latencies) -> f64| Spread::from_values(stretches.iter().map(of));
    let milliseconds = |quantile: f64| Figure::milliseconds(spread(&|one| one.milliseconds(quantile)));
    [
        Figure::Count(stretches.iter().map(Latencies::count).sum()),
        Figure::per_second(per_second(stretches)),
        milliseconds(0.5),
        milliseconds(0.99),
        milliseconds(0.999),
        milliseconds(1.0),
    ]
}

/// Answers a second.
pub fn per_second(stretches: &[Latencies]) -> Option<Spread> {
    Spread::from_values(stretches.iter().map(Latencies::per_second))
}

/// The median of the stretches' percentiles, in milliseconds.
pub fn median_of(stretches: &[Latencies], quantile: f64) -> Option<f64> {
    Spread::from_values(stretches.iter().map(|one| one.milliseconds(quantile))).map(|spread| spread.median)
}

/// The aim for the median p99, in milliseconds, and whether it is met.
pub fn aim(stretches: &[Latencies], most_ms: f64) -> Figure {
    median_of(stretches, 0.99).map_or(Figure::Absent, |p99| Figure::text(format!("{most_ms}: {}", verdict(p99 <= most_ms))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_added() {
        let mut latencies = Latencies::begin().unwrap();
        (1..=1_000).for_each(|millis| latencies.add(Duration::from_millis(millis)));
        let near = |quantile: f64, expected: f64| (latencies.milliseconds(quantile) / expected - 1.0).abs() < 0.001;
        assert!(near(0.5, 500.0) && near(0.99, 990.0) && near(0.999, 999.0) && near(1.0, 1_000.0), "{latencies:?}");
        assert_eq!(latencies.count(), 1_000);
        let [met, missed] = [1_000.0, 980.0].map(|most| aim(std::slice::from_ref(&latencies), most).to_string());
        assert_eq!((&*met, &*missed, aim(&[], 1.0)), ("1000: met", "980: missed", Figure::Absent));
    }

    #[test]
    fn what_two_clients_measured_adds_up() {
        let mut one = Latencies::begin().unwrap();
        one.add(Duration::from_millis(1));
        let mut two = Latencies::begin().unwrap();
        two.add(Duration::from_millis(3));
        std::thread::sleep(Duration::from_millis(20));
        two.add(Duration::from_millis(3));
        one.add_all(&two).unwrap();
        assert_eq!((one.count(), one.milliseconds(0.3).round(), one.milliseconds(0.6).round()), (3, 1.0, 3.0));
        assert!(one.per_second() < 150.0, "{one:?}");
    }
}
