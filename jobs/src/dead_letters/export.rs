//! `export`: writes dead letters as JSON lines, to read and to correct.

use std::io::{BufWriter, Write};
use std::path::Path;

use serde::Serialize;
use types::{Error, Result};

use super::read::{Letters, files_of};
use super::{DamagedFile, PINNED_BY, Selection, line};
use crate::installation::Installation;
use crate::output::OutputWriter;
use crate::pin::pinned;
use crate::row_file::missing_folder;

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ExportSummary {
    pub exported: u64,
    pub damaged: Vec<DamagedFile>,
}

/// Writes the matching dead letters of a stream to a new file, or to standard output (`-`). `progress` is called with
/// the number read.
///
/// The file appears once it is complete, and not at all where the stream has no dead letters. Errors: `NotFound` for an
/// unknown stream or if none of its dead letters matches, `Input` for a file that already exists (it may contain
/// corrections).
pub async fn export(
    installation: &Installation,
    stream: &str,
    selection: &Selection,
    to: &str,
    progress: impl FnMut(u64),
) -> Result<ExportSummary> {
    pinned(&installation.catalog, PINNED_BY, export_pinned(installation, stream, selection, to, progress)).await
}

async fn export_pinned(
    installation: &Installation,
    stream: &str,
    selection: &Selection,
    to: &str,
    mut progress: impl FnMut(u64),
) -> Result<ExportSummary> {
    let state = installation.catalog.state().await?;
    let files = files_of(&state, Some(stream))?;
    let mut target = ExportTarget::open(to)?;
    let mut summary = ExportSummary::default();
    let mut read = 0;
    for file in files {
        let mut letters = Letters::new(file);
        while let Some(some) = letters.next_or_note(&installation.storage, &mut summary.damaged).await? {
            read += some.len() as u64;
            progress(read);
            for letter in some.iter().filter(|letter| selection.fits(letter)) {
                target.write(&line::write(letter)?)?;
                summary.exported += 1;
            }
        }
    }
    if summary.exported == 0 && summary.damaged.is_empty() {
        return if read == 0 { Ok(summary) } else { Err(unmatched(stream, selection, read)) };
    }
    target.finish()?;
    Ok(summary)
}

/// The error for a selection that none of the stream's dead letters matches.
pub(super) fn unmatched(stream: &str, selection: &Selection, read: u64) -> Error {
    let mut error = Error::not_found(format!("none of the {read} dead letters of the stream \"{stream}\" matches"));
    if let Some(partition) = selection.partition {
        error = error.with("partition", partition);
    }
    if let Some(offset) = selection.offset {
        error = error.with("offset", offset);
    }
    if let Some(reason) = &selection.reason {
        error = error.with("reason", reason);
    }
    error.with("help", format!("`basestream dead-letters list {stream}` shows them"))
}

pub(super) enum ExportTarget {
    Output(OutputWriter),
    File { file: BufWriter<tempfile::NamedTempFile>, path: std::path::PathBuf },
}

impl ExportTarget {
    pub(super) fn open(to: &str) -> Result<Self> {
        if to == "-" {
            return Ok(ExportTarget::Output(OutputWriter::default()));
        }
        let path = Path::new(to);
        if path.exists() {
            return Err(taken(path));
        }
        if let Some(missing) = missing_folder(path) {
            return Err(missing);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::NamedTempFile::new_in(folder).map_err(|error| unwritable(path, error))?;
        Ok(ExportTarget::File { file: BufWriter::new(file), path: path.to_owned() })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            ExportTarget::Output(out) => out.write(bytes),
            ExportTarget::File { file, path } => file.write_all(bytes).map_err(|error| unwritable(path, error)),
        }
    }

    pub(super) fn finish(self) -> Result<()> {
        let ExportTarget::File { file, path } = self else { return Ok(()) };
        let file = file.into_inner().map_err(|error| unwritable(&path, error.into_error()))?;
        file.as_file().sync_all().map_err(|error| unwritable(&path, error))?;
        match file.persist_noclobber(&path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(taken(&path)),
            Err(error) => Err(unwritable(&path, error.error)),
        }
    }
}

fn taken(path: &Path) -> Error {
    Error::input("the file already exists and may hold corrections: nothing was written").with("file", path.display())
}

fn unwritable(path: &Path, error: std::io::Error) -> Error {
    Error::from(error).with("file", path.display()).with("while", "writing dead letters")
}
