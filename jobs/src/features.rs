//! Implements `features`: translates a script of the feature language of stream-computing literature into streams,
//! views and a sink.
//!
//! A script has lines `set-source`, `set-sink`, `add-field`, `add-macro` and `add-feature`, with the options of this
//! project or those of the literature. What has no exact form in SQL is refused with its line, and nothing is written.

use std::path::{Path, PathBuf};

use definitions::{Diagnostic, DiagnosticSeverity};
use engine::functions::Functions;
use serde::Serialize;
use types::tiles::Micros;
use types::{Error, Result};

use crate::check::check_project;

mod expression;
mod feature_lines;
mod field_types;
mod options;
mod reader;
mod script;
mod streams;
mod text;
mod translate;

const SETTINGS: &str = include_str!("init/basestream.toml");
/// How deep calls and macros may nest.
const MAX_DEPTH: usize = 32;

/// Something in a script that is wrong, or that has no exact form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// Counted from 1.
    pub line: usize,
    pub message: String,
}

/// What a script was translated into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Translated {
    pub files: Vec<File>,
    pub mistakes: Vec<Mistake>,
}

/// One file of the project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct File {
    pub path: String,
    pub text: String,
}

/// Translates a script. The comments of the generated files name it by `name`.
///
/// Either all lines have an exact form and there are files, or there are mistakes.
pub fn translate(name: &str, text: &str) -> Translated {
    let (script, mut mistakes) = reader::read(text);
    let files = match mistakes.is_empty() {
        true => translate::files(name, &script, &mut mistakes),
        false => Vec::new(),
    };
    mistakes.sort_by_key(|mistake| mistake.line);
    Translated { files: if mistakes.is_empty() { files } else { Vec::new() }, mistakes }
}

/// Checks the files as `basestream check` does, in a folder that is deleted afterwards. Returns the mistakes, each with
/// the line of the script that it comes from.
pub async fn check(files: &[File], functions: &Functions, now: Micros) -> Result<Vec<Mistake>> {
    let folder = tempfile::tempdir()?;
    for file in files {
        put(folder.path(), file)?;
    }
    let checked = check_project(folder.path(), functions, now).await?;
    let errors = checked.diagnostics.iter().filter(|found| found.severity == DiagnosticSeverity::Error);
    Ok(errors.map(|found| mistake(files, found)).collect())
}

/// A mistake in one of the files, as one of the script.
fn mistake(files: &[File], found: &Diagnostic) -> Mistake {
    let help = found.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    let message = format!("{}{help}", found.message);
    let file = files.iter().find(|file| found.file.as_deref() == Some(Path::new(&file.path)));
    let Some(file) = file else { return Mistake { line: 1, message } };
    let sql = file.text.lines().nth(found.line.saturating_sub(1)).unwrap_or_default();
    let sql = sql.split(text::LINE_COMMENT).next().unwrap_or_default().trim().trim_end_matches([',', ';']);
    Mistake { line: script_line(&file.text, found.line), message: format!("{message} (as SQL: {sql})") }
}

/// The line of the script that a line of a file comes from, by the comments: its own or the nearest one.
fn script_line(text: &str, line: usize) -> usize {
    let lines: Vec<Option<usize>> = text.lines().map(text::commented_line).collect();
    let (before, after) = lines.split_at(line.min(lines.len()));
    before.iter().rev().chain(after).flatten().next().copied().unwrap_or(1)
}

/// Returns the paths at which the folder has a file of another content.
pub(crate) fn differing(folder: &Path, files: &[File]) -> Result<Vec<PathBuf>> {
    let mut differing = Vec::new();
    for file in files {
        let path = folder.join(&file.path);
        if path.exists() && std::fs::read(&path).map_err(|error| Error::from(error).with("file", path.display()))? != file.text.as_bytes() {
            differing.push(path);
        }
    }
    Ok(differing)
}

/// Writes the files, and settings where the folder has none. A file of another content is not overwritten: then
/// nothing is written.
pub fn write(folder: &Path, files: &[File]) -> Result<Vec<PathBuf>> {
    if let Some(path) = differing(folder, files)?.first() {
        return Err(Error::conflict("the file already exists with different content; nothing was written").with("file", path.display()));
    }
    let mut written = Vec::new();
    for file in files {
        put(folder, file)?;
        written.push(folder.join(&file.path));
    }
    if !folder.join("basestream.toml").exists() {
        put(folder, &File { path: "basestream.toml".into(), text: SETTINGS.into() })?;
        written.push(folder.join("basestream.toml"));
    }
    Ok(written)
}

fn put(folder: &Path, file: &File) -> Result<()> {
    let path = folder.join(&file.path);
    let failed = |error: std::io::Error| Error::from(error).with("file", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::write(&path, &file.text).map_err(failed)
}

#[cfg(test)]
mod tests;
