//! The events of a body, apart, and the place at which an array of events is not valid JSON.

use serde_json::value::RawValue;
use types::{Error, Result};

/// Steps of a path that an error shows, characters of a member's name, and characters of what was found.
const MAX_SHOWN_STEPS: usize = 8;
const MAX_NAME_CHARS: usize = 40;
const MAX_FOUND_CHARS: usize = 20;

/// Returns the events of a body: the items of one JSON array, one object, or a line each.
///
/// Errors: `Input` for an empty body or a malformed array, ending with `expected`: what the body should be.
pub(super) fn event_texts<'b>(body: &'b [u8], expected: &str) -> Result<Vec<&'b [u8]>> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let trimmed = body.trim_ascii();
    match trimmed.first() {
        None => Err(Error::input(format!("the body is empty: {expected}"))),
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_slice(body).map_err(|error| malformed(body, &error, expected))?;
            Ok(items.into_iter().map(|item| item.get().as_bytes()).collect())
        }
        Some(_) if serde_json::from_slice::<&RawValue>(body).is_ok() => Ok(vec![trimmed]),
        Some(_) => Ok(trimmed.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).collect()),
    }
}

fn malformed(body: &[u8], error: &serde_json::Error, expected: &str) -> Error {
    let (line, column) = (error.line(), error.column());
    let offset = if error.is_eof() { body.len() } else { offset_of(body, line, column) };
    let (before, rest) = body.split_at(offset);
    let found = match rest.is_empty() {
        true => "its end".to_owned(),
        false => format!("'{}'", excerpt(rest, MAX_FOUND_CHARS)),
    };
    let path = path_after(before);
    let why = error.to_string();
    let why = why.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&why);
    Error::input(format!(
        "the array in the body is not valid JSON: {why}, found {found} at {path} (line {line}, column {column}); {expected}"
    ))
}

/// The offset of a byte by its line and its column in bytes, both counted from 1.
fn offset_of(text: &[u8], line: usize, column: usize) -> usize {
    let lines_before = text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1));
    let line_begins = lines_before.map(<[u8]>::len).sum::<usize>();
    (line_begins + column).saturating_sub(1).min(text.len())
}

/// Returns the first `max_chars` characters of a text, on one line.
fn excerpt(text: &[u8], max_chars: usize) -> String {
    // A character has at most four bytes.
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * max_chars)]);
    text.chars().take(max_chars).map(|char| if char.is_control() { ' ' } else { char }).collect()
}

enum Step<'t> {
    Element(usize),
    /// A member of an object, with its name once that was read.
    Member(Option<&'t [u8]>),
}

/// The path of what follows the beginning of a JSON text: `$[1].device.id`.
fn path_after(beginning: &[u8]) -> String {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut depth = 0_usize;
    let mut offset = 0;
    while let Some(byte) = beginning.get(offset) {
        offset += 1;
        let is_shown = depth <= MAX_SHOWN_STEPS;
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth <= MAX_SHOWN_STEPS {
                    steps.push(if *byte == b'[' { Step::Element(0) } else { Step::Member(None) });
                }
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if is_shown {
                    steps.pop();
                }
            }
            b',' if is_shown => match steps.last_mut() {
                Some(Step::Element(index)) => *index += 1,
                Some(Step::Member(name)) => *name = None,
                None => {}
            },
            b'"' => {
                let content = string_content(&beginning[offset..]);
                offset += content.len() + 1;
                if is_shown && let Some(Step::Member(name)) = steps.last_mut() {
                    // The first string of a member is its name.
                    name.get_or_insert(content);
                }
            }
            _ => {}
        }
    }
    let mut path = String::from("$");
    for step in &steps {
        match step {
            Step::Element(index) => path.push_str(&format!("[{index}]")),
            Step::Member(Some(name)) => path.push_str(&format!(".{}", excerpt(name, MAX_NAME_CHARS))),
            Step::Member(None) => {}
        }
    }
    if depth > steps.len() {
        path.push_str("..");
    }
    path
}

/// A string's content as it is written, up to the quote that closes it.
fn string_content(text: &[u8]) -> &[u8] {
    let mut is_escaped = false;
    let end = text.iter().position(|byte| {
        let closes = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        closes
    });
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests;
