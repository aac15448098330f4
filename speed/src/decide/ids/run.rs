//! A run: ids in a sorted file that never changes, each with its latest timestamp.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use types::tiles::Micros;
use types::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::Id;
use super::block::{self, BLOCK_BYTES, BlockPlace, ENTRIES, Entry};
use super::filters::{FILTER_IDS, Filters};
use super::space::Share;

/// A run; dropping it deletes the file.
#[derive(Debug)]
pub(super) struct IdRun {
    file: File,
    path: PathBuf,
    path_hash: u64,
    /// The first half of the first id of each block.
    fences: Vec<u64>,
    filters: Filters,
    entries: usize,
    newest: Micros,
    /// How many times its ids were merged.
    level: u32,
}

impl IdRun {
    /// Returns the timestamp of an id, if the run holds it.
    pub(super) fn find(&self, id: Id) -> Result<Option<Micros>> {
        let after = self.fences.partition_point(|fence| *fence < id.high);
        for index in after.saturating_sub(1)..self.fences.len() {
            if index >= after && self.fences[index] != id.high {
                break;
            }
            if self.filters.may_hold(index, id.high)
                && let Some(timestamp) = self.find_in(index, id)?
            {
                return Ok(Some(timestamp));
            }
        }
        Ok(None)
    }

    fn find_in(&self, index: usize, id: Id) -> Result<Option<Micros>> {
        metrics::counter!("basestream_speed_dedup_disk_reads_total").increment(1);
        let mut buffer = [0; BLOCK_BYTES];
        let bytes = &mut buffer[..block::block_bytes(self.entries, index)];
        self.read(index, bytes)?;
        let entries = block::verified(bytes, self.place(index)).map_err(|error| self.named(error))?;
        Ok(block::find(entries, id))
    }

    /// Reads the entries of some blocks, in order.
    pub(super) fn entries(&self, blocks: std::ops::Range<usize>, into: &mut Vec<Entry>) -> Result<()> {
        into.clear();
        let mut buffer = [0; BLOCK_BYTES];
        for index in blocks.start..blocks.end.min(self.fences.len()) {
            let bytes = &mut buffer[..block::block_bytes(self.entries, index)];
            self.read(index, bytes)?;
            into.extend(block::entries(block::verified(bytes, self.place(index)).map_err(|error| self.named(error))?));
        }
        Ok(())
    }

    fn read(&self, index: usize, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, (index * BLOCK_BYTES) as u64).map_err(|error| {
            self.named(Error::unavailable("a file of remembered ids cannot be read").caused_by(error).with("block", index))
        })
    }

    fn place(&self, index: usize) -> BlockPlace {
        BlockPlace { file: self.path_hash, index }
    }

    fn named(&self, error: Error) -> Error {
        error.with("file", self.path.display())
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn blocks(&self) -> usize {
        self.fences.len()
    }

    pub(super) fn newest(&self) -> Micros {
        self.newest
    }

    pub(super) fn level(&self) -> u32 {
        self.level
    }

    pub(super) fn filters(&self) -> &Filters {
        &self.filters
    }
}

impl Drop for IdRun {
    fn drop(&mut self) {
        if let Err(error) = remove_if_there(&self.path) {
            tracing::warn!(file = %self.path.display(), %error, "a file of remembered ids stays until the folder is cleaned");
        }
    }
}

/// Deletes a file, unless somebody has deleted it, or its folder, before.
pub(super) fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes entries in the order of their ids, each id once.
pub(super) struct RunWriter {
    file: BufWriter<File>,
    /// Owns the file's name from the start, so that an unfinished file is deleted as well.
    run: IdRun,
    share: Share,
    block: Vec<Entry>,
    encoded: Vec<u8>,
    highs: Vec<u64>,
}

impl RunWriter {
    pub(super) fn create(share: &Share, level: u32) -> Result<Self> {
        let (path, file) = share.create_file()?;
        let writing = file.try_clone().map_err(|error| share.failed(error, &path))?;
        let path_hash = xxh3_64(path.as_os_str().as_bytes());
        let (fences, filters) = (Vec::new(), Filters::new(share));
        let run = IdRun { file, path, path_hash, fences, filters, entries: 0, newest: Micros::MIN, level };
        Ok(Self {
            file: BufWriter::with_capacity(BLOCK_BYTES * 16, writing),
            run,
            share: share.clone(),
            block: Vec::with_capacity(ENTRIES),
            encoded: Vec::with_capacity(BLOCK_BYTES),
            highs: Vec::with_capacity(FILTER_IDS),
        })
    }

    pub(super) fn push(&mut self, entry: Entry) -> Result<()> {
        self.run.newest = self.run.newest.max(entry.timestamp);
        self.highs.push(entry.id.high);
        self.block.push(entry);
        if self.block.len() == ENTRIES { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> Result<()> {
        let Some(first) = self.block.first() else { return Ok(()) };
        let place = self.run.place(self.run.fences.len());
        self.run.fences.push(first.id.high);
        self.run.entries += self.block.len();
        block::encode(&self.block, place, &mut self.encoded);
        self.block.clear();
        self.file.write_all(&self.encoded).map_err(|error| self.share.failed(error, &self.run.path))?;
        if self.highs.len() >= FILTER_IDS {
            self.run.filters.push(&mut self.highs);
            self.highs.clear();
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<IdRun> {
        self.end_block()?;
        if !self.highs.is_empty() {
            self.run.filters.push(&mut self.highs);
        }
        self.run.fences.shrink_to_fit();
        self.run.filters.count_fences(self.run.fences.len() * size_of::<u64>());
        self.file.flush().map_err(|error| self.share.failed(error, &self.run.path))?;
        Ok(self.run)
    }
}
