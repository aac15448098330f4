//! Reads lists of options: `(key = 'value', flag = true)`, as after WITH and OPTIONS.

use std::time::Duration;

use datafusion::sql::sqlparser::tokenizer::{Token, Word};

use super::names::with_article;
use super::tokens::{Cursor, TextPosition};
use crate::Diagnostics;
use crate::durations::{parse_bytes, parse_duration_parts};
use types::suggest;

/// The options of one list: known names, each at most once.
#[derive(Debug)]
pub(super) struct Options {
    entries: Vec<OptionEntry>,
}

/// One option and its value.
#[derive(Debug, Clone)]
pub(super) struct OptionEntry {
    pub(super) name: String,
    pub(super) name_at: TextPosition,
    pub(super) value: OptionValue,
    pub(super) value_at: TextPosition,
    /// The value's characters are the same as in the source, so that a place inside it can be given.
    plain: bool,
    /// The value as written.
    written: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OptionValue {
    Text(String),
    Flag(bool),
    Number(String),
    /// Anything else: a bare word.
    Other,
}

impl Options {
    pub(super) fn none() -> Self {
        Self { entries: Vec::new() }
    }

    /// Reads a list from its `(` to its `)`. Unknown and repeated options are recorded and skipped.
    pub(super) fn parse(cursor: &mut Cursor<'_>, what: &str, known: &[&str], problems: &mut Diagnostics) -> Options {
        let mut options = Options::none();
        if !cursor.take(&Token::LParen) {
            problems.push(cursor.expected(&format!("'(' and the {what}'s options")));
            return options;
        }
        if cursor.take(&Token::RParen) {
            return options;
        }
        loop {
            match parse_entry(cursor, problems) {
                Some(entry) => options.add(entry, what, known, problems),
                None => cursor.skip_item(),
            }
            if cursor.take(&Token::RParen) {
                return options;
            }
            if !cursor.take(&Token::Comma) {
                problems.push(cursor.expected("',' or ')'"));
                cursor.skip_item();
                if cursor.take(&Token::RParen) || !cursor.take(&Token::Comma) {
                    return options;
                }
            }
        }
    }

    fn add(&mut self, entry: OptionEntry, what: &str, known: &[&str], problems: &mut Diagnostics) {
        if !known.contains(&entry.name.as_str()) {
            let help = match suggest::nearest(&entry.name, known.iter().copied()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("{} has: {}", with_article(what), known.join(", ")),
            };
            problems.push(entry.name_at.error(format!("unknown option '{}'", entry.name)).help(help));
        } else if self.find(&entry.name).is_some() {
            problems.push(entry.name_at.error(format!("the option '{}' is given twice", entry.name)).help("keep one of the two"));
        } else {
            self.entries.push(entry);
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&OptionEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns the text of an option, if it is present and is a text.
    pub(super) fn text(&self, name: &str, problems: &mut Diagnostics) -> Option<(&str, &OptionEntry)> {
        let entry = self.find(name)?;
        match &entry.value {
            OptionValue::Text(text) => Some((text, entry)),
            _ => {
                let message = format!("the option '{name}' is {}", entry.written);
                problems.push(entry.value_at.error(message).help(format!("expected text in single quotes: {name} = '..'")));
                None
            }
        }
    }

    pub(super) fn flag(&self, name: &str, problems: &mut Diagnostics) -> Option<bool> {
        let entry = self.find(name)?;
        match &entry.value {
            OptionValue::Flag(flag) => Some(*flag),
            OptionValue::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
            OptionValue::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
            _ => {
                let message = format!("the option '{name}' is {}", entry.written);
                problems.push(entry.value_at.error(message).help("expected true or false"));
                None
            }
        }
    }

    /// Returns a whole number of at least 1.
    pub(super) fn whole_number(&self, name: &str, problems: &mut Diagnostics) -> Option<u32> {
        let entry = self.find(name)?;
        let number = match &entry.value {
            OptionValue::Number(text) | OptionValue::Text(text) => text.trim().parse().ok().filter(|number| *number > 0),
            _ => None,
        };
        if number.is_none() {
            let message = format!("the option '{name}' is {}", entry.written);
            problems.push(entry.value_at.error(message).help(format!("expected a whole number from 1 to {}", u32::MAX)));
        }
        number
    }

    pub(super) fn bytes(&self, name: &str, problems: &mut Diagnostics) -> Option<u64> {
        let (text, entry) = self.text(name, problems)?;
        parse_bytes(text).map_err(|error| problems.push(entry.value_at.error(error.message()))).ok()
    }

    pub(super) fn duration(&self, name: &str, problems: &mut Diagnostics) -> Option<(Duration, &OptionEntry)> {
        let (text, entry) = self.text(name, problems)?;
        match parse_duration_parts(text) {
            Ok(duration) => Some((duration, entry)),
            Err(error) => {
                problems.push(entry.value_at.error(error.message()));
                None
            }
        }
    }
}

impl OptionEntry {
    /// Returns the place of a character of the value; the value's own place if its characters differ from the source's.
    pub(super) fn inside(&self, characters: usize) -> TextPosition {
        if self.plain { self.value_at.right(1 + characters) } else { self.value_at }
    }
}

fn parse_entry(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<OptionEntry> {
    let name_at = cursor.place();
    let Some(Token::Word(Word { value: name, quote_style: None, .. })) = cursor.peek().map(|lexeme| &lexeme.token.token) else {
        problems.push(cursor.expected("an option: name = 'value'"));
        return None;
    };
    let name = name.to_lowercase();
    cursor.advance();
    if !cursor.take(&Token::Eq) {
        problems.push(cursor.expected(&format!("'=' and the value of '{name}'")));
        return None;
    }
    let value_at = cursor.place();
    let at_delimiter = cursor.at(&Token::Comma) || cursor.at(&Token::RParen);
    let lexeme = if at_delimiter { None } else { cursor.peek() };
    let Some(lexeme) = lexeme else {
        problems.push(cursor.expected(&format!("the value of '{name}'")));
        return None;
    };
    cursor.advance();
    let value = match &lexeme.token.token {
        Token::SingleQuotedString(text) => OptionValue::Text(text.clone()),
        Token::Number(text, false) => OptionValue::Number(text.clone()),
        Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case("true") => OptionValue::Flag(true),
        Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case("false") => OptionValue::Flag(false),
        _ => OptionValue::Other,
    };
    let source = cursor.text(lexeme);
    let plain = matches!(&value, OptionValue::Text(text) if source.len() == text.len() + 2 && !text.contains('\n'));
    Some(OptionEntry { name, name_at, value, value_at, plain, written: cursor.describe(lexeme) })
}
