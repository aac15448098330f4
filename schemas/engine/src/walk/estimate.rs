//! Estimating what a sample of neighbours says of all of them.
//!
//! - Counts and sums of pairs are divided by the shares that were followed (Horvitz and Thompson 1952): unbiased, with
//!   a relative standard error of about sqrt((1 - p) / (p n)) for n neighbours of like weight of which the share p is
//!   followed.
//! - Different end points: D seen, f1 of them through one followed neighbour, f2 through two. With the share p of
//!   neighbours followed the number of all is estimated as D + f1^2 / (2 f2 + f1 p / (1 - p)) (Chao and Lin 2012,
//!   sampling without replacement), then divided by the share of end points that was looked at. It is a lower bound in
//!   expectation, and exact where every end point has one neighbour.
//! - Other aggregates (min, max, avg, arrays) are those of the sample.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array};
use arrow::compute::cast;
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::DataType;

use crate::plan::links::{AggregateInput, Both, EdgeLayout, LinkAggregate};
use crate::walk::degree::Threshold;
use crate::walk::meet::{NodeNumber, Pair};
use types::Result;

pub(super) struct Estimate {
    method: Method,
    /// The end points are those of far edges, which are looked at in shares too.
    of_far_ends: bool,
    thresholds: Vec<Threshold>,
    /// Per key that is sampled: how many end points were seen through one followed neighbour, and through two.
    through: HashMap<u32, (u64, u64)>,
    /// The key under way, with its end points.
    current: Option<(u32, HashMap<u32, EndCount>)>,
}

/// Through which neighbours an end point was seen.
struct EndCount {
    last: NodeNumber,
    /// At most three are counted.
    count: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Total,
    Different,
    OfTheSample,
}

impl Estimate {
    pub(super) fn new(layout: &EdgeLayout, aggregate: &LinkAggregate, thresholds: &[Threshold]) -> Self {
        let of_far_ends = matches!(&aggregate.input, AggregateInput::Ends { argument, .. } if layout.far_ends.contains(&argument.column.0));
        let method = match (&aggregate.input, aggregate.function.as_str()) {
            (AggregateInput::Ends { .. }, "count" | "approx_distinct") => Method::Different,
            (AggregateInput::States { .. }, "count" | "sum") => Method::Total,
            _ => Method::OfTheSample,
        };
        Self { method, of_far_ends, thresholds: thresholds.to_vec(), through: HashMap::new(), current: None }
    }

    /// Notes through which neighbour an end point was reached. Pairs come key after key, and of a key neighbour after
    /// neighbour.
    pub(super) fn note(&mut self, pair: &Pair, end: u32) {
        if self.method != Method::Different || !self.thresholds[pair.group as usize].is_sampled() {
            return;
        }
        if self.current.as_ref().is_none_or(|(key, _)| *key != pair.group) {
            self.end_key();
            self.current = Some((pair.group, HashMap::new()));
        }
        if let Some((_, seen)) = &mut self.current {
            let known = seen.entry(end).or_insert(EndCount { last: pair.node, count: 1 });
            if known.last != pair.node {
                *known = EndCount { last: pair.node, count: (known.count + 1).min(3) };
            }
        }
    }

    fn end_key(&mut self) {
        if let Some((key, seen)) = self.current.take() {
            let through = |count: u8| seen.values().filter(|seen| seen.count == count).count() as u64;
            self.through.insert(key, (through(1), through(2)));
        }
    }

    /// The values with those of sampled keys estimated.
    pub(super) fn scale(&mut self, values: &ArrayRef) -> Result<ArrayRef> {
        self.end_key();
        if self.method == Method::OfTheSample {
            return Ok(values.clone());
        }
        let is_sampled: BooleanArray = self.thresholds.iter().map(|threshold| Some(threshold.is_sampled())).collect();
        let numbers = cast(values, &DataType::Float64)?;
        let numbers = numbers.as_any().downcast_ref::<Float64Array>();
        let whole = matches!(values.data_type(), DataType::Int64 | DataType::UInt64);
        let estimated: Float64Array = (0..values.len())
            .map(|key| {
                let value = numbers.filter(|numbers| numbers.is_valid(key)).map(|numbers| numbers.value(key))?;
                let estimate = self.estimated(key, value);
                Some(if whole { estimate.round() } else { estimate })
            })
            .collect();
        let estimated = cast(&estimated, values.data_type())?;
        Ok(zip(&is_sampled, &estimated, values)?)
    }

    fn estimated(&self, key: usize, value: f64) -> f64 {
        let Both { near, far } = self.thresholds[key].shares();
        match self.method {
            Method::Total => value / (near * far),
            Method::Different => {
                let (once, twice) = self.through.get(&(key as u32)).copied().unwrap_or_default();
                different(value, once as f64, twice as f64, near) / if self.of_far_ends { far } else { 1.0 }
            }
            Method::OfTheSample => value,
        }
    }
}

/// Chao and Lin's estimate of how many there are, of `seen` with `once` and `twice` of them seen once and twice in the
/// share `p`.
fn different(seen: f64, once: f64, twice: f64, p: f64) -> f64 {
    if once == 0.0 || p >= 1.0 {
        return seen;
    }
    seen + once * once / (2.0 * twice + once * p / (1.0 - p))
}

#[cfg(test)]
mod tests;
