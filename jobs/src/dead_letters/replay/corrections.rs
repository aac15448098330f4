//! A corrected file: every line is checked before anything is sent, then the file is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use definitions::StreamDefinition;
use types::vector::Offset;
use types::{Error, Result};

use crate::dead_letters::line::{self, Corrected};
use crate::input_file::open_input_file;

/// How many wrong lines are reported.
const WRONG_TOLD: usize = 10;

/// A file whose lines can all be read.
pub(super) struct Corrections {
    path: PathBuf,
    /// The dead letters it names.
    pub(super) places: BTreeSet<(i32, Offset)>,
}

/// Its lines in order, with their numbers.
pub(super) struct Lines {
    reader: BufReader<File>,
    path: PathBuf,
    number: u64,
}

impl Corrections {
    /// Reads the whole file. Errors: `Input` with the wrong lines, if there are any.
    pub(super) fn check(path: &Path, stream: &StreamDefinition) -> Result<Self> {
        let mut lines = Lines::open(path)?;
        let mut seen: BTreeMap<(i32, Offset), u64> = BTreeMap::new();
        let mut wrong = Vec::new();
        while let Some((number, text)) = lines.next_text()? {
            let problem = match line::read(&text) {
                Err(problem) => Some(problem),
                Ok(found) if *found.source != *stream.topic => {
                    Some(format!("found the source \"{}\", expected \"{}\", the topic of {}", found.source, stream.topic, stream.name))
                }
                Ok(found) => {
                    seen.insert((found.partition, found.offset), number).map(|first| format!("it repeats the dead letter of line {first}"))
                }
            };
            wrong.extend(problem.map(|problem| format!("{}:{number}: {problem}", path.display())));
            if wrong.len() == WRONG_TOLD {
                break;
            }
        }
        if !wrong.is_empty() {
            return Err(Error::input(format!("the corrected file cannot be replayed; nothing was sent:\n  {}", wrong.join("\n  "))));
        }
        if seen.is_empty() {
            return Err(in_file(Error::input("the corrected file has no lines"), path));
        }
        Ok(Self { path: path.to_owned(), places: seen.into_keys().collect() })
    }

    pub(super) fn lines(&self) -> Result<Lines> {
        Lines::open(&self.path)
    }
}

impl Lines {
    fn open(path: &Path) -> Result<Self> {
        let file = open_input_file(path)?;
        Ok(Self { reader: BufReader::new(file), path: path.to_owned(), number: 0 })
    }

    pub(super) fn next_line(&mut self) -> Result<Option<(u64, Corrected)>> {
        let Some((number, text)) = self.next_text()? else { return Ok(None) };
        let read = line::read(&text).map_err(|problem| in_file(Error::input(problem).with("line", number), &self.path))?;
        Ok(Some((number, read)))
    }

    /// Returns the next line that is not blank.
    fn next_text(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        loop {
            let mut text = Vec::new();
            let read = self.reader.read_until(b'\n', &mut text).map_err(|error| in_file(Error::from(error), &self.path))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let text = text.strip_prefix(b"\xef\xbb\xbf").map(<[u8]>::to_vec).unwrap_or(text);
            if !text.trim_ascii().is_empty() {
                return Ok(Some((self.number, text)));
            }
        }
    }
}

/// Adds the file's name to an error.
fn in_file(error: Error, path: &Path) -> Error {
    error.with("file", path.display())
}
