//! What all passes of a backtest share.

use std::path::PathBuf;
use std::sync::Arc;

use catalog::CatalogState;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use engine::plan::planning_session;
use types::Result;

use super::plans::ScoringPlans;
use super::{Backtest, BacktestProgress, EventOrder};
use crate::history::{Archived, ordered, unordered};
use crate::layer::Batch;
use crate::memory::PeakPool;
use crate::session::open_session;

pub(super) struct BacktestContext<'a> {
    pub(super) backtest: &'a Backtest<'a>,
    pub(super) plans: &'a ScoringPlans<'a>,
    pub(super) memory: Arc<dyn MemoryPool>,
    /// A session for planning the expressions that views evaluate for each event.
    pub(super) planning: SessionContext,
    pub(super) on_progress: &'a (dyn Fn(BacktestProgress) + Sync),
    /// The folder for files.
    pub(super) folder: PathBuf,
    session: SessionContext,
    archived: Archived<'a>,
}

impl<'a> BacktestContext<'a> {
    /// Opens a context with a memory limit and a session of its own.
    pub(super) fn open(
        batch: &'a Batch,
        state: &'a CatalogState,
        (backtest, plans): (&'a Backtest<'a>, &'a ScoringPlans<'a>),
        on_progress: &'a (dyn Fn(BacktestProgress) + Sync),
    ) -> Result<BacktestContext<'a>> {
        let pool = Arc::new(PeakPool::new(batch.settings.memory_limit_bytes));
        let session = open_session(&batch.settings, &batch.storage, &batch.functions, pool.clone())?;
        Ok(BacktestContext {
            backtest,
            plans,
            memory: pool,
            planning: planning_session(&batch.functions)?,
            on_progress,
            folder: batch.settings.temp_dir.clone().unwrap_or_else(std::env::temp_dir),
            session,
            archived: Archived { storage: &batch.storage, state },
        })
    }

    /// The events of a stream in the order in which they became known.
    pub(super) async fn sorted(&self, stream: &StreamDefinition) -> Result<SendableRecordBatchStream> {
        let EventOrder { order, before, .. } = self.backtest.event_order();
        ordered(&self.session, self.archived, stream, order, None..before).await
    }

    /// The events of the sink's stream that are in the range, and some others, in any order.
    pub(super) async fn of_range(&self) -> Result<SendableRecordBatchStream> {
        let range = self.backtest.from..self.backtest.to;
        unordered(&self.session, self.archived, self.plans.stream(), range).await
    }
}
