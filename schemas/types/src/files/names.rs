//! Builds and parses every object name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

use crate::files::{EventTimeBounds, FileKind, FileRecord, StoredObject};
use crate::tiles::Micros;
use crate::{Error, Result};

/// The object that says which catalog names the others.
pub const CATALOG_IDENTITY: &str = "catalog-identity";

/// The name of one object, relative to the storage's URL. In stream and view names, every character other than ASCII
/// letters, digits, `_` and `-` is written as `%XX`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ObjectName {
    /// `archive/<stream>/<checkpoint>.parquet`
    Archive { stream: Arc<str>, checkpoint: Uuid },
    /// `dead-letters/<stream>/<checkpoint>.parquet`
    DeadLetters { stream: Arc<str>, checkpoint: Uuid },
    /// `states/<checkpoint>.states`: what a checkpoint wrote, a segment per view version.
    States { checkpoint: Uuid },
    /// `archive/<stream>/<checkpoint>/<rebuild>.parquet`: read again from the log to replace a damaged file, or decoded
    /// again by a later version of the stream.
    RebuiltArchive { stream: Arc<str>, checkpoint: Uuid, rebuild: Uuid },
    /// `dead-letters/<stream>/<checkpoint>/<rebuild>.parquet`: likewise.
    RebuiltDeadLetters { stream: Arc<str>, checkpoint: Uuid, rebuild: Uuid },
    /// `states/<checkpoint>/<rebuild>.states`: recomputed from the archive to replace a damaged object.
    RebuiltStates { checkpoint: Uuid, rebuild: Uuid },
    /// `snapshots/<view>/<version>/<run>/<bucket>.parquet`, the bucket (and a slice) with at least five digits.
    Bucket { view: Arc<str>, version: u32, run: Uuid, bucket: u32 },
    /// `snapshots/<view>/<version>/<run>/merged/<bucket>.parquet`: earlier tiers of a snapshot, merged by the run.
    Merged { view: Arc<str>, version: u32, run: Uuid, bucket: u32 },
    /// `snapshots/<view>/<version>/<run>/joined/<bucket>.parquet`: rows of a linked view's materialised join.
    Joined { view: Arc<str>, version: u32, run: Uuid, bucket: u32 },
    /// `snapshots/<view>/<version>/<run>/recomputed/<bucket>.parquet`: all states up to where a recomputation began
    /// that went on beside other runs.
    Recomputed { view: Arc<str>, version: u32, run: Uuid, bucket: u32 },
    /// `snapshots/<view>/<version>/<run>/recomputed/joined/<bucket>.parquet`: the join over these.
    RecomputedJoined { view: Arc<str>, version: u32, run: Uuid, bucket: u32 },
    /// `snapshots/<view>/<version>/<run>/manifest.json`
    Manifest { view: Arc<str>, version: u32, run: Uuid },
    /// `snapshots/<view>/<version>/<run>/slices/<slice>/<bucket>.parquet`: states of a part of the archive, for the
    /// snapshot that is made of all parts. No snapshot names them.
    SliceBucket { view: Arc<str>, version: u32, run: Uuid, slice: u32, bucket: u32 },
    /// `snapshots/<view>/<version>/<run>/slices/<slice>/draft.json`: the manifest of all slices up to this one.
    Draft { view: Arc<str>, version: u32, run: Uuid, slice: u32 },
}

impl ObjectName {
    /// Returns the kind of file that has this name.
    pub fn kind(&self) -> FileKind {
        match self {
            ObjectName::Archive { .. } | ObjectName::RebuiltArchive { .. } => FileKind::Archive,
            ObjectName::DeadLetters { .. } | ObjectName::RebuiltDeadLetters { .. } => FileKind::DeadLetters,
            ObjectName::States { .. } | ObjectName::RebuiltStates { .. } => FileKind::States,
            ObjectName::Bucket { .. }
            | ObjectName::Merged { .. }
            | ObjectName::Joined { .. }
            | ObjectName::Recomputed { .. }
            | ObjectName::RecomputedJoined { .. }
            | ObjectName::SliceBucket { .. } => FileKind::Snapshot,
            ObjectName::Manifest { .. } | ObjectName::Draft { .. } => FileKind::Manifest,
        }
    }

    /// Returns the checkpoint that the file belongs to, if it belongs to one.
    pub fn checkpoint(&self) -> Option<Uuid> {
        match self {
            ObjectName::Archive { checkpoint, .. }
            | ObjectName::DeadLetters { checkpoint, .. }
            | ObjectName::RebuiltArchive { checkpoint, .. }
            | ObjectName::RebuiltDeadLetters { checkpoint, .. }
            | ObjectName::States { checkpoint }
            | ObjectName::RebuiltStates { checkpoint, .. } => Some(*checkpoint),
            _ => None,
        }
    }

