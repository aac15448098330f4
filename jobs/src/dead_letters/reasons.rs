//! Counts dead letters by reason, to name the most frequent one.

use std::collections::BTreeMap;

use crate::reason;

/// The most frequent reason among some dead letters. Reasons that differ only in the value found count as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrequentReason {
    /// The full reason of one of them.
    pub example: String,
    /// How many have it.
    pub count: i64,
    /// How many were read.
    pub of: i64,
}

#[derive(Debug, Default)]
pub(super) struct ReasonTally(BTreeMap<String, (i64, String)>);

impl ReasonTally {
    pub(super) fn add(&mut self, reason: String) {
        self.0.entry(reason::class(&reason)).or_insert((0, reason)).0 += 1;
    }

    /// How many dead letters were added.
    pub(super) fn count(&self) -> i64 {
        self.0.values().map(|(count, _)| *count).sum()
    }

    pub(super) fn most_frequent(self) -> Option<FrequentReason> {
        let of = self.count();
        let most = self.0.into_values().max_by_key(|(count, _)| *count);
        most.map(|(count, example)| FrequentReason { example, count, of })
    }
}
