//! Which keys are frequent in a sliding window: a frequent-items sketch for each slot of time, merged when somebody asks.
//! What it takes is bounded by the number of slots and the size of a sketch, however many keys there are.

use std::collections::VecDeque;

use datafusion::common::ScalarValue;
use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use types::tiles::Micros;
use types::{Error, Result};

/// Entries of a sketch. An estimate is above the truth by at most 3.5 in this many of all that was counted.
const SKETCH_ENTRIES: usize = 128;

/// A key of a view.
pub(super) type Key = Vec<ScalarValue>;
type Sketch = FrequentItemsSketch<Key>;

/// A window: that of now and some whole slots before it.
#[derive(Debug)]
pub(super) struct Sliding {
    slot: Micros,
    before: i64,
    /// By the number of their slot since 1970, ascending.
    slots: VecDeque<(i64, Sketch)>,
}

/// A key that is frequent in a window.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frequent {
    pub(super) key: Key,
    /// Of all that was counted in the window.
    pub(super) share: f64,
    pub(super) per_second: f64,
}

impl Sliding {
    /// A window of this many slots of this length, and the one that has begun.
    pub(super) fn new(slot: Micros, before: i64) -> Self {
        Self { slot, before, slots: VecDeque::new() }
    }

    pub(super) fn window(&self) -> Micros {
        self.slot * self.before
    }

    pub(super) fn count(&mut self, key: &[ScalarValue], now: Micros) -> Result<()> {
        self.sketch_of(now)?.update_ref(key);
        Ok(())
    }

    pub(super) fn is_empty(&self, now: Micros) -> bool {
        self.slots.back().is_none_or(|(slot, _)| *slot < self.first(now))
    }

    /// The keys with at least this share of what was counted and at least this rate. A key above both is always there;
    /// one whose share is below it by more than the error of a sketch never is.
    pub(super) fn frequent(&self, share: f64, per_second: f64, now: Micros) -> Result<Vec<Frequent>> {
        let mut merged = sketch()?;
        let first = self.first(now);
        self.slots.iter().filter(|(slot, _)| *slot >= first).for_each(|(_, sketch)| merged.merge(sketch));
        let (all, seconds) = (merged.total_weight() as f64, ((now - first * self.slot).max(self.window()) as f64) / 1e6);
        let rows = merged.frequent_items(ErrorType::NoFalseNegatives);
        let found = rows.iter().map(|row| Frequent {
            key: row.item().clone(),
            share: (row.estimate() as f64 / all).min(1.0),
            per_second: row.estimate() as f64 / seconds,
        });
        Ok(found.filter(|found| found.share >= share && found.per_second >= per_second).collect())
    }

    fn first(&self, now: Micros) -> i64 {
        now.div_euclid(self.slot) - self.before
    }

    /// A clock that goes back counts in the newest slot.
    fn sketch_of(&mut self, now: Micros) -> Result<&mut Sketch> {
        let (slot, first) = (now.div_euclid(self.slot), self.first(now));
        if self.slots.back().is_none_or(|(newest, _)| *newest < slot) {
            while self.slots.front().is_some_and(|(oldest, _)| *oldest < first) {
                self.slots.pop_front();
            }
            self.slots.push_back((slot, sketch()?));
        }
        self.slots.back_mut().map(|(_, sketch)| sketch).ok_or_else(|| Error::internal("a window has no slot"))
    }
}

fn sketch() -> Result<Sketch> {
    Sketch::new(SKETCH_ENTRIES).map_err(|error| Error::internal("a sketch of frequent keys cannot be made").caused_by(error))
}

#[cfg(test)]
mod tests;
