//! The error type of all layers: what happened, in the user's words, and what the caller can do about it.

use std::fmt;
use std::io;
use std::sync::Arc;

use datafusion::error::DataFusionError;

use crate::Reason;
use crate::redact::redacted_text;
use crate::sql_errors::{self, NOT_UNDERSTOOD, PlainError, SqlPlace};

/// What a caller can do about an [`Error`]. Kinds become an exit code, an HTTP status or an SQLSTATE at the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller's input is wrong: fix it and call again.
    Input,
    /// The caller did not say who it is, or not in a way that is accepted.
    Unauthenticated,
    /// The caller is known and has no right to this.
    Forbidden,
    /// The named thing does not exist.
    NotFound,
    /// Another process was faster (a fence, a lease, a compare-and-advance): read again, then decide.
    Conflict,
    /// A service did not respond: try again later.
    Unavailable,
    /// Too much is under way, of this caller or of all: try again in a moment.
    Busy,
    /// Stored data is damaged or has an unknown format: do not merge it, rebuild it.
    Corrupt,
    /// A limit was reached (memory, state size, queue): ask for less or raise the limit.
    Limit,
    /// A defect.
    Internal,
}

impl ErrorKind {
    /// As logs and JSON have it: `not_found`.
    pub fn word(self) -> &'static str {
        match self {
            ErrorKind::Input => "input",
            ErrorKind::Unauthenticated => "unauthenticated",
            ErrorKind::Forbidden => "forbidden",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Busy => "busy",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Limit => "limit",
            ErrorKind::Internal => "internal",
        }
    }
}

/// What the message of an [`Error`] is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageForm {
    /// A statement of what happened.
    Statement,
    /// A user's mistakes, line by line: each with its place and its own severity.
    Diagnostics,
}

type ErrorSource = Box<dyn std::error::Error + Send + Sync>;

/// An error: its kind, the reason where protocols have a code for it, a factual message, key/value context, and its
/// source.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    reason: Option<Reason>,
    form: MessageForm,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// The message already says what the source says.
    restates_source: bool,
}

/// The result of every fallible function of this workspace.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::in_form(MessageForm::Statement, kind, message.into())
    }

    fn in_form(form: MessageForm, kind: ErrorKind, message: String) -> Self {
        Self(Box::new(Inner { kind, reason: None, form, message, context: Vec::new(), source: None, restates_source: false }))
    }

    /// Creates an error that says what its source says.
    pub fn restating(kind: ErrorKind, source: impl Into<ErrorSource>) -> Self {
        let source: ErrorSource = source.into();
        Self::new(kind, source.to_string()).made_from(source)
    }

    pub fn input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Input, message)
    }

    /// Creates an input error whose message is the text of diagnostics, each with its place and severity.
    pub fn diagnostics(text: impl Into<String>) -> Self {
        Self::in_form(MessageForm::Diagnostics, ErrorKind::Input, text.into())
    }

    /// Creates the error for a text of SQL that cannot be parsed.
    pub fn not_understood(what: impl fmt::Display) -> Self {
        Self::input(format!("{NOT_UNDERSTOOD}: {what}")).with_reason(Reason::SqlNotUnderstood)
    }

    pub fn unauthenticated(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unauthenticated, message)
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Busy, message)
    }

    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Limit, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Sets what exactly happened, for the codes of protocols.
    pub fn with_reason(mut self, reason: Reason) -> Self {
        self.0.reason = Some(reason);
        self
    }

    /// Adds one piece of context: `.with("file", path)`.
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((key, value.to_string()));
        self
    }

    /// Adds how a text is written to the error about an unknown column, if `sql` has its name in double quotes.
    pub fn with_text_hint(mut self, sql: &str) -> Self {
        if let Some(message) = sql_errors::with_text_hint(&self.0.message, sql) {
            self.0.message = message;
        }
        self
    }

    /// Keeps the error that caused this one.
    pub fn caused_by(mut self, source: impl Into<ErrorSource>) -> Self {
        let source: ErrorSource = source.into();
        self.0.source = Some(Arc::from(source));
        self.0.restates_source = false;
        self
    }

    /// Keeps the error from which the message was made.
    fn made_from(self, source: impl Into<ErrorSource>) -> Self {
        let mut made = self.caused_by(source);
        made.0.restates_source = true;
        made
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    pub fn reason(&self) -> Option<Reason> {
        self.0.reason
    }

    pub fn message_form(&self) -> MessageForm {
        self.0.form
    }

    /// Returns the message without context and source.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn context(&self) -> &[(&'static str, String)] {
        &self.0.context
    }

    /// Returns the first context value with this key.
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.0.context.iter().find(|(of, _)| *of == key).map(|(_, value)| value.as_str())
    }

    /// Returns the source if the message does not already say what it says: what is to be shown after the message.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if self.0.restates_source { None } else { std::error::Error::source(self) }
    }

    /// Returns the message and the cause without the context.
    pub fn message_with_cause(&self) -> String {
        match self.cause() {
            Some(cause) => format!("{}: {cause}", self.0.message),
            None => self.0.message.clone(),
        }
    }

    /// Whether a disk without space, or a quota of one, is the cause.
    pub fn is_of_full_disk(&self) -> bool {
        let is_full = |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        chain(self).any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_full))
    }

    /// Returns what a disk says of a file that it has and cannot read: a sector is bad, or there is a folder in the
    /// file's place.
    pub fn unreadable_file(&self) -> Option<&io::Error> {
        let is_unreadable = |error: &&io::Error| error.raw_os_error() == Some(libc::EIO) || error.kind() == io::ErrorKind::IsADirectory;
        chain(self).filter_map(|cause| cause.downcast_ref::<io::Error>()).find(is_unreadable)
    }

    /// Returns the innermost DataFusion error that is not the source of an [`Error`]. `find_root` of DataFusion also
    /// returns such a source, and so loses the [`Error`] around it.
    pub fn datafusion_root(error: &DataFusionError) -> &DataFusionError {
        let outside = chain(error).take_while(|cause| !cause.is::<Error>());
        let innermost = outside.filter_map(|cause| match cause.downcast_ref::<Arc<DataFusionError>>() {
            Some(shared) => Some(&**shared),
            None => cause.downcast_ref::<DataFusionError>(),
        });
        innermost.last().unwrap_or(error)
    }

    /// Returns the [`Error`] that a DataFusion error carries, if any.
    pub fn inside(error: &DataFusionError) -> Option<Error> {
        match Error::datafusion_root(error) {
            DataFusionError::External(inner) => inner.downcast_ref::<Error>().map(Error::copied),
            _ => None,
        }
    }

    /// Returns what a DataFusion error says, in plain words; for example, why an expression fails on an event.
    pub fn plain_message(error: &DataFusionError) -> String {
        Error::inside(error).map_or_else(|| sql_errors::plain(error).message, |ours| ours.to_string())
    }

    /// Returns a copy of this error with the same source, for an error that is returned to several callers.
    pub fn copied(&self) -> Error {
        let Inner { kind, reason, form, restates_source, .. } = *self.0;
        let (message, context, source) = (self.0.message.clone(), self.0.context.clone(), self.0.source.clone());
        Self(Box::new(Inner { kind, reason, form, message, context, source, restates_source }))
    }
}

