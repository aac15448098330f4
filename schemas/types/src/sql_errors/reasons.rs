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
    BEGINNINGS.iter().find(|(beginning, _)| message.starts_with(beginning)).map(|(_, reason)| *reason)
}
