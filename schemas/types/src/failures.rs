//! Events on which an expression of a view fails, such as a division by zero. They are left out of that view, counted
//! and listed with the reason.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::vector::{Offset, PartitionId};

/// This many of a part's failures are listed: those at the lowest positions.
pub const LISTED: usize = 1_000;

/// An event that a view leaves out, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub partition: PartitionId,
    pub offset: Offset,
    pub reason: String,
}

/// The failures of a view version in some part of its streams. All are counted, the first [`LISTED`] are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredFailures", into = "StoredFailures")]
pub struct Failures {
    count: u64,
    listed: BTreeMap<(PartitionId, Offset), String>,
}

impl Failures {
    /// Adds a failure.
    pub fn push(&mut self, failure: Failure) {
        self.count += 1;
        self.list(failure);
    }

    /// Adds the failures of another part.
    pub fn extend(&mut self, other: &Failures) {
        self.count += other.count;
        other.listed().for_each(|failure| self.list(failure));
    }

    fn list(&mut self, failure: Failure) {
        self.listed.insert((failure.partition, failure.offset), failure.reason);
        if self.listed.len() > LISTED {
            self.listed.pop_last();
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// In the order of their positions.
    pub fn listed(&self) -> impl Iterator<Item = Failure> + '_ {
        self.listed.iter().map(|((partition, offset), reason)| Failure {
            partition: partition.clone(),
            offset: *offset,
            reason: reason.clone(),
        })
    }

    /// About how many bytes the listed failures take.
    pub fn memory_bytes(&self) -> usize {
        self.listed.values().map(|reason| reason.len() + 64).sum()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the event at offset {} of {} fails: {}", self.offset, self.partition, self.reason)
    }
}

/// [`Failures`] as JSON.
#[derive(Serialize, Deserialize)]
struct StoredFailures {
    count: u64,
    first: Vec<Failure>,
}

impl From<StoredFailures> for Failures {
    fn from(stored: StoredFailures) -> Failures {
        let listed = stored.first.into_iter().map(|failure| ((failure.partition, failure.offset), failure.reason));
        Failures { count: stored.count, listed: listed.collect() }
    }
}

impl From<Failures> for StoredFailures {
    fn from(failures: Failures) -> StoredFailures {
        StoredFailures { count: failures.count, first: failures.listed().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(offset: i64) -> Failure {
        Failure { partition: PartitionId::new("s", 0), offset: Offset(offset), reason: format!("reason {offset}") }
    }

    #[test]
    fn all_are_counted_and_the_first_are_listed_in_any_order_of_the_parts() {
        let part = |offsets: std::ops::Range<i64>| {
            let mut part = Failures::default();
            offsets.rev().for_each(|offset| part.push(failure(offset)));
            part
        };
        let (early, late) = (part(0..700), part(700..1_500));
        let (mut one, mut other) = (early.clone(), late.clone());
        one.extend(&late);
        other.extend(&early);
        assert_eq!(one, other);
        assert_eq!(one.count(), 1_500);
        assert!(one.listed().eq((0..LISTED as i64).map(failure)));
        let json = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<Failures>(&json).unwrap(), one);
    }
}
