//! Errors as clients get them: a SQLSTATE, the message, and where in the text it is.

use committed::damage::with_help;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{ErrorResponse, NoticeResponse};
use serving::OUT_OF_TIME;
use types::sql_errors::{SqlPlace, TIME_OUT_OF_RANGE};
use types::{Error, ErrorKind};

/// An error on its way to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) state: &'static str,
    said: Box<Said>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Said {
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
const INSUFFICIENT_RESOURCES: &str = "53000";
const DISK_FULL: &str = "53100";
const OUT_OF_MEMORY: &str = "53200";
pub(crate) const TOO_MANY_CONNECTIONS: &str = "53300";
pub(crate) const SHUTTING_DOWN: &str = "57P01";
pub(crate) const UNDEFINED_STATEMENT: &str = "26000";
pub(crate) const UNDEFINED_PORTAL: &str = "34000";
pub(crate) const DUPLICATE_STATEMENT: &str = "42P05";
pub(crate) const INVALID_TEXT: &str = "22P02";
pub(crate) const INVALID_BINARY: &str = "22P03";
pub(crate) const OUT_OF_RANGE: &str = "22003";
pub(crate) const CONFIGURATION_LIMIT: &str = "53400";

/// How the message about more columns than a client can be sent begins.
pub(crate) const TOO_MANY_COLUMNS: &str = "the answer has too many columns";

/// The settings that limit memory.
const MEMORY_LIMITS: [&str; 2] = ["serving.limits.query_memory", "serving.memory_limit"];

/// How messages about SQL begin, and what each is called. The first that fits is taken.
const BY_MESSAGE: [(&str, &str); 31] = [
    ("the SQL is not understood", SYNTAX_ERROR),
    ("no query", SYNTAX_ERROR),
    ("more than one query", SYNTAX_ERROR),
    ("there is no column", "42703"),
    ("there is no table", "42P01"),
    ("there is no stream or view", "42P01"),
    ("there is no function", "42883"),
    ("two columns are called", "42701"),
    ("several columns are called", "42702"),
    ("only queries are supported", READ_ONLY),
    ("division by zero", "22012"),
    ("a number is too large", OUT_OF_RANGE),
    ("cannot take square root", "2201F"),
    ("zero raised to a negative power", "2201F"),
    ("a negative number raised to a non-integer power", "2201F"),
    ("cannot take logarithm", "2201E"),
    (TIME_OUT_OF_RANGE, "22008"),
    ("cannot cast string", INVALID_TEXT),
    ("cannot cast value", INVALID_TEXT),
    ("invalid input syntax for type interval", "22007"),
    ("a regular expression is not valid", "2201B"),
    ("malformed array literal", INVALID_TEXT),
    ("error parsing timestamp", "22007"),
    ("a local time is not exactly one time", "22008"),
    ("LIMIT must be", "2201W"),
    ("OFFSET must be", "2201X"),
    ("as_of", INVALID_PARAMETER_VALUE),
    ("the time zone", INVALID_PARAMETER_VALUE),
    ("the query names the parameter", "42P02"),
    ("not supported", NOT_SUPPORTED),
    ("found a text that is not UTF-8", "22021"),
];

impl Problem {
    pub(crate) fn new(state: &'static str, message: impl Into<String>) -> Self {
        Self { state, said: Box::new(Said { message: message.into(), ..Said::default() }) }
    }

    /// The connection ends with it.
    pub(crate) fn fatal(state: &'static str, message: impl Into<String>) -> Self {
        let mut problem = Self::new(state, message);
        problem.said.is_fatal = true;
        problem
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.said.hint = Some(hint.into());
        self
    }

    /// The same, with what caused it as its detail.
    pub(crate) fn because(mut self, other: &Problem) -> Self {
        self.said.detail = Some(other.said.message.clone());
        self
    }

    /// The same for a statement that begins at this byte of the text that was sent; of an empty one, without a place.
    pub(crate) fn within(mut self, text: &str, start: usize) -> Self {
        let before = text[..start].chars().count();
        let at = self.said.place.filter(|_| !text.is_empty()).and_then(|place| character(&text[start..], place));
        self.said.position = at.map(|at| before + at);
        self
    }

    pub(crate) fn message(self) -> PgWireBackendMessage {
        PgWireBackendMessage::ErrorResponse(ErrorResponse::new(self.fields()))
    }

    fn fields(self) -> Vec<(u8, String)> {
        let said = *self.said;
        let severity = if said.is_fatal { "FATAL" } else { "ERROR" };
        let mut fields = vec![(b'S', severity.to_owned()), (b'V', severity.to_owned()), (b'C', self.state.to_owned())];
        fields.push((b'M', without_zeros(said.message)));
        fields.extend(said.detail.map(|detail| (b'D', without_zeros(detail))));
        fields.extend(said.hint.map(|hint| (b'H', without_zeros(hint))));
        fields.extend(said.position.map(|position| (b'P', position.to_string())));
        fields
    }
}

/// A warning that ends nothing.
pub(crate) fn warning(state: &'static str, message: &str) -> PgWireBackendMessage {
    let fields = [(b'S', "WARNING"), (b'V', "WARNING"), (b'C', state), (b'M', message)];
    PgWireBackendMessage::NoticeResponse(NoticeResponse::new(fields.map(|(field, text)| (field, text.to_owned())).into()))
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let error = with_help(error);
        if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Internal) {
            tracing::error!(%error, "a query over PostgreSQL failed");
        }
        let message = match std::error::Error::source(&error) {
            Some(source) => format!("{}: {source}", error.message()),
            None => error.message().to_owned(),
        };
        let number = |key: &str| error.fact(key).and_then(|text| text.parse::<usize>().ok());
        let shown = |(key, value): &(&'static str, String)| match *key {
            "line" | "column" | "help" => None,
            key => Some(format!("{key}: {value}")),
        };
        let detail: Vec<String> = error.context().iter().filter_map(shown).collect();
        let said = Said {
            message,
            detail: (!detail.is_empty()).then(|| detail.join(", ")),
            hint: error.fact("help").map(str::to_owned),
            place: number("line").zip(number("column")).map(|(line, column)| SqlPlace { line, column }),
            position: None,
            is_fatal: false,
        };
        Problem { state: state_of(&error), said: Box::new(said) }
    }
}

