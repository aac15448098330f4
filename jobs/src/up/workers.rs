//! The workers of a process: the speed layer.

use std::sync::Arc;

use engine::fresh::Fresh;
use event_sinks::Sinks;
use speed::{EventSinks, Registration, Speed, WorkerProgress};
use tokio::runtime::Handle;
use types::threads;

use super::parts::{Parts, Stage};
use crate::installation::Installation;

/// What the workers of a process share with others.
pub(super) struct SharedByWorkers {
    /// Where their fresh layers are read.
    pub(super) fresh: Fresh,
    /// What makes the records of sinks, with a node that reads them.
    pub(super) sinks: Arc<Sinks>,
    /// Where nodes of other processes find them.
    pub(super) registration: Option<Registration>,
}

/// Starts the workers; returns what each is doing.
pub(super) fn start(parts: &mut Parts, installation: &Installation, shared: SharedByWorkers) -> Vec<WorkerProgress> {
    let mut workers = Vec::new();
    let SharedByWorkers { fresh, sinks, registration } = shared;
    for speed in installation.speed_workers(Some(fresh)) {
        let sinks: Arc<dyn EventSinks> = sinks.clone();
        let speed = Speed { sinks: Some(sinks), registration: registration.clone(), ..speed };
        workers.push(speed.progress.clone());
        // Each worker has its own thread, and what it spawns stays among the speed layer's: decoding would block the
        // threads that answer HTTP.
        let work = |stop| threads::SPEED.spawn_blocking(move || Handle::current().block_on(speed.run(stop)));
        parts.start(Stage::Speed, "speed", |stop| async move { work(stop).await? });
    }
    workers
}
