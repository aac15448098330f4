//! Switches a stream to archive files that were decoded again by another version of its definition. A stream of which
//! nothing is committed is switched alike, to none: so it may be defined in any other way.

use std::sync::Arc;

use types::files::{FileKind, FileRecord};

use crate::{Add, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, Expect};

/// A stream's archive, decoded again by one version.
#[derive(Debug, Clone, PartialEq)]
pub struct RedecodedStream {
    pub stream: Arc<str>,
    /// The version that decoded it, and that decodes every record from the switch on.
    pub version: u32,
    /// None if nothing of the stream is committed.
    pub files: Vec<RedecodedFile>,
}

/// A replaced file, and the one that holds its events now.
#[derive(Debug, Clone, PartialEq)]
pub struct RedecodedFile {
    pub old: FileRecord,
    /// It is already durable, under a fresh name.
    pub new: FileRecord,
}

/// Adds the switch to a commit: readers of later states read the new files. The replaced ones stay for readers of
/// earlier states, until [`collectable`](crate::collectable) says that these are past them. A worker that decoded by
/// another version can no longer commit ([`Expect::NotRedecoded`]).
///
/// The commit's id is of version 7, as it says when the files were replaced. It applies to no state but this one: a
/// checkpoint that came in between is not decoded again yet.
pub fn add_redecoded(commit: &mut Commit, state: &CatalogState, redecoded: &RedecodedStream) {
    commit.expect.push(Expect::Revision(state.revision));
    let paths = redecoded.files.iter().map(|file| file.new.path.clone()).collect();
    commit.expect.push(Expect::NotMarkedForDeletion { paths });
    for RedecodedFile { old, new } in &redecoded.files {
        let superseded = FileRecord { kind: FileKind::Superseded, run: Some(commit.id), ..old.clone() };
        commit.add.extend([Add::File(superseded), Add::File(new.clone())]);
    }
    // A definition that the commit retires already is added once more: the last one counts.
    let versions = state.definitions.versions(DefinitionKind::Stream, &redecoded.stream);
    let earlier = versions.filter(|record| record.version != redecoded.version);
    commit.add.extend(earlier.map(|record| Add::Definition(DefinitionRecord { status: DefinitionStatus::Redecoded, ..record.clone() })));
}
