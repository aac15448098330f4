//! Rebuilds an archive or dead-letter file from the log.

use std::sync::Arc;

use catalog::{CatalogState, CheckpointRecord, DefinitionKind, DefinitionRecord, DefinitionStatus};
use definitions::parse;
use engine::events::{OnMisfit, Redecoded as Decoded, Redecoder};
use speed::{IdSpace, Redecide, Redecided};
use storage::{ArchiveVersions, archive_facts, write_archive_as, write_dead_letters_as};
use types::files::ObjectName;
use types::files::{FileKind, FileRecord};
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use crate::installation::Installation;

/// Writes the file again under a fresh name. Its content matches the damaged file by every count that the catalog
/// keeps.
pub(super) async fn reread(installation: &Installation, state: &CatalogState, file: &FileRecord) -> Result<FileRecord> {
    let checkpoint = file.checkpoint.and_then(|id| state.checkpoints.get(id));
    let checkpoint =
        checkpoint.ok_or_else(|| Error::not_found("the catalog no longer holds the file's checkpoint").with("file", &file.path))?;
    let mut made: Vec<(&DefinitionRecord, Redecided)> = Vec::new();
    let mut refused: Option<Error> = None;
    let ids = IdSpace::new(installation.dedup());
    for record in candidates(installation, state, file, checkpoint).await? {
        let definition = Arc::new(parse::parse_stream(&record.sql)?);
        let max_future = installation.settings.speed.max_future;
        let redecide = Redecide { storage: &installation.storage, log: &*installation.log, state, max_future, ids: &ids };
        match redecide.stream(&definition, checkpoint).await {
            Ok(redecided) => made.push((record, redecided)),
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => refused = Some(error),
        }
    }
    match made.as_mut_slice() {
        [] => {
            Err(refused.unwrap_or_else(|| Error::not_found("no version of the stream's definition fits the file").with("file", &file.path)))
        }
        [(record, redecided)] => {
            let mut redecided = std::mem::take(redecided);
            let versions = decode_again(state, record, &mut redecided)?;
            write(installation, file, versions, redecided).await
        }
        several => Err(Error::input("more than one version of the stream's definition fits the file's counts: restore it from a backup")
            .with("file", &file.path)
            .with("versions", several.iter().map(|(record, _)| record.version.to_string()).collect::<Vec<_>>().join(", "))),
    }
}

/// Decodes the events again if the archive was, by the version that did. Where no raw record was kept, the columns are as
/// they were then.
fn decode_again(state: &CatalogState, decided_by: &DefinitionRecord, redecided: &mut Redecided) -> Result<ArchiveVersions> {
    let as_decided = ArchiveVersions { decoded_by: decided_by.version, decided_by: decided_by.version };
    if decided_by.status != DefinitionStatus::Redecoded {
        return Ok(as_decided);
    }
    let of_stream = state.definitions.iter().filter(|record| record.kind == decided_by.kind && record.name == decided_by.name);
    let later = of_stream.filter(|record| record.status != DefinitionStatus::Redecoded).max_by_key(|record| record.version);
    let later = later.ok_or_else(|| Error::internal("an archive was decoded again by no version").with("stream", &decided_by.name))?;
    let (before, after) = (parse::parse_stream(&decided_by.sql)?, parse::parse_stream(&later.sql)?);
    let redecoder = Redecoder::new(&before, &after, OnMisfit::Null);
    let mut events = Vec::with_capacity(redecided.events.len());
    for batch in &redecided.events {
        match redecoder.redecode(batch)? {
            Decoded::Events(batch) => events.push(batch),
            Decoded::AsBefore => return Ok(as_decided),
            Decoded::Misfits(misfits) => {
                let reason = misfits.first().map(|misfit| misfit.reason.clone()).unwrap_or_default();
                return Err(Error::corrupt("a record of the log does not fit the version that decoded the archive").with("found", reason));
            }
        }
    }
    redecided.events = events;
    Ok(ArchiveVersions { decoded_by: later.version, ..as_decided })
}

async fn write(installation: &Installation, file: &FileRecord, versions: ArchiveVersions, redecided: Redecided) -> Result<FileRecord> {
    let name = name_of(file)?;
    let rebuilt = match file.kind {
        FileKind::DeadLetters => write_dead_letters_as(&installation.storage, &name, redecided.dead_letters.into_iter().collect()).await?,
        _ => write_archive_as(&installation.storage, &name, versions, redecided.events).await?,
    };
    let facts = |file: &FileRecord| (file.rows, file.min_event_time, file.max_event_time);
    if facts(&rebuilt) == facts(file) {
        return Ok(rebuilt);
    }
    // No transaction will ever name it.
    installation.storage.delete(&rebuilt.path).await?;
    Err(Error::corrupt("the log's records do not reproduce the committed file")
        .with("file", &file.path)
        .with("found", format_args!("{:?}", facts(&rebuilt)))
        .with("expected", format_args!("rows, least and greatest event time {:?}", facts(file))))
}

fn name_of(file: &FileRecord) -> Result<ObjectName> {
    let (Some(stream), Some(checkpoint)) = (file.subject.clone(), file.checkpoint) else {
        return Err(Error::corrupt("the catalog does not say which stream and checkpoint a file is of").with("file", &file.path));
    };
    let rebuild = Uuid::now_v7();
    Ok(match file.kind {
        FileKind::DeadLetters => ObjectName::RebuiltDeadLetters { stream, checkpoint, rebuild },
        _ => ObjectName::RebuiltArchive { stream, checkpoint, rebuild },
    })
}

/// Returns the versions of the stream's definition that may have decided the file's records: not older than that of the
/// previous file, not newer than that of the next file, and created before the file was committed.
async fn candidates<'s>(
    installation: &Installation,
    state: &'s CatalogState,
    file: &FileRecord,
    checkpoint: &CheckpointRecord,
) -> Result<Vec<&'s DefinitionRecord>> {
    let mut of_stream: Vec<(i64, &FileRecord)> = super::named(state)
        .filter(|other| other.kind == FileKind::Archive && other.subject == file.subject && other.path != file.path)
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
        record.kind == DefinitionKind::Stream
            && Some(&record.name) == file.subject.as_ref()
            && (oldest..=newest).contains(&record.version)
            && (record.created_at <= checkpoint.committed_at || record.version == oldest)
    };
    Ok(state.definitions.iter().filter(is_candidate).collect())
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
