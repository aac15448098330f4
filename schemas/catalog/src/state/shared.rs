//! The lists of a state that grow with the number of commits. A state shares with the one before it all that no commit
//! has changed: to add a record copies a few small chunks of pointers, however many records there are.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use immutable_chunkmap::map::Map;
use types::files::{FileKind, FileRecord};
use uuid::Uuid;

use crate::records::{CheckpointRecord, Revision};

/// Records per chunk: what is copied at least for one change.
const CHUNK: usize = 64;

/// The files that the catalog names, ordered by path.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Files {
    by_path: Map<ByPath, Arc<FileRecord>, CHUNK>,
    /// The paths of each checkpoint's files: few.
    of_checkpoints: Map<Uuid, Arc<[ByPath]>, CHUNK>,
    dead_letters: BTreeMap<Arc<str>, i64>,
}

impl Files {
    /// Returns the file at a path.
    pub fn get(&self, path: &str) -> Option<&FileRecord> {
        self.by_path.get(path).map(|file| &**file)
    }

    /// Removes files by their paths.
    pub(crate) fn remove<'p>(&mut self, paths: impl IntoIterator<Item = &'p str>) {
        let known = paths.into_iter().filter_map(|path| self.by_path.get_full(path));
        let known: BTreeSet<ByPath> = known.map(|(path, _)| path.clone()).collect();
        let known = Vec::from_iter(known);
        self.leave_checkpoints(&known);
        for path in &known {
            self.uncount(&path.0.path);
        }
        self.by_path = self.by_path.remove_many(known);
    }

    fn is_of_another_checkpoint(&self, file: &FileRecord) -> bool {
        self.get(&file.path).is_some_and(|known| known.checkpoint.is_some() && known.checkpoint != file.checkpoint)
    }

    /// Takes files off the lists of their checkpoints.
    fn leave_checkpoints(&mut self, paths: &[ByPath]) {
        let mut leaving: BTreeMap<Uuid, BTreeSet<&ByPath>> = BTreeMap::new();
        for path in paths {
            if let Some(id) = self.get(&path.0.path).and_then(|known| known.checkpoint) {
                leaving.entry(id).or_default().insert(path);
            }
        }
        self.of_checkpoints = self.of_checkpoints.update_many(leaving, |id, leaving, known| {
            let rest: Arc<[ByPath]> = known?.1.iter().filter(|path| !leaving.contains(path)).cloned().collect();
            (!rest.is_empty()).then_some((id, rest))
        });
    }

    /// Returns the files of one checkpoint, ordered by path.
    pub fn of_checkpoint(&self, id: Uuid) -> impl Iterator<Item = &FileRecord> {
        let paths = self.of_checkpoints.get(&id).map_or(&[][..], |paths| paths);
        paths.iter().filter_map(|path| self.get(&path.0.path)).filter(move |file| file.checkpoint == Some(id))
    }

    /// Returns how many dead letters each stream keeps in files that may be read, of the streams that have some.
    pub fn dead_letters(&self) -> &BTreeMap<Arc<str>, i64> {
        &self.dead_letters
    }

    /// Adds a file's dead letters, as often as `times` says.
    fn count(&mut self, file: &FileRecord, times: i64) {
        let is_counted = file.kind == FileKind::DeadLetters && !file.marked_for_deletion;
        let Some(stream) = file.subject.as_ref().filter(|_| is_counted) else { return };
        let rows = self.dead_letters.entry(stream.clone()).or_default();
        *rows += times * file.rows;
        if *rows == 0 {
            self.dead_letters.remove(stream);
        }
    }

    /// Takes off what was counted of the file of this path, if there is one.
    fn uncount(&mut self, path: &str) {
        if let Some(file) = self.by_path.get(path).cloned() {
            self.count(&file, -1);
        }
    }

    /// Changes the list as a whole, which copies all of it.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut Vec<FileRecord>)) {
        let mut files = self.iter().cloned().collect();
        change(&mut files);
        *self = files.into_iter().collect();
    }

    /// Returns all files, by path.
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
        let moved: Vec<ByPath> =
            files.values().filter(|file| self.is_of_another_checkpoint(file)).map(|file| ByPath(file.clone())).collect();
        self.leave_checkpoints(&moved);
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
        for file in files.values() {
            self.uncount(&file.path);
            self.count(file, 1);
        }
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
    in_order: Map<CommitOrder, Arc<CheckpointRecord>, CHUNK>,
    revisions: Map<Uuid, Revision, CHUNK>,
}

/// Where a checkpoint is in the order of commits.
type CommitOrder = (Revision, Uuid);

impl Checkpoints {
    /// Returns the checkpoint with this id.
    pub fn get(&self, id: Uuid) -> Option<&CheckpointRecord> {
        self.in_order.get(&(*self.revisions.get(&id)?, id)).map(|checkpoint| &**checkpoint)
    }

    /// Returns the checkpoint that was committed first.
    pub fn first(&self) -> Option<&CheckpointRecord> {
        self.iter().next()
    }

    /// Returns the checkpoint that was committed last.
    pub fn last(&self) -> Option<&CheckpointRecord> {
        self.iter().next_back()
    }

    /// Removes checkpoints by their ids.
    pub(crate) fn remove(&mut self, ids: &[Uuid]) {
        let mut places: Vec<CommitOrder> = ids.iter().filter_map(|id| Some((*self.revisions.get(id)?, *id))).collect();
        places.sort_unstable();
        self.revisions = self.revisions.remove_many(places.iter().map(|(_, id)| *id));
        self.in_order = self.in_order.remove_many(places);
    }

    /// Changes the list as a whole, which copies all of it.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut Vec<CheckpointRecord>)) {
        let mut checkpoints = self.iter().cloned().collect();
        change(&mut checkpoints);
        *self = checkpoints.into_iter().collect();
    }

    /// Returns all checkpoints in the order of their commits.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &CheckpointRecord> {
        self.in_order.into_iter().map(|(_, checkpoint)| &**checkpoint)
    }

    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A checkpoint's place follows from its revision.
impl Extend<CheckpointRecord> for Checkpoints {
    fn extend<I: IntoIterator<Item = CheckpointRecord>>(&mut self, checkpoints: I) {
        let checkpoints: Vec<Arc<CheckpointRecord>> = checkpoints.into_iter().map(Arc::new).collect();
        self.revisions = self.revisions.insert_many(checkpoints.iter().map(|checkpoint| (checkpoint.id, checkpoint.revision)));
        self.in_order =
            self.in_order.insert_many(checkpoints.into_iter().map(|checkpoint| ((checkpoint.revision, checkpoint.id), checkpoint)));
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
