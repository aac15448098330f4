//! Decides whether a record is accepted, a duplicate, or a dead letter. The decision is a function of the partition's
//! records up to that one and is made once; no later step looks at a clock or an id again.

use std::time::Duration;

use engine::events::{Decoder, Event};
use types::Result;
use types::record::Record;
use types::tiles::{Micros, micros};

mod ids;

pub use ids::{DedupCost, DedupSettings, IdSpace};

use ids::RecentIds;

/// The outcome for a record.
#[derive(Debug)]
pub enum Decision<'a> {
    Accept(Event<'a>),
    Duplicate,
    /// Undecodable or dated in the future, with the reason.
    DeadLetter(String),
}

/// One partition's state for decisions: its clock and the ids of the last `dedup_within`.
#[derive(Debug)]
pub struct Decider {
    /// The running maximum of record timestamps: the partition's time.
    clock: Option<Micros>,
    max_event_time: Option<Micros>,
    max_future_us: Micros,
    ids: RecentIds,
}

impl Decider {
    /// Continues from a partition's committed values; its ids are then passed in with [`Decider::remember`].
    pub fn new(
        clock: Option<Micros>,
        max_event_time: Option<Micros>,
        max_future: Duration,
        dedup_within: Option<Duration>,
        space: &IdSpace,
    ) -> Self {
        let ids = RecentIds::new(dedup_within.map(micros), space);
        Self { clock, max_event_time, max_future_us: micros(max_future), ids }
    }

    /// Adds the id of an event that was accepted earlier. Errors as in [`Decider::decide`].
    pub fn remember(&mut self, id: &str, timestamp: Micros) -> Result<()> {
        self.ids.remember(id, timestamp, self.clock.unwrap_or(timestamp))
    }

    /// Decides a record. Errors: `Unavailable` when ids cannot be written to disk or read back. The record is then
    /// undecided.
    pub fn decide<'a>(&mut self, decoder: &Decoder, record: &'a Record) -> Result<Decision<'a>> {
        let clock = self.clock.map_or(record.timestamp, |clock| clock.max(record.timestamp));
        self.clock = Some(clock);
        let event = match decoder.decode(record.value.as_deref()) {
            Ok(event) => event,
            Err(error) => return Ok(Decision::DeadLetter(error.to_string())),
        };
        let ahead_us = event.event_time().saturating_sub(clock);
        if ahead_us > self.max_future_us {
            return Ok(Decision::DeadLetter(format!(
                "the event time is {} s after the partition's clock: expected at most {} s",
                ahead_us / 1_000_000,
                self.max_future_us / 1_000_000
            )));
        }
        if let Some(id) = event.id()
            && !self.ids.admit(&id, record.timestamp, clock)?
        {
            return Ok(Decision::Duplicate);
        }
        self.max_event_time = self.max_event_time.max(Some(event.event_time()));
        Ok(Decision::Accept(event))
    }

    pub fn clock(&self) -> Option<Micros> {
        self.clock
    }

    pub fn max_event_time(&self) -> Option<Micros> {
        self.max_event_time
    }

    /// Returns since when ids are held: a duplicate of a record that was accepted with this timestamp or a later one
    /// repeats that record, and none after it. `None` if ids are not compared.
    pub fn ids_since(&self) -> Option<Micros> {
        self.ids.since(self.clock?)
    }

    /// Returns how many ids are kept.
    pub fn ids(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests;
