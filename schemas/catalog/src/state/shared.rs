//! The lists of a state that grow with the number of commits. A state shares with the one before it all that no commit
//! has changed: to add a record copies a few small chunks of pointers, however many records there are.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use immutable_chunkmap::map::Map;
use types::files::FileRecord;
use uuid::Uuid;

use crate::records::CheckpointRecord;

/// Records per chunk: what is copied at least for one change.
const CHUNK: usize = 64;

/// The files that the catalog names, ordered by path.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Files {
    by_path: Map<ByPath, Arc<FileRecord>, CHUNK>,
    /// The paths of each checkpoint's files: few.
    of_checkpoints: Map<Uuid, Arc<[ByPath]>, CHUNK>,
}

impl Files {
    pub fn get(&self, path: &str) -> Option<&FileRecord> {
        self.by_path.get(path).map(|file| &**file)
    }

    /// Returns the files of one checkpoint, ordered by path.
    pub fn of_checkpoint(&self, id: Uuid) -> impl Iterator<Item = &FileRecord> {
        let paths = self.of_checkpoints.get(&id).map_or(&[][..], |paths| paths);
        paths.iter().filter_map(|path| self.get(&path.0.path)).filter(move |file| file.checkpoint == Some(id))
    }

    /// Changes the list as a whole, which copies all of it.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut Vec<FileRecord>)) {
        let mut files = self.iter().cloned().collect();
        change(&mut files);
        *self = files.into_iter().collect();
    }

    pub fn iter(&self) -> impl Iterator<Item = &FileRecord> {
        self.by_path.into_iter().map(|(_, file)| &**file)
    }

    pub fn len(&self) -> usize {
        self.by_path.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A record replaces the one of the same path.
impl Extend<FileRecord> for Files {
    fn extend<I: IntoIterator<Item = FileRecord>>(&mut self, files: I) {
        // Each path once, with its last record.
        let files = files.into_iter().map(Arc::new).map(|file| (ByPath(file.clone()), file));
        let files: BTreeMap<ByPath, Arc<FileRecord>> = files.collect();
        let mut added: BTreeMap<Uuid, BTreeSet<ByPath>> = BTreeMap::new();
        for file in files.values() {
            if let Some(id) = file.checkpoint {
                added.entry(id).or_default().insert(ByPath(file.clone()));
            }
        }
        let grown = added.into_iter().map(|(id, mut paths)| {
            paths.extend(self.of_checkpoints.get(&id).into_iter().flat_map(|known| known.iter().cloned()));
            (id, paths.into_iter().collect())
        });
        self.of_checkpoints = self.of_checkpoints.insert_many(grown.collect::<Vec<_>>());
        self.by_path = self.by_path.insert_many(files);
    }
}

impl FromIterator<FileRecord> for Files {
    fn from_iter<I: IntoIterator<Item = FileRecord>>(files: I) -> Self {
        let mut all = Files::default();
        all.extend(files);
        all
    }
}

/// The checkpoints, in the order of their commits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checkpoints {
    in_order: Map<usize, Arc<CheckpointRecord>, CHUNK>,
    places: Map<Uuid, usize, CHUNK>,
}

impl Checkpoints {
    pub fn get(&self, id: Uuid) -> Option<&CheckpointRecord> {
        self.in_order.get(self.places.get(&id)?).map(|checkpoint| &**checkpoint)
    }

    pub fn first(&self) -> Option<&CheckpointRecord> {
        self.in_order.get(&0).map(|checkpoint| &**checkpoint)
    }

    pub fn last(&self) -> Option<&CheckpointRecord> {
        self.in_order.get(&self.len().checked_sub(1)?).map(|checkpoint| &**checkpoint)
    }

    /// Changes the list as a whole, which copies all of it.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut Vec<CheckpointRecord>)) {
        let mut checkpoints = self.iter().cloned().collect();
        change(&mut checkpoints);
        *self = checkpoints.into_iter().collect();
    }

    pub fn iter(&self) -> impl Iterator<Item = &CheckpointRecord> {
        self.in_order.into_iter().map(|(_, checkpoint)| &**checkpoint)
    }

    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Appends checkpoints that were committed later.
impl Extend<CheckpointRecord> for Checkpoints {
    fn extend<I: IntoIterator<Item = CheckpointRecord>>(&mut self, checkpoints: I) {
        let placed: Vec<(usize, Arc<CheckpointRecord>)> = (self.len()..).zip(checkpoints.into_iter().map(Arc::new)).collect();
        self.places = self.places.insert_many(placed.iter().map(|(place, checkpoint)| (checkpoint.id, *place)));
        self.in_order = self.in_order.insert_many(placed);
    }
}

impl FromIterator<CheckpointRecord> for Checkpoints {
    fn from_iter<I: IntoIterator<Item = CheckpointRecord>>(checkpoints: I) -> Self {
        let mut all = Checkpoints::default();
        all.extend(checkpoints);
        all
    }
}

/// A file as the key under which it is found: its path.
#[derive(Debug, Clone)]
struct ByPath(Arc<FileRecord>);

impl Borrow<str> for ByPath {
    fn borrow(&self) -> &str {
        &self.0.path
    }
}

impl Ord for ByPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.path.cmp(&other.0.path)
    }
}

impl PartialOrd for ByPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByPath {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ByPath {}

#[cfg(test)]
mod tests;
