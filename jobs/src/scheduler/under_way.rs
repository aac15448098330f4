//! The runs that a scheduler has under way, which ones it began lately, and whether it rebuilds damaged states.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use engine::fresh::ViewVersion;
use tokio::task::{Id, JoinSet};
use tracing::error;

use super::due::{Due, RunSlot, RunUnderWay};

/// Runs under way, each a task. Dropping it drops them.
#[derive(Debug, Default)]
pub(super) struct RunsUnderWay {
    tasks: JoinSet<()>,
    /// Tells the run of each task among `runs`.
    of_tasks: HashMap<Id, Arc<AtomicBool>>,
    runs: Vec<RunUnderWay>,
    next_place: RunSlot,
    begun: BTreeSet<ViewVersion>,
    /// The task that rebuilds damaged states, which takes no place.
    rebuilding: Option<Id>,
}

impl RunsUnderWay {
    pub(super) fn runs(&self) -> &[RunUnderWay] {
        &self.runs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Whether a run of this view version is under way that delays others.
    pub(super) fn has(&self, due: &Due) -> bool {
        self.runs.iter().any(|run| run.due.view_version() == due.view_version() && !run.is_concurrent())
    }

    /// Whether a run of this view version began since [`RunsUnderWay::forget_begun`].
    pub(super) fn has_begun(&self, due: &Due) -> bool {
        self.begun.contains(&due.view_version())
    }

    pub(super) fn is_rebuilding(&self) -> bool {
        self.rebuilding.is_some()
    }

    pub(super) fn begin_rebuilding(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.rebuilding = Some(self.tasks.spawn(work).id());
    }

    pub(super) fn forget_begun(&mut self) {
        self.begun.clear();
    }

    /// Returns a place that no run has.
    pub(super) fn new_place(&mut self) -> RunSlot {
        self.next_place += 1;
        self.next_place
    }

    pub(super) fn begin(&mut self, run: RunUnderWay, work: impl Future<Output = ()> + Send + 'static) {
        self.begun.insert(run.due.view_version());
        let task = self.tasks.spawn(work);
        self.of_tasks.insert(task.id(), run.is_concurrent.clone());
        self.runs.push(run);
    }

    /// Waits until one of them has ended. If this is dropped meanwhile, nothing is lost. A run that panicked is closed
    /// like that of a process that died, once its lease has expired; the others go on.
    pub(super) async fn ended(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return };
        let task = match ended {
            Ok((task, ())) => task,
            Err(error) => {
                error!(%error, "a batch run or a rebuild of states ended abnormally");
                error.id()
            }
        };
        if self.rebuilding == Some(task) {
            self.rebuilding = None;
        }
        let Some(ended) = self.of_tasks.remove(&task) else { return };
        self.runs.retain(|run| !Arc::ptr_eq(&run.is_concurrent, &ended));
    }

    pub(super) async fn ended_all(&mut self) {
        while !self.is_empty() {
            self.ended().await;
        }
    }
}
