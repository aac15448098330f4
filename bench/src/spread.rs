//! Summarises repeated measurements of one quantity.

use serde::{Deserialize, Serialize};

/// Minimum, median and maximum of some measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Spread {
    /// `None` without values.
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Spread { min, median, max })
    }

    /// Of one value.
    pub fn single(value: f64) -> Option<Spread> {
        Spread::from_values([value])
    }

    /// Formats the median, with minimum and maximum if they differ.
    pub fn text(&self, one: impl Fn(f64) -> String) -> String {
        let (min, median, max) = (one(self.min), one(self.median), one(self.max));
        if self.min == self.max { median } else { format!("{median} ({min} - {max})") }
    }

    /// Divides each by the median of another.
    pub fn over(&self, other: &Spread) -> Spread {
        let by = |value: f64| value / other.median;
        Spread { min: by(self.min), median: by(self.median), max: by(self.max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_the_mean_of_two() {
        assert_eq!(Spread::from_values([3.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::from_values([4.0, 1.0]), Some(Spread { min: 1.0, median: 2.5, max: 4.0 }));
        assert_eq!(Spread::from_values([]), None);
    }
}
