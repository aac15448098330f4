//! Implements `init`: creates the files of a new project, from a template or fitted to a file of events. It overwrites
//! nothing.

use std::path::{Component, Path, PathBuf};

use definitions::{StreamDefinition, parse};
use serde::Serialize;
use types::{Error, Result};

use crate::ingest::{Format, Guessed, Shape, guess_stream};

mod first_view;

use first_view::first_view;

const SETTINGS: &str = include_str!("init/basestream.toml");
const STREAM: &str = include_str!("init/transactions.sql");
const VIEW: &str = include_str!("init/device_velocity.sql");
const GITIGNORE: &str = "/data/\n";

/// What `apply` refuses to change once records are committed, and what it allows: see `apply::compatible`.
const FINAL: &str = "
final once records are committed: a stream's topic, event_time, id and key, and the types and paths of these columns
may change later: all other columns (archived events are decoded again), dedup_within, retention; everything about views";

/// What `init` created.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Initialised {
    pub folder: PathBuf,
    pub written: Vec<PathBuf>,
    /// Files that already existed and were left unchanged.
    pub kept: Vec<PathBuf>,
    pub stream: String,
    pub view: String,
    /// `column=value`, as `lookup` takes it, from the file's newest event; empty for a view without keys.
    pub example_key: String,
    /// Which columns were chosen for what, and why.
    pub picked: Vec<String>,
    /// The commands to try next.
    pub next: Vec<String>,
}

/// Creates a project in `folder`. With `from` its stream fits that file, and its view counts by a likely key of the
/// file.
///
/// Errors: `Input` for a file from which no stream can be guessed, `Unavailable` if the folder cannot be written.
pub fn init(folder: &Path, from: Option<&Path>, shape: Shape) -> Result<Initialised> {
    let template = match from {
        Some(file) => fitted(file, shape)?,
        None => Template {
            stream: "transactions".into(),
            view: "device_velocity".into(),
            example_key: "device_id=..".into(),
            files: [STREAM.into(), VIEW.into()],
            event_clock: false,
            why_clock: None,
            picked: Vec::new(),
            shape,
        },
    };
    let mut made = Initialised {
        folder: folder.to_path_buf(),
        written: Vec::new(),
        kept: Vec::new(),
        stream: template.stream.clone(),
        view: template.view.clone(),
        example_key: template.example_key,
        picked: template.picked,
        next: Vec::new(),
    };
    let [stream, view] = &template.files;
    let (clock, settings) = match template.event_clock {
        // The comment behind it stays below the others.
        true => ("event", SETTINGS.replace("clock = \"wall\" ", "clock = \"event\"")),
        false => ("wall", SETTINGS.to_owned()),
    };
    let is_written = made.put("basestream.toml", &settings)?;
    made.picked.extend(template.why_clock.map(|why| match is_written {
        true => format!("clock       \"{clock}\" in basestream.toml: {why}"),
        false => format!("clock       \"{clock}\" would fit, and basestream.toml is kept as it is: {why}"),
    }));
    made.put(&format!("streams/{}.sql", template.stream), stream)?;
    made.put(&format!("views/{}.sql", template.view), view)?;
    made.put(".gitignore", GITIGNORE)?;
    made.next = next(folder, from, template.shape, &made);
    Ok(made)
}

struct Template {
    stream: String,
    view: String,
    example_key: String,
    /// The stream's and the view's text.
    files: [String; 2],
    event_clock: bool,
    why_clock: Option<String>,
    picked: Vec<String>,
    /// How the file is read.
    shape: Shape,
}

fn fitted(file: &Path, shape: Shape) -> Result<Template> {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    let guessed = guess_stream(file, shape, if stem.is_empty() { "events" } else { stem })?;
    let stream =
        parse::parse_stream(&guessed.sql).map_err(|error| Error::internal("the guessed stream does not parse").caused_by(error))?;
    let shape = Shape { numbers: guessed.numbers.or(shape.numbers), ..shape };
    let view = first_view(&stream, file, shape).map_err(|error| match error.fact("file") {
        Some(_) => error,
        None => error.with("file", file.display()),
    })?;
    let files = [comment(&name, &guessed) + &guessed.sql, view.sql];
    let picked = picked(&stream, &guessed, &view.why);
    Ok(Template {
        stream: stream.name.to_string(),
        view: view.name,
        example_key: view.example_key,
        files,
        event_clock: view.event_clock,
        why_clock: Some(view.why_clock),
        picked,
        shape,
    })
}

