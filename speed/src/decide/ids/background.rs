//! Background work: merging runs, and building the filters for which there was no memory. Each worker runs one such
//! task at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use types::tiles::Micros;
use types::{Error, Result};

use super::Window;
use super::filters::{FILTER_IDS, Filters};
use super::merge;
use super::run::IdRun;
use super::space::{Share, ThreadTurn};

#[derive(Debug, Default)]
pub(super) struct Background(Option<Work>);

#[derive(Debug)]
struct Work {
    thread: JoinHandle<Result<Option<IdRun>>>,
    /// The runs that the result replaces; none if filters were built.
    merged: Vec<Arc<IdRun>>,
    called_off: Arc<AtomicBool>,
}

impl Background {
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Takes in finished work, and begins work that is due.
    pub(super) fn maybe_merge(&mut self, runs: &mut Vec<Arc<IdRun>>, window: Window, clock: Micros, share: &Share) -> Result<()> {
        self.take(runs)?;
        if self.0.is_none()
            && let Some(turn) = share.turn()
        {
            self.0 = begin(runs, window, clock, share, turn)?;
        }
        Ok(())
    }

    fn take(&mut self, runs: &mut Vec<Arc<IdRun>>) -> Result<()> {
        if !self.0.as_ref().is_some_and(|work| work.thread.is_finished()) {
            return Ok(());
        }
        let Some(Work { thread, merged, called_off: _ }) = self.0.take() else { return Ok(()) };
        let made = thread.join().map_err(|_| Error::internal("merging remembered ids panicked"))??;
        // Some of the merged runs may have left the window meanwhile.
        let place = runs.iter().position(|run| merged.iter().any(|merged| Arc::ptr_eq(run, merged)));
        runs.retain(|run| !merged.iter().any(|merged| Arc::ptr_eq(run, merged)));
        if let (Some(place), Some(made)) = (place, made) {
            runs.insert(place, Arc::new(made));
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(work) = &self.0 {
            work.called_off.store(true, Ordering::Relaxed);
        }
    }
}

fn begin(runs: &[Arc<IdRun>], window: Window, clock: Micros, share: &Share, turn: ThreadTurn) -> Result<Option<Work>> {
    let ages: Vec<(u32, Micros)> = runs.iter().map(|run| (run.level(), run.newest())).collect();
    let called_off = Arc::new(AtomicBool::new(false));
    let (off, share) = (called_off.clone(), share.clone());
    if let Some(range) = merge::due(&ages, window) {
        let merged = runs[range].to_vec();
        let inputs = merged.clone();
        let thread = spawn(turn, move || merge::merge(&inputs, window, clock, &share, &off))?;
        return Ok(Some(Work { thread, merged, called_off }));
    }
    let without = runs.iter().rev().find(|run| run.filters().missing().next().is_some());
    let Some(run) = without.filter(|_| share.has_room(FILTER_IDS * 5 / 4 + 1_024)).cloned() else { return Ok(None) };
    let thread = spawn(turn, move || fill(&run, &off).map(|()| None))?;
    Ok(Some(Work { thread, merged: Vec::new(), called_off }))
}

fn fill(run: &IdRun, called_off: &AtomicBool) -> Result<()> {
    let mut entries = Vec::new();
    for index in run.filters().missing() {
        run.entries(Filters::blocks(index), &mut entries)?;
        let mut highs: Vec<u64> = entries.iter().map(|entry| entry.id.high).collect();
        if called_off.load(Ordering::Relaxed) || !run.filters().fill(index, &mut highs) {
            return Ok(());
        }
    }
    Ok(())
}

fn spawn(turn: ThreadTurn, work: impl FnOnce() -> Result<Option<IdRun>> + Send + 'static) -> Result<JoinHandle<Result<Option<IdRun>>>> {
    let body = move || {
        let made = work();
        drop(turn);
        made
    };
    std::thread::Builder::new().name("remembered ids".into()).spawn(body).map_err(Error::from)
}
