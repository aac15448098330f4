//! Batch runs of an installation's views on request.

use batch::{RunMode, RunRequest, RunTime};
use catalog::RunRecord;
use definitions::settings::ClockKind;
use types::Result;

use super::Installation;
use super::wall_clock::{clock, now};

impl Installation {
    /// Returns the time as of which a batch run prunes.
    pub fn run_time(&self) -> RunTime {
        match self.settings.serving.clock {
            ClockKind::Wall => RunTime::At(now()),
            ClockKind::Event => RunTime::EventClock,
        }
    }

    /// Runs a view now and publishes its snapshot, by the view's strategy; `progress` is called with the state
    /// rows written so far. The run is skipped if there is nothing new. Errors: `Conflict` if another process is
    /// running it.
    pub async fn run_view(&self, view: &str, progress: &(dyn Fn(i64) + Send + Sync)) -> Result<RunRecord> {
        self.run(view, RunMode::ByStrategy, true, progress).await
    }

    /// The same, but recomputes from the archive whatever the view's strategy, and compares the outcome with the states
    /// that incremental runs had kept, unless `compare` is false.
    pub async fn recompute_view(&self, view: &str, compare: bool, progress: &(dyn Fn(i64) + Send + Sync)) -> Result<RunRecord> {
        self.run(view, RunMode::Full, compare, progress).await
    }

    /// The same, but computes all states from the events of the checkpoints, through the speed layer's code. They are
    /// compared as in [`Installation::recompute_view`].
    pub async fn replay_view(
        &self,
        view: &str,
        request: batch::ReplayRequest,
        compare: bool,
        progress: &(dyn Fn(i64) + Send + Sync),
    ) -> Result<RunRecord> {
        self.run(view, RunMode::Replay(request), compare, progress).await
    }

    /// Whether the log still has every record that a replay of a view reads; if not, the first that it lacks, in words.
    pub async fn log_lacks(&self, view: &str) -> Result<Option<String>> {
        let start = self.batch().replay_start(view, self.run_time()).await?;
        for (partition, first) in start.iter() {
            let topic = self.stream(&partition.stream).await?.topic.clone();
            let bounds = self.log.bounds(&topic).await?;
            let begin = bounds.iter().find(|bounds| bounds.partition == partition.partition).map(|bounds| bounds.begin);
            match begin {
                Some(begin) if begin <= first => {}
                Some(begin) => return Ok(Some(format!("the log of {partition} begins at offset {begin}, and a replay at {first}"))),
                None => return Ok(Some(format!("the log has no partition {partition}"))),
            }
        }
        Ok(None)
    }

    /// Says what a run of a view would read and write now; `compare` as in [`Installation::recompute_view`].
    pub async fn plan_run(&self, view: &str, mode: RunMode, compare: bool) -> Result<batch::RunPlan> {
        self.batch().plan(view, self.run_time(), (mode, compare), now()).await
    }

    async fn run(&self, view: &str, mode: RunMode, compare: bool, progress: &(dyn Fn(i64) + Send + Sync)) -> Result<RunRecord> {
        let request = RunRequest { mode, compare, ..RunRequest::new(view, self.run_time()) };
        self.show_alive().await;
        self.batch().run(request, clock(), progress).await
    }
}
