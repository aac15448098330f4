//! `to_char` in queries. DataFusion's function takes chrono's patterns, `%Y-%m-%d`, and returns PostgreSQL's, such as
//! `YYYY-MM-DD`, as they are. In queries, a pattern without `%` is one of PostgreSQL's: it is translated where chrono
//! has one with the same result, and refused otherwise.
//!
//! Definitions have DataFusion's function, because states may keep what it returned. `check` refuses PostgreSQL's
//! patterns in them.

use std::sync::Arc;

use arrow::array::{AsArray, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions::datetime;
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF};

use super::wrapped::{FunctionCall, Wrapped};
use types::{Error, Reason};

/// The fields that are numbers, in capitals or in small letters: PostgreSQL's name, chrono's, and chrono's without
/// leading zeros, which is the field after FM. The years are those from 1 on.
const NUMBERS: [(&str, &str, &str); 18] = [
    ("YYYY", "%Y", "%-Y"),
    ("YY", "%y", "%-y"),
    ("IYYY", "%G", "%-G"),
    ("Q", "%q", "%q"),
    ("MM", "%m", "%-m"),
    ("IW", "%V", "%-V"),
    ("DDD", "%j", "%-j"),
    ("DD", "%d", "%-d"),
    ("ID", "%u", "%u"),
    ("HH24", "%H", "%-H"),
    ("HH12", "%I", "%-I"),
    ("HH", "%I", "%-I"),
    ("MI", "%M", "%-M"),
    ("SS", "%S", "%-S"),
    ("MS", "%3f", "%3f"),
    ("US", "%6f", "%6f"),
    ("FF3", "%3f", "%3f"),
    ("FF6", "%6f", "%6f"),
];

/// The fields that are words, in these letters.
const WORDS: [(&str, &str); 6] = [("Mon", "%b"), ("Dy", "%a"), ("AM", "%p"), ("PM", "%p"), ("am", "%P"), ("pm", "%P")];

/// The same of those that PostgreSQL pads with blanks, if FM does not stand before them.
const PADDED_WORDS: [(&str, &str); 2] = [("Month", "%B"), ("Day", "%A")];

/// The other fields, in capitals or in small letters.
const UNEQUAL: [&str; 33] = [
    "Y,YYY", "YYY", "Y", "IYY", "IY", "I", "MONTH", "MON", "RM", "WW", "W", "IDDD", "DAY", "DY", "D", "J", "CC", "A.D.", "AD", "B.C.",
    "BC", "A.M.", "P.M.", "SSSSS", "SSSS", "FF1", "FF2", "FF4", "FF5", "TZH", "TZM", "TZ", "OF",
];

/// Without leading zeros and blanks.
const FILL_MODE: [&str; 2] = ["FM", "fm"];
const OTHER_PREFIXES: [&str; 4] = ["FX", "fx", "TM", "tm"];
/// What makes an ordinal number of the field before it, or spells it.
const SUFFIXES: [&str; 3] = ["TH", "th", "SP"];

const EXPECTED: &str = "expected YYYY, YY, Q, MM, Mon, FMMonth, DD, DDD, Dy, FMDay, HH24, HH12, MI, SS, MS, US, AM, IYYY, IW and ID, \
    with letters in double quotes (YYYY-MM-DD\"T\"HH24:MI:SS); or fields that begin with %, such as %Y-%m-%d";

/// The only pattern of a difference of times. DataFusion ignores any other.
const OF_DIFFERENCE: &str = "ISO8601";

/// Returns the function for the sessions of queries.
pub fn to_char() -> ScalarUDF {
    ScalarUDF::from(Wrapped { inner: datetime::to_char(), call: ReadPattern })
}

/// Whether a function is `to_char`, of definitions or of queries.
pub(crate) fn is_to_char(function: &ScalarUDF) -> bool {
    function.name() == datetime::to_char().name()
}

