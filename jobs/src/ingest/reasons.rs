//! Counts rejected records by reason, without the values that were found.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::reason;

/// The most reasons that are counted separately.
const MOST_REASONS: usize = 20;

/// How many rejected records have each reason, for the first reasons that occur.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RejectedReasons {
    counts: BTreeMap<String, i64>,
    others: i64,
}

impl RejectedReasons {
    pub(super) fn note(&mut self, error: &str) {
        self.add(reason::class(error), 1);
    }

    pub(super) fn merge(&mut self, more: RejectedReasons) {
        self.others += more.others;
        for (reason, count) in more.counts {
            self.add(reason, count);
        }
    }

    fn add(&mut self, reason: String, count: i64) {
        let has_room = self.counts.len() < MOST_REASONS;
        match self.counts.get_mut(&reason) {
            Some(known) => *known += count,
            None if has_room => {
                self.counts.insert(reason, count);
            }
            None => self.others += count,
        }
    }

    /// The reasons with their counts, the most frequent first.
    pub fn by_count(&self) -> Vec<(&str, i64)> {
        let mut counts: Vec<(&str, i64)> = self.counts.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
        counts.sort_by_key(|(_, count)| Reverse(*count));
        counts
    }

    /// How many records have other reasons.
    pub fn others(&self) -> i64 {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However many reasons there are, and however the records are divided into batches.
        #[test]
        fn each_record_is_counted_once_and_few_reasons_are_kept(batches in vec(vec(0..60u8, 0..40), 0..8)) {
            let mut all = RejectedReasons::default();
            for batch in &batches {
                let mut reasons = RejectedReasons::default();
                for kind in batch {
                    let column: String = std::iter::repeat_n('c', usize::from(*kind)).collect();
                    reasons.note(&format!("column {column}: found \"{kind}\", expected TEXT"));
                }
                all.merge(reasons);
            }
            let counts = all.by_count();
            let records = batches.iter().map(Vec::len).sum::<usize>() as i64;
            prop_assert_eq!(counts.iter().map(|(_, count)| count).sum::<i64>() + all.others(), records);
            prop_assert!(counts.len() <= MOST_REASONS && counts.is_sorted_by(|a, b| a.1 >= b.1), "{:?}", counts);
            prop_assert!(all.others() == 0 || counts.len() == MOST_REASONS);
        }
    }
}