    /// Returns the run that wrote the file, if a run did.
    pub fn run(&self) -> Option<Uuid> {
        match self {
            ObjectName::Bucket { run, .. }
            | ObjectName::Merged { run, .. }
            | ObjectName::Joined { run, .. }
            | ObjectName::Recomputed { run, .. }
            | ObjectName::RecomputedJoined { run, .. }
            | ObjectName::Manifest { run, .. }
            | ObjectName::SliceBucket { run, .. }
            | ObjectName::Draft { run, .. } => Some(*run),
            _ => None,
        }
    }

    /// Whether it is of a part of the archive that a recomputation saved.
    pub fn is_of_slice(&self) -> bool {
        matches!(self, ObjectName::SliceBucket { .. } | ObjectName::Draft { .. })
    }

    /// Whether a recomputation wrote it that went on beside other runs, before it added what those had added.
    pub fn is_recomputed(&self) -> bool {
        matches!(self, ObjectName::Recomputed { .. } | ObjectName::RecomputedJoined { .. })
    }

    /// Returns when a checkpoint's file got its name. `None` for a run's files: a run may take long, and publishes
    /// under its lease.
    pub fn made_at(&self) -> Option<Micros> {
        match self {
            ObjectName::Archive { checkpoint, .. } | ObjectName::DeadLetters { checkpoint, .. } | ObjectName::States { checkpoint } => {
                made_at(*checkpoint)
            }
            ObjectName::RebuiltArchive { rebuild, .. }
            | ObjectName::RebuiltDeadLetters { rebuild, .. }
            | ObjectName::RebuiltStates { rebuild, .. } => made_at(*rebuild),
            _ => None,
        }
    }

    /// Returns the stream of an archive or dead-letter file, or the view of a snapshot's file.
    pub fn subject(&self) -> Option<&Arc<str>> {
        match self {
            ObjectName::Archive { stream, .. } | ObjectName::DeadLetters { stream, .. } => Some(stream),
            ObjectName::RebuiltArchive { stream, .. } | ObjectName::RebuiltDeadLetters { stream, .. } => Some(stream),
            ObjectName::Bucket { view, .. }
            | ObjectName::Merged { view, .. }
            | ObjectName::Joined { view, .. }
            | ObjectName::Recomputed { view, .. }
            | ObjectName::RecomputedJoined { view, .. }
            | ObjectName::Manifest { view, .. }
            | ObjectName::SliceBucket { view, .. }
            | ObjectName::Draft { view, .. } => Some(view),
            ObjectName::States { .. } | ObjectName::RebuiltStates { .. } => None,
        }
    }

    /// Returns the catalog's record of this object as it was stored.
    pub fn record(&self, stored: StoredObject, rows: i64, event_times: Option<EventTimeBounds>) -> FileRecord {
        FileRecord {
            path: self.to_string(),
            kind: self.kind(),
            checkpoint: self.checkpoint(),
            run: self.run(),
            subject: self.subject().cloned(),
            bytes: stored.bytes,
            rows,
            checksum: stored.checksum,
            min_event_time: event_times.map(|bounds| bounds.min),
            max_event_time: event_times.map(|bounds| bounds.max),
            marked_for_deletion: false,
        }
    }
}

/// Returns the folder of everything that a run writes.
pub fn folder_of_run(view: &str, version: u32, run: Uuid) -> String {
    format!("{}/{run}", folder_of_version(view, version))
}

/// Returns the folder of everything that the runs of a view version write.
pub fn folder_of_version(view: &str, version: u32) -> String {
    format!("snapshots/{}/{version}", Escaped(view))
}

/// Returns the time that a version 7 id (RFC 9562) carries.
pub fn made_at(id: Uuid) -> Option<Micros> {
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    Some((seconds as Micros).saturating_mul(1_000_000).saturating_add(Micros::from(nanos / 1_000)))
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectName::Archive { stream, checkpoint } => write!(f, "archive/{}/{checkpoint}.parquet", Escaped(stream)),
            ObjectName::DeadLetters { stream, checkpoint } => write!(f, "dead-letters/{}/{checkpoint}.parquet", Escaped(stream)),
            ObjectName::States { checkpoint } => write!(f, "states/{checkpoint}.states"),
            ObjectName::RebuiltArchive { stream, checkpoint, rebuild } => {
                write!(f, "archive/{}/{checkpoint}/{rebuild}.parquet", Escaped(stream))
            }
            ObjectName::RebuiltDeadLetters { stream, checkpoint, rebuild } => {
                write!(f, "dead-letters/{}/{checkpoint}/{rebuild}.parquet", Escaped(stream))
            }
            ObjectName::RebuiltStates { checkpoint, rebuild } => write!(f, "states/{checkpoint}/{rebuild}.states"),
            ObjectName::Bucket { view, version, run, bucket } => {
                write!(f, "snapshots/{}/{version}/{run}/{bucket:05}.parquet", Escaped(view))
            }
            ObjectName::Merged { view, version, run, bucket } => {
                write!(f, "snapshots/{}/{version}/{run}/merged/{bucket:05}.parquet", Escaped(view))
            }
            ObjectName::Joined { view, version, run, bucket } => {
                write!(f, "snapshots/{}/{version}/{run}/joined/{bucket:05}.parquet", Escaped(view))
            }
            ObjectName::Recomputed { view, version, run, bucket } => {
                write!(f, "snapshots/{}/{version}/{run}/recomputed/{bucket:05}.parquet", Escaped(view))
            }
            ObjectName::RecomputedJoined { view, version, run, bucket } => {
                write!(f, "snapshots/{}/{version}/{run}/recomputed/joined/{bucket:05}.parquet", Escaped(view))
            }
            ObjectName::Manifest { view, version, run } => write!(f, "snapshots/{}/{version}/{run}/manifest.json", Escaped(view)),
            ObjectName::SliceBucket { view, version, run, slice, bucket } => {
                write!(f, "snapshots/{}/{version}/{run}/slices/{slice:05}/{bucket:05}.parquet", Escaped(view))
            }
            ObjectName::Draft { view, version, run, slice } => {
                write!(f, "snapshots/{}/{version}/{run}/slices/{slice:05}/draft.json", Escaped(view))
            }
        }
    }
}

