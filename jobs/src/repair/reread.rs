//! Rebuilds an archive or dead-letter file from the log.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use catalog::{ArchiveBounds, CatalogState, CheckpointRecord, DefinitionKind, DefinitionRecord, DefinitionStatus, archive_files};
use definitions::parse;
use engine::events::{OnMisfit, RedecodedEvents, Redecoder};
use speed::{IdSpace, Redecide, Redecided, TakeRedecided};
use storage::{ArchiveUpload, ArchiveVersions, DeadLettersUpload, ObjectStorage, archive_facts};
use types::files::ObjectName;
use types::files::{FileKind, FileRecord};
use types::tiles::{CLOCKS_DIFFER, Micros, micros};
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use crate::installation::Installation;

/// Writes the file again under a fresh name. Its content matches the damaged file by every count that the catalog
/// keeps.
pub(super) async fn reread(installation: &Installation, state: &CatalogState, file: &FileRecord) -> Result<FileRecord> {
    let checkpoint = file.checkpoint.and_then(|id| state.checkpoints.get(id));
    let checkpoint =
        checkpoint.ok_or_else(|| Error::not_found("the catalog no longer holds the file's checkpoint").with("file", &file.path))?;
    let mut made: Vec<(u32, FileRecord)> = Vec::new();
    let mut refused: Option<Error> = None;
    for record in candidates(installation, state, file, checkpoint).await? {
        match made_by(installation, state, file, (record, checkpoint)).await {
            Ok(rebuilt) => made.push((record.version, rebuilt)),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                discard(installation, &made).await?;
                return Err(error);
            }
            Err(error) => refused = Some(error),
        }
    }
    match made.as_slice() {
        [] => {
            Err(refused.unwrap_or_else(|| Error::not_found("no version of the stream's definition fits the file").with("file", &file.path)))
        }
        [(_, rebuilt)] => checked(installation, file, rebuilt).await,
        several => {
            discard(installation, several).await?;
            let versions = several.iter().map(|(version, _)| version.to_string()).collect::<Vec<_>>().join(", ");
            Err(Error::input("more than one version of the stream's definition fits the file's counts: restore it from a backup")
                .with("file", &file.path)
                .with("versions", versions))
        }
    }
}

/// Writes the file as this version of the stream's definition makes it from the log.
async fn made_by(
    installation: &Installation,
    state: &CatalogState,
    file: &FileRecord,
    (record, checkpoint): (&DefinitionRecord, &CheckpointRecord),
) -> Result<FileRecord> {
    let definition = Arc::new(parse::parse_stream(&record.sql)?);
    let (max_future, ids) = (installation.settings.speed.max_future, IdSpace::new(installation.dedup()));
    let redecide = Redecide { storage: &installation.storage, log: &*installation.log, state, max_future, ids: &ids };
    let mut writing = match file.kind {
        FileKind::DeadLetters => {
            let upload = DeadLettersUpload::begin(&installation.storage, name_of(file)?, Some(record.version)).await?;
            Writing::DeadLetters(Box::new(upload))
        }
        _ => Writing::Archive(Box::new(Archive {
            storage: installation.storage.clone(),
            name: name_of(file)?,
            decided_by: record.version,
            again: again(state, record)?,
            upload: None,
        })),
    };
    redecide.stream(&definition, checkpoint, &mut writing).await?;
    writing.finish().await
}

/// A file that is written again, batch by batch. One that is not finished leaves nothing.
enum Writing {
    Archive(Box<Archive>),
    DeadLetters(Box<DeadLettersUpload>),
}

/// An archive file that is written again.
struct Archive {
    storage: ObjectStorage,
    name: ObjectName,
    decided_by: u32,
    /// What decodes the events again, and by which version, if the archive was.
    again: Option<(u32, Redecoder)>,
    /// Since the first event. Where no raw record was kept, the columns are as they were when it was decided.
    upload: Option<(u32, ArchiveUpload)>,
}

#[async_trait]
impl TakeRedecided for Writing {
    async fn take(&mut self, some: Redecided) -> Result<()> {
        match (self, some) {
            (Writing::Archive(archive), Redecided::Events(events)) => archive.push(events).await,
            (Writing::DeadLetters(upload), Redecided::DeadLetters(letters)) => upload.push(&letters).await,
            (Writing::Archive(_), Redecided::DeadLetters(_)) | (Writing::DeadLetters(_), Redecided::Events(_)) => Ok(()),
        }
    }
}

impl Writing {
    async fn finish(self) -> Result<FileRecord> {
        match self {
            Writing::Archive(archive) => match archive.upload {
                Some((_, upload)) => upload.finish().await,
                None => Err(Error::corrupt("the log's records of the file's ranges are not events").with("new file", &archive.name)),
            },
            Writing::DeadLetters(upload) => upload.finish().await,
        }
    }
}

impl Archive {
    async fn push(&mut self, events: RecordBatch) -> Result<()> {
        let (decoded_by, events) = self.decoded(events)?;
        let (begun_by, mut upload) = match self.upload.take() {
            Some(begun) => begun,
            None => {
                let versions = ArchiveVersions { decoded_by, decided_by: self.decided_by };
                (decoded_by, ArchiveUpload::begin(&self.storage, self.name.clone(), versions, events.schema()).await?)
            }
        };
        if begun_by != decoded_by {
            return Err(Error::internal("the events of one file were decoded by two versions").with("new file", &self.name));
        }
        upload.push(&events).await?;
        self.upload = Some((begun_by, upload));
        Ok(())
    }

