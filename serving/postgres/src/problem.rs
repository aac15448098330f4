//! Errors as clients get them: a SQLSTATE, the message, and where in the text it is.

use committed::damage::with_help;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{ErrorResponse, NoticeResponse};
use types::sql_errors::SqlPlace;
use types::{Error, ErrorKind, Reason};

/// An error on its way to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SqlProblem {
    pub(crate) state: &'static str,
    report: Box<ErrorReport>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ErrorReport {
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    place: Option<SqlPlace>,
    /// The character in the text, counted from 1.
    position: Option<usize>,
    is_fatal: bool,
}

pub(crate) const SYNTAX_ERROR: &str = "42601";
pub(crate) const READ_ONLY: &str = "25006";
pub(crate) const NOT_SUPPORTED: &str = "0A000";
pub(crate) const INVALID_PARAMETER_VALUE: &str = "22023";
pub(crate) const UNDEFINED_OBJECT: &str = "42704";
pub(crate) const QUERY_CANCELED: &str = "57014";
pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";
pub(crate) const IN_FAILED_TRANSACTION: &str = "25P02";
pub(crate) const IDLE_IN_TRANSACTION: &str = "25P03";
const RULE_VIOLATION: &str = "42000";
const UNDEFINED_TABLE: &str = "42P01";
const INSUFFICIENT_RESOURCES: &str = "53000";
const DISK_FULL: &str = "53100";
const OUT_OF_MEMORY: &str = "53200";
pub(crate) const TOO_MANY_CONNECTIONS: &str = "53300";
pub(crate) const SHUTTING_DOWN: &str = "57P01";
pub(crate) const UNDEFINED_STATEMENT: &str = "26000";
pub(crate) const UNDEFINED_PORTAL: &str = "34000";
pub(crate) const UNDEFINED_SAVEPOINT: &str = "3B001";
pub(crate) const DUPLICATE_STATEMENT: &str = "42P05";
pub(crate) const INVALID_TEXT: &str = "22P02";
pub(crate) const INVALID_BINARY: &str = "22P03";
pub(crate) const OUT_OF_RANGE: &str = "22003";
pub(crate) const CONFIGURATION_LIMIT: &str = "53400";

/// The settings that limit memory.
const MEMORY_LIMITS: [&str; 3] = ["serving.limits.query_memory", "serving.limits.memory_per_principal", "serving.memory_limit"];

impl SqlProblem {
    pub(crate) fn new(state: &'static str, message: impl Into<String>) -> Self {
        Self { state, report: Box::new(ErrorReport { message: message.into(), ..ErrorReport::default() }) }
    }

    /// The connection ends with it.
    pub(crate) fn fatal(state: &'static str, message: impl Into<String>) -> Self {
        let mut problem = Self::new(state, message);
        problem.report.is_fatal = true;
        problem
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.report.hint = Some(hint.into());
        self
    }

    /// The same, with what caused it as its detail.
    pub(crate) fn because(mut self, other: &SqlProblem) -> Self {
        self.report.detail = Some(other.report.message.clone());
        self
    }

    /// The same for a statement that begins at this byte of the text that was sent; of an empty one, without a place.
    pub(crate) fn within(mut self, text: &str, start: usize) -> Self {
        let before = text[..start].chars().count();
        let at = self.report.place.filter(|_| !text.is_empty()).and_then(|place| character(&text[start..], place));
        self.report.position = at.map(|at| before + at);
        self
    }

    pub(crate) fn message(self) -> PgWireBackendMessage {
        PgWireBackendMessage::ErrorResponse(ErrorResponse::new(self.fields()))
    }

    fn fields(self) -> Vec<(u8, String)> {
        let report = *self.report;
        let severity = if report.is_fatal { "FATAL" } else { "ERROR" };
        let mut fields = vec![(b'S', severity.to_owned()), (b'V', severity.to_owned()), (b'C', self.state.to_owned())];
        fields.push((b'M', without_zeros(report.message)));
        fields.extend(report.detail.map(|detail| (b'D', without_zeros(detail))));
        fields.extend(report.hint.map(|hint| (b'H', without_zeros(hint))));
        fields.extend(report.position.map(|position| (b'P', position.to_string())));
        fields
    }
}

/// A warning that ends nothing.
pub(crate) fn warning(state: &'static str, message: &str) -> PgWireBackendMessage {
    let fields = [(b'S', "WARNING"), (b'V', "WARNING"), (b'C', state), (b'M', message)];
    PgWireBackendMessage::NoticeResponse(NoticeResponse::new(fields.map(|(field, text)| (field, text.to_owned())).into()))
}

impl From<Error> for SqlProblem {
    fn from(error: Error) -> Self {
        let error = with_help(error);
        if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Internal) {
            tracing::error!(%error, "a query over PostgreSQL failed");
        }
        let number = |key: &str| error.fact(key).and_then(|text| text.parse::<usize>().ok());
        let shown = |(key, value): &(&'static str, String)| match *key {
            "line" | "column" | "help" => None,
            key => Some(format!("{key}: {value}")),
        };
        let detail: Vec<String> = error.context().iter().filter_map(shown).collect();
        let report = ErrorReport {
            message: error.message_with_cause(),
            detail: (!detail.is_empty()).then(|| detail.join(", ")),
            hint: error.fact("help").map(str::to_owned),
            place: number("line").zip(number("column")).map(|(line, column)| SqlPlace { line, column }),
            position: None,
            is_fatal: false,
        };
        SqlProblem { state: state_of(&error), report: Box::new(report) }
    }
}

