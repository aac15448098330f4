//! Errors as clients get them: a gRPC status, and a message with the context and the place in the text.

use committed::damage::with_help;
use tonic::{Code, Status};
use types::{Error, ErrorKind, Reason};

/// A message travels in a header, and clients take few bytes of headers.
const MAX_MESSAGE_BYTES: usize = 2_000;

pub(crate) fn status(error: Error) -> Status {
    let error = with_help(error);
    if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Internal) {
        tracing::error!(%error, "a query over Flight SQL failed");
    }
    Status::new(code(&error), within_a_header(error.to_string()))
}

/// A call that would change something, or that asks for something we do not have.
pub(crate) fn unsupported(what: &str) -> Status {
    Status::unimplemented(format!(
        "{what} is not supported: expected queries, because nothing can be written here (events go in through the log, definitions \
         through apply)"
    ))
}

/// Counts an error that a client gets.
pub(crate) fn count(status: &Status) {
    metrics::counter!("basestream_serving_flight_errors_total", "status" => name(status.code())).increment(1);
}

fn code(error: &Error) -> Code {
    if let Some(code) = error.reason().and_then(code_of_reason) {
        return code;
    }
    match error.kind() {
        ErrorKind::Input => Code::InvalidArgument,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::Forbidden => Code::PermissionDenied,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Conflict => Code::Aborted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Limit | ErrorKind::Busy => Code::ResourceExhausted,
        ErrorKind::Internal => Code::Internal,
    }
}

/// The code of a reason that has another one than its kind.
fn code_of_reason(reason: Reason) -> Option<Code> {
    match reason {
        Reason::NotAQuery | Reason::WritesWithinQuery | Reason::NotSupported => Some(Code::Unimplemented),
        Reason::OutOfTime => Some(Code::DeadlineExceeded),
        Reason::Cancelled => Some(Code::Cancelled),
        Reason::SqlNotUnderstood
        | Reason::NotOneQuery
        | Reason::UnknownColumn
        | Reason::AmbiguousColumn
        | Reason::RepeatedColumn
        | Reason::UngroupedColumn
        | Reason::InvalidColumnReference
        | Reason::UnknownTable
        | Reason::UnknownFunction
        | Reason::UnknownParameter
        | Reason::InvalidAsOf
        | Reason::InvalidLimit
        | Reason::InvalidOffset
        | Reason::DivisionByZero
        | Reason::NumberTooLarge
        | Reason::InvalidPower
        | Reason::InvalidText
        | Reason::InvalidTime
        | Reason::TimeOutOfRange
        | Reason::UnknownTimeZone
        | Reason::AmbiguousLocalTime
        | Reason::InvalidPattern
        | Reason::NotUtf8
        | Reason::TooManyColumns => None,
    }
}

fn within_a_header(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push_str(" ..");
    }
    message
}

/// As the gRPC documentation writes it.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use serving::{only_queries, out_of_time};

    use super::*;

    #[test]
    fn a_status_says_what_the_caller_can_do_and_where_the_mistake_is() {
        let found = status(Error::input("there is no column \"x\"").with("line", 1).with("column", 8));
        assert_eq!((found.code(), found.message()), (Code::InvalidArgument, "there is no column \"x\" (line: 1, column: 8)"));
        for (error, code) in [
            (Error::input("no").with_reason(Reason::NotAQuery), Code::Unimplemented),
            (only_queries("DDL"), Code::Unimplemented),
            (Error::input("no").with_reason(Reason::NotSupported), Code::Unimplemented),
            (Error::input("no").with_reason(Reason::UnknownColumn), Code::InvalidArgument),
            (out_of_time("30s"), Code::DeadlineExceeded),
            (Error::unavailable("the query was stopped after 30s, its message says"), Code::Unavailable),
            (Error::conflict("no").with_reason(Reason::Cancelled), Code::Cancelled),
            (Error::unavailable("the view is being loaded"), Code::Unavailable),
            (Error::forbidden("no"), Code::PermissionDenied),
            (Error::limit("no"), Code::ResourceExhausted),
        ] {
            assert_eq!(status(error).code(), code);
        }
    }

    #[test]
    fn a_message_fits_into_a_header() {
        let found = status(Error::input("é".repeat(MAX_MESSAGE_BYTES)));
        assert!(found.message().len() < MAX_MESSAGE_BYTES + 10 && found.message().ends_with("é .."));
    }
}