    /// Returns the events as the archive has them, and the version that decoded them.
    fn decoded(&self, events: RecordBatch) -> Result<(u32, RecordBatch)> {
        let Some((version, redecoder)) = &self.again else { return Ok((self.decided_by, events)) };
        match redecoder.redecode(&events)? {
            RedecodedEvents::Events(decoded) => Ok((*version, decoded)),
            RedecodedEvents::AsBefore => Ok((self.decided_by, events)),
            RedecodedEvents::Misfits(misfits) => {
                let reason = misfits.first().map(|misfit| misfit.reason.clone()).unwrap_or_default();
                Err(Error::corrupt("a record of the log does not fit the version that decoded the archive").with("found", reason))
            }
        }
    }
}

/// Returns what decodes the events again if the archive was, and the version that did.
fn again(state: &CatalogState, decided_by: &DefinitionRecord) -> Result<Option<(u32, Redecoder)>> {
    if decided_by.status != DefinitionStatus::Redecoded {
        return Ok(None);
    }
    let of_stream = state.definitions.versions(decided_by.kind, &decided_by.name);
    let later = of_stream.filter(|record| record.status != DefinitionStatus::Redecoded).max_by_key(|record| record.version);
    let later = later.ok_or_else(|| Error::internal("an archive was decoded again by no version").with("stream", &decided_by.name))?;
    let (before, after) = (parse::parse_stream(&decided_by.sql)?, parse::parse_stream(&later.sql)?);
    Ok(Some((later.version, Redecoder::new(&before, &after, OnMisfit::Null))))
}

/// Compares what was made with the file that it takes the place of.
async fn checked(installation: &Installation, file: &FileRecord, rebuilt: &FileRecord) -> Result<FileRecord> {
    let facts = |file: &FileRecord| (file.rows, file.min_event_time, file.max_event_time);
    if facts(rebuilt) == facts(file) {
        return Ok(rebuilt.clone());
    }
    // No transaction will ever name it.
    installation.storage.delete(&rebuilt.path).await?;
    Err(Error::corrupt("the log's records do not reproduce the committed file")
        .with("file", &file.path)
        .with("found", format_args!("{:?}", facts(rebuilt)))
        .with("expected", format_args!("rows, least and greatest event time {:?}", facts(file))))
}

/// Deletes files that no transaction will ever name.
async fn discard(installation: &Installation, made: &[(u32, FileRecord)]) -> Result<()> {
    for (_, file) in made {
        installation.storage.delete(&file.path).await?;
    }
    Ok(())
}

fn name_of(file: &FileRecord) -> Result<ObjectName> {
    let (Some(stream), Some(checkpoint)) = (file.subject.clone(), file.checkpoint) else {
        return Err(Error::corrupt("the catalog does not say which stream and checkpoint a file belongs to").with("file", &file.path));
    };
    let rebuild = Uuid::now_v7();
    Ok(match file.kind {
        FileKind::DeadLetters => ObjectName::RebuiltDeadLetters { stream, checkpoint, rebuild },
        _ => ObjectName::RebuiltArchive { stream, checkpoint, rebuild },
    })
}

/// Returns the versions of the stream's definition that may have decided the file's records: not older than that of the
/// previous file, not newer than that of the next file, and created before the last of its records was decided, as far
/// as the clocks of two processes tell.
async fn candidates<'s>(
    installation: &Installation,
    state: &'s CatalogState,
    file: &FileRecord,
    checkpoint: &CheckpointRecord,
) -> Result<Vec<&'s DefinitionRecord>> {
    let mut of_stream: Vec<(i64, &FileRecord)> = archive_files(state, file.subject.as_slice(), ArchiveBounds::default())
        .into_iter()
        .filter(|other| other.path != file.path)
        .filter_map(|other| {
            let checkpoint = state.checkpoints.get(other.checkpoint?)?;
            Some((checkpoint.revision, other))
        })
        .collect();
    of_stream.sort_by_key(|(revision, _)| *revision);
    let (before, after): (Vec<_>, Vec<_>) = of_stream.into_iter().partition(|(revision, _)| *revision < checkpoint.revision);
    let oldest = first_version(installation, before.iter().rev().map(|(_, file)| *file)).await?.unwrap_or(1);
    let newest = first_version(installation, after.iter().map(|(_, file)| *file)).await?.unwrap_or(u32::MAX);
    let is_candidate = |record: &&DefinitionRecord| {
        (oldest..=newest).contains(&record.version)
            && (may_have_decided(record.created_at, checkpoint.sealed_at()) || record.version == oldest)
    };
    let of_stream = file.subject.iter().flat_map(|stream| state.definitions.versions(DefinitionKind::Stream, stream));
    Ok(of_stream.filter(is_candidate).collect())
}

/// Whether a version that was created at one time, by the clock of the process that did, may have decided records of
/// which a worker decided the last at another, by its own clock.
fn may_have_decided(created_at: Micros, sealed_at: Micros) -> bool {
    created_at <= sealed_at.saturating_add(micros(CLOCKS_DIFFER))
}

/// Returns the version that decided the records of the first file that can be read.
async fn first_version(installation: &Installation, files: impl Iterator<Item = &FileRecord>) -> Result<Option<u32>> {
    for file in files {
        match archive_facts(&installation.storage, file).await {
            Ok(facts) => return Ok(Some(facts.versions.decided_by)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
