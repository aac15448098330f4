//! The runs that a scheduler has under way, and which ones it began lately.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use tokio::task::JoinSet;
use types::{Error, Result};

use super::Due;

/// Runs under way, each a task. Dropping it drops them.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// Each returns its view.
    tasks: JoinSet<Arc<str>>,
    runs: Vec<Due>,
    begun: BTreeSet<(Arc<str>, u32)>,
}

impl UnderWay {
    pub(super) fn runs(&self) -> &[Due] {
        &self.runs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether a run of this view is under way.
    pub(super) fn has(&self, view: &str) -> bool {
        self.runs.iter().any(|run| &*run.view == view)
    }

    /// Whether a run of this view version began since [`UnderWay::forget_begun`].
    pub(super) fn has_begun(&self, due: &Due) -> bool {
        self.begun.contains(&(due.view.clone(), due.version))
    }

    pub(super) fn forget_begun(&mut self) {
        self.begun.clear();
    }

    pub(super) fn begin(&mut self, due: Due, run: impl Future<Output = ()> + Send + 'static) {
        let view = due.view.clone();
        self.begun.insert((view.clone(), due.version));
        self.runs.push(due);
        self.tasks.spawn(async move {
            run.await;
            view
        });
    }

    /// Waits until one of them has ended. If this is dropped meanwhile, nothing is lost.
    pub(super) async fn ended(&mut self) -> Result<()> {
        let Some(ended) = self.tasks.join_next().await else { return Ok(()) };
        let view = ended.map_err(|error| Error::internal("a batch run ended abnormally").caused_by(error))?;
        self.runs.retain(|run| run.view != view);
        Ok(())
    }

    pub(super) async fn ended_all(&mut self) -> Result<()> {
        while !self.is_empty() {
            self.ended().await?;
        }
        Ok(())
    }
}
