//! Checks that a stored file is what was written: reads every byte and compares the checksum with the catalog's,
//! without holding the file in memory.

use crc32fast::Hasher;
use futures::TryStreamExt;
use object_store::ObjectStoreExt;

use crate::known_file::{about, check_length, damaged, known_to_be_there, object_path};
use crate::states_object::StatesObject;
use crate::store::ObjectStorage;
use crate::verified::VerifiedReader;
use types::files::{FileKind, FileRecord};
use types::{ErrorKind, Result};

/// Reads the whole file; `progress` gets the number of bytes after each read.
///
/// Errors: `Corrupt` for a file that is missing, that its disk cannot read, or that has another length or other bytes,
/// with the path, what was found and expected, and the wrong bytes or section if the file's own checksums identify
/// them; `Unavailable` when the storage does not respond.
pub async fn check_file(storage: &ObjectStorage, file: &FileRecord, progress: impl Fn(u64)) -> Result<()> {
    let found = checksum_of(storage, file, progress).await?;
    if found == file.checksum {
        return Ok(());
    }
    match check_parts(storage, file).await {
        Err(closer) if closer.kind() == ErrorKind::Corrupt => Err(closer),
        _ => Err(damaged(&file.path, "its checksum", format_args!("{found:08x}"), format_args!("{:08x}", file.checksum))),
    }
}

/// Returns the CRC-32 of a file that has the expected length.
async fn checksum_of(storage: &ObjectStorage, file: &FileRecord, progress: impl Fn(u64)) -> Result<u32> {
    let failed = |error| known_to_be_there(about(error, &file.path), &file.path, file.bytes);
    let got = storage.store.get(&object_path(&file.path)?).await.map_err(failed)?;
    check_length(&file.path, got.meta.size, file.bytes)?;
    let mut pieces = got.into_stream();
    let mut hasher = Hasher::new();
    let mut length = 0;
    while let Some(piece) = pieces.try_next().await.map_err(failed)? {
        hasher.update(&piece);
        length += piece.len() as u64;
        progress(piece.len() as u64);
    }
    check_length(&file.path, length, file.bytes)?;
    Ok(hasher.finalize())
}

/// Checks each column chunk or section against the file's own table, up to the first wrong one.
async fn check_parts(storage: &ObjectStorage, file: &FileRecord) -> Result<()> {
    match file.kind {
        FileKind::Archive | FileKind::Superseded | FileKind::DeadLetters | FileKind::Snapshot => {
            VerifiedReader::new(storage.clone(), file.into()).check_all().await
        }
        FileKind::States => {
            let object = StatesObject::open(storage, file).await?;
            for section in object.sections() {
                object.read_section(section).await?;
            }
            Ok(())
        }
        FileKind::Manifest => Ok(()),
    }
}

#[cfg(test)]
mod tests;
