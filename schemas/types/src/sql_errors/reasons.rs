//! The reasons of errors for which Arrow and DataFusion have a text and no type. Their texts are read here and nowhere
//! else: the edges choose their codes by the [`Reason`].

use crate::Reason;

/// How these messages begin once they are in plain words.
const BEGINNINGS: [(&str, Reason); 15] = [
    ("cannot cast string", Reason::InvalidText),
    ("cannot cast value", Reason::InvalidText),
    ("invalid input syntax for type interval", Reason::InvalidTime),
    ("error parsing timestamp", Reason::InvalidTime),
    ("cannot take square root", Reason::InvalidPower),
    ("zero raised to a negative power", Reason::InvalidPower),
    ("LIMIT must be", Reason::InvalidLimit),
    ("OFFSET must be", Reason::InvalidOffset),
    ("not supported", Reason::NotSupported),
    ("order by column out of bounds", Reason::InvalidColumnReference),
    ("order by index starts at", Reason::InvalidColumnReference),
    ("cannot find column with position", Reason::InvalidColumnReference),
    ("for SELECT DISTINCT, ORDER BY expressions", Reason::InvalidColumnReference),
    ("aggregate functions are not allowed", Reason::UngroupedColumn),
    ("aggregate function calls cannot be nested", Reason::UngroupedColumn),
];

/// Returns the reason that a message of Arrow or DataFusion gives.
pub(super) fn reason_in(message: &str) -> Option<Reason> {
    if message.starts_with("cannot cast to ") && message.contains(". Overflowing on ") {
        return Some(Reason::NumberTooLarge);
    }
    of_time(message).or_else(|| BEGINNINGS.iter().find(|(beginning, _)| message.starts_with(beginning)).map(|(_, reason)| *reason))
}

/// Of a text that is no date or time: whether it has the form of one.
fn of_time(message: &str) -> Option<Reason> {
    let cast = message.strip_prefix("cannot cast string '").and_then(|rest| rest.split_once("' to value of "));
    let (text, _) = match cast {
        Some(cast) => Some(cast).filter(|(_, data_type)| matches!(*data_type, "DATE type" | "TIME type"))?,
        None => message.strip_prefix("error parsing timestamp from '")?.split_once("': ")?,
    };
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | ':' | ' ' | 'T' | '.' | '+');
    let has_form = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains(['-', ':']) && text.chars().all(is_part);
    Some(if has_form { Reason::TimeOutOfRange } else { Reason::InvalidTime })
}
