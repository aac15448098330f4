//! Which dead letters were replayed, as ranges of offsets per partition.

use std::collections::BTreeMap;

use catalog::ReplayedDeadLetters;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};

/// Consecutive offsets of one partition of a stream.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReplayedRange {
    partition: i32,
    start: Offset,
    end: Offset,
}

/// The replayed ranges of one stream: disjoint, ordered by partition and start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Replayed(BTreeMap<(i32, Offset), Offset>);

impl Replayed {
    pub(super) fn new(records: &[ReplayedDeadLetters]) -> Self {
        let range = |r: &ReplayedDeadLetters| ReplayedRange { partition: r.partition.partition, start: r.start, end: r.end };
        let mut ranges: Vec<ReplayedRange> = records.iter().map(range).collect();
        ranges.sort_unstable();
        let mut joined: BTreeMap<(i32, Offset), Offset> = BTreeMap::new();
        for ReplayedRange { partition, start, end } in ranges {
            match joined.last_entry() {
                Some(mut last) if last.key().0 == partition && *last.get() >= start => {
                    let longer = end.max(*last.get());
                    last.insert(longer);
                }
                _ => {
                    joined.insert((partition, start), end);
                }
            }
        }
        Self(joined)
    }

    pub(super) fn holds(&self, partition: i32, offset: Offset) -> bool {
        let before = self.0.range(..=(partition, offset)).next_back();
        before.is_some_and(|((of, _), end)| *of == partition && offset < *end)
    }
}

/// Builds ranges while dead letters are read in the order of their offsets. A range reaches from a replayed dead letter
/// to the last one before a dead letter that was left out.
#[derive(Debug, Default)]
pub(super) struct Runs {
    open: BTreeMap<i32, (Offset, Offset)>,
    closed: Vec<ReplayedRange>,
}

impl Runs {
    /// Adds a dead letter that is replayed now.
    pub(super) fn take(&mut self, partition: i32, offset: Offset) {
        match self.open.get_mut(&partition) {
            Some((_, end)) if *end <= offset => *end = offset.next(),
            _ => {
                self.leave_out(partition);
                self.open.insert(partition, (offset, offset.next()));
            }
        }
    }

    /// Skips a dead letter that is not replayed: no range may span it.
    pub(super) fn leave_out(&mut self, partition: i32) {
        if let Some((start, end)) = self.open.remove(&partition) {
            self.closed.push(ReplayedRange { partition, start, end });
        }
    }

    /// Closes all ranges: the order ends here, and what follows may have any offset.
    pub(super) fn close(&mut self) {
        while let Some((partition, (start, end))) = self.open.pop_first() {
            self.closed.push(ReplayedRange { partition, start, end });
        }
    }

    /// Returns the ranges so far, as the catalog stores them.
    pub(super) fn finish(&mut self, stream: &str, now: Micros) -> Vec<ReplayedDeadLetters> {
        self.close();
        let record = |ReplayedRange { partition, start, end }| ReplayedDeadLetters {
            partition: PartitionId::new(stream, partition),
            start,
            end,
            replayed_at: now,
        };
        self.closed.drain(..).map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(partition: i32, start: i64, end: i64) -> ReplayedDeadLetters {
        ReplayedDeadLetters { partition: PartitionId::new("s", partition), start: Offset(start), end: Offset(end), replayed_at: 0 }
    }

    #[test]
    fn a_range_inside_a_longer_one_hides_nothing_of_it() {
        let replayed = Replayed::new(&[record(1, 5, 6), record(0, 50, 51), record(0, 0, 100), record(0, 200, 201)]);
        for (partition, offset, expected) in
            [(0, 0, true), (0, 70, true), (0, 99, true), (0, 100, false), (0, 200, true), (1, 4, false), (1, 5, true), (2, 5, false)]
        {
            assert_eq!(replayed.holds(partition, Offset(offset)), expected, "{partition}/{offset}");
        }
    }

    #[test]
    fn a_run_reaches_over_accepted_offsets_and_never_over_a_dead_letter_that_was_left_out() {
        let mut runs = Runs::default();
        for offset in [3, 7, 8] {
            runs.take(0, Offset(offset));
        }
        runs.leave_out(0);
        runs.take(1, Offset(2));
        runs.take(0, Offset(20));
        runs.close();
        runs.take(0, Offset(10));
        let found: Vec<_> = runs.finish("s", 0).into_iter().map(|r| (r.partition.partition, r.start.0, r.end.0)).collect();
        assert_eq!(found, [(0, 3, 9), (0, 20, 21), (1, 2, 3), (0, 10, 11)]);
    }
}
