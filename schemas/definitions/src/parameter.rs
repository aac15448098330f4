//! `CREATE PARAMETER`: a value that sinks and alerts use by name, and that can be set while they run.

use std::fmt;
use std::sync::Arc;

use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;

use crate::origin::Origin;

/// A value with a name. `param('name')` stands for it in the SELECT of a sink or an alert.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterDefinition {
    pub name: Arc<str>,
    pub value_type: ParameterType,
    /// The initial value, as [`ParameterType::value`] writes it.
    pub value: String,
    pub description: Option<String>,
    /// The statement's text.
    pub sql: String,
    pub origin: Origin,
}

const INTERVAL: &str =
    "an INTERVAL such as '30 minutes' or '1 day 12 hours', of years, months, weeks, days, hours, minutes, seconds, ms and us";

/// The SQL types of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    BigInt,
    Double,
    Decimal { precision: u8, scale: u8 },
    Text,
    Boolean,
    Interval,
}

/// As it is written in `CREATE PARAMETER`.
impl fmt::Display for ParameterType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterType::BigInt => f.write_str("BIGINT"),
            ParameterType::Double => f.write_str("DOUBLE"),
            ParameterType::Decimal { precision, scale } => write!(f, "DECIMAL({precision},{scale})"),
            ParameterType::Text => f.write_str("TEXT"),
            ParameterType::Boolean => f.write_str("BOOLEAN"),
            ParameterType::Interval => f.write_str("INTERVAL"),
        }
    }
}

impl ParameterType {
    /// Returns a value of this type in the one spelling in which it is stored. Every text is a value of TEXT; a number,
    /// a truth value and an interval are written as in SQL, without quotes: `30`, `0.5`, `true`, `30 minutes`.
    ///
    /// Errors: what was found and which type was expected; of an interval, which part of it is refused.
    pub fn value(self, text: &str) -> Result<String, String> {
        let trimmed = text.trim();
        let value = match self {
            ParameterType::Text => Some(text.to_owned()),
            ParameterType::BigInt => number(trimmed).and_then(|text| text.parse::<i64>().ok()).map(|value| value.to_string()),
            ParameterType::Double => {
                let value = number(trimmed).and_then(|text| text.parse::<f64>().ok()).filter(|value| value.is_finite());
                value.map(|value| format!("{value:?}"))
            }
            ParameterType::Decimal { precision, scale } => decimal(trimmed, usize::from(precision), usize::from(scale)),
            ParameterType::Boolean => truth(trimmed).map(|value| value.to_string()),
            ParameterType::Interval => is_interval(trimmed).then(|| trimmed.to_owned()),
        };
        value.ok_or_else(|| self.mismatch(trimmed))
    }

    fn mismatch(self, text: &str) -> String {
        if let ParameterType::Decimal { scale, .. } = self
            && places(text).is_some_and(|found| found > usize::from(scale))
        {
            let places = if scale == 1 { "place" } else { "places" };
            return format!("the value '{text}' has more than {scale} {places}: expected {self}");
        }
        let is_number = number(text).is_some();
        let found = match self {
            ParameterType::BigInt if is_number && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-' || byte == b'+') => {
                "a number past the range of the type"
            }
            ParameterType::Double if is_number => "a number past the range of the type",
            ParameterType::Decimal { .. } if is_number => "a number that does not fit",
            _ if text.parse::<i64>().is_ok() => "BIGINT",
            _ if is_number => "DOUBLE",
            _ if truth(text).is_some() => "BOOLEAN",
            _ if is_interval(text) => "INTERVAL",
            _ => "TEXT",
        };
        match self {
            ParameterType::Interval if found == "TEXT" => {
                format!("the value '{text}' is TEXT ({}): expected {INTERVAL}", refused_part(text))
            }
            ParameterType::Interval => format!("the value '{text}' is {found}: expected {INTERVAL}"),
            _ => format!("the value '{text}' is {found}: expected {self}"),
        }
    }
}

/// A text of digits, with a sign, a point and an exponent: no other spelling is a number.
fn number(text: &str) -> Option<&str> {
    let is_of_it = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    (text.bytes().all(is_of_it) && text.parse::<f64>().is_ok()).then_some(text)
}

/// How many digits a number has behind the point, up to the last that is not 0; `None` without a point, or with an
/// exponent.
fn places(text: &str) -> Option<usize> {
    let (_, fraction) = number(text)?.split_once('.')?;
    fraction.bytes().all(|byte| byte.is_ascii_digit()).then(|| fraction.trim_end_matches('0').len())
}

/// With all digits behind the point, and none before it that is not needed.
fn decimal(text: &str, precision: usize, scale: usize) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if fraction.len() > scale || whole.len() > precision - scale {
        return None;
    }
    let sign = if whole.is_empty() && fraction.is_empty() { "" } else { sign };
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction:0<scale$}") })
}

fn truth(text: &str) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// A number alone has no unit: it is not one.
fn is_interval(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic()) && number(text).is_none() && parse_interval_month_day_nano(text).is_ok()
}

/// Why a text is no interval. Numbers and units alternate, with a space between them or none.
fn refused_part(text: &str) -> String {
    let is_of_number = |character: char| character.is_ascii_digit() || matches!(character, '.' | '-');
    let mut units = Vec::new();
    let mut words = text.split(char::is_whitespace);
    while let Some(word) = words.next() {
        let (number, unit) = match word.find(|character: char| !is_of_number(character)) {
            Some(at) => (&word[..at], Some(&word[at..])),
            None => (word, words.next()),
        };
        if number.parse::<f64>().is_err() || number.ends_with('.') {
            return match number {
                "" => format!("'{word}' does not begin with a number"),
                _ => format!("'{number}' is no number"),
            };
        }
        let Some(unit) = unit else { return format!("'{number}' has no unit") };
        if unit.is_empty() {
            return format!("two spaces follow '{number}'");
        }
        let Ok(one) = parse_interval_month_day_nano(&format!("1 {unit}")) else { return format!("'{unit}' is no unit") };
        if units.contains(&one) {
            return format!("the unit '{unit}' is there twice");
        }
        units.push(one);
    }
    "a number in it is past the range of the type".to_owned()
}

#[cfg(test)]
mod tests;
