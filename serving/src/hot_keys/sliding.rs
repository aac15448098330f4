//! Which keys are frequent in a sliding window: a frequent-items sketch for each slot of time, merged when somebody
//! asks. What it takes is bounded by the number of slots and the size of a sketch, however many keys there are.

use std::collections::VecDeque;

use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use types::tiles::Micros;
use types::{Error, Result};

use super::HotFrom;

/// A key that is hot by its share is there at least this many times a second: a quiet view has no hot keys.
const LEAST_PER_SECOND: f64 = 10.0;

type Sketch = FrequentItemsSketch<Vec<u8>>;

/// A window: that of now and some whole slots before it.
#[derive(Debug)]
pub(super) struct Sliding {
    /// The length of a slot.
    slot: Micros,
    /// How many whole slots before the one that has begun are in the window.
    before: i64,
    /// Entries of each sketch. An estimate is above the truth by at most 3.5 in this many of all that was counted.
    entries: usize,
    /// Ascending.
    slots: VecDeque<Slot>,
}

#[derive(Debug)]
struct Slot {
    /// Slots of this length since 1970.
    number: i64,
    /// All that was counted, also of keys that the sketch was not given.
    all: u64,
    sketch: Sketch,
}

/// A key that is frequent in a window.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frequent {
    pub(super) key: Vec<u8>,
    /// Of all that was counted in the window.
    pub(super) share: f64,
    pub(super) per_second: f64,
}

/// What was counted in a window, and the time that it is.
struct Counted {
    all: f64,
    seconds: f64,
}

impl Counted {
    /// `least` and `most` bound what was counted of a key.
    fn is_hot(&self, least: u64, most: u64, from: &HotFrom) -> bool {
        let (least, most) = (least as f64, most as f64);
        let is_large_part = most / self.all >= from.share && most / self.seconds >= LEAST_PER_SECOND;
        // What a sketch may be wrong by is little of all, but may be much beside a rate.
        is_large_part || least / self.seconds >= from.per_second
    }
}

impl Sliding {
    /// A window of this many slots of this length, and the one that has begun.
    pub(super) fn new(slot: Micros, before: i64, entries: usize) -> Self {
        Self { slot, before, entries, slots: VecDeque::new() }
    }

    /// Counts these keys among `all`. Those that are left out are at most as frequent as the sketch may be wrong.
    pub(super) fn count<'k>(&mut self, all: u64, keys: impl IntoIterator<Item = (&'k [u8], u64)>, now: Micros) -> Result<()> {
        let slot = self.slot_of(now)?;
        slot.all = slot.all.saturating_add(all);
        for (key, counted) in keys {
            slot.sketch.update_with_count_ref(key, counted);
        }
        Ok(())
    }

    pub(super) fn is_empty(&self, now: Micros) -> bool {
        self.slots.back().is_none_or(|slot| slot.number < self.first(now))
    }

    /// The keys that are hot. A key whose share is large enough is always there; one whose share is below that by more
    /// than the error of a sketch is there for its rate alone, and that rate is certain.
    pub(super) fn frequent(&self, from: &HotFrom, now: Micros) -> Result<Vec<Frequent>> {
        let mut merged = sketch(self.entries)?;
        self.slots_at(now).for_each(|slot| merged.merge(&slot.sketch));
        let counted = self.counted(now);
        let rows = merged.frequent_items(ErrorType::NoFalseNegatives);
        let hot = rows.iter().filter(|row| counted.is_hot(row.lower_bound(), row.upper_bound(), from));
        let frequent = |row: &datasketches::frequencies::Row<Vec<u8>>| Frequent {
            key: row.item().clone(),
            share: (row.estimate() as f64 / counted.all).min(1.0),
            per_second: row.estimate() as f64 / counted.seconds,
        };
        Ok(hot.map(frequent).collect())
    }

    /// Whether a key is hot, which costs a look into each slot.
    pub(super) fn is_hot(&self, key: &[u8], from: &HotFrom, now: Micros) -> bool {
        let (mut least, mut most) = (0, 0);
        for slot in self.slots_at(now) {
            let counted = slot.sketch.lower_bound(key);
            if counted > 0 {
                least += counted;
                most += counted + slot.sketch.maximum_error();
            }
        }
        most > 0 && self.counted(now).is_hot(least, most, from)
    }

    fn counted(&self, now: Micros) -> Counted {
        let all: u64 = self.slots_at(now).map(|slot| slot.all).sum();
        let (begin, window) = (self.first(now) * self.slot, self.slot * self.before);
        Counted { all: all as f64, seconds: (now - begin).max(window) as f64 / 1e6 }
    }

    fn slots_at(&self, now: Micros) -> impl Iterator<Item = &Slot> {
        let first = self.first(now);
        self.slots.iter().filter(move |slot| slot.number >= first)
    }

    fn first(&self, now: Micros) -> i64 {
        now.div_euclid(self.slot) - self.before
    }

    /// A clock that goes back counts in the newest slot.
    fn slot_of(&mut self, now: Micros) -> Result<&mut Slot> {
        let (number, first) = (now.div_euclid(self.slot), self.first(now));
        if self.slots.back().is_none_or(|newest| newest.number < number) {
            while self.slots.front().is_some_and(|oldest| oldest.number < first) {
                self.slots.pop_front();
            }
            self.slots.push_back(Slot { number, all: 0, sketch: sketch(self.entries)? });
        }
        self.slots.back_mut().ok_or_else(|| Error::internal("a window has no slot"))
    }
}

fn sketch(entries: usize) -> Result<Sketch> {
    Sketch::new(entries).map_err(|error| Error::internal("a sketch of frequent keys cannot be made").caused_by(error))
}

#[cfg(test)]
mod tests;