fn state_of(error: &Error) -> &'static str {
    if let Some(reason) = error.reason() {
        return state_of_reason(reason);
    }
    match error.kind() {
        ErrorKind::Input => RULE_VIOLATION,
        ErrorKind::NotFound => UNDEFINED_TABLE,
        ErrorKind::Limit if error.fact("limit").is_some_and(|limit| MEMORY_LIMITS.contains(&limit)) => OUT_OF_MEMORY,
        ErrorKind::Limit => "54000",
        ErrorKind::Busy => INSUFFICIENT_RESOURCES,
        ErrorKind::Conflict => "40001",
        ErrorKind::Unavailable if error.fact("disk") == Some("full") => DISK_FULL,
        ErrorKind::Unavailable => "57P03",
        ErrorKind::Unauthenticated => "28000",
        ErrorKind::Forbidden => "42501",
        ErrorKind::Corrupt => "XX001",
        ErrorKind::Internal => "XX000",
    }
}

fn state_of_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::SqlNotUnderstood | Reason::NotOneQuery => SYNTAX_ERROR,
        Reason::NotAQuery => RULE_VIOLATION,
        Reason::WritesWithinQuery => READ_ONLY,
        Reason::NotSupported => NOT_SUPPORTED,
        Reason::UnknownColumn => "42703",
        Reason::AmbiguousColumn => "42702",
        Reason::RepeatedColumn => "42701",
        Reason::UngroupedColumn => "42803",
        Reason::InvalidColumnReference => "42P10",
        Reason::UnknownTable => UNDEFINED_TABLE,
        Reason::UnknownFunction => "42883",
        Reason::UnknownParameter => "42P02",
        Reason::InvalidAsOf | Reason::UnknownTimeZone => INVALID_PARAMETER_VALUE,
        Reason::InvalidLimit => "2201W",
        Reason::InvalidOffset => "2201X",
        Reason::DivisionByZero => "22012",
        Reason::NumberTooLarge => OUT_OF_RANGE,
        Reason::InvalidPower => "2201F",
        Reason::InvalidText => INVALID_TEXT,
        Reason::InvalidTime => "22007",
        Reason::AmbiguousLocalTime | Reason::TimeOutOfRange => "22008",
        Reason::InvalidPattern => "2201B",
        Reason::NotUtf8 => "22021",
        Reason::TooManyColumns => "54011",
        Reason::OutOfTime | Reason::Cancelled => QUERY_CANCELED,
    }
}

/// The character at a place, counted from 1.
fn character(text: &str, place: SqlPlace) -> Option<usize> {
    let mut before = 0;
    for (index, of_text) in text.split('\n').enumerate() {
        let length = of_text.chars().count();
        if index + 1 == place.line {
            return Some(before + place.column.min(length + 1));
        }
        before += length + 1;
    }
    None
}

/// A zero byte would end the text.
fn without_zeros(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_becomes_a_character_of_the_whole_text() {
        let text = "SELECT 1; SELECT ä,\n  wrong";
        let error = Error::input("there is no column \"wrong\"").with_reason(Reason::UnknownColumn).with("line", 2).with("column", 3);
        let problem = SqlProblem::from(error).within(text, 10);
        assert_eq!((problem.state, problem.report.position), ("42703", Some(23)));
        assert_eq!(text.chars().skip(22).collect::<String>(), "wrong");
        let fields = problem.fields();
        assert!(fields.contains(&(b'P', "23".into())) && fields.contains(&(b'S', "ERROR".into())), "{fields:?}");
    }

    #[test]
    fn what_is_beyond_a_limit_has_the_state_of_it() {
        let state = |error: Error| SqlProblem::from(error).state;
        assert_eq!(state(Error::unavailable("the query cannot spill to the disk").with("disk", "full")), "53100");
        assert_eq!(state(Error::busy("the node is busy")), "53000");
        for setting in MEMORY_LIMITS {
            assert_eq!(state(Error::limit("it needs more memory").with("limit", setting)), "53200");
        }
        assert_eq!(state(Error::limit("it has more rows").with("limit", "serving.limits.result_rows")), "54000");
        assert_eq!(state(serving::out_of_time("1s, the setting serving.limits.query_time")), "57014");
    }

    #[test]
    fn the_state_follows_the_reason_and_not_the_words() {
        let state = |error: Error| SqlProblem::from(error).state;
        assert_eq!(state(Error::input("in other words").with_reason(Reason::DivisionByZero)), "22012");
        assert_eq!(state(Error::input("in other words").with_reason(Reason::NotAQuery)), "42000");
        assert_eq!(state(Error::input("division by zero is a fine name")), "42000");
        assert_eq!(state(serving::only_queries("found FOR UPDATE within one")), READ_ONLY);
    }

    #[test]
    fn what_helps_is_a_hint_and_what_else_is_known_a_detail() {
        let problem = SqlProblem::from(Error::unavailable("the view is being built").with("percent", 12).with("help", "ask again later"));
        assert_eq!(
            (problem.state, problem.report.hint.as_deref(), problem.report.detail.as_deref()),
            ("57P03", Some("ask again later"), Some("percent: 12"))
        );
    }
}
