//! Reads the TOML text with its variables into settings, and finds the place of each mistake.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::variables::{Override, Variables};
use crate::{Diagnostic, Diagnostics};
use types::Result;
use types::redact::redacted_url;

/// Parses the text, applies the overrides, substitutes variables in every string, and deserializes the result as `T`.
pub(super) fn read<T: DeserializeOwned>(text: &str, path: &Path, project: &Path, variables: &Variables) -> Result<T> {
    let (overrides, mut problems) = variables.overrides();
    let locator = Locator { text, path, overrides: &overrides };
    let mut document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(error) => return Err(fail(locator.at(error.span(), error.message()))),
    };
    for (i, one) in overrides.iter().enumerate() {
        let span = locator.span_of(i);
        let wrong = lay_over(document.get_mut(), &one.keys, span.clone(), &one.value);
        problems.extend(wrong.map(|message| locator.at(Some(span), &message)));
    }
    let mut hidden = Hidden::default();
    for value in document.get_mut().iter_mut().map(|(_, value)| value) {
        substitute(value, project, variables, &locator, &mut problems, &mut hidden);
    }
    problems.into_result()?;
    T::deserialize(Deserializer::from(document)).map_err(|error| fail(locator.at(error.span(), &hidden.in_text(error.message()))))
}

/// Secret texts, each with its replacement: values that came from a variable or a file (whatever their key), and URLs
/// with passwords.
#[derive(Default)]
struct Hidden(BTreeMap<String, String>);

impl Hidden {
    fn add(&mut self, written: &str, read: &str) {
        let shown = if written == read { redacted_url(read) } else { written.to_owned() };
        if shown != read && !read.is_empty() {
            // Messages quote texts either as they are or escaped.
            self.0.insert(read.escape_debug().to_string(), shown.clone());
            self.0.insert(read.to_owned(), shown);
        }
    }

    fn in_text(&self, message: &str) -> String {
        // Longest first: one may contain another.
        let mut texts: Vec<(&String, &String)> = self.0.iter().collect();
        texts.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        texts.into_iter().fold(message.to_owned(), |message, (text, shown)| message.replace(text, shown))
    }
}

/// Finds the place of a mistake. Spans are byte offsets in the text, and after its end one number per override.
struct Locator<'a> {
    text: &'a str,
    path: &'a Path,
    overrides: &'a [Override<'a>],
}

impl Locator<'_> {
    fn span_of(&self, index: usize) -> Range<usize> {
        let at = self.text.len() + 1 + index;
        at..at
    }

    fn at(&self, span: Option<Range<usize>>, message: &str) -> Diagnostic {
        let Some(span) = span else { return Diagnostic::error(0, 0, message).in_file(Some(self.path)) };
        if let Some(index) = span.start.checked_sub(self.text.len() + 1)
            && let Some(one) = self.overrides.get(index)
        {
            return Diagnostic::error(0, 0, message).in_file(Some(&PathBuf::from(one.variable)));
        }
        let mut start = span.start.min(self.text.len());
        while !self.text.is_char_boundary(start) {
            start -= 1;
        }
        let before = &self.text[..start];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Diagnostic::error(line, column, message).in_file(Some(self.path))
    }
}

fn fail(diagnostic: Diagnostic) -> types::Error {
    types::Error::diagnostics(Diagnostics(vec![diagnostic]).to_string())
}

/// Sets the value at the path `keys`, replacing what is there. Returns what is wrong with the path.
fn lay_over<'a>(table: &mut DeTable<'a>, keys: &[String], span: Range<usize>, value: &DeValue<'a>) -> Option<String> {
    let (first, rest) = keys.split_first()?;
    let key = Spanned::new(span.clone(), Cow::Owned(first.clone()));
    if rest.is_empty() {
        table.insert(key, Spanned::new(span, value.clone()));
        return None;
    }
    if table.get(first.as_str()).is_none() {
        table.insert(key, Spanned::new(span.clone(), DeValue::Table(DeTable::new())));
    }
    match table.get_mut(first.as_str()).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => lay_over(inner, rest, span, value),
        _ => Some(format!("'{first}' is not a section of the file")),
    }
}

fn substitute(
    value: &mut Spanned<DeValue<'_>>,
    project: &Path,
    variables: &Variables,
    locator: &Locator<'_>,
    problems: &mut Diagnostics,
    hidden: &mut Hidden,
) {
    let span = value.span();
    match value.get_mut() {
        DeValue::String(text) => match variables.substitute(text, project) {
            Ok(new) => {
                hidden.add(text, &new);
                *text = Cow::Owned(new);
            }
            Err(message) => problems.push(locator.at(Some(span), &message)),
        },
        DeValue::Array(items) => items.iter_mut().for_each(|item| substitute(item, project, variables, locator, problems, hidden)),
        DeValue::Table(table) => {
            for (_, inner) in table.iter_mut() {
                substitute(inner, project, variables, locator, problems, hidden);
            }
        }
        _ => {}
    }
}
