//! A pass over the events in their order: the states of a portion's keys grow, and the scored events see them.

use types::{ErrorKind, Result};

use super::BacktestProgress;
use super::chosen::Chosen;
use super::context::BacktestContext;
use super::portion::{Portion, PortionError};
use super::scored_keys::ScoredKeys;
use crate::history::{MergedEvents, SeenStates};

/// Called with scored events, and with the states of the events up to them.
pub(super) type OnChosen<'a> = dyn FnMut(&Chosen, &SeenStates) -> Result<()> + Send + 'a;

/// The settings of one pass.
pub(super) struct EventPass<'a> {
    pub(super) portion: Portion,
    pub(super) keys: ScoredKeys,
    /// The number of the first scored event whose rows are computed.
    pub(super) first: u64,
    /// Returns the progress to report for the number of events read.
    pub(super) progress: &'a (dyn Fn(u64) -> BacktestProgress + Sync),
}

impl EventPass<'_> {
    pub(super) async fn run(
        self,
        context: &BacktestContext<'_>,
        mut events: MergedEvents,
        on_chosen: &mut OnChosen<'_>,
    ) -> Result<(), PortionError> {
        let ScoredKeys { keys, reserved: _keys_are_held } = self.keys;
        let mut seen = context.plans.states(self.portion, &context.memory, keys, &context.planning)?;
        let (mut read, mut number) = (0, 0);
        loop {
            let chunk = events.next().await.map_err(|error| match error.kind() {
                // Sorts merge what they have spilled.
                ErrorKind::Limit => PortionError::Exceeds(seen.leave_no_room(error)),
                _ => PortionError::Failed(error),
            })?;
            if chunk.times.is_empty() {
                return Ok(());
            }
            seen.add(&chunk.parts, context.backtest.since(&chunk)).await?;
            seen.reserve().map_err(PortionError::Exceeds)?;
            for part in chunk.parts.iter().filter(|part| part.stream == context.plans.stream().name) {
                let chosen = Chosen::in_range(context.backtest, part, number)?;
                number += chosen.count() as u64;
                let chosen = chosen.starting_at(self.first);
                if chosen.count() > 0 {
                    on_chosen(&chosen, &seen)?;
                }
            }
            read += chunk.times.len() as u64;
            (context.on_progress)((self.progress)(read));
        }
    }
}
