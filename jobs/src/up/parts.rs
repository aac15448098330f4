//! Runs the parts of a process concurrently and stops them in order: the only place that decides what stops before
//! what.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};
use types::{Error, Result};

use super::waiting::StopWait;

/// When a part stops, relative to others: a stage has ended before the next one is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The parts that accept work: they accept no more.
    Http,
    /// The speed layer: it drains, checkpoints and releases its partitions.
    Speed,
    /// The parts that run jobs: a job in progress is finished.
    Jobs,
    /// The serving node, which the others depend on.
    Node,
    /// What shows the health of a process without a node: it is asked also while the others stop.
    Health,
}

const ORDER: [Stage; 5] = [Stage::Http, Stage::Speed, Stage::Jobs, Stage::Node, Stage::Health];

/// Clients that ask for health and are still reading a response after this time are cut off.
const HEALTH_CLOSES_WITHIN: Duration = Duration::from_secs(1);

impl Stage {
    /// What a stop waits for in this stage.
    fn waits_for(self) -> &'static str {
        match self {
            Stage::Http => "clients to read their responses",
            Stage::Speed => "the speed layer to commit its last checkpoint and to let its partitions go",
            Stage::Jobs => "the batch run that is under way (after five seconds it is given up)",
            Stage::Node => "the serving node to give its pin back",
            Stage::Health => "clients that ask for health",
        }
    }

    /// How long to wait for clients, of which those of the layers have `drain`. There is no limit for the other parts:
    /// a second signal ends the process at once.
    fn patience(self, drain: Duration) -> Duration {
        match self {
            Stage::Http => drain,
            Stage::Health => HEALTH_CLOSES_WITHIN,
            Stage::Speed | Stage::Jobs | Stage::Node => Duration::MAX,
        }
    }
}

type Work = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// The parts of one process. A part works until its stage's token is cancelled.
pub(crate) struct Parts {
    /// Clients that are still reading a response after this time are cut off: the layers behind must not wait longer.
    drain: Duration,
    tasks: JoinSet<Ended>,
    stops: [CancellationToken; ORDER.len()],
    running: [usize; ORDER.len()],
}

struct Ended {
    stage: Stage,
    name: &'static str,
    result: Result<()>,
}

impl Parts {
    /// At a stop, clients have the time `drain` to get their answers.
    pub(crate) fn new(drain: Duration) -> Parts {
        Parts { drain, tasks: JoinSet::new(), stops: Default::default(), running: Default::default() }
    }

    /// Starts a part; `work` gets the token that is cancelled to stop it.
    pub(crate) fn start<F>(&mut self, stage: Stage, name: &'static str, work: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let work: Work = Box::pin(work(self.stops[stage as usize].clone()));
        self.running[stage as usize] += 1;
        self.tasks.spawn(async move {
            let result = tokio::spawn(work).await.unwrap_or_else(|error| Err(Error::internal("a part ended abnormally").caused_by(error)));
            Ended { stage, name, result }
        });
        debug!(part = name, "part started");
    }

    /// Returns the token that stops a stage, for work that is started elsewhere.
    pub(crate) fn token(&self, stage: Stage) -> CancellationToken {
        self.stops[stage as usize].clone()
    }

    /// Runs until `stop` is cancelled, or until a part fails or ends by itself: then all are stopped, and its error is
    /// returned.
    pub(crate) async fn run(mut self, stop: &CancellationToken) -> Result<()> {
        let mut outcome = tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = self.next() => ended.map_or(Ok(()), ended_by_itself),
        };
        info!("stopping");
        let mut waiting = StopWait::begin();
        for stage in ORDER {
            self.stops[stage as usize].cancel();
            let ended = tokio::time::timeout(stage.patience(self.drain), self.ended(stage));
            outcome = match waiting.until(stage.waits_for(), ended).await {
                Ok(result) => outcome.and(result),
                Err(_) => {
                    warn!("a client keeps its request open; stopping without waiting for it");
                    outcome
                }
            };
        }
        outcome
    }

    /// Waits for all parts of a stage; returns the first error of any part meanwhile.
    async fn ended(&mut self, stage: Stage) -> Result<()> {
        let mut outcome = Ok(());
        while self.running[stage as usize] > 0 {
            let Some(ended) = self.next().await else { break };
            outcome = outcome.and(ended.result.map_err(|error| failed(ended.name, error)));
        }
        outcome
    }

    async fn next(&mut self) -> Option<Ended> {
        let ended = self.tasks.join_next().await?.ok()?;
        let running = &mut self.running[ended.stage as usize];
        *running = running.saturating_sub(1);
        debug!(part = ended.name, "part ended");
        Some(ended)
    }
}

fn ended_by_itself(ended: Ended) -> Result<()> {
    match ended.result {
        Err(error) => Err(failed(ended.name, error)),
        Ok(()) => Err(Error::internal("a part of the process ended unexpectedly").with("part", ended.name)),
    }
}

fn failed(name: &'static str, error: Error) -> Error {
    error!(part = name, %error, "a part failed; stopping all parts");
    error.with("part", name)
}

#[cfg(test)]
mod tests;