/// Returns the comment above the stream.
fn comment(file: &str, guessed: &Guessed) -> String {
    let mut lines = vec![format!("-- Guessed from {} of {file}: review it.", records_read(guessed))];
    if let Some(numbers) = guessed.numbers {
        lines.push(format!("-- The file writes numbers as {numbers}: ingest it with --numbers \"{numbers}\"."));
    }
    lines.extend(guessed.mixed.iter().map(|mixed| format!("-- {mixed}.")));
    lines.extend(guessed.odd.iter().map(|odd| format!("-- {}.", odd.replace("; ", ";\n--   "))));
    if let Some(id) = &guessed.proposed_id {
        lines.push(format!("-- Proposal: id = '{id}', if no two events have the same {id}."));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// `all 12 records`, `the first 1000 records`
fn records_read(guessed: &Guessed) -> String {
    match (guessed.is_whole, guessed.records) {
        (true, 1) => "the only record".to_owned(),
        (true, records) => format!("all {records} records"),
        (false, records) => format!("the first {records} records"),
    }
}

fn picked(stream: &StreamDefinition, guessed: &Guessed, why_key: &str) -> Vec<String> {
    let records = guessed.records;
    let id = match (&stream.id, &guessed.proposed_id) {
        (Some(id), _) if records == 1 => format!("{id}, by its name: duplicates are detected by it"),
        (Some(id), _) => format!("{id}, different in each of the {records} records that were read: duplicates are detected by it"),
        (None, Some(id)) => format!(
            "none; proposed is {id}, different in each of the {records} records that were read: add id = '{id}' if it is in all events"
        ),
        (None, None) => "none, because no column identifies events: duplicates are counted like all other events".into(),
    };
    let spread = if stream.id.is_some() { "by id" } else { "at random" };
    let not_null = match guessed.is_whole {
        true => format!("columns without a null in {} of the file; records with one will be dead letters", records_read(guessed)),
        false => format!("{} alone, because the file has more than the {records} records that were read", stream.event_time),
    };
    let mut picked = vec![
        format!("event_time  {}, the first column with a time in each record", stream.event_time),
        format!("id          {id}"),
        format!("key         none: records are spread over partitions {spread}"),
        format!("GROUP BY    {why_key}"),
        format!("NOT NULL    {not_null}"),
    ];
    picked.extend(guessed.nearly_id.iter().map(|said| format!("id          {said}")));
    picked.extend(guessed.types.iter().map(|said| format!("type        {said}")));
    let choose = "choose a type, and records with a value that is not of it will be dead letters";
    picked.extend(guessed.mixed.iter().map(|mixed| format!("type        {mixed}; {choose}")));
    picked.extend(guessed.odd.iter().map(|odd| format!("type        {odd}")));
    picked
        .extend(guessed.numbers.iter().map(|numbers| format!("numbers     written as {numbers}; `ingest` has to be given that, as below")));
    picked.extend(guessed.doubts.iter().map(|said| format!("numbers     {said}")));
    picked.extend(guessed.zones.iter().map(|said| format!("zone        {said}")));
    picked
}

impl Initialised {
    /// Writes a file unless it exists; returns whether it was written.
    fn put(&mut self, name: &str, text: &str) -> Result<bool> {
        use std::io::Write;
        let path = self.folder.join(name);
        let failed = |error: std::io::Error| Error::from(error).with("file", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(text.as_bytes()).map_err(failed)?;
                self.written.push(name.into());
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                self.kept.push(name.into());
                Ok(false)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the result as text.
    pub fn text(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        lines.extend(self.written.iter().map(|file| format!("wrote {}", self.folder.join(file).display())));
        lines.extend(self.kept.iter().map(|file| format!("kept  {} (it already exists)", self.folder.join(file).display())));
        if !self.picked.is_empty() {
            lines.push("\nreview these guesses:".into());
            lines.extend(self.picked.iter().map(|picked| format!("  {picked}")));
        }
        lines.push(FINAL.into());
        lines.push("\nnext:".into());
        lines.extend(self.next.iter().map(|command| format!("  {command}")));
        lines.join("\n")
    }
}

fn next(folder: &Path, from: Option<&Path>, shape: Shape, made: &Initialised) -> Vec<String> {
    let is_here = folder == Path::new("") || folder == Path::new(".");
    let enter = (!is_here).then(|| format!("cd {}", shell_word(&folder.to_string_lossy())));
    let file = match from {
        Some(file) => shell_word(&from_anywhere(file).to_string_lossy()) + &options(shape),
        None => "events.jsonl".into(),
    };
    let key = if made.example_key.is_empty() { String::new() } else { format!(" {}", shell_word(&made.example_key)) };
    let mut commands: Vec<String> = enter.iter().cloned().collect();
    commands.extend([
        "basestream check".to_owned(),
        "basestream apply".to_owned(),
        "basestream up                 # all layers, until Ctrl-C; continue in a second terminal".to_owned(),
    ]);
    commands.extend(enter);
    commands.extend([
        format!("basestream ingest {} {file}", made.stream),
        format!("basestream lookup {}{key}", made.view),
        format!("basestream query 'SELECT * FROM {} LIMIT 10'", made.view),
        format!("basestream batch run {}", made.view),
        format!("basestream verify {}", made.view),
    ]);
    commands
}

/// Returns the file's absolute path without `..`, which is also valid from the project's folder.
fn from_anywhere(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    let steps_up = absolute.components().any(|part| part == Component::ParentDir);
    if steps_up { std::fs::canonicalize(&absolute).unwrap_or(absolute) } else { absolute }
}

/// Returns the options that `ingest` needs as well.
fn options(shape: Shape) -> String {
    let format = shape.format.map(|format| match format {
        Format::JsonLines => " --format jsonl",
        Format::Csv => " --format csv",
        Format::Parquet => " --format parquet",
    });
    let delimiter = shape.delimiter.map(|byte| match byte {
        b'\t' => " --delimiter tab".to_owned(),
        byte => format!(" --delimiter {}", shell_word(&char::from(byte).to_string())),
    });
    let numbers = shape.numbers.map(|numbers| format!(" --numbers {}", shell_word(numbers.example())));
    [format.map(str::to_owned), delimiter, numbers].into_iter().flatten().collect()
}

fn shell_word(text: &str) -> String {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+,=@%:".contains(c));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests;