/// Returns the error, then its source, and so on.
fn chain<'a>(error: &'a (dyn std::error::Error + 'static)) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for (i, (key, value)) in self.0.context.iter().enumerate() {
            let open = if i == 0 { " (" } else { ", " };
            write!(f, "{open}{key}: {value}")?;
        }
        if !self.0.context.is_empty() {
            f.write_str(")")?;
        }
        if let Some(cause) = self.cause() {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} error: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        use DataFusionError as D;
        if let Some(ours) = Error::inside(&error) {
            return ours;
        }
        let error = sql_errors::error_in_filter(&error).unwrap_or(error);
        let kind = match Error::datafusion_root(&error) {
            _ if sql_errors::invalid_pattern(&error).is_some() => ErrorKind::Input,
            D::Plan(_) | D::SQL(..) | D::SchemaError(..) | D::NotImplemented(_) | D::Configuration(_) => ErrorKind::Input,
            D::ArrowError(inner, _) if matches!(**inner, arrow::error::ArrowError::IoError(..)) => ErrorKind::Unavailable,
            D::ArrowError(..) | D::Execution(_) => ErrorKind::Input,
            D::ResourcesExhausted(_) => ErrorKind::Limit,
            D::ObjectStore(_) | D::IoError(_) => ErrorKind::Unavailable,
            D::ParquetError(_) => ErrorKind::Corrupt,
            _ => ErrorKind::Internal,
        };
        let PlainError { message, reason, place } = sql_errors::plain(&error);
        let mut ours = Error::new(kind, message).made_from(error);
        ours.0.reason = reason;
        match place {
            Some(SqlPlace { line, column }) => ours.with("line", line).with("column", column),
            None => ours,
        }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        match error {
            arrow::error::ArrowError::IoError(_, source) => Error::from(source),
            other => Error::restating(ErrorKind::Internal, other),
        }
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Error::restating(ErrorKind::Corrupt, error)
    }
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        let kind = match &error {
            object_store::Error::NotFound { .. } => ErrorKind::NotFound,
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => ErrorKind::Conflict,
            _ => ErrorKind::Unavailable,
        };
        // The message may repeat an endpoint that contains a password, and so may the sources.
        let has_secrets = chain(&error).map(ToString::to_string).any(|text| redacted_text(&text) != *text);
        let ours = Error::new(kind, redacted_text(&error.to_string()));
        if has_secrets { ours } else { ours.made_from(error) }
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let kind = match &error {
            sqlx::Error::RowNotFound => ErrorKind::NotFound,
            sqlx::Error::Configuration(_) => ErrorKind::Input,
            _ => ErrorKind::Unavailable,
        };
        Error::restating(kind, error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Unavailable };
        Error::restating(kind, error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::restating(ErrorKind::Corrupt, error)
    }
}

impl From<tokio::task::JoinError> for Error {
    fn from(error: tokio::task::JoinError) -> Self {
        Error::internal("a task ended abnormally").caused_by(error)
    }
}

#[cfg(test)]
mod tests;
