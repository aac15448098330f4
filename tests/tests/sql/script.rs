//! The format of sqllogictest, as far as the files use it.
//!
//! ```text
//! # a comment
//!
//! statement ok
//! CREATE STREAM ..
//!
//! query TI rowsort
//! SELECT device, n_1h FROM velocity
//! ----
//! phone 2
//!
//! query error
//! SELECT nothing FROM velocity
//! ----
//! the whole message; it ends at two empty lines
//! ```
//!
//! A row is its values with one space between them; NULL is `NULL`, an empty text `(empty)`. The letters after `query`
//! say how many columns there are: T, I, R, D (a time), B.

/// One record: what is asked, and what is expected.
#[derive(Debug)]
pub struct Record {
    /// Counted from 1.
    pub line: usize,
    pub text: String,
    pub expected: Expected,
}

#[derive(Debug)]
pub enum Expected {
    Done,
    /// The answer's rows; sorted as texts with `rowsort`.
    Rows {
        rows: Vec<String>,
        is_sorted: bool,
    },
    /// The lines of a message.
    Refusal(Vec<String>),
}

/// Errors: the line and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Record>, String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut records = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        if lines[at].trim().is_empty() || lines[at].starts_with('#') {
            at += 1;
            continue;
        }
        let (record, next) = record(&lines, at).map_err(|error| format!("{}: {error}", at + 1))?;
        records.push(record);
        at = next;
    }
    Ok(records)
}

/// The record that begins in this line, and the line after it.
fn record(lines: &[&str], begin: usize) -> Result<(Record, usize), String> {
    let head: Vec<&str> = lines[begin].split_whitespace().collect();
    let is_end = |line: &str| line.is_empty() || line == "----";
    let after_text = begin + 1 + lines[begin + 1..].iter().take_while(|line| !is_end(line)).count();
    let text = lines[begin + 1..after_text].join("\n");
    let has_answer = lines.get(after_text) == Some(&"----");
    let answer = &lines[(after_text + 1).min(lines.len())..];
    let (expected, length) = match (head.as_slice(), has_answer) {
        (["statement", "ok"], false) => (Expected::Done, 0),
        (["statement" | "query", "error"], true) => {
            let length = (0..answer.len()).find(|at| answer[*at].is_empty() && answer.get(at + 1).is_none_or(|next| next.is_empty()));
            let length = length.unwrap_or(answer.len());
            (Expected::Refusal(self::lines(&answer[..length].join("\n"))), length)
        }
        (["query", types, sort @ ..], true) => {
            let rows: Vec<String> = answer.iter().take_while(|line| !line.is_empty()).map(|line| one_space(line)).collect();
            let length = rows.len();
            columns(types)?;
            (Expected::Rows { rows, is_sorted: is_sorted(sort)? }, length)
        }
        _ => return Err(format!("found \"{}\" {}", lines[begin], if has_answer { "with ----" } else { "without ----" })),
    };
    Ok((Record { line: begin + 1, text, expected }, after_text + usize::from(has_answer) + length))
}

fn columns(types: &str) -> Result<usize, String> {
    match types.chars().all(|letter| "TIRDB".contains(letter)) {
        true => Ok(types.len()),
        false => Err(format!("found the types \"{types}\"; expected letters of TIRDB")),
    }
}

fn is_sorted(sort: &[&str]) -> Result<bool, String> {
    match sort {
        [] => Ok(false),
        ["rowsort"] => Ok(true),
        _ => Err(format!("found \"{}\"; expected nothing or rowsort", sort.join(" "))),
    }
}

/// A message's lines, without what surrounds them.
pub fn lines(message: &str) -> Vec<String> {
    message.lines().map(|line| one_space(line.trim())).filter(|line| !line.is_empty()).collect()
}

pub fn one_space(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
