//! What becomes of a record: accepted, a duplicate, or a dead letter. A function of the partition's records up to that one, decided
//! once; nothing behind it looks at a clock or an id again.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use schemas::events::{Decoder, Event};
use schemas::log::Record;
use schemas::tiles::Micros;

/// What a record is.
#[derive(Debug)]
pub enum Decision<'a> {
    Accept(Event<'a>),
    Duplicate,
    /// Undecodable or dated in the future, with the reason.
    DeadLetter(String),
}

/// One partition's memory: its clock and the ids of the last `dedup_within`.
#[derive(Debug)]
pub struct Decider {
    /// The running maximum of record timestamps: the partition's time.
    clock: Option<Micros>,
    max_event_time: Option<Micros>,
    max_future_us: Micros,
    ids: RecentIds,
}

impl Decider {
    /// Goes on from a partition's committed values; `ids` are then handed in with [`Decider::remember`].
    pub fn new(clock: Option<Micros>, max_event_time: Option<Micros>, max_future: Duration, dedup_within: Option<Duration>) -> Self {
        Self { clock, max_event_time, max_future_us: micros(max_future), ids: RecentIds::new(dedup_within.map(micros)) }
    }

    /// Takes the id of an event that was accepted before.
    pub fn remember(&mut self, id: &str, timestamp: Micros) {
        self.ids.insert(id, timestamp, self.clock.unwrap_or(timestamp));
    }

    pub fn decide<'a>(&mut self, decoder: &Decoder, record: &'a Record) -> Decision<'a> {
        let clock = self.clock.map_or(record.timestamp, |clock| clock.max(record.timestamp));
        self.clock = Some(clock);
        let event = match decoder.decode(record.value.as_deref()) {
            Ok(event) => event,
            Err(error) => return Decision::DeadLetter(error.to_string()),
        };
        let ahead_us = event.event_time().saturating_sub(clock);
        if ahead_us > self.max_future_us {
            return Decision::DeadLetter(format!(
                "the event time is {} s after the partition's clock: expected at most {} s",
                ahead_us / 1_000_000,
                self.max_future_us / 1_000_000
            ));
        }
        if let Some(id) = event.id() {
            if self.ids.holds(&id, clock) {
                return Decision::Duplicate;
            }
            self.ids.insert(&id, record.timestamp, clock);
        }
        self.max_event_time = self.max_event_time.max(Some(event.event_time()));
        Decision::Accept(event)
    }

    pub fn clock(&self) -> Option<Micros> {
        self.clock
    }

    pub fn max_event_time(&self) -> Option<Micros> {
        self.max_event_time
    }

    /// How many ids are remembered.
    pub fn ids(&self) -> usize {
        self.ids.latest.len()
    }
}

fn micros(duration: Duration) -> Micros {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The ids of accepted records at most `within` before the clock, by the record's own timestamp.
///
/// Ids are kept as 128-bit hashes: 32 bytes an id, and a false match once in 10^20 at a billion ids.
#[derive(Debug)]
struct RecentIds {
    within_us: Option<Micros>,
    latest: HashMap<u128, Micros>,
    order: VecDeque<(Micros, u128)>,
}

impl RecentIds {
    fn new(within_us: Option<Micros>) -> Self {
        Self { within_us, latest: HashMap::new(), order: VecDeque::new() }
    }

    fn holds(&self, id: &str, clock: Micros) -> bool {
        let Some(within) = self.within_us else { return false };
        self.latest.get(&hash(id)).is_some_and(|accepted| clock.saturating_sub(*accepted) <= within)
    }

    fn insert(&mut self, id: &str, timestamp: Micros, clock: Micros) {
        let Some(within) = self.within_us else { return };
        let id = hash(id);
        let latest = self.latest.entry(id).or_insert(timestamp);
        *latest = timestamp.max(*latest);
        self.order.push_back((timestamp, id));
        while let Some((oldest, id)) = self.order.front().copied()
            && clock.saturating_sub(oldest) > within
        {
            self.order.pop_front();
            if self.latest.get(&id).is_some_and(|latest| clock.saturating_sub(*latest) > within) {
                self.latest.remove(&id);
            }
        }
    }
}

fn hash(id: &str) -> u128 {
    xxhash_rust::xxh3::xxh3_128(id.as_bytes())
}

#[cfg(test)]
mod tests;
