//! Fits a line to samples, by least squares, with the standard error of its slope.

/// A line through samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trend {
    pub(super) median: f64,
    /// Per hour.
    pub(super) slope: f64,
    pub(super) error: f64,
}

/// More than this share of the median per hour, beyond two standard errors, is not level.
const LEVEL: f64 = 0.05;

impl Trend {
    /// `None` for fewer than three samples, or samples of one moment.
    pub(super) fn fit(minutes: &[(f64, f64)]) -> Option<Trend> {
        let count = minutes.len() as f64;
        if minutes.len() < 3 {
            return None;
        }
        let hours: Vec<(f64, f64)> = minutes.iter().map(|(minute, value)| (minute / 60.0, *value)).collect();
        let mean = |pick: fn(&(f64, f64)) -> f64| hours.iter().map(pick).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let squares: f64 = hours.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        if squares == 0.0 {
            return None;
        }
        let slope = hours.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / squares;
        let left: f64 = hours.iter().map(|(x, y)| (y - mean_y - slope * (x - mean_x)).powi(2)).sum();
        let error = (left / (count - 2.0) / squares).sqrt();
        let mut values: Vec<f64> = hours.iter().map(|(_, y)| *y).collect();
        values.sort_by(f64::total_cmp);
        Some(Trend { median: values[values.len() / 2], slope, error })
    }

    /// Whether it does not grow, as far as the samples can tell.
    pub(super) fn is_level(&self) -> bool {
        self.slope - 2.0 * self.error <= LEVEL * self.median.abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..120).map(|minute| (f64::from(minute), value(f64::from(minute)))).collect()
    }

    #[test]
    fn a_line_is_found_with_its_slope_per_hour() {
        let trend = Trend::fit(&samples(|minute| 100.0 + minute)).unwrap();
        assert!((trend.slope - 60.0).abs() < 1e-9 && trend.error < 1e-9 && !trend.is_level(), "{trend:?}");
    }

    #[test]
    fn a_saw_is_level_and_a_saw_that_rises_is_not() {
        let saw = |minute: f64| 100.0 + (minute % 7.0);
        assert!(Trend::fit(&samples(saw)).unwrap().is_level());
        assert!(!Trend::fit(&samples(|minute| saw(minute) + minute / 5.0)).unwrap().is_level());
    }

    #[test]
    fn what_falls_is_level_and_too_few_samples_are_none() {
        assert!(Trend::fit(&samples(|minute| 500.0 - minute)).unwrap().is_level());
        assert_eq!(Trend::fit(&[(0.0, 1.0), (1.0, 1.0)]), None);
        assert_eq!(Trend::fit(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    }
}
