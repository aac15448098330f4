//! Finds the keys of views that the scored events ask for: a backtest holds only the states of these keys.

use std::collections::BTreeMap;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use committed::registry::LiveView;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use engine::fresh::ViewVersion;
use futures::TryStreamExt;
use types::{Error, Result};

use super::BacktestProgress;
use super::context::BacktestContext;
use super::plans::HELP;
use super::portion::{Portion, PortionError};
use crate::history::WantedKeys;

/// The keys of a portion that events ask for.
pub(super) struct ScoredKeys {
    /// The keys of each view that is not linked. For linked views all keys are needed, because a walk over links may
    /// lead to any edge.
    pub(super) keys: BTreeMap<ViewVersion, WantedKeys>,
    pub(super) reserved: MemoryReservation,
}

impl ScoredKeys {
    /// Finds the keys that the events of the range ask for, without the first `skipped` ones. `events` are of the
    /// sink's stream.
    pub(super) async fn find(
        context: &BacktestContext<'_>,
        portion: Portion,
        mut events: SendableRecordBatchStream,
        skipped: u64,
    ) -> Result<ScoredKeys, PortionError> {
        let mut found = ScoredKeys::none(context, portion)?;
        let (mut read, mut left) = (0, skipped as usize);
        while !found.keys.is_empty()
            && let Some(batch) = events.try_next().await.map_err(Error::from)?
        {
            let mut in_range = context.backtest.in_range(&batch)?;
            let scored = left.min(in_range.len());
            in_range.drain(..scored);
            left -= scored;
            let added = found.add(context, portion, &take_record_batch(&batch, &UInt32Array::from(in_range)).map_err(Error::from)?)?;
            found.reserved.try_grow(added).map_err(|error| PortionError::Exceeds(exceeds(error.into())))?;
            read += batch.num_rows() as u64;
            (context.on_progress)(BacktestProgress::FindingKeys(read));
        }
        Ok(found)
    }

    fn none(context: &BacktestContext<'_>, portion: Portion) -> Result<ScoredKeys> {
        let has_keys = |(view, live): (ViewVersion, &LiveView)| (live.plan.links().is_none() && portion.has_view(live)).then_some(view);
        let keys = context.plans.views()?.into_iter().filter_map(has_keys).map(|view| (view, WantedKeys::default())).collect();
        Ok(ScoredKeys { keys, reserved: MemoryConsumer::new("keys of a backtest").register(&context.memory) })
    }

    /// Returns the bytes that the keys of these events add.
    fn add(&mut self, context: &BacktestContext<'_>, portion: Portion, events: &RecordBatch) -> Result<usize> {
        let mut added = 0;
        for (planned, join) in context.plans.joins() {
            let live = planned.joined(join)?;
            let Some(wanted) = self.keys.get_mut(&live.view_version()) else { continue };
            let (keys, has_key) = join.keys(&planned.plan.stream, events)?;
            let encoded = live.codec.encode(&keys, events.num_rows())?;
            for asked in encoded.iter().zip(has_key.iter()) {
                if let (Some(key), Some(true)) = asked
                    && portion.has_key(key)
                {
                    added += wanted.add(key);
                }
            }
        }
        Ok(added)
    }
}

fn exceeds(error: Error) -> Error {
    Error::unavailable("the keys that the events ask for need more than the memory limit leaves")
        .with("setting", "batch.memory_limit")
        .with("help", HELP)
        .caused_by(error)
}
