//! Scores events in one pass, with the states of all keys in memory.

use types::Result;

use super::BacktestProgress;
use super::chosen::Chosen;
use super::context::BacktestContext;
use super::pass::EventPass;
use super::portion::{Portion, PortionError};
use super::scored_keys::ScoredKeys;
use super::scoring::Scoring;
use crate::history::{MergedEvents, SeenStates};

/// Scores the events as they pass. Rows that were scored before an error are kept.
pub(super) async fn score_at_once(context: &BacktestContext<'_>, scoring: &mut Scoring<'_>) -> Result<(), PortionError> {
    let portion = Portion::All;
    let keys = ScoredKeys::find(context, portion, context.of_range().await?, 0).await?;
    let mut streams = Vec::new();
    for stream in context.plans.streams() {
        streams.push((stream.name.clone(), context.sorted(stream).await?));
    }
    let events = MergedEvents::new(context.backtest.event_order().by, streams);
    let mut on_chosen = |chosen: &Chosen, seen: &SeenStates| {
        let row = |join| chosen.rows(join, &chosen.asking(join, portion)?, seen);
        scoring.score(chosen, &context.plans.joins().map(row).collect::<Result<Vec<_>>>()?)
    };
    EventPass { portion, keys, first: 0, progress: &BacktestProgress::Scoring }.run(context, events, &mut on_chosen).await
}
