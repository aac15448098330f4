//! One archive file to another: its events decoded again, batch by batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::events::{RedecodedEvents, Redecoder};
use futures::TryStreamExt;
use storage::{ArchiveFacts, ArchiveUpload, ArchiveVersions, ObjectStorage, ROW_GROUP_BYTES, read_archive};
use tokio::sync::Semaphore;
use types::files::{FileRecord, ObjectName};
use types::{Error, Result};
use uuid::Uuid;

use super::misfits::Misfits;

/// What the files that are decoded concurrently may hold in memory together. A file holds less on its own.
const BYTES_AT_ONCE: usize = 256 << 20;
/// What a file holds at most: a row group that is read, the one that is written, and a batch of decoded events.
const MOST_BYTES_OF_FILE: usize = 2 * ROW_GROUP_BYTES + (32 << 20);

/// Decodes files of one stream, some at the same time.
pub(super) struct FileDecoder<'a> {
    storage: &'a ObjectStorage,
    /// The version of the definition that decodes.
    version: u32,
    /// Whether new files are written: until a record of any file does not fit.
    writes: AtomicBool,
    /// A permit for each byte that the files may hold in memory together.
    room: Semaphore,
}

pub(super) struct DecodedFile {
    pub(super) old: FileRecord,
    pub(super) outcome: Decoded,
}

/// What became of a file's events.
pub(super) enum Decoded {
    Written(FileRecord),
    /// They all fit, and no file is wanted.
    Fits,
    Misfits(Misfits),
}

impl<'a> FileDecoder<'a> {
    /// `version` is that of the definition that decodes. Without `writes`, files are decoded to list the records that
    /// do not fit.
    pub(super) fn new(storage: &'a ObjectStorage, version: u32, writes: bool) -> Self {
        Self { storage, version, writes: AtomicBool::new(writes), room: Semaphore::new(BYTES_AT_ONCE) }
    }

    /// Decodes a file batch by batch: a compacted one may be larger than memory.
    pub(super) async fn decode(&self, old: FileRecord, facts: ArchiveFacts, redecoder: Arc<Redecoder>) -> Result<DecodedFile> {
        let about = |error: Error| error.with("file", &old.path);
        let held = self.room.acquire_many(bytes_held(&old)).await;
        let _held = held.map_err(|_| about(Error::internal("no room is left to decode a file")))?;
        let (Some(stream), Some(checkpoint)) = (old.subject.clone(), old.checkpoint) else {
            return Err(about(Error::corrupt("the catalog does not say which stream and checkpoint a file belongs to")));
        };
        let name = ObjectName::RebuiltArchive { stream: stream.clone(), checkpoint, rebuild: Uuid::now_v7() };
        let versions = ArchiveVersions { decoded_by: self.version, decided_by: facts.versions.decided_by };
        let mut batches = read_archive(self.storage, &old, None).await?;
        // One that is not finished leaves no file.
        let (mut upload, mut misfits) = (None, Misfits::default());
        while let Some(batch) = batches.try_next().await? {
            let redecoder = redecoder.clone();
            let redecode = move || redecoder.redecode(&batch).map(|redecoded| (redecoded, batch));
            let events = match tokio::task::spawn_blocking(redecode).await?.map_err(about)? {
                (RedecodedEvents::Events(events), _) | (RedecodedEvents::AsBefore, events) => events,
                (RedecodedEvents::Misfits(found), _) => {
                    self.writes.store(false, Ordering::Relaxed);
                    misfits.add(&stream, found);
                    continue;
                }
            };
            if !self.writes.load(Ordering::Relaxed) {
                upload = None;
                continue;
            }
            let begun = match upload.take() {
                Some(begun) => begun,
                None => ArchiveUpload::begin(self.storage, name.clone(), versions, events.schema()).await?,
            };
            upload.insert(begun).push(&events).await?;
        }
        let outcome = match self.writes.load(Ordering::Relaxed) {
            _ if misfits.count > 0 => Decoded::Misfits(misfits),
            true => Decoded::Written(finish(upload, &old).await?),
            false => Decoded::Fits,
        };
        Ok(DecodedFile { old, outcome })
    }
}

/// Finishes the new file. It has the events of the old one.
async fn finish(upload: Option<ArchiveUpload>, old: &FileRecord) -> Result<FileRecord> {
    let about = |error: Error| error.with("file", &old.path);
    let upload = upload.ok_or_else(|| about(Error::corrupt("an archive file has no rows")))?;
    let new = upload.finish().await?;
    let facts = |file: &FileRecord| (file.rows, file.min_event_time, file.max_event_time);
    if facts(&new) != facts(old) {
        return Err(about(Error::internal("the events of a file changed their number or their times while they were decoded again"))
            .with("new file", &new.path));
    }
    Ok(new)
}

/// Returns about how many bytes of memory a file takes while it is decoded.
fn bytes_held(file: &FileRecord) -> u32 {
    let whole = usize::try_from(file.bytes).unwrap_or_default().saturating_mul(2);
    u32::try_from(whole.clamp(1, MOST_BYTES_OF_FILE)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
