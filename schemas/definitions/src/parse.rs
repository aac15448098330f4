//! Parses SQL text into definitions: `CREATE STREAM`, `CREATE VIEW`, `CREATE SINK`, `CREATE ALERT` and
//! `CREATE PARAMETER`, several in a file, every mistake with its line and column.
//!
//! `tokens` cuts the text, `statement` finds the statements and reads their heads, `stream`, `view`, `sink`, `alert`
//! and `parameter` read the rest of each, and `conflicts` compares definitions with each other. Mistakes are recorded
//! and skipped, so that one pass finds all of them; a definition with a mistake is left out of the result.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{
    AlertDefinition, Definitions, Diagnostic, Diagnostics, Origin, ParameterDefinition, SinkDefinition, StreamDefinition, ViewDefinition,
};
use found::Found;
use tokens::TextPosition;
use types::{Error, Result};

mod alert;
mod column_types;
mod columns;
mod conflicts;
mod found;
mod json_path;
mod names;
mod options;
mod output;
mod parameter;
mod sink;
mod statement;
mod stream;
mod tokens;
mod view;

/// The folders of a project that are read, in this order.
const FOLDERS: [&str; 5] = ["streams", "views", "sinks", "alerts", "parameters"];
/// A larger file beside them is a dump rather than definitions in the wrong place.
const LARGEST_UNREAD_BYTES: u64 = 1 << 20;

/// Parses files' texts. Returns the definitions without errors in the order written, and every mistake in all files.
pub fn parse_definitions(sources: &[(Option<PathBuf>, String)]) -> (Definitions, Diagnostics) {
    let mut definitions = Definitions::default();
    let mut diagnostics = Diagnostics::new();
    let mut known = conflicts::KnownDefinitions::default();
    for (file, text) in sources {
        let file = file.as_deref();
        let (found, problems) = statement::parse_source(text);
        diagnostics.extend(problems.into_iter().map(|problem| problem.in_file(file)));
        for item in found {
            if let Some(problem) = known.conflict(&item, file) {
                diagnostics.push(problem.in_file(file));
                continue;
            }
            keep(item, file, &mut definitions);
        }
    }
    diagnostics.sort();
    (definitions, diagnostics)
}

/// Parses one `CREATE STREAM`, as the catalog stores it. Errors: `Input` with the text of all diagnostics.
pub fn parse_stream(sql: &str) -> Result<StreamDefinition> {
    match parse_one(sql)? {
        Found::Stream { definition, .. } => Ok(definition),
        other => Err(other.instead_of("CREATE STREAM")),
    }
}

/// Parses one `CREATE VIEW`, as the catalog stores it. Errors: `Input` with the text of all diagnostics.
pub fn parse_view(sql: &str) -> Result<ViewDefinition> {
    match parse_one(sql)? {
        Found::View { definition, .. } => Ok(definition),
        other => Err(other.instead_of("CREATE VIEW")),
    }
}

/// Parses one `CREATE SINK`, as the catalog stores it. Errors: `Input` with the text of all diagnostics.
pub fn parse_sink(sql: &str) -> Result<SinkDefinition> {
    match parse_one(sql)? {
        Found::Sink { definition, .. } => Ok(definition),
        other => Err(other.instead_of("CREATE SINK")),
    }
}

/// Parses one `CREATE ALERT`, as the catalog stores it. Errors: `Input` with the text of all diagnostics.
pub fn parse_alert(sql: &str) -> Result<AlertDefinition> {
    match parse_one(sql)? {
        Found::Alert { definition, .. } => Ok(definition),
        other => Err(other.instead_of("CREATE ALERT")),
    }
}

/// Parses one `CREATE PARAMETER`, as the catalog stores it. Errors: `Input` with the text of all diagnostics.
pub fn parse_parameter(sql: &str) -> Result<ParameterDefinition> {
    match parse_one(sql)? {
        Found::Parameter { definition, .. } => Ok(definition),
        other => Err(other.instead_of("CREATE PARAMETER")),
    }
}

/// Reads a project's `streams/*.sql`, `views/*.sql`, `sinks/*.sql`, `alerts/*.sql` and `parameters/*.sql`, each sorted
/// by name. Diagnostics name files relative to `dir`.
///
/// Errors: `NotFound` when neither folder exists, `Unavailable` when a file cannot be read. A file that is not UTF-8,
/// that holds a definition of another kind, or that holds one and is not read, becomes a diagnostic.
pub fn load_project(dir: &Path) -> Result<(Definitions, Diagnostics)> {
    let mut sources = Vec::new();
    let mut unreadable = Vec::new();
    for folder in FOLDERS {
        for file in sql_files(dir, Path::new(folder))? {
            let bytes = std::fs::read(dir.join(&file)).map_err(|e| Error::from(e).with("file", dir.join(&file).display()))?;
            match String::from_utf8(bytes) {
                Ok(text) => sources.push((Some(file), text)),
                Err(error) => unreadable.push(not_utf8(&file, &error)),
            }
        }
    }
    if sources.is_empty() && unreadable.is_empty() && !dir.join("streams").is_dir() && !dir.join("views").is_dir() {
        return Err(Error::not_found("the project has neither a folder 'streams' nor a folder 'views'").with("project", dir.display()));
    }
    let (definitions, mut diagnostics) = parse_definitions(&sources);
    diagnostics.extend(unreadable);
    diagnostics.extend(misplaced(&definitions));
    diagnostics.extend(unread(dir, &definitions)?);
    Ok((definitions, diagnostics))
}

/// Returns the words of an SQL text that can be names of definitions.
pub fn names_in(sql: &str) -> BTreeSet<String> {
    let (lexemes, _) = tokens::cut(sql);
    lexemes.iter().filter_map(|lexeme| names::identifier(&lexeme.token.token)).collect()
}

