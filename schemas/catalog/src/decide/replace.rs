//! Replaces a damaged file with a rebuilt one.

use uuid::Uuid;

use crate::{Add, Commit, Expect, GapRecord, Remove};
use types::files::FileRecord;

/// Returns the commit that names `rebuilt` instead of `damaged`. If several processes rebuild a file, one wins, and no
/// reader ever sees both. The rebuilt file is already durable, under a fresh name.
pub fn replace_commit(id: Uuid, damaged: &FileRecord, rebuilt: FileRecord) -> Commit {
    let mut expect =
        vec![Expect::Named { paths: vec![damaged.path.clone()] }, Expect::NotMarkedForDeletion { paths: vec![rebuilt.path.clone()] }];
    expect.extend(rebuilt.checkpoint.map(Expect::HasCheckpoint));
    Commit { id, expect, add: vec![Add::File(rebuilt)], remove: vec![Remove::MarkForDeletion(damaged.path.clone())], ..Commit::default() }
}

/// Returns the commit that gives up damaged files: their offsets are recorded as lost, and they are no longer read.
pub fn give_up_commit(id: Uuid, damaged: &[&FileRecord], gaps: Vec<GapRecord>) -> Commit {
    let paths: Vec<String> = damaged.iter().map(|file| file.path.clone()).collect();
    Commit {
        id,
        expect: vec![Expect::Named { paths: paths.clone() }],
        add: gaps.into_iter().map(Add::Gap).collect(),
        remove: paths.into_iter().map(Remove::MarkForDeletion).collect(),
        ..Commit::default()
    }
}
