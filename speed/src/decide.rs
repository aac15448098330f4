//! Decides whether a record is accepted, a duplicate, or a dead letter. The decision is a function of the partition's
//! records up to that one and is made once; no later step looks at a clock or an id again.

use std::time::Duration;

use definitions::durations::format_duration_parts;
use engine::events::{Decoder, Event, format_timestamp};
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
    /// The running maximum of accepted events' record timestamps.
    max_received: Option<Micros>,
    max_event_time: Option<Micros>,
    max_future_us: Micros,
    ids: RecentIds,
}

impl Decider {
    /// Continues from a partition's committed values; its ids are then passed in with [`Decider::remember`].
    ///
    /// The catalog does not record the maximum of accepted records alone, so theirs begins at the clock, which
    /// duplicates and dead letters advance too. Their later timestamp counts until an accepted record reaches it.
    pub fn new(
        clock: Option<Micros>,
        max_event_time: Option<Micros>,
        max_future: Duration,
        dedup_within: Option<Duration>,
        space: &IdSpace,
    ) -> Self {
        let ids = RecentIds::new(dedup_within.map(micros), space);
        Self { clock, max_received: clock, max_event_time, max_future_us: micros(max_future), ids }
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
        if let Some(reason) = too_far_ahead(event.event_time(), clock, "the partition's clock", self.max_future_us) {
            return Ok(Decision::DeadLetter(reason));
        }
        if let Some(id) = event.id()
            && !self.ids.admit(&id, record.timestamp, clock)?
        {
            return Ok(Decision::Duplicate);
        }
        self.max_received = self.max_received.max(Some(record.timestamp));
        self.max_event_time = self.max_event_time.max(Some(event.event_time()));
        Ok(Decision::Accept(event))
    }

    pub fn clock(&self) -> Option<Micros> {
        self.clock
    }

    /// Returns when the log received the accepted events: the greatest of their record timestamps.
    pub(crate) fn max_received(&self) -> Option<Micros> {
        self.max_received
    }

    pub fn max_event_time(&self) -> Option<Micros> {
        self.max_event_time
    }

    /// Returns since when ids are held: a duplicate of a record that was accepted with this timestamp or a later one
    /// repeats exactly that record. `None` if ids are not compared.
    pub fn ids_since(&self) -> Option<Micros> {
        self.ids.since(self.clock?)
    }

    /// Returns how many ids are kept.
    pub fn id_count(&self) -> usize {
        self.ids.len()
    }
}

/// Returns why an event of this time is refused by this clock, if it is. `whose` names the clock, and `most_us` is
/// `speed.max_future`.
pub fn too_far_ahead(event_time: Micros, clock: Micros, whose: &str, most_us: Micros) -> Option<String> {
    if event_time.saturating_sub(clock) <= most_us {
        return None;
    }
    let (found, clock) = (format_timestamp(event_time), format_timestamp(clock));
    let most = format_duration_parts(Duration::from_micros(most_us.unsigned_abs()));
    let expected = format!("expected at most {most} after the clock (speed.max_future)");
    Some(format!("event time: found {found} with {whose} at {clock}, {expected}"))
}

#[cfg(test)]
mod tests;
