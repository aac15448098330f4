//! Decodes a stream's archive again from its raw records: a column that was added is filled, and a corrected type or
//! path holds for all events.
//!
//! ```text
//! archive files --survey--> what is decoded, its cost --decode--> new files beside the old ones --apply--> the switch
//! ```
//!
//! Which records are events was decided before, and stays: the files keep their rows, order and offsets. Nothing here
//! changes the catalog. A new file that no switch names is an orphan, which the collector deletes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use catalog::{ArchiveBounds, CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus, RedecodedFile, archive_files};
use definitions::{Column, StreamDefinition, parse};
use engine::events::{Misfit, OnMisfit, RedecodedEvents, Redecoder, columns_to_decode};
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use storage::{ArchiveFacts, ArchiveUpload, ArchiveVersions, ObjectStorage, ROW_GROUP_BYTES, archive_facts, read_archive};
use tokio::sync::Semaphore;
use tracing::{info, warn};
use types::files::{FileRecord, ObjectName};
use types::{Error, ErrorKind, Result, failpoint};
use uuid::Uuid;

mod readers;

pub use readers::ReadingView;
pub(crate) use readers::{views_over, views_that_read};

/// How many footers are read concurrently.
const FOOTERS_AT_ONCE: usize = 16;
/// How many files are decoded concurrently at most.
const FILES_AT_ONCE: usize = 4;
/// What the files that are decoded concurrently may hold in memory together. A file holds less on its own.
const BYTES_AT_ONCE: usize = 256 << 20;
/// What a file holds at most: a row group that is read, the one that is written, and a batch of decoded events.
const MOST_BYTES_OF_FILE: usize = 2 * ROW_GROUP_BYTES + (32 << 20);
/// How many records that do not fit are listed.
const LISTED: usize = 20;

/// A stream's definition by which its archive is decoded.
#[derive(Debug, Clone)]
pub struct BackfillTarget {
    pub definition: Arc<StreamDefinition>,
    pub version: u32,
    pub on_misfit: OnMisfit,
}

/// What is decoded again of one stream.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Survey {
    pub stream: Arc<str>,
    /// The version of the definition that decodes.
    pub version: u32,
    pub columns: Vec<ChangedColumn>,
    pub files: usize,
    pub events: i64,
    /// The size of the files that are read; the new ones have about the same.
    pub bytes: i64,
    /// Events that were archived without their raw records: added columns stay NULL in them, changed ones do not fit.
    pub without_raw: i64,
    /// Records that do not fit, once they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfits: Option<Misfits>,
    #[serde(skip)]
    work: Vec<(FileRecord, ArchiveFacts)>,
}

/// A column that archived events do not have as the definition reads it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ChangedColumn {
    pub column: String,
    pub change: String,
}

/// Records that do not fit a column.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Misfits {
    pub count: u64,
    /// The first of them.
    pub first: Vec<ListedMisfit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedMisfit {
    pub stream: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    pub column: String,
    pub reason: String,
}

/// The progress of a decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodingProgress {
    /// So many bytes more are to be read.
    Total(u64),
    Read(u64),
}

/// Whether decoded events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Write,
    /// They are decoded to list the records that do not fit.
    List,
}

/// Receives the progress of a decoding.
pub type OnProgress<'a> = dyn Fn(DecodingProgress) + Send + Sync + 'a;

/// The new files so far. Another survey of the stream goes on after them.
#[derive(Debug, Default)]
pub struct Staged {
    facts: BTreeMap<String, ArchiveFacts>,
    /// By the path of the file that is replaced.
    files: BTreeMap<String, RedecodedFile>,
}

impl BackfillTarget {
    fn stream(&self) -> &Arc<str> {
        &self.definition.name
    }
}

impl Survey {
    /// The names of the columns.
    pub fn column_names(&self) -> BTreeSet<String> {
        self.columns.iter().map(|changed| changed.column.clone()).collect()
    }
}

impl Misfits {
    fn add(&mut self, stream: &Arc<str>, misfits: Vec<Misfit>) {
        self.count += misfits.len() as u64;
        let room = LISTED.saturating_sub(self.first.len());
        self.first.extend(misfits.into_iter().take(room).map(|misfit| ListedMisfit {
            stream: stream.clone(),
            partition: misfit.partition,
            offset: misfit.offset.0,
            column: misfit.column,
            reason: misfit.reason,
        }));
    }

    /// Adds those of a later file.
    fn append(&mut self, later: Misfits) {
        self.count += later.count;
        let room = LISTED.saturating_sub(self.first.len());
        self.first.extend(later.first.into_iter().take(room));
    }
}

