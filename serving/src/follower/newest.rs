//! No query reads an older vector than one before it.
//!
//! Uncommitted work can be withdrawn: its worker lost a partition, or could not go on (a full disk). Its records are in
//! the log, and the worker that reads them next makes the same decisions, so the earlier read view is still exact for
//! its vector. A node keeps it until the present one covers that vector.
//!
//! One case is different: a stream of which nothing is committed yet may be defined anew, with another topic. Its
//! records are never read again.

use std::sync::{Mutex, PoisonError};

use catalog::CatalogState;
use committed::registry::Registry;
use tracing::{info, warn};
use types::Result;
use types::vector::{PartitionId, Vector};

use crate::read_view::{ReadView, ReadViewId};

/// Returns the part of a vector that is read again if it was withdrawn. `before` is the catalog state that it was read
/// with.
fn read_again(vector: &Vector, before: &CatalogState, now: &Registry) -> Vector {
    // Another topic may have fewer partitions: of those that only the topic before had, none is ever committed.
    let may_be_gone = |id: &PartitionId| !before.partitions.contains_key(id) && now.moved.contains(&id.stream);
    vector.iter().filter(|(id, _)| !may_be_gone(id)).map(|(id, next)| (id.clone(), next)).collect()
}

/// The newest read view so far.
#[derive(Debug, Default)]
pub(super) struct Newest(Mutex<Option<(ReadView, ReadViewId)>>);

/// True if what was read before is read again, because what could be read now is behind it in a partition.
pub fn is_kept(now: &Vector, before: &Vector) -> bool {
    !now.covers(before)
}

/// Whether another query has read something newer than this.
fn is_overtaken(taken: &ReadView, newest: &ReadView) -> bool {
    is_kept(&taken.vector, &newest.vector) || taken.loaded.state.revision < newest.loaded.state.revision
}

impl Newest {
    /// Returns what a query reads, with its identity: what there is to read now, or what was read before if that is
    /// newer.
    ///
    /// `taken` is what there was to read a moment ago. Another query may have read something newer since. Then it is
    /// taken once more, while the others wait: what is older even so was withdrawn.
    pub(super) fn newer_of(&self, taken: ReadView, take_again: impl FnOnce() -> Result<ReadView>) -> Result<(ReadView, ReadViewId)> {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = newest.as_ref().map(|(before, _)| before);
        let now = if before.is_some_and(|before| is_overtaken(&taken, before)) { take_again()? } else { taken };
        // A snapshot that turned out to be damaged cannot be read again.
        let can_stay = |before: &&ReadView| !before.loaded.is_damaged();
        let was_kept = before.filter(|before| before.is_kept).filter(can_stay).is_some();
        let is_newer = |before: &&ReadView| {
            is_kept(&now.vector, &before.vector)
                && is_kept(&now.vector, &read_again(&before.vector, &before.loaded.state, &now.loaded.registry))
        };
        let view = match before.filter(is_newer).filter(can_stay) {
            Some(before) => ReadView { now: now.now, is_kept: true, ..before.clone() },
            None => now,
        };
        match (was_kept, view.is_kept) {
            (false, true) => warn!("uncommitted work was withdrawn; answers stay as they were until it is read again"),
            (true, false) => info!("answers continue: the withdrawn work was read again"),
            _ => {}
        }
        // Most queries come between two layers: they read the same, and nothing is copied for the next one.
        if let Some((before, id)) = &*newest
            && before.reads_the_same(&view)
        {
            return Ok((view, id.clone()));
        }
        let id = ReadViewId::default();
        // Dropped after the lock: the last handle of a catalog state takes time.
        let dropped = newest.replace((view.clone(), id.clone()));
        drop(newest);
        drop(dropped);
        Ok((view, id))
    }
}

#[cfg(test)]
mod tests;