fn state_of(error: &Error) -> &'static str {
    let message = error.message();
    let said = match () {
        () if message.contains("is in several of the tables") => Some("42702"),
        () if message.contains("is neither in GROUP BY") => Some("42803"),
        () if message.starts_with("cannot cast to ") && message.contains(". Overflowing on ") => Some(OUT_OF_RANGE),
        () => BY_MESSAGE.iter().find(|(start, _)| message.starts_with(start)).map(|(_, state)| *state),
    };
    match error.kind() {
        ErrorKind::Input => said.unwrap_or("42000"),
        ErrorKind::NotFound => said.unwrap_or("42P01"),
        ErrorKind::Limit if error.fact("limit").is_some_and(|limit| MEMORY_LIMITS.contains(&limit)) => OUT_OF_MEMORY,
        ErrorKind::Limit if message.starts_with(TOO_MANY_COLUMNS) => "54011",
        ErrorKind::Limit => "54000",
        ErrorKind::Busy => INSUFFICIENT_RESOURCES,
        ErrorKind::Conflict => "40001",
        ErrorKind::Unavailable if message.starts_with(OUT_OF_TIME) => QUERY_CANCELED,
        ErrorKind::Unavailable if error.fact("disk") == Some("full") => DISK_FULL,
        ErrorKind::Unavailable => "57P03",
        ErrorKind::Unauthenticated => "28000",
        ErrorKind::Forbidden => "42501",
        ErrorKind::Corrupt => "XX001",
        ErrorKind::Internal => "XX000",
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
        let error = Error::input("there is no column \"wrong\"").with("line", 2).with("column", 3);
        let problem = Problem::from(error).within(text, 10);
        assert_eq!((problem.state, problem.said.position), ("42703", Some(23)));
        assert_eq!(text.chars().skip(22).collect::<String>(), "wrong");
        let fields = problem.fields();
        assert!(fields.contains(&(b'P', "23".into())) && fields.contains(&(b'S', "ERROR".into())), "{fields:?}");
    }

    #[test]
    fn what_is_beyond_a_limit_has_the_state_of_it() {
        let state = |error: Error| Problem::from(error).state;
        assert_eq!(state(Error::unavailable("the query cannot spill to the disk").with("disk", "full")), "53100");
        assert_eq!(state(Error::busy("the node is busy")), "53000");
        assert_eq!(state(Error::limit("it needs more memory").with("limit", "serving.limits.query_memory")), "53200");
        assert_eq!(state(Error::limit("it has more rows").with("limit", "serving.limits.result_rows")), "54000");
        assert_eq!(state(Error::unavailable("the query was stopped after 1s, the setting serving.limits.query_time")), "57014");
    }

    #[test]
    fn what_helps_is_a_hint_and_what_else_is_known_a_detail() {
        let problem = Problem::from(Error::unavailable("the view is being built").with("percent", 12).with("help", "ask again later"));
        assert_eq!(
            (problem.state, problem.said.hint.as_deref(), problem.said.detail.as_deref()),
            ("57P03", Some("ask again later"), Some("percent: 12"))
        );
    }
}