fn keep(item: Found, file: Option<&Path>, definitions: &mut Definitions) {
    match item {
        Found::Stream { mut definition, .. } => {
            definition.origin.file = file.map(Path::to_path_buf);
            definitions.streams.push(definition);
        }
        Found::View { mut definition, .. } => {
            definition.origin.file = file.map(Path::to_path_buf);
            definitions.views.push(definition);
        }
        Found::Sink { mut definition, .. } => {
            definition.origin.file = file.map(Path::to_path_buf);
            definitions.sinks.push(definition);
        }
        Found::Alert { mut definition, .. } => {
            definition.origin.file = file.map(Path::to_path_buf);
            definitions.alerts.push(definition);
        }
        Found::Parameter { mut definition, .. } => {
            definition.origin.file = file.map(Path::to_path_buf);
            definitions.parameters.push(definition);
        }
    }
}

fn parse_one(sql: &str) -> Result<Found> {
    let (found, mut problems) = statement::parse_source(sql);
    problems.sort();
    problems.into_result()?;
    let count = found.len();
    match <[Found; 1]>::try_from(found) {
        Ok([one]) => Ok(one),
        Err(_) => Err(Error::input(format!("found {count} definitions; expected one"))),
    }
}

/// Returns the `.sql` files of a folder, sorted by name; none if the folder is absent.
fn sql_files(dir: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let path = dir.join(folder);
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |error: std::io::Error| Error::from(error).with("folder", path.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        let name = PathBuf::from(entry.map_err(failed)?.file_name());
        let is_hidden = name.to_string_lossy().starts_with('.');
        if !is_hidden && name.extension().is_some_and(|extension| extension == "sql") && path.join(&name).is_file() {
            files.push(folder.join(name));
        }
    }
    files.sort();
    Ok(files)
}

fn not_utf8(file: &Path, error: &std::string::FromUtf8Error) -> Diagnostic {
    let valid = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
    let at = TextPosition::behind(&valid);
    at.error("found bytes that are not UTF-8").help("save the file as UTF-8").in_file(Some(file))
}

/// Returns warnings for definitions in the folder of another kind: they work, but are hard to find. A parameter stands
/// well beside what uses it.
fn misplaced(definitions: &Definitions) -> Vec<Diagnostic> {
    let is_elsewhere = |of: &DefinitionInFile<'_>| of.origin.file.as_ref().is_some_and(|file| !file.starts_with(of.folder));
    let found = placed(definitions).into_iter().filter(|of| of.kind != "parameter" && is_elsewhere(of));
    found.map(|of| of.to_be_moved(&format!("is outside {}/: it is read, but hard to find", of.folder))).collect()
}

/// Returns warnings for definitions in files that are not read: beside the folders, or in folders within them. One that
/// is read under this name as well may be a copy, such as an edited sink for a backtest.
fn unread(dir: &Path, read: &Definitions) -> Result<Vec<Diagnostic>> {
    let mut folders = vec![PathBuf::new()];
    for folder in FOLDERS {
        folders.extend(folders_in(dir, folder)?);
    }
    let mut sources = Vec::new();
    for folder in folders {
        for file in sql_files(dir, &folder)? {
            let path = dir.join(&file);
            let is_small = path.metadata().is_ok_and(|found| found.len() <= LARGEST_UNREAD_BYTES);
            if is_small && let Ok(text) = std::fs::read_to_string(&path) {
                sources.push((Some(file), text));
            }
        }
    }
    let known: BTreeSet<&str> = placed(read).into_iter().map(|of| of.name).collect();
    let (definitions, _) = parse_definitions(&sources);
    let found = placed(&definitions).into_iter().filter(|of| !known.contains(of.name));
    Ok(found.map(|of| of.to_be_moved("is in a file that is not read")).collect())
}

/// Returns the folders within a folder, sorted by name; none if it is absent.
fn folders_in(dir: &Path, folder: &str) -> Result<Vec<PathBuf>> {
    let path = dir.join(folder);
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |error: std::io::Error| Error::from(error).with("folder", path.display());
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if !name.to_string_lossy().starts_with('.') && path.join(&name).is_dir() {
            folders.push(Path::new(folder).join(name));
        }
    }
    folders.sort();
    Ok(folders)
}

/// A definition in a file, and the folder of its kind.
struct DefinitionInFile<'d> {
    kind: &'static str,
    name: &'d str,
    origin: &'d Origin,
    folder: &'static str,
}

impl DefinitionInFile<'_> {
    fn to_be_moved(&self, problem: &str) -> Diagnostic {
        let DefinitionInFile { kind, name, origin, folder } = self;
        let warning = Diagnostic::warning(origin.line, 1, format!("the {kind} '{name}' {problem}"));
        warning.help(format!("move it to {folder}/{name}.sql")).in_file(origin.file.as_deref())
    }
}

fn placed(definitions: &Definitions) -> Vec<DefinitionInFile<'_>> {
    let streams = definitions.streams.iter().map(|stream| ("stream", &stream.name, &stream.origin, "streams"));
    let views = definitions.views.iter().map(|view| ("view", &view.name, &view.origin, "views"));
    let sinks = definitions.sinks.iter().map(|sink| ("sink", &sink.name, &sink.origin, "sinks"));
    let alerts = definitions.alerts.iter().map(|alert| ("alert", &alert.name, &alert.origin, "alerts"));
    let parameters = definitions.parameters.iter().map(|parameter| ("parameter", &parameter.name, &parameter.origin, "parameters"));
    let all = streams.chain(views).chain(sinks).chain(alerts).chain(parameters);
    all.map(|(kind, name, origin, folder)| DefinitionInFile { kind, name, origin, folder }).collect()
}

#[cfg(test)]
mod tests;
