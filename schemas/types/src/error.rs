//! The error type of all layers: what happened, in the user's words, and what the caller can do about it.

use std::fmt;

use crate::Reason;
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
    source: Option<ErrorSource>,
}

/// The result of every fallible function of this workspace.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::in_form(MessageForm::Statement, kind, message.into())
    }

    fn in_form(form: MessageForm, kind: ErrorKind, message: String) -> Self {
        Self(Box::new(Inner { kind, reason: None, form, message, context: Vec::new(), source: None }))
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
        self.0.source = Some(source.into());
        self
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

    /// Returns the [`Error`] that a DataFusion error carries, if any.
    pub fn inside(error: &datafusion::error::DataFusionError) -> Option<Error> {
        match error.find_root() {
            datafusion::error::DataFusionError::External(inner) => inner.downcast_ref::<Error>().map(Error::copied),
            _ => None,
        }
    }

    /// Returns what a DataFusion error says, in plain words; for example, why an expression fails on an event.
    pub fn plain_message(error: &datafusion::error::DataFusionError) -> String {
        Error::inside(error).map_or_else(|| sql_errors::plain(error).message, |ours| ours.to_string())
    }

    /// Returns a copy of this error with its source as text, for an error that is returned to several callers.
    pub fn copied(&self) -> Error {
        let source = self.0.source.as_ref().map(|source| source.to_string().into());
        let context = self.0.context.clone();
        let Inner { kind, reason, form, message, .. } = &*self.0;
        Self(Box::new(Inner { kind: *kind, reason: *reason, form: *form, message: message.clone(), context, source }))
    }
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
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
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

impl From<datafusion::error::DataFusionError> for Error {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        use datafusion::error::DataFusionError as D;
        if let Some(ours) = Error::inside(&error) {
            return ours;
        }
        let error = sql_errors::error_in_filter(&error).unwrap_or(error);
        let kind = match error.find_root() {
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
        let mut ours = Error::new(kind, message);
        ours.0.reason = reason;
        match place {
            Some(SqlPlace { line, column }) => ours.with("line", line).with("column", column),
            None => ours,
        }
    }
}

impl From<Error> for datafusion::error::DataFusionError {
    fn from(error: Error) -> Self {
        datafusion::error::DataFusionError::External(Box::new(error))
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        match error {
            arrow::error::ArrowError::IoError(_, source) => Error::from(source),
            other => Error::internal(other.to_string()),
        }
    }
}

impl From<parquet::errors::ParquetError> for Error {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Error::corrupt(error.to_string())
    }
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        let kind = match &error {
            object_store::Error::NotFound { .. } => ErrorKind::NotFound,
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => ErrorKind::Conflict,
            _ => ErrorKind::Unavailable,
        };
        // The message may repeat an endpoint that contains a password.
        Error::new(kind, crate::redact::redacted_text(&error.to_string()))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let kind = match &error {
            sqlx::Error::RowNotFound => ErrorKind::NotFound,
            sqlx::Error::Configuration(_) => ErrorKind::Input,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, error.to_string())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        let kind = if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Unavailable };
        Error::new(kind, error.to_string())
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::corrupt(error.to_string())
    }
}

impl From<tokio::task::JoinError> for Error {
    fn from(error: tokio::task::JoinError) -> Self {
        Error::internal(format!("a task ended abnormally: {error}"))
    }
}
