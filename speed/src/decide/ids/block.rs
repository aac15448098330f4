//! A run's file: blocks of sorted entries, each with a checksum. Only the process that wrote a file reads it, so the
//! file names no format. A checksum covers the place of its block too: a whole block that is read in the place of
//! another, of the same file or of another one, is damage.

use types::tiles::Micros;
use types::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Id;

pub(super) const ENTRIES: usize = 256;
const ENTRY_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;
/// Bytes of a full block; only a file's last block may be shorter.
pub(super) const BLOCK_BYTES: usize = ENTRIES * ENTRY_BYTES + CHECKSUM_BYTES;

/// An id and the latest timestamp it was accepted at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: Id,
    pub(super) timestamp: Micros,
}

/// Where a block is: the hash of its file's path, which no other file ever has, and its index in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockPlace {
    pub(super) file: u64,
    pub(super) index: usize,
}

/// Returns the bytes of the block at `index` in a file with this many entries.
pub(super) fn block_bytes(entries: usize, index: usize) -> usize {
    (entries - index * ENTRIES).min(ENTRIES) * ENTRY_BYTES + CHECKSUM_BYTES
}

pub(super) fn encode(entries: &[Entry], place: BlockPlace, into: &mut Vec<u8>) {
    into.clear();
    for Entry { id, timestamp } in entries {
        into.extend_from_slice(&id.high.to_be_bytes());
        into.extend_from_slice(&id.low.to_be_bytes());
        into.extend_from_slice(&timestamp.to_be_bytes());
    }
    let checksum = checksum(into, place);
    into.extend_from_slice(&checksum.to_be_bytes());
}

/// Returns a block's entries as bytes, if its checksum is right.
pub(super) fn verified(bytes: &[u8], place: BlockPlace) -> Result<&[u8]> {
    let (entries, stored) = bytes.split_at(bytes.len().saturating_sub(CHECKSUM_BYTES));
    match stored == checksum(entries, place).to_be_bytes() {
        true => Ok(entries),
        false => Err(Error::unavailable("a file of remembered ids is damaged").with("block", place.index)),
    }
}

fn checksum(entries: &[u8], place: BlockPlace) -> u64 {
    xxh3_64_with_seed(entries, place.file ^ place.index as u64)
}

pub(super) fn entries(bytes: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    bytes.chunks_exact(ENTRY_BYTES).map(entry)
}

/// Finds an id by binary search.
pub(super) fn find(bytes: &[u8], id: Id) -> Option<Micros> {
    let (mut low, mut high) = (0, bytes.len() / ENTRY_BYTES);
    while low < high {
        let middle = (low + high) / 2;
        let found = entry(&bytes[middle * ENTRY_BYTES..(middle + 1) * ENTRY_BYTES]);
        match found.id.cmp(&id) {
            std::cmp::Ordering::Equal => return Some(found.timestamp),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    None
}

fn entry(bytes: &[u8]) -> Entry {
    let part = |at: usize| {
        let mut part = [0; 8];
        part.copy_from_slice(&bytes[at..at + 8]);
        part
    };
    let id = Id { high: u64::from_be_bytes(part(0)), low: u64::from_be_bytes(part(8)) };
    Entry { id, timestamp: Micros::from_be_bytes(part(16)) }
}
