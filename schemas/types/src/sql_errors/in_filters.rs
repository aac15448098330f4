//! Errors of conditions that the reader of a Parquet file evaluates. DataFusion hands them on as their debug text, in
//! an error of the file: here the text becomes the error again.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use parquet::errors::ParquetError;

const BEGINNING: &str = "Error evaluating filter predicate: ";

/// Returns the error of a condition in place of that of the file whose rows it was evaluated for, if that is the error.
pub(crate) fn error_in_filter(error: &DataFusionError) -> Option<DataFusionError> {
    let DataFusionError::ParquetError(of_file) = error.find_root() else { return None };
    let ParquetError::External(inner) = &**of_file else { return None };
    let Some(ArrowError::ComputeError(text)) = inner.downcast_ref::<ArrowError>() else { return None };
    text.strip_prefix(BEGINNING).map(from_debug)
}

fn from_debug(text: &str) -> DataFusionError {
    if let Some(arguments) = text.strip_prefix("ArrowError(") {
        let error = arguments.rsplit_once(", ").map_or(arguments, |(error, _backtrace)| error);
        return of_arrow(error);
    }
    if let Some(ours) = text.strip_prefix("External(") {
        let ours = ours.strip_suffix(')').unwrap_or(ours);
        return match ours.split_once(" error: ") {
            Some(("Limit", message)) => DataFusionError::ResourcesExhausted(message.to_owned()),
            Some(("Input", message)) => DataFusionError::Execution(message.to_owned()),
            _ => DataFusionError::Internal(ours.to_owned()),
        };
    }
    if let Some(text) = text.strip_prefix("Execution(\"") {
        return DataFusionError::Execution(unquoted(text));
    }
    if let Some(text) = text.strip_prefix("ResourcesExhausted(\"") {
        return DataFusionError::ResourcesExhausted(unquoted(text));
    }
    DataFusionError::Internal(text.to_owned())
}

/// How a kind of error is made of its message.
type OfMessage = fn(String) -> ArrowError;

fn of_arrow(text: &str) -> DataFusionError {
    const KINDS: [(&str, OfMessage); 5] = [
        ("CastError(\"", ArrowError::CastError),
        ("ParseError(\"", ArrowError::ParseError),
        ("ComputeError(\"", ArrowError::ComputeError),
        ("ArithmeticOverflow(\"", ArrowError::ArithmeticOverflow),
        ("InvalidArgumentError(\"", ArrowError::InvalidArgumentError),
    ];
    if let Some(inner) = text.strip_prefix("ExternalError(") {
        return from_debug(inner.strip_suffix(')').unwrap_or(inner));
    }
    let of_kind = KINDS.iter().find_map(|(kind, error)| Some(error(unquoted(text.strip_prefix(kind)?))));
    match of_kind {
        Some(error) => DataFusionError::ArrowError(Box::new(error), None),
        None if text == "DivideByZero" => DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None),
        None => DataFusionError::Internal(text.to_owned()),
    }
}

/// Returns the text up to its closing double quote, without the escapes of Rust's debug form.
fn unquoted(text: &str) -> String {
    let mut unquoted = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next().filter(|char| *char != '"') {
        if char != '\\' {
            unquoted.push(char);
            continue;
        }
        match chars.next() {
            Some('n') => unquoted.push('\n'),
            Some('r') => unquoted.push('\r'),
            Some('t') => unquoted.push('\t'),
            Some('0') => unquoted.push('\0'),
            Some('u') => {
                let digits: String = chars.by_ref().skip(1).take_while(|digit| *digit != '}').collect();
                unquoted.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
            }
            Some(escaped) => unquoted.push(escaped),
            None => break,
        }
    }
    unquoted
}
