//! Diagnostics: a user's mistakes, each with its place, what was found and how to fix it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use types::{Error, Result};

/// All mistakes found in one pass, ordered by place after [`Diagnostics::sort`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Diagnostics(pub Vec<Diagnostic>);

/// One mistake (or remark) and its place. It prints as `views/x.sql:3:14: error: ..` with a `help:` line below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub severity: DiagnosticSeverity,
    /// `None` for a definition created in code.
    pub file: Option<PathBuf>,
    /// Counted from 1; 0 refers to the whole file.
    pub line: usize,
    /// Characters, counted from 1; 0 refers to the whole line or file.
    pub column: usize,
    /// What was found.
    pub message: String,
    /// What was expected, or what to write instead.
    pub help: Option<String>,
    /// The definition that is left out because of this mistake, if its name is known.
    #[serde(skip)]
    pub left_out: Option<String>,
}

/// How much is wrong with a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiagnosticSeverity {
    /// The definition cannot be used.
    Error,
    /// The definition can be used, but is probably not what was meant.
    Warning,
    Note,
}

impl Diagnostics {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a diagnostic.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds diagnostics in their order.
    pub fn extend(&mut self, others: impl IntoIterator<Item = Diagnostic>) {
        self.0.extend(others);
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|diagnostic| diagnostic.severity == DiagnosticSeverity::Error)
    }

    /// Sorts the diagnostics of each file by place; files keep their order.
    pub fn sort(&mut self) {
        let mut files: Vec<Option<PathBuf>> = Vec::new();
        for diagnostic in &self.0 {
            if !files.contains(&diagnostic.file) {
                files.push(diagnostic.file.clone());
            }
        }
        let rank = |file: &Option<PathBuf>| files.iter().position(|known| known == file);
        self.0.sort_by_key(|diagnostic| (rank(&diagnostic.file), diagnostic.line, diagnostic.column));
    }

    /// Returns an input error with the text of all diagnostics if any of them is an error.
    pub fn into_result(self) -> Result<()> {
        match self.has_errors() {
            true => Err(Error::diagnostics(self.to_string())),
            false => Ok(()),
        }
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Diagnostic {
    /// Creates an error at a place in a text without a file; [`Diagnostic::in_file`] and [`Diagnostic::help`] add the
    /// rest.
    pub fn error(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self { severity: DiagnosticSeverity::Error, file: None, line, column, message: message.into(), help: None, left_out: None }
    }

    /// Creates a warning.
    pub fn warning(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self { severity: DiagnosticSeverity::Warning, ..Self::error(line, column, message) }
    }

    /// Creates a note.
    pub fn note(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self { severity: DiagnosticSeverity::Note, ..Self::error(line, column, message) }
    }

    /// Adds a line of help.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn leaving_out(mut self, name: Option<String>) -> Self {
        self.left_out = name;
        self
    }

    /// Sets the file that the position is in.
    pub fn in_file(mut self, file: Option<&Path>) -> Self {
        self.file = file.map(Path::to_path_buf);
        self
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
        }
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
            if self.column > 0 {
                write!(f, "{}:", self.column)?;
            }
        }
        if self.file.is_some() || self.line > 0 {
            f.write_str(" ")?;
        }
        write!(f, "{}: {}", self.severity, self.message)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for DiagnosticSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiagnosticSeverity::Error => "error",
            DiagnosticSeverity::Warning => "warning",
            DiagnosticSeverity::Note => "note",
        })
    }
}

#[cfg(test)]
mod tests;
