//! A run's filters: one per range of blocks, about 9 bits an id. One of 256 absent ids passes.

use std::sync::OnceLock;

use xorf::{BinaryFuse8, Filter};

use super::block::ENTRIES;
use super::space::Share;

/// Blocks per filter: while it is built, it takes about 32 bytes an id.
const FILTER_BLOCKS: usize = 512;
/// Ids per filter.
pub(super) const FILTER_IDS: usize = FILTER_BLOCKS * ENTRIES;

/// A range without a filter is read from the file: slower, but with the same result.
#[derive(Debug)]
pub(super) struct Filters {
    share: Share,
    filters: Vec<OnceLock<BinaryFuse8>>,
    /// Bytes of the run's fences. They are counted with the filters, and always present.
    fence_bytes: usize,
}

impl Filters {
    pub(super) fn new(share: &Share) -> Self {
        Self { share: share.clone(), filters: Vec::new(), fence_bytes: 0 }
    }

    /// Adds the filter of the next range, if there is memory for it. `highs` are the first halves of its ids, in order.
    pub(super) fn push(&mut self, highs: &mut Vec<u64>) {
        self.filters.push(OnceLock::new());
        self.fill(self.filters.len() - 1, highs);
    }

    /// Builds the filter of a range that has none; returns true if it has one now.
    pub(super) fn fill(&self, index: usize, highs: &mut Vec<u64>) -> bool {
        highs.dedup();
        // Its approximate size is known before it is built.
        let expected = highs.len() * 5 / 4 + 1_024;
        if !self.share.reserve(expected) {
            return false;
        }
        let made = BinaryFuse8::try_from(&*highs).ok();
        self.share.release(expected);
        let Some(filter) = made else { return false };
        let bytes = filter.len();
        if !self.share.reserve(bytes) {
            return false;
        }
        if self.filters[index].set(filter).is_err() {
            self.share.release(bytes);
        }
        true
    }

    pub(super) fn count_fences(&mut self, bytes: usize) {
        self.share.add(bytes);
        self.fence_bytes += bytes;
    }

    /// False: the id is not in this block's range.
    pub(super) fn may_hold(&self, block: usize, high: u64) -> bool {
        match self.filters.get(block / FILTER_BLOCKS).and_then(OnceLock::get) {
            Some(filter) => filter.contains(&high),
            None => true,
        }
    }

    /// Ranges without a filter.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        self.filters.iter().enumerate().filter(|(_, filter)| filter.get().is_none()).map(|(index, _)| index)
    }

    pub(super) fn blocks(index: usize) -> std::ops::Range<usize> {
        index * FILTER_BLOCKS..(index + 1) * FILTER_BLOCKS
    }
}

impl Drop for Filters {
    fn drop(&mut self) {
        let filters: usize = self.filters.iter().filter_map(OnceLock::get).map(Filter::<u64>::len).sum();
        self.share.release(filters + self.fence_bytes);
    }
}
