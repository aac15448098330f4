//! Prints results to standard output, as text or JSON, and errors to standard error. A closed pipe (`| head`) is no
//! error.

use std::fmt::Display;
use std::io::{ErrorKind as IoErrorKind, Write};

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::HumanBytes;
use serde::Serialize;
use serde_json::{Value, json};
use types::{Error, MessageForm, Result};

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printer {
    pub json: bool,
}

impl Printer {
    /// Prints a result: the value as JSON, or its text.
    pub fn print(self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let printed = match self.json {
            true => serde_json::to_string_pretty(value)
                .map_err(|error| Error::internal(format!("a result cannot be written as JSON: {error}")))?,
            false => text(),
        };
        print_line(&printed)
    }

    /// Prints an error to standard error: `error: ..` with a line for each fact, or `{"error": {..}}`. Diagnostics have
    /// their severities themselves: `views/x.sql:3:14: error: ..`.
    pub(crate) fn print_error(self, error: &Error) {
        let text = if self.json { json!({ "error": error_json(error) }).to_string() } else { error_text(error) };
        // A failure to write to standard error cannot be reported anywhere.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// Prints a note to standard error, where standard output has nothing but records.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "note: {text}");
}

/// Writes a line to standard output; does nothing once the reader has closed it.
fn print_line(text: &str) -> Result<()> {
    OutputWriter::default().write(format!("{text}\n").as_bytes())
}

/// Writes to standard output piece by piece, until the reader closes it.
#[derive(Debug, Default)]
pub struct OutputWriter {
    closed: bool,
}

impl OutputWriter {
    /// Writes bytes at once; does nothing once the reader has closed the output.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == IoErrorKind::BrokenPipe => self.closed = true,
            Err(error) => return Err(unwritable(&error)),
            Ok(()) => {}
        }
        Ok(())
    }

    /// True once the reader has closed the output.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

fn unwritable(error: &std::io::Error) -> Error {
    Error::unavailable(format!("standard output cannot be written: {error}"))
}

/// Formats a plain table without frames around its rows.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table.add_rows(rows);
    let last = header.len().saturating_sub(1);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == last { 0 } else { 2 }));
    }
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// A size in the largest binary unit that it reaches, such as `1.69 GiB`. A negative one is none.
pub fn size(bytes: impl TryInto<u64>) -> String {
    HumanBytes(bytes.try_into().unwrap_or(0)).to_string()
}

/// A count and its noun: `1 row`, `12 rows`.
pub(crate) fn count_of<N: Copy + Display + From<u8> + PartialEq>(count: N, noun: &str) -> String {
    format!("{count} {}", noun_of(count, noun))
}

/// The noun of a count: `row` of one, else `rows`.
pub(crate) fn noun_of<N: From<u8> + PartialEq>(count: N, noun: &str) -> String {
    if count == N::from(1u8) { noun.to_owned() } else { format!("{noun}s") }
}

/// The verb that follows a count: `1 row is`, `12 rows are`.
pub(crate) fn is_or_are<N: From<u8> + PartialEq>(count: N) -> &'static str {
    if count == N::from(1u8) { "is" } else { "are" }
}

/// Returns a cell's first line: more lines would stretch its row and pad all others.
pub fn one_line(cell: &str) -> String {
    match cell.trim_end().split_once('\n') {
        Some((first, _)) => format!("{} ..", first.trim_end()),
        None => cell.to_owned(),
    }
}

fn error_text(error: &Error) -> String {
    let mut text = match error.message_form() {
        MessageForm::Statement => format!("error: {}", error.message()),
        MessageForm::Diagnostics => error.message().to_owned(),
    };
    for (key, value) in error.context() {
        text.push_str(&format!("\n  {key}: {value}"));
    }
    let mut next = error.cause();
    while let Some(cause) = next {
        let said = cause.to_string();
        // Most errors repeat their cause at their end.
        if !text.ends_with(&said) {
            text.push_str(&format!("\n  caused by: {said}"));
        }
        next = match cause.downcast_ref::<Error>() {
            Some(ours) => ours.cause(),
            None => cause.source(),
        };
    }
    text
}

fn error_json(error: &Error) -> Value {
    let context: serde_json::Map<String, Value> =
        error.context().iter().map(|(key, value)| ((*key).to_owned(), Value::String(value.clone()))).collect();
    let cause = error.cause().map(ToString::to_string);
    json!({ "kind": error.kind().word(), "message": error.message(), "context": context, "cause": cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_line_by_line_with_its_facts_and_its_cause() {
        let error = Error::input("the view has no key \"x\"").with("view", "velocity").caused_by(Error::internal("below"));
        assert_eq!(error_text(&error), "error: the view has no key \"x\"\n  view: velocity\n  caused by: below");
        assert_eq!(error_json(&error)["kind"], "input");
        assert_eq!(error_json(&error)["context"]["view"], "velocity");
    }

    #[test]
    fn a_cause_is_reported_once() {
        let full = || Error::from(std::io::Error::other("the disk is full"));
        assert_eq!(error_text(&full()), "error: the disk is full");
        assert_eq!(error_json(&full())["cause"], Value::Null);
        let refused = Error::unavailable("no rows").caused_by(Error::unavailable("no file").with("file", "a").caused_by(full()));
        assert_eq!(error_text(&refused), "error: no rows\n  caused by: no file (file: a): the disk is full");
        assert_eq!(error_json(&refused)["cause"], "no file (file: a): the disk is full");
    }

    #[test]
    fn diagnostics_are_called_errors_once_whatever_they_are_about() {
        let mistake = "views/a.sql:1:2: error: there is no column \"x\"";
        let diagnostics = Error::diagnostics(mistake).with("project", "shop").copied();
        assert_eq!(error_text(&diagnostics), format!("{mistake}\n  project: shop"));
        assert_eq!(error_text(&Error::input(mistake)), format!("error: {mistake}"), "the text does not decide it");
    }

    #[test]
    fn a_cell_of_several_lines_is_cut_to_its_first() {
        assert_eq!(one_line("CREATE VIEW a AS\r\nSELECT 1"), "CREATE VIEW a AS ..");
        assert_eq!((one_line("SELECT 1\n"), one_line("")), ("SELECT 1\n".to_owned(), String::new()));
    }

    #[test]
    fn a_size_is_written_alike_whatever_number_has_it() {
        assert_eq!([size(183_326i64), size(183_326u64)], ["179.03 KiB", "179.03 KiB"]);
        assert_eq!((size(-1i64), size(21_600_000u64)), ("0 B".to_owned(), "20.60 MiB".to_owned()));
    }

    #[test]
    fn one_of_a_thing_is_not_called_several() {
        assert_eq!([0, 1, 2].map(|count: u64| count_of(count, "row")), ["0 rows", "1 row", "2 rows"]);
        assert_eq!((noun_of(1i64, "dead letter"), noun_of(-1i64, "dead letter")), ("dead letter".into(), "dead letters".into()));
        assert_eq!([1u32, 2].map(is_or_are), ["is", "are"]);
    }

    #[test]
    fn a_table_has_no_frames_and_no_spaces_at_line_ends() {
        let text = table(&["name", "n"], [vec!["a".to_owned(), "1".to_owned()], vec!["long".to_owned(), "22".to_owned()]]);
        assert_eq!(text, "name  n\na     1\nlong  22");
    }
}