/// Returns chrono's pattern with the same result as one of PostgreSQL's, and one with chrono's fields as it is.
///
/// Errors: what chrono has nothing for.
pub fn chrono_pattern(pattern: &str) -> Result<String, String> {
    if pattern.contains('%') {
        return Ok(pattern.to_owned());
    }
    if pattern.is_empty() {
        return Err("an empty text".to_owned());
    }
    let (mut written, mut rest) = (String::new(), pattern);
    while let Some(char) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            rest = after_quoted(quoted, &mut written);
            continue;
        }
        if let Some(prefix) = first_of(&OTHER_PREFIXES, rest) {
            return Err(prefix.to_owned());
        }
        let fill_mode = first_of(&FILL_MODE, rest);
        let after_prefix = &rest[fill_mode.map_or(0, str::len)..];
        let Some(field) = field_at(after_prefix) else {
            if let Some(prefix) = fill_mode {
                return Err(format!("{prefix} before what is no field"));
            }
            let literal = if rest.starts_with("\\\"") { '"' } else { char };
            written.push(literal);
            rest = &rest[if literal == char { char.len_utf8() } else { 2 }..];
            continue;
        };
        let (name, after) = after_prefix.split_at(field.length);
        if let Some(suffix) = first_of(&SUFFIXES, after) {
            return Err(format!("{name}{suffix}"));
        }
        let in_chrono = if fill_mode.is_some() { field.bare } else { field.padded };
        written.push_str(in_chrono.ok_or_else(|| name.to_owned())?);
        rest = after;
    }
    Ok(written)
}

/// A field at the beginning of a text.
struct Field {
    length: usize,
    /// Chrono's field with the same result.
    padded: Option<&'static str>,
    /// The same after FM.
    bare: Option<&'static str>,
}

/// The longest field that a text begins with, as PostgreSQL finds it.
fn field_at(text: &str) -> Option<Field> {
    let is_there = |name: &str, in_small_letters: bool| {
        text.starts_with(name) || (in_small_letters && text.starts_with(name.to_ascii_lowercase().as_str()))
    };
    let numbers = NUMBERS.iter().map(|(name, padded, bare)| (*name, true, Some(*padded), Some(*bare)));
    let words = WORDS.iter().map(|(name, word)| (*name, false, Some(*word), Some(*word)));
    let padded_words = PADDED_WORDS.iter().map(|(name, word)| (*name, false, None, Some(*word)));
    let unequal = UNEQUAL.iter().map(|name| (*name, true, None, None));
    let fields = numbers.chain(words).chain(padded_words).chain(unequal);
    let longest = fields.filter(|(name, in_small_letters, ..)| is_there(name, *in_small_letters)).max_by_key(|(name, ..)| name.len());
    longest.map(|(name, _, padded, bare)| Field { length: name.len(), padded, bare })
}

fn first_of<'t>(words: &[&'t str], text: &str) -> Option<&'t str> {
    words.iter().copied().find(|word| text.starts_with(word))
}

/// Writes what stands in double quotes, and returns what follows it. A backslash stands before a character that is
/// meant as it is.
fn after_quoted<'t>(text: &'t str, written: &mut String) -> &'t str {
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => break,
            '\\' => written.push(chars.next().unwrap_or(char)),
            other => written.push(other),
        }
    }
    chars.as_str()
}

/// The pattern for DataFusion's function.
fn read(pattern: &str, is_of_difference: bool) -> types::Result<String> {
    if is_of_difference {
        if pattern.contains('%') || pattern.eq_ignore_ascii_case(OF_DIFFERENCE) {
            return Ok(pattern.to_owned());
        }
        let message = format!("to_char of a difference of times: found the pattern '{pattern}', expected '{OF_DIFFERENCE}'");
        return Err(Error::input(message).with_reason(Reason::NotSupported));
    }
    chrono_pattern(pattern).map_err(|found| {
        let message = format!("to_char: the pattern '{pattern}' is not supported: found {found}: {EXPECTED}");
        Error::input(message).with_reason(Reason::NotSupported)
    })
}

/// A pattern is read before the call.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadPattern;

impl FunctionCall for ReadPattern {
    fn call(&self, inner: &ScalarUDF, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [time, patterns] = arguments.args.as_mut_slice() {
            let is_of_difference = is_difference(&time.data_type());
            match patterns {
                ColumnarValue::Scalar(ScalarValue::Utf8(Some(pattern))) => *pattern = read(pattern, is_of_difference)?,
                ColumnarValue::Scalar(_) => {}
                ColumnarValue::Array(texts) => {
                    let of_chrono = |text: Option<&str>| text.map(|text| read(text, is_of_difference)).transpose();
                    *texts = Arc::new(texts.as_string::<i32>().iter().map(of_chrono).collect::<types::Result<StringArray>>()?);
                }
            }
        }
        inner.invoke_with_args(arguments)
    }

    /// A constant pattern that is not supported is an error also where no row is read.
    fn check(&self, arguments: &ReturnFieldArgs<'_>) -> Result<()> {
        if let ([time, _], [_, Some(pattern)]) = (arguments.arg_fields, arguments.scalar_arguments)
            && let Some(pattern) = pattern.try_as_str().flatten()
        {
            read(pattern, is_difference(time.data_type()))?;
        }
        Ok(())
    }
}

pub(crate) fn is_difference(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Duration(_))
}

#[cfg(test)]
mod tests;
