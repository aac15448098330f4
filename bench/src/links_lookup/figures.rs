//! How the tables show a degree, and what arrived meanwhile.

use crate::feed::Fed;
use crate::report::Figure;
use crate::spread::Spread;

/// The rate at which events arrived, and the rate at which they were counted.
pub(super) fn rates(fed: Option<&Fed>) -> [Figure; 2] {
    let rate = |of: fn(&Fed) -> f64| fed.map_or(Figure::Absent, |fed| Figure::per_second(Spread::from_values([of(fed)])));
    [rate(|fed| fed.appended_per_second), rate(|fed| fed.counted_per_second)]
}

pub(super) fn named(degree: u64) -> String {
    format!("{degree} x {degree}")
}