/// Returns the columns that events of earlier versions do not have as the definition reads them. A version whose
/// archive was decoded again has no such events.
pub(crate) fn changed_columns(state: &CatalogState, target: &BackfillTarget) -> Result<BTreeSet<ChangedColumn>> {
    let mut changed = BTreeSet::new();
    for record in state.definitions.versions(DefinitionKind::Stream, target.stream()) {
        if record.version != target.version && record.status != DefinitionStatus::Redecoded {
            changed.extend(changes_between(&parse::parse_stream(&record.sql)?, &target.definition));
        }
    }
    Ok(changed)
}

/// Finds out which archive files are to be decoded, from their footers.
pub async fn survey(storage: &ObjectStorage, state: &CatalogState, target: &BackfillTarget, staged: &mut Staged) -> Result<Survey> {
    let redecoders = redecoders(state, target)?;
    let mut columns = changed_columns(state, target)?;
    let mut survey = Survey { stream: target.stream().clone(), version: target.version, ..Survey::default() };
    for (file, facts) in files_of(storage, state, target.stream(), staged).await? {
        let redecoder = redecoder_of(&redecoders, &file, facts)?;
        if redecoder.columns().next().is_none() {
            continue;
        }
        if !facts.keeps_raw {
            survey.without_raw += file.rows;
            if redecoder.lost_without_raw().is_empty() {
                continue;
            }
        }
        columns.extend(changes_between(redecoder.before(), &target.definition));
        survey.files += 1;
        survey.events += file.rows;
        survey.bytes += file.bytes;
        survey.work.push((file, facts));
    }
    survey.columns = columns.into_iter().collect();
    Ok(survey)
}

impl Staged {
    /// Decodes the surveyed files that are not written yet, and writes them again with [`Mode::Write`]; returns how
    /// many were written. From the first record on that does not fit, the rest is read only to list the others.
    pub async fn decode(
        &mut self,
        storage: &ObjectStorage,
        state: &CatalogState,
        target: &BackfillTarget,
        survey: &mut Survey,
        mode: Mode,
        progress: &OnProgress<'_>,
    ) -> Result<usize> {
        let redecoders = redecoders(state, target)?;
        let waiting: Vec<&(FileRecord, ArchiveFacts)> =
            survey.work.iter().filter(|(file, _)| !self.files.contains_key(&file.path)).collect();
        if waiting.is_empty() {
            return Ok(0);
        }
        info!(stream = %survey.stream, version = survey.version, files = waiting.len(), "the archive is decoded again");
        progress(DecodingProgress::Total(waiting.iter().map(|(file, _)| file.bytes.max(0) as u64).sum()));
        let files = FileDecoder {
            storage,
            version: target.version,
            writes: AtomicBool::new(mode == Mode::Write),
            room: Semaphore::new(BYTES_AT_ONCE),
        };
        let mut decoding = Vec::with_capacity(waiting.len());
        for (file, facts) in waiting {
            let redecoder = redecoder_of(&redecoders, file, *facts)?.clone();
            decoding.push(files.decode(file.clone(), *facts, redecoder));
        }
        let at_once = std::thread::available_parallelism().map_or(1, usize::from).min(FILES_AT_ONCE);
        let mut decoded = futures::stream::iter(decoding).buffered(at_once);
        let (mut written, mut misfits) = (0, Misfits::default());
        while let Some(DecodedFile { old, outcome }) = decoded.try_next().await? {
            progress(DecodingProgress::Read(old.bytes.max(0) as u64));
            match outcome {
                Decoded::Written(new) => {
                    self.files.insert(old.path.clone(), RedecodedFile { old, new });
                    written += 1;
                }
                Decoded::Fits => {}
                Decoded::Misfits(found) => misfits.append(found),
            }
            failpoint::hit("backfill.file_decoded")?;
        }
        drop(decoded);
        survey.misfits = (misfits.count > 0).then_some(misfits);
        Ok(written)
    }

    /// Returns each surveyed file with the one that was written for it.
    pub fn replaced(&self, survey: &Survey) -> Vec<RedecodedFile> {
        survey.work.iter().filter_map(|(file, _)| self.files.get(&file.path)).cloned().collect()
    }

    /// Deletes the new files except those of `kept`. What cannot be deleted is an orphan.
    pub async fn discard(self, storage: &ObjectStorage, kept: &[&Survey]) {
        let is_kept = |old: &str| kept.iter().any(|survey| survey.work.iter().any(|(file, _)| file.path == old));
        for (_, file) in self.files.iter().filter(|(old, _)| !is_kept(old)) {
            if let Err(error) = storage.delete(&file.new.path).await {
                warn!(file = %file.new.path, %error, "a file that is not needed was not deleted; the collector does it");
            }
        }
    }
}

