//! Merges adjacent runs into one as they age, so that runs become fewer and longer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use types::tiles::Micros;
use types::{Error, Result};

use super::block::Entry;
use super::run::{IdRun, RunWriter};
use super::space::Share;
use super::{Id, Window};

/// This many runs of one level become one run of the next.
const FAN: usize = 6;
/// A run covers at most this part of the window, so that it leaves soon after its first id.
const PARTS: Micros = 8;
/// Blocks read at once from each run.
const READ_BLOCKS: usize = 16;

/// Returns what to merge next, as indices of runs in order: the oldest runs that are [`FAN`] of one level, or whose
/// number cannot grow any more.
pub(super) fn due(runs: &[(u32, Micros)], window: Window) -> Option<Range<usize>> {
    let longest = window.0 / PARTS;
    let mut start = 0;
    while start < runs.len() {
        let (level, begun) = runs[start];
        let alike = |(other, newest): &&(u32, Micros)| *other == level && newest.saturating_sub(begun) <= longest;
        let end = start + runs[start..].iter().take(FAN).take_while(alike).count().max(1);
        let closed = runs.get(end).is_some_and(|(other, _)| *other == level);
        if end - start == FAN || (closed && end - start > 1) {
            return Some(start..end);
        }
        start += 1;
    }
    None
}

/// Merges several runs into one, without ids that have left the window. `None` if all have, or if it was cancelled.
pub(super) fn merge(runs: &[Arc<IdRun>], window: Window, clock: Micros, share: &Share, called_off: &AtomicBool) -> Result<Option<IdRun>> {
    let level = runs.iter().map(|run| run.level()).max().unwrap_or_default() + 1;
    let mut writer = RunWriter::create(share, level)?;
    let mut readers: Vec<RunReader> = runs.iter().map(|run| RunReader::new(run)).collect();
    let mut heads: BinaryHeap<Reverse<(Id, usize)>> = BinaryHeap::new();
    for (index, reader) in readers.iter_mut().enumerate() {
        heads.extend(reader.head()?.map(|entry| Reverse((entry.id, index))));
    }
    let mut pending: Option<Entry> = None;
    let mut written = 0usize;
    while let Some(Reverse((_, index))) = heads.pop() {
        let Some(entry) = readers[index].head()? else { return Err(Error::internal("a merged run lost an entry")) };
        readers[index].next += 1;
        heads.extend(readers[index].head()?.map(|entry| Reverse((entry.id, index))));
        if !window.holds(entry.timestamp, clock) {
            continue;
        }
        match &mut pending {
            Some(same) if same.id == entry.id => same.timestamp = same.timestamp.max(entry.timestamp),
            _ => {
                if let Some(done) = pending.replace(entry) {
                    writer.push(done)?;
                    written += 1;
                }
            }
        }
        if written.is_multiple_of(1 << 16) && called_off.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
    let Some(last) = pending else { return Ok(None) };
    writer.push(last)?;
    writer.finish().map(Some)
}

struct RunReader<'a> {
    run: &'a IdRun,
    block: usize,
    entries: Vec<Entry>,
    next: usize,
}

impl<'a> RunReader<'a> {
    fn new(run: &'a IdRun) -> Self {
        Self { run, block: 0, entries: Vec::new(), next: 0 }
    }

    fn head(&mut self) -> Result<Option<Entry>> {
        if self.next == self.entries.len() && self.block < self.run.blocks() {
            self.run.entries(self.block..self.block + READ_BLOCKS, &mut self.entries)?;
            self.block += READ_BLOCKS;
            self.next = 0;
        }
        Ok(self.entries.get(self.next).copied())
    }
}
