//! The ids of a partition's accepted records, exact, in bounded memory.
//!
//! New ids go into a table in memory. A table is sealed at a quarter of the window or of the partition's share of
//! memory. Past that share the oldest table becomes a run: a sorted file, with small filters in memory that recognise
//! nearly every fresh id without reading it. Runs are merged as they age. Tables and runs expire whole, by their newest
//! id; at the boundary of the window each id is checked.
//!
//! ```text
//! id --> table, sealed tables (memory) --> runs (filter in memory, else one block of the file) --> held, or fresh
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use types::Result;
use types::tiles::Micros;

mod background;
mod block;
mod cost;
mod filters;
mod merge;
mod run;
mod space;
mod table;

use background::Background;
use run::{IdRun, RunWriter};
use space::Share;
use table::Table;

pub use cost::DedupCost;
pub use space::{DedupSettings, IdSpace};

/// A window in memory spans this many tables.
const TABLES: usize = 4;
/// After this many ids, runs are checked for merging.
const LOOK_IDS: u32 = 4_096;

/// The 128-bit hash of an id: a false match once in 10^20 at a billion ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Id {
    high: u64,
    low: u64,
}

impl Id {
    fn hash(text: &str) -> Self {
        let hash = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
        Self { high: (hash >> 64) as u64, low: hash as u64 }
    }
}

/// The time within which a repeated id is a duplicate.
#[derive(Debug, Clone, Copy)]
struct Window(Micros);

impl Window {
    fn holds(self, accepted: Micros, clock: Micros) -> bool {
        clock.saturating_sub(accepted) <= self.0
    }
}

/// The ids of one partition's accepted records whose own timestamp is at most the window before the clock.
#[derive(Debug)]
pub(super) struct RecentIds(Option<Remembered>);

#[derive(Debug)]
struct Remembered {
    window: Window,
    share: Share,
    /// The greatest timestamp so far, by which tables are sealed.
    newest: Micros,
    current: Table,
    /// Oldest first.
    sealed: VecDeque<Table>,
    /// Oldest first.
    runs: Vec<Arc<IdRun>>,
    background: Background,
    until_look: u32,
}

impl RecentIds {
    /// Without a window, no id is remembered.
    pub(super) fn new(within_us: Option<Micros>, space: &IdSpace) -> Self {
        Self(within_us.map(|within| Remembered {
            window: Window(within),
            share: space.share(),
            newest: Micros::MIN,
            current: Table::default(),
            sealed: VecDeque::new(),
            runs: Vec::new(),
            background: Background::default(),
            until_look: LOOK_IDS,
        }))
    }

    /// Returns true for a fresh id and remembers it; false for a duplicate. After an error nothing has changed.
    pub(super) fn admit(&mut self, id: &str, timestamp: Micros, clock: Micros) -> Result<bool> {
        let Some(ids) = &mut self.0 else { return Ok(true) };
        let id = Id::hash(id);
        if ids.hold(id, clock)? {
            return Ok(false);
        }
        ids.insert(id, timestamp, clock)?;
        Ok(true)
    }

    /// Remembers an id that was accepted earlier.
    pub(super) fn remember(&mut self, id: &str, timestamp: Micros, clock: Micros) -> Result<()> {
        match &mut self.0 {
            Some(ids) => ids.insert(Id::hash(id), timestamp, clock),
            None => Ok(()),
        }
    }

    /// Returns since when the ids of accepted records are held at this clock; `None` if no id is remembered.
    pub(super) fn since(&self, clock: Micros) -> Option<Micros> {
        self.0.as_ref().map(|ids| clock.saturating_sub(ids.window.0))
    }

    /// Returns how many ids are kept, including expired ones whose table or run is still there.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Remembered::len)
    }
}

impl Remembered {
    fn hold(&self, id: Id, clock: Micros) -> Result<bool> {
        let in_window = |accepted: Micros| self.window.holds(accepted, clock);
        let mut tables = std::iter::once(&self.current).chain(&self.sealed);
        if tables.any(|table| table.get(id).is_some_and(in_window)) {
            return Ok(true);
        }
        for run in self.runs.iter().rev().filter(|run| in_window(run.newest())) {
            if run.find(id)?.is_some_and(in_window) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn insert(&mut self, id: Id, timestamp: Micros, clock: Micros) -> Result<()> {
        self.expire(clock);
        self.make_room()?;
        self.until_look -= 1;
        if self.until_look == 0 {
            self.until_look = LOOK_IDS;
            self.background.maybe_merge(&mut self.runs, self.window, clock, &self.share)?;
        }
        self.newest = self.newest.max(timestamp);
        self.current.insert(id, timestamp, self.newest);
        Ok(())
    }

    fn expire(&mut self, clock: Micros) {
        let gone = |newest: Micros| !self.window.holds(newest, clock);
        while self.sealed.front().is_some_and(|table| gone(table.newest())) {
            self.sealed.pop_front();
        }
        if self.runs.first().is_some_and(|run| gone(run.newest())) {
            // A run that is not the oldest may have expired as well: timestamps need no order.
            self.runs.retain(|run| !gone(run.newest()));
        }
    }

    /// Seals the table if it is full or old enough, and turns the oldest tables into runs while memory is short.
    fn make_room(&mut self) -> Result<()> {
        let buckets = self.share.table_buckets(TABLES);
        let spans = self.newest.saturating_sub(self.current.begun()) > self.window.0 / TABLES as Micros;
        if !self.current.is_empty() && (spans || self.current.len() >= buckets / 8 * 7) {
            self.sealed.push_back(std::mem::take(&mut self.current));
        } else if !self.current.grows() {
            return Ok(());
        }
        while self.sealed.iter().map(Table::bytes).sum::<usize>() + self.current.bytes_after_growth() > self.share.table_bytes() {
            let Some(oldest) = self.sealed.front() else { break };
            let run = write(oldest, &self.share)?;
            self.runs.push(Arc::new(run));
            self.sealed.pop_front();
        }
        Ok(())
    }

    fn len(&self) -> usize {
        let tables: usize = std::iter::once(&self.current).chain(&self.sealed).map(Table::len).sum();
        tables + self.runs.iter().map(|run| run.len()).sum::<usize>()
    }
}

fn write(table: &Table, share: &Share) -> Result<IdRun> {
    let mut writer = RunWriter::create(share, 0)?;
    for entry in table.sorted() {
        writer.push(entry)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests;