/// Decodes files of one stream, some at the same time.
struct FileDecoder<'a> {
    storage: &'a ObjectStorage,
    /// The version of the definition that decodes.
    version: u32,
    /// Whether new files are written: until a record of any file does not fit.
    writes: AtomicBool,
    /// A permit for each byte that the files may hold in memory together.
    room: Semaphore,
}

struct DecodedFile {
    old: FileRecord,
    outcome: Decoded,
}

/// What became of a file's events.
enum Decoded {
    Written(FileRecord),
    /// They all fit, and no file is wanted.
    Fits,
    Misfits(Misfits),
}

impl FileDecoder<'_> {
    /// Decodes a file batch by batch: a compacted one may be larger than memory.
    async fn decode(&self, old: FileRecord, facts: ArchiveFacts, redecoder: Arc<Redecoder>) -> Result<DecodedFile> {
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

/// Returns the stream's readable archive files in the order of their checkpoints, each with its facts. A damaged file
/// ends it.
async fn files_of(
    storage: &ObjectStorage,
    state: &CatalogState,
    stream: &Arc<str>,
    staged: &mut Staged,
) -> Result<Vec<(FileRecord, ArchiveFacts)>> {
    let mut files = archive_files(state, std::slice::from_ref(stream), ArchiveBounds::default());
    files.sort_by_key(|file| file.checkpoint.and_then(|id| state.checkpoints.get(id)).map(|checkpoint| checkpoint.revision));
    let unknown: Vec<FileRecord> = files.iter().filter(|file| !staged.facts.contains_key(&file.path)).map(|file| (*file).clone()).collect();
    // Collected first: with a closure in the stream this future could not be spawned.
    let reading: Vec<_> = unknown.into_iter().map(|file| facts_of(storage, file)).collect();
    let read: Vec<(String, ArchiveFacts)> = futures::stream::iter(reading).buffered(FOOTERS_AT_ONCE).try_collect().await?;
    staged.facts.extend(read);
    Ok(files.into_iter().filter_map(|file| Some((file.clone(), *staged.facts.get(&file.path)?))).collect())
}

async fn facts_of(storage: &ObjectStorage, file: FileRecord) -> Result<(String, ArchiveFacts)> {
    let facts = archive_facts(storage, &file).await.map_err(|error| match error.kind() {
        ErrorKind::Corrupt => error.with("help", "`basestream repair` rebuilds what is damaged; then try again"),
        _ => error,
    })?;
    Ok((file.path, facts))
}

/// Returns what decodes the events of each version.
fn redecoders(state: &CatalogState, target: &BackfillTarget) -> Result<BTreeMap<u32, Arc<Redecoder>>> {
    let redecoder = |record: &DefinitionRecord| {
        let before = parse::parse_stream(&record.sql)?;
        Ok((record.version, Arc::new(Redecoder::new(&before, &target.definition, target.on_misfit))))
    };
    let mut redecoders: BTreeMap<u32, Arc<Redecoder>> =
        state.definitions.versions(DefinitionKind::Stream, target.stream()).map(redecoder).collect::<Result<_>>()?;
    let same = || Arc::new(Redecoder::new(&target.definition, &target.definition, target.on_misfit));
    redecoders.entry(target.version).or_insert_with(same);
    Ok(redecoders)
}

fn redecoder_of<'r>(redecoders: &'r BTreeMap<u32, Arc<Redecoder>>, file: &FileRecord, facts: ArchiveFacts) -> Result<&'r Arc<Redecoder>> {
    let version = facts.versions.decoded_by;
    redecoders.get(&version).ok_or_else(|| {
        Error::corrupt("the catalog does not have the version of the definition that an archive file names")
            .with("file", &file.path)
            .with("version", version)
    })
}

fn changes_between<'a>(before: &'a StreamDefinition, after: &'a StreamDefinition) -> impl Iterator<Item = ChangedColumn> + 'a {
    columns_to_decode(before, after).into_iter().map(|column| {
        let known = before.columns.iter().find(|known| known.name == column.name);
        ChangedColumn { column: column.name.clone(), change: known.map_or_else(|| "added".to_owned(), |known| change(known, column)) }
    })
}

fn change(before: &Column, after: &Column) -> String {
    let path = |column: &Column| format!("$.{}", column.path.join("."));
    let mut changes = Vec::new();
    if before.column_type != after.column_type {
        changes.push(format!("type {} -> {}", before.column_type, after.column_type));
    }
    if before.path != after.path {
        changes.push(format!("path {} -> {}", path(before), path(after)));
    }
    if before.unit != after.unit {
        changes.push("unit".to_owned());
    }
    if before.nullable && !after.nullable {
        changes.push("NOT NULL".to_owned());
    }
    changes.join(", ")
}

#[cfg(test)]
mod tests;
