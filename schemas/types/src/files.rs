//! Objects in the object storage as the catalog records them: each object's [name](ObjectName), kind, size and
//! checksum.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::tiles::Micros;

mod names;

pub use names::{CATALOG_IDENTITY, ObjectName, folder_of_run, folder_of_version, made_at};

/// What a file in the object storage holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    Archive,
    DeadLetters,
    States,
    Snapshot,
    Manifest,
    /// An archive or dead-letter file whose rows are in another one: decoded again, or compacted. Only readers of an
    /// earlier catalog state read it. Its `run` is the id of the commit, which says when that was.
    Superseded,
}

/// A file of the object storage that the catalog names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    pub path: String,
    pub kind: FileKind,
    #[serde(default, with = "crate::uuid_text::optional")]
    pub checkpoint: Option<Uuid>,
    #[serde(default, with = "crate::uuid_text::optional")]
    pub run: Option<Uuid>,
    /// The stream of an archive or dead-letter file, the view of a snapshot's file; empty for states.
    pub subject: Option<Arc<str>>,
    pub bytes: i64,
    pub rows: i64,
    /// CRC-32 of the whole file.
    pub checksum: u32,
    pub min_event_time: Option<Micros>,
    pub max_event_time: Option<Micros>,
    /// No transaction may name it any more, and the collector will delete it.
    #[serde(default)]
    pub marked_for_deletion: bool,
}

/// The least and the greatest event time in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTimeBounds {
    pub min: Micros,
    pub max: Micros,
}

/// A stored object's facts: enough to recognise it when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredObject {
    pub bytes: i64,
    /// CRC-32 of the whole object.
    pub checksum: u32,
}
