//! Finds a pattern in a sequence of events, in one pass: its parts are the states of an automaton, of which several are
//! active at a time. The work is the number of events times the number of parts, whatever the pattern. (ClickHouse
//! tries one way after another and gives up after a million steps; what it finds within them is the same.)
//!
//! Of a time part, one number says what its active beginnings allow: the later an event is that `(?t<=600)` is measured
//! from, the more it allows; with `(?t>=600)` the earlier. Only `(?t==600)` needs them all.

use std::collections::VecDeque;

use super::event::MarkedEvent;
use super::pattern::{Distance, Pattern, PatternPart, TimeComparison};

/// The search for a pattern. May be used again and again.
#[derive(Debug)]
pub(super) struct Search {
    parts: Vec<PatternPart>,
    /// The parts that may begin with the next event. One more than there are parts: its last is the pattern's end.
    begins: Vec<bool>,
    /// The parts that may begin with the event after it.
    begins_next: Vec<bool>,
    /// Of each part, what earlier beginnings allow: a `.*` that has begun, the times that a distance is measured from.
    open: Vec<Open>,
}

#[derive(Debug, Clone, Default)]
enum Open {
    #[default]
    No,
    AnyNumber,
    From(i64),
    FromAny(VecDeque<i64>),
}

impl Search {
    pub(super) fn new(pattern: &Pattern) -> Self {
        let parts: Vec<PatternPart> = std::iter::once(PatternPart::AnyNumber).chain(pattern.parts.iter().copied()).collect();
        let count = parts.len();
        Self { parts, begins: vec![false; count + 1], begins_next: vec![false; count + 1], open: vec![Open::No; count] }
    }

    pub(super) fn matches(&mut self, events: &[MarkedEvent]) -> bool {
        self.first_end(events, 0).is_some()
    }

    /// The number of matches that do not overlap: the search for each begins where the one before ended.
    pub(super) fn count(&mut self, events: &[MarkedEvent]) -> i64 {
        let (mut count, mut from) = (0, 0);
        while from < events.len()
            && let Some(end) = self.first_end(events, from)
        {
            count += 1;
            from = end.max(from + 1);
        }
        count
    }

    /// Where the match ends that ends first, as the number of events before its end.
    fn first_end(&mut self, events: &[MarkedEvent], from: usize) -> Option<usize> {
        self.begins.fill(false);
        self.begins_next.fill(false);
        self.open.fill(Open::No);
        self.begins[0] = true;
        for at in from..events.len() {
            self.pass(events, at);
            if self.has_ended() {
                return Some(at);
            }
            std::mem::swap(&mut self.begins, &mut self.begins_next);
            self.begins_next.fill(false);
        }
        self.pass_end();
        self.has_ended().then_some(events.len())
    }

    fn has_ended(&self) -> bool {
        self.begins.last() == Some(&true)
    }

    /// Which parts may follow on those that may begin at this event, at the same event or at the next.
    fn pass(&mut self, events: &[MarkedEvent], at: usize) {
        let event = &events[at];
        for number in 0..self.parts.len() {
            let begins = self.begins[number];
            match self.parts[number] {
                PatternPart::AnyNumber => {
                    if begins {
                        self.open[number] = Open::AnyNumber;
                    }
                    self.begins[number + 1] |= matches!(self.open[number], Open::AnyNumber);
                }
                PatternPart::Time(distance) => {
                    if begins {
                        // After `.*` it is measured from where that ends, as in ClickHouse.
                        let follows_any = matches!(self.parts[number - 1], PatternPart::AnyNumber);
                        self.open[number].measure_from(distance, if follows_any { event.time } else { events[at - 1].time });
                    }
                    self.begins[number + 1] |= self.open[number].reaches(distance, event.time);
                }
                PatternPart::One { mask, distance } => {
                    let is_near = distance.is_none_or(|distance| at > 0 && distance.holds(events[at - 1].time, event.time));
                    self.begins_next[number + 1] |= begins && is_near && event.mask & mask == mask;
                }
            }
        }
    }

    /// After the last event: what takes no event may still be passed.
    fn pass_end(&mut self) {
        for number in 0..self.parts.len() {
            let takes_none = match self.parts[number] {
                PatternPart::AnyNumber => true,
                PatternPart::Time(Distance { comparison, micros }) => match comparison {
                    TimeComparison::LessOrEqual | TimeComparison::Less => true,
                    TimeComparison::GreaterOrEqual => micros == 0,
                    TimeComparison::Greater | TimeComparison::Equal => false,
                },
                PatternPart::One { .. } => false,
            };
            self.begins[number + 1] |= self.begins[number] && takes_none;
        }
    }
}

impl Open {
    fn measure_from(&mut self, distance: Distance, time: i64) {
        match (distance.comparison, &mut *self) {
            (TimeComparison::Equal, Open::FromAny(times)) => times.push_back(time),
            (TimeComparison::Equal, _) => *self = Open::FromAny(VecDeque::from([time])),
            // Events are in the order of time: the earliest is the one before.
            (TimeComparison::GreaterOrEqual | TimeComparison::Greater, Open::From(_)) => {}
            _ => *self = Open::From(time),
        }
    }

    fn reaches(&mut self, distance: Distance, time: i64) -> bool {
        match self {
            Open::From(from) => distance.holds(*from, time),
            Open::FromAny(times) => {
                // What is too long ago stays so.
                let too_long_ago = Distance { comparison: TimeComparison::Greater, ..distance };
                while times.front().is_some_and(|from| too_long_ago.holds(*from, time)) {
                    times.pop_front();
                }
                times.front().is_some_and(|from| distance.holds(*from, time))
            }
            Open::No | Open::AnyNumber => false,
        }
    }
}

#[cfg(test)]
mod tests;
