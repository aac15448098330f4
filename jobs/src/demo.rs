//! `demo`: the whole way on synthetic payments, in one process and one folder, with every answer checked.
//!
//! ```text
//! traffic -- feed --> log -> up (speed, batch, serving) -> answers -> checks
//! ```
//!
//! It asks over HTTP as any client would, so that what it shows is what a user can do; the commands to do so are its last lines.

use std::path::PathBuf;

use engine::functions::Functions;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use types::{Error, Result};

use crate::installation::{Installation, now};
use crate::up::{self, UpOptions};

mod answers;
mod ask;
mod checks;
mod dead;
mod definitions;
mod feed;
mod handover;
mod project;
mod script;
mod show;
pub mod traffic;

pub use checks::Check;
pub use definitions::{SOURCES, definitions};

use feed::Feed;
use project::Project;
use script::Script;
use show::Narrator;
use traffic::{Traffic, TrafficSettings};

/// The least history that holds all rings.
pub const LEAST_EVENTS: u64 = 1_000;

/// What `basestream demo` was asked for.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// End after the checks, instead of staying up with live traffic.
    pub once: bool,
    /// Records of history.
    pub events: u64,
    pub seed: u64,
    /// Where the data is kept; a temporary folder, deleted at the end, when absent.
    pub dir: Option<PathBuf>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self { once: false, events: 40_000, seed: 42, dir: None }
    }
}

/// What came of a demo. A process ends well with [`Outcome::is_verified`] after `--once`, else without [`Outcome::has_failed`]: whoever
/// stopped it had seen enough.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Empty when it was stopped before.
    pub checks: Vec<Check>,
}

impl Outcome {
    /// True when everything was checked and right.
    pub fn is_verified(&self) -> bool {
        !self.checks.is_empty() && !self.has_failed()
    }

    /// True when something was checked and wrong.
    pub fn has_failed(&self) -> bool {
        self.checks.iter().any(|check| !check.passed)
    }
}

/// Runs the demo until it is done (`once`) or told to stop.
pub async fn demo(options: DemoOptions, stop: CancellationToken) -> Result<Outcome> {
    if options.events < LEAST_EVENTS {
        return Err(Error::input("the demo needs some history")
            .with("found", options.events)
            .with("expected", format!("at least {LEAST_EVENTS} events")));
    }
    let project = Project::create(options.dir.as_deref(), options.once).await?;
    let installation = Installation::open(&project.settings, Functions::standard()).await?;
    let log = installation.log.clone();
    let (sender, ready) = oneshot::channel();
    let all = CancellationToken::new();
    let up_options = UpOptions { definitions: Some(definitions()?), ready: Some(sender), quiet: true };
    let mut up = tokio::spawn(up::up(installation.clone(), up_options, all.clone()));
    let settings = TrafficSettings { seed: options.seed, start: now(), history: options.events };
    let feed = Feed::new(Traffic::new(settings));
    let mut script = Script {
        narrator: Narrator::default(),
        installation,
        feed: feed.clone(),
        folder: project.folder.clone(),
        once: options.once,
        events: options.events,
        handover: None,
        checks: Vec::new(),
    };
    let ended = tokio::select! {
        outcome = script.play(ready, &stop) => outcome,
        fed = feed.run(log) => fed,
        ended = &mut up => return ended?.and(Err(Error::internal("the layers ended before the demo did"))),
        () = stop.cancelled() => Ok(()),
    };
    script.narrator.line("\nStopping: draining, then a last checkpoint.");
    all.cancel();
    up.await?.and(ended)?;
    Ok(Outcome { checks: script.checks })
}
