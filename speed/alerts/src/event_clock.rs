//! The time of an alert by the clock of events.
//!
//! The partitions of a topic are read one after another. Suppose that the time were the newest event time read so far.
//! If a file is appended at once, reading its first partition would move the time far past the unread events of the
//! others: their keys would seem silent, and their events would be out of their windows. So the time is the newest
//! event time that the log had received by some moment, once everything received by then is read.

use std::collections::VecDeque;

use types::tiles::Micros;

/// At most this many moments wait. If there are more, every second one is dropped, and the time advances in longer
/// steps.
const MOST: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct EventClock {
    /// When a newer event time was found, and that event time. Both ascend.
    waiting: VecDeque<(Micros, Micros)>,
    reached: Option<Micros>,
}

impl EventClock {
    /// The time for a read view of the moment `now`, in which `newest` is the greatest event time and everything that
    /// the log received before `complete_to` is counted. `None` if it is not known yet.
    pub(crate) fn at(&mut self, now: Micros, newest: Option<Micros>, complete_to: Option<Micros>) -> Option<Micros> {
        let known = self.waiting.back().map(|(_, newest)| *newest).or(self.reached);
        if let Some(newest) = newest.filter(|newest| known.is_none_or(|known| known < *newest)) {
            self.waiting.push_back((now, newest));
        }
        while let Some((_, newest)) = self.waiting.pop_front_if(|(found, _)| complete_to.is_some_and(|to| *found <= to)) {
            self.reached = Some(newest);
        }
        if self.waiting.len() > MOST {
            let mut left = self.waiting.len();
            self.waiting.retain(|_| {
                left -= 1;
                left.is_multiple_of(2)
            });
        }
        self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_waits_for_what_was_received_before() {
        let mut clock = EventClock::default();
        assert_eq!(clock.at(10, None, None), None);
        assert_eq!(clock.at(20, Some(100), Some(15)), None);
        // More was read meanwhile, which lies beyond what is complete.
        assert_eq!(clock.at(30, Some(900), Some(25)), Some(100));
        assert_eq!(clock.at(40, Some(900), Some(29)), Some(100));
        assert_eq!(clock.at(50, Some(900), Some(45)), Some(900));
        // An older event time does not take it back.
        assert_eq!(clock.at(60, Some(500), Some(60)), Some(900));
    }

    #[test]
    fn few_moments_wait_and_the_last_one_is_kept() {
        let mut clock = EventClock::default();
        (0..20_000).for_each(|moment| assert_eq!(clock.at(moment, Some(moment), None), None));
        assert!(clock.waiting.len() <= MOST);
        assert_eq!(clock.at(20_000, Some(19_999), Some(20_000)), Some(19_999));
    }
}
