//! The transitions of the last while, which all subscribers share: those after one place, up to another, in their
//! order.

use std::collections::VecDeque;
use std::sync::Arc;

use catalog::TransitionPlace;

/// One transition as subscribers get it, written once.
#[derive(Debug, PartialEq)]
pub(super) struct TransitionEvent {
    pub(super) place: TransitionPlace,
    pub(super) alert: Arc<str>,
    /// The view that the alert watches; `None` where it is not known any more.
    pub(super) view: Option<Arc<str>>,
    pub(super) state: &'static str,
    pub(super) json: String,
}

/// How much of them is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

/// Events that a subscriber takes at once.
const PIECE: usize = 64;

#[derive(Debug)]
pub(super) struct Recent {
    room: Room,
    from: TransitionPlace,
    to: TransitionPlace,
    events: VecDeque<Arc<TransitionEvent>>,
    bytes: usize,
}

/// Events in their order, and the place up to which they are all there are.
#[derive(Debug, PartialEq)]
pub(super) struct EventPiece {
    pub(super) events: Vec<Arc<TransitionEvent>>,
    pub(super) to: TransitionPlace,
}

impl Recent {
    /// None yet, from this place on.
    pub(super) fn new(at: TransitionPlace, room: Room) -> Recent {
        Recent { room, from: at, to: at, events: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn to(&self) -> TransitionPlace {
        self.to
    }

    /// Adds those that come next.
    pub(super) fn add(&mut self, piece: EventPiece) {
        for event in piece.events {
            self.bytes += event.json.len();
            self.events.push_back(event);
        }
        self.to = piece.to;
        while self.events.len() > self.room.events || self.bytes > self.room.bytes {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.json.len();
            self.from = oldest.place;
        }
    }

    /// What comes after a place; `None` if some of that is not here any more.
    pub(super) fn after(&self, place: TransitionPlace) -> Option<EventPiece> {
        if place < self.from {
            return None;
        }
        let begin = self.events.partition_point(|event| event.place <= place);
        let events: Vec<_> = self.events.range(begin..).take(PIECE).cloned().collect();
        let to = match events.last().filter(|_| begin + PIECE < self.events.len()) {
            Some(last) => last.place,
            None => self.to.max(place),
        };
        Some(EventPiece { events, to })
    }
}

#[cfg(test)]
mod tests;
