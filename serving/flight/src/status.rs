//! Errors as clients get them: a gRPC status, and a message with the context and the place in the text.

use committed::damage::with_help;
use tonic::{Code, Status};
use types::{Error, ErrorKind};

/// A message travels in a header, and clients take few bytes of headers.
const MAX_MESSAGE_BYTES: usize = 2_000;

/// How messages of errors begin that have another status than their kind.
const BY_MESSAGE: [(&str, Code); 4] = [
    ("only queries are supported", Code::Unimplemented),
    ("not supported", Code::Unimplemented),
    ("the query was stopped after", Code::DeadlineExceeded),
    ("the query was cancelled", Code::Cancelled),
];

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
        "{what} is not supported: expected queries, for nothing can be written here (events go in through the log, definitions through \
         apply)"
    ))
}

/// Counts an error that a client gets.
pub(crate) fn count(status: &Status) {
    metrics::counter!("basestream_serving_flight_errors_total", "status" => name(status.code())).increment(1);
}

fn code(error: &Error) -> Code {
    let message = error.message();
    if let Some((_, code)) = BY_MESSAGE.iter().find(|(start, _)| message.starts_with(start)) {
        return *code;
    }
    match error.kind() {
        ErrorKind::Input if message.contains("is not supported here") => Code::Unimplemented,
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
    use super::*;

    #[test]
    fn a_status_says_what_the_caller_can_do_and_where_the_mistake_is() {
        let found = status(Error::input("there is no column \"x\"").with("line", 1).with("column", 8));
        assert_eq!((found.code(), found.message()), (Code::InvalidArgument, "there is no column \"x\" (line: 1, column: 8)"));
        for (error, code) in [
            (Error::input("INSERT is not supported here: expected SELECT or EXPLAIN"), Code::Unimplemented),
            (Error::input("only queries are supported here: DDL"), Code::Unimplemented),
            (Error::unavailable("the query was stopped after 30s"), Code::DeadlineExceeded),
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
