//! Which keys of views the scored events ask for: a backtest holds the states of these keys alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use engine::fresh::ViewVersion;
use futures::TryStreamExt;
use types::{Error, Result};

use super::plans::{HELP, ScoringPlans};
use super::{Backtest, BacktestProgress};
use crate::history::WantedKeys;

/// The keys that events ask for.
pub(super) struct ScoredKeys {
    /// Of each view that is not linked. A walk over links may lead to any edge.
    pub(super) keys: BTreeMap<ViewVersion, WantedKeys>,
    pub(super) reserved: MemoryReservation,
}

impl ScoredKeys {
    /// Finds the keys that the events of the range ask for. `events` are of the sink's stream, in any order.
    ///
    /// Errors: `Unavailable` if the keys need more than the memory limit.
    pub(super) async fn find(
        backtest: &Backtest<'_>,
        plans: &ScoringPlans<'_>,
        memory: &Arc<dyn MemoryPool>,
        mut events: SendableRecordBatchStream,
        on_progress: &(dyn Fn(BacktestProgress) + Sync),
    ) -> Result<ScoredKeys> {
        let mut keys = ScoredKeys::none(plans, memory)?;
        let mut read = 0;
        while !keys.keys.is_empty()
            && let Some(batch) = events.try_next().await?
        {
            let in_range = UInt32Array::from(backtest.in_range(&batch)?);
            keys.add(plans, &take_record_batch(&batch, &in_range)?)?;
            read += batch.num_rows() as u64;
            on_progress(BacktestProgress::FindingKeys(read));
        }
        Ok(keys)
    }

    fn none(plans: &ScoringPlans<'_>, memory: &Arc<dyn MemoryPool>) -> Result<ScoredKeys> {
        let not_linked = plans.views()?.into_iter().filter(|(_, live)| live.plan.links().is_none());
        let keys = not_linked.map(|(view, _)| (view, WantedKeys::default())).collect();
        Ok(ScoredKeys { keys, reserved: MemoryConsumer::new("keys of a backtest").register(memory) })
    }

    fn add(&mut self, plans: &ScoringPlans<'_>, events: &RecordBatch) -> Result<()> {
        let mut added = 0;
        for planned in plans.each() {
            for join in &planned.plan.joins {
                let live = planned.joined(join)?;
                let Some(wanted) = self.keys.get_mut(&live.view_version()) else { continue };
                let (keys, has_key) = join.keys(&planned.plan.stream, events)?;
                let encoded = live.codec.encode(&keys, events.num_rows())?;
                for asked in encoded.iter().zip(has_key.iter()) {
                    if let (Some(key), Some(true)) = asked {
                        added += wanted.add(key);
                    }
                }
            }
        }
        self.reserved.try_grow(added).map_err(|error| {
            Error::unavailable("the keys that the events ask for need more than the memory limit leaves")
                .with("setting", "batch.memory_limit")
                .with("help", HELP)
                .caused_by(Error::from(error))
        })
    }
}
