//! Where the edges of each node begin in a bucket, by the hash that chose the bucket.
//!
//! A binary search compares about twenty keys that lie far apart. That costs little in one query, but took half of the
//! time of a walk over all nodes.

use std::ops::Range;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use hashbrown::HashTable;

use crate::plan::links::LinkPlan;
use crate::states::buckets::bucket_hash;
use crate::states::sorted::SortedRun;
use crate::states::{KeyCodec, StateRows};
use types::{Error, Result};

/// The first row of every node of one bucket.
#[derive(Debug, Default)]
pub struct NodeIndex {
    firsts: HashTable<First>,
    /// What the bucket of the last node was chosen by: it may go on in the next chunk.
    last: Vec<u8>,
    chunks: u32,
}

#[derive(Debug, Clone, Copy)]
struct First {
    hash: u64,
    chunk: u32,
    row: u32,
}

impl NodeIndex {
    /// Takes the next chunk of the bucket's rows.
    pub fn add(&mut self, codec: &KeyCodec, links: &LinkPlan, rows: &StateRows) -> Result<()> {
        let nodes = codec.nodes()?;
        let first_rows = UInt32Array::from(nodes.first_rows(rows.batch())?.concat());
        let columns = rows.batch().columns()[..links.layout.far_ends.end].iter();
        let keys = columns.map(|key| Ok(take(key, &first_rows, None)?)).collect::<Result<Vec<ArrayRef>>>()?;
        let places = codec.places(&keys, first_rows.len())?;
        for (place, row) in places.iter().flatten().zip(first_rows.values()) {
            if place != self.last.as_slice() || self.firsts.is_empty() {
                let hash = bucket_hash(place);
                self.firsts.insert_unique(hash, First { hash, chunk: self.chunks, row: *row }, |first| first.hash);
                self.last.clear();
                self.last.extend_from_slice(place);
            }
        }
        self.chunks = self.chunks.checked_add(1).ok_or_else(|| Error::limit("a bucket has too many chunks"))?;
        Ok(())
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.firsts.allocation_size() + self.last.capacity()
    }

    /// The rows of `run` whose keys begin so. The hash is that of what their bucket is chosen by.
    pub(super) fn find<'r>(&self, run: &'r SortedRun, prefix: &[u8], hash: u64) -> Vec<(&'r StateRows, Range<usize>)> {
        let begins =
            |first: &First| first.hash == hash && run.chunks()[first.chunk as usize].keys().value(first.row as usize).starts_with(prefix);
        match self.firsts.find(hash, begins) {
            Some(first) => run.prefix_from((first.chunk as usize, first.row as usize), prefix),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