impl FromStr for ObjectName {
    type Err = Error;

    /// Accepts exactly the texts that `Display` writes.
    fn from_str(text: &str) -> Result<Self> {
        parse(text)
            .filter(|name| name.to_string() == text)
            .ok_or_else(|| Error::input(format!("\"{text}\" is not the name of an object of this storage")))
    }
}

fn parse(text: &str) -> Option<ObjectName> {
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        ["archive", stream, file] => Some(ObjectName::Archive { stream: unescape(stream)?, checkpoint: uuid_before(file, ".parquet")? }),
        ["dead-letters", stream, file] => {
            Some(ObjectName::DeadLetters { stream: unescape(stream)?, checkpoint: uuid_before(file, ".parquet")? })
        }
        ["archive", stream, checkpoint, file] => Some(ObjectName::RebuiltArchive {
            stream: unescape(stream)?,
            checkpoint: Uuid::try_parse(checkpoint).ok()?,
            rebuild: uuid_before(file, ".parquet")?,
        }),
        ["dead-letters", stream, checkpoint, file] => Some(ObjectName::RebuiltDeadLetters {
            stream: unescape(stream)?,
            checkpoint: Uuid::try_parse(checkpoint).ok()?,
            rebuild: uuid_before(file, ".parquet")?,
        }),
        ["states", file] => Some(ObjectName::States { checkpoint: uuid_before(file, ".states")? }),
        ["states", checkpoint, file] => {
            Some(ObjectName::RebuiltStates { checkpoint: Uuid::try_parse(checkpoint).ok()?, rebuild: uuid_before(file, ".states")? })
        }
        ["snapshots", view, version, run, file] => {
            let (view, version, run) = (unescape(view)?, version.parse().ok()?, Uuid::try_parse(run).ok()?);
            match *file {
                "manifest.json" => Some(ObjectName::Manifest { view, version, run }),
                file => Some(ObjectName::Bucket { view, version, run, bucket: file.strip_suffix(".parquet")?.parse().ok()? }),
            }
        }
        ["snapshots", view, version, run, folder, file] => {
            let (view, version, run) = (unescape(view)?, version.parse().ok()?, Uuid::try_parse(run).ok()?);
            let bucket = file.strip_suffix(".parquet")?.parse().ok()?;
            match *folder {
                "merged" => Some(ObjectName::Merged { view, version, run, bucket }),
                "joined" => Some(ObjectName::Joined { view, version, run, bucket }),
                "recomputed" => Some(ObjectName::Recomputed { view, version, run, bucket }),
                _ => None,
            }
        }
        ["snapshots", view, version, run, "recomputed", "joined", file] => {
            let (view, version, run) = (unescape(view)?, version.parse().ok()?, Uuid::try_parse(run).ok()?);
            Some(ObjectName::RecomputedJoined { view, version, run, bucket: file.strip_suffix(".parquet")?.parse().ok()? })
        }
        ["snapshots", view, version, run, "slices", slice, file] => {
            let (view, version, run) = (unescape(view)?, version.parse().ok()?, Uuid::try_parse(run).ok()?);
            let slice = slice.parse().ok()?;
            match *file {
                "draft.json" => Some(ObjectName::Draft { view, version, run, slice }),
                file => {
                    let bucket = file.strip_suffix(".parquet")?.parse().ok()?;
                    Some(ObjectName::SliceBucket { view, version, run, slice, bucket })
                }
            }
        }
        _ => None,
    }
}

fn uuid_before(file: &str, suffix: &str) -> Option<Uuid> {
    Uuid::try_parse(file.strip_suffix(suffix)?).ok()
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => write!(f, "{}", byte as char)?,
                other => write!(f, "%{other:02X}")?,
            }
        }
        Ok(())
    }
}

/// Returns `None` for an empty text, a broken escape or bytes that are not UTF-8.
fn unescape(text: &str) -> Option<Arc<str>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'%' => hex_digit(rest.next()?)? * 16 + hex_digit(rest.next()?)?,
            plain => plain,
        };
        bytes.push(decoded);
    }
    let name = String::from_utf8(bytes).ok()?;
    (!name.is_empty()).then(|| name.into())
}

fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests;
