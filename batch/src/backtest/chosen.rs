//! The events of a chunk that are scored, and the rows of views that they see.

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{take, take_record_batch};
use definitions::Features;
use engine::sinks::JoinedView;
use types::Result;
use types::tiles::Micros;

use super::Backtest;
use super::plans::PlannedSink;
use super::portion::Portion;
use crate::history::{SeenStates, StreamEvents, WantedRows};

/// Consecutive events that are scored.
pub(super) struct Chosen {
    pub(super) events: RecordBatch,
    /// The number of the first one among all scored events.
    pub(super) first: u64,
    /// The time for which each event's rows are read.
    pub(super) times: Vec<Micros>,
    /// The place of each in the chunk.
    places: Vec<u32>,
}

/// Those of the chosen events whose rows of a view are in a portion.
pub(super) struct AskingEvents {
    pub(super) events: Vec<u32>,
    keys: Vec<ArrayRef>,
    has_key: BooleanArray,
}

impl Chosen {
    /// The events of a part of a chunk that are in the range.
    pub(super) fn in_range(backtest: &Backtest<'_>, part: &StreamEvents, first: u64) -> Result<Chosen> {
        let chosen = backtest.in_range(&part.events)?;
        let all_times = backtest.times(&part.events)?;
        let times = chosen.iter().map(|event| all_times[*event as usize]).collect();
        let places = chosen.iter().map(|event| part.places[*event as usize]).collect();
        Ok(Chosen { events: take_record_batch(&part.events, &UInt32Array::from(chosen))?, first, times, places })
    }

    pub(super) fn count(&self) -> usize {
        self.times.len()
    }

    /// Drops the events before this number.
    pub(super) fn starting_at(mut self, number: u64) -> Chosen {
        let scored = number.saturating_sub(self.first).min(self.count() as u64) as usize;
        self.events = self.events.slice(scored, self.count() - scored);
        self.first += scored as u64;
        self.times.drain(..scored);
        self.places.drain(..scored);
        self
    }

    /// Returns the events whose rows of a view are in the portion, which has the view.
    pub(super) fn asking(&self, (planned, join): (&PlannedSink<'_>, &JoinedView), portion: Portion) -> Result<AskingEvents> {
        let (keys, has_key) = join.keys(&planned.plan.stream, &self.events)?;
        let events = portion.events(planned.joined(join)?, &keys, self.count())?;
        if events.len() == self.count() {
            return Ok(AskingEvents { events, keys, has_key });
        }
        let taken = UInt32Array::from(events.clone());
        let keys = keys.iter().map(|key| Ok(take(key, &taken, None)?)).collect::<Result<_>>()?;
        let has_key = take(&has_key, &taken, None)?.as_boolean().clone();
        Ok(AskingEvents { events, keys, has_key })
    }

    /// Returns a row of the view for each event that asks.
    pub(super) fn rows(
        &self,
        (planned, join): (&PlannedSink<'_>, &JoinedView),
        asking: &AskingEvents,
        seen: &SeenStates,
    ) -> Result<RecordBatch> {
        let itself = u32::from(planned.sink.definition.features == Features::Inclusive);
        let times: Vec<Micros> = asking.events.iter().map(|event| self.times[*event as usize]).collect();
        let counted: Vec<u32> = asking.events.iter().map(|event| self.places[*event as usize] + itself).collect();
        let asked = WantedRows { keys: &asking.keys, has_key: &asking.has_key, times: &times, counted: &counted };
        seen.rows(&planned.joined(join)?.view_version(), asked, &join.wanted)
    }
}
