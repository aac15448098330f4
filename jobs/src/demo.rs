//! Implements `demo`: runs all layers on synthetic payments, in one process and one folder, and checks every answer.
//!
//! ```text
//! traffic -- feed --> log -> up (speed, batch, serving) -> answers -> checks
//! ```
//!
//! The demo queries over HTTP like any client, so whatever it shows, a user can do too. It ends by printing the
//! commands for that.

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
mod decisions;
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
use script::DemoScript;
use show::Narrator;
use traffic::{Traffic, TrafficSettings};

/// The smallest history that contains all rings.
const LEAST_EVENTS: u64 = 1_000;

/// The options of `basestream demo`.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// End after the checks, instead of continuing with live traffic.
    pub once: bool,
    /// How many records of history to generate.
    pub events: u64,
    pub seed: u64,
    /// Where the data is kept. If absent, in a temporary folder that is deleted at the end.
    pub dir: Option<PathBuf>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self { once: false, events: 40_000, seed: 42, dir: None }
    }
}

/// The outcome of a demo. With `--once` a process succeeds if [`DemoOutcome::is_verified`], otherwise if not
/// [`DemoOutcome::has_failed`]: a user may stop it at any time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DemoOutcome {
    /// Empty if the demo was stopped before the checks.
    pub checks: Vec<Check>,
}

impl DemoOutcome {
    /// True if everything was checked and is right.
    pub fn is_verified(&self) -> bool {
        !self.checks.is_empty() && !self.has_failed()
    }

    /// True if a check failed.
    pub fn has_failed(&self) -> bool {
        self.checks.iter().any(|check| !check.passed)
    }
}

/// Runs the demo until it is done (`once`) or `stop` is cancelled.
pub async fn demo(options: DemoOptions, stop: CancellationToken) -> Result<DemoOutcome> {
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
    let mut script = DemoScript {
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
    Ok(DemoOutcome { checks: script.checks })
}
