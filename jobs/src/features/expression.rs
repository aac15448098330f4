//! Expressions of features: `OPERATOR(window, event_type, target[=value], ..)`, `F_NAME(arg[=value], ..)`, names,
//! numbers and texts in single quotes.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::str::Chars;

use super::MAX_DEPTH;
use crate::output::count_of;

/// One expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    /// A field, an event type or a window.
    Name(String),
    Number(String),
    Text(String),
    Call(String, Vec<Argument>),
}

/// `expression` or `expression=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Argument {
    pub expression: Expression,
    pub value: Option<Expression>,
}

/// A macro: its parameters, and what a call is replaced by.
#[derive(Debug, Clone)]
pub(super) struct Macro {
    pub parameters: Vec<String>,
    pub body: Expression,
}

/// Parses a whole text as one expression.
pub(super) fn parse(text: &str) -> Result<Expression, String> {
    let mut parser = Parser { rest: text.chars().peekable(), text };
    let parsed = parser.expression(0)?;
    match parser.next() {
        None => Ok(parsed),
        Some(found) => Err(parser.unexpected(found, "the end")),
    }
}

/// No field has such a name: it is a word of SQL.
pub(super) fn is_boolean(name: &str) -> bool {
    matches!(name, "true" | "false")
}

/// The event types that the operators of an expression without macros read.
pub(super) fn event_types(expression: &Expression) -> BTreeSet<&str> {
    let Expression::Call(name, arguments) = expression else { return BTreeSet::new() };
    let mut found: BTreeSet<&str> = BTreeSet::new();
    if let (false, [_, Argument { expression: Expression::Name(event_type), .. }, ..]) = (name.starts_with("F_"), arguments.as_slice()) {
        found.insert(event_type);
    }
    for Argument { expression, value } in arguments {
        found.extend(event_types(expression));
        found.extend(value.iter().flat_map(event_types));
    }
    found
}

/// Replaces the calls of macros, those in the bodies of macros too.
pub(super) fn expand(expression: &Expression, macros: &BTreeMap<String, Macro>, depth: usize) -> Result<Expression, String> {
    let Expression::Call(name, arguments) = expression else { return Ok(expression.clone()) };
    if depth > MAX_DEPTH {
        return Err(format!("{name} nests deeper than {MAX_DEPTH} calls: does a macro call itself?"));
    }
    let mut expanded = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let value = argument.value.as_ref().map(|value| expand(value, macros, depth + 1)).transpose()?;
        expanded.push(Argument { expression: expand(&argument.expression, macros, depth + 1)?, value });
    }
    if !name.starts_with("M_") {
        return Ok(Expression::Call(name.clone(), expanded));
    }
    let Some(called) = macros.get(name) else { return Err(format!("there is no macro {name}; expected an `add-macro` with this name")) };
    if called.parameters.len() != expanded.len() {
        return Err(format!("{name} takes {}, found {}", count_of(called.parameters.len(), "argument"), expanded.len()));
    }
    let given: BTreeMap<&str, &Argument> = called.parameters.iter().map(String::as_str).zip(&expanded).collect();
    let replaced = substitute(&called.body, &given).map_err(|message| format!("in the macro {name}, {message}"))?;
    expand(&replaced, macros, depth + 1)
}

fn substitute(expression: &Expression, given: &BTreeMap<&str, &Argument>) -> Result<Expression, String> {
    match expression {
        Expression::Name(name) => match given.get(name.as_str()) {
            None => Ok(expression.clone()),
            Some(Argument { expression, value: None }) => Ok(expression.clone()),
            Some(_) => Err(format!("the argument for `{name}` has a value, and stands where none can")),
        },
        Expression::Number(_) | Expression::Text(_) => Ok(expression.clone()),
        Expression::Call(name, arguments) => {
            let arguments = arguments.iter().map(|argument| substitute_argument(argument, given)).collect::<Result<_, _>>()?;
            Ok(Expression::Call(name.clone(), arguments))
        }
    }
}

/// An argument that is a parameter alone takes the value too that the call gives it.
fn substitute_argument(argument: &Argument, given: &BTreeMap<&str, &Argument>) -> Result<Argument, String> {
    if let (Expression::Name(name), None) = (&argument.expression, &argument.value)
        && let Some(given) = given.get(name.as_str())
    {
        return Ok((*given).clone());
    }
    let value = argument.value.as_ref().map(|value| substitute(value, given)).transpose()?;
    Ok(Argument { expression: substitute(&argument.expression, given)?, value })
}

struct Parser<'a> {
    rest: Peekable<Chars<'a>>,
    text: &'a str,
}

impl Parser<'_> {
    fn expression(&mut self, depth: usize) -> Result<Expression, String> {
        if depth > MAX_DEPTH {
            return Err(format!("calls nest deeper than {MAX_DEPTH}"));
        }
        match self.peek() {
            Some('\'') => self.quoted(),
            Some(c) if c.is_ascii_alphanumeric() || c == '_' || c == '-' => {
                let word = self.word();
                if self.peek() == Some('(') {
                    self.next();
                    return Ok(Expression::Call(word.to_ascii_uppercase(), self.arguments(depth)?));
                }
                let is_number = word.parse::<f64>().is_ok() && word.contains(|c: char| c.is_ascii_digit());
                let plain = word.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '-');
                if is_number && plain {
                    return Ok(Expression::Number(word));
                }
                if is_number {
                    return Err(format!("expected a number without an exponent, found `{word}` in `{}`", self.text));
                }
                if word.contains(['-', '.']) {
                    return Err(format!("expected a name or a number, found `{word}` in `{}`", self.text));
                }
                // A window has the case of its unit: another one may be another length.
                let is_window = word.starts_with(|c: char| c.is_ascii_digit());
                Ok(Expression::Name(if is_window { word } else { word.to_ascii_lowercase() }))
            }
            Some(found) => Err(self.unexpected(found, "a name, a number or a text in single quotes")),
            None => Err(format!("`{}` ends where a name, a number or a text was expected", self.text)),
        }
    }

    fn arguments(&mut self, depth: usize) -> Result<Vec<Argument>, String> {
        let mut arguments = Vec::new();
        if self.peek() == Some(')') {
            self.next();
            return Ok(arguments);
        }
        loop {
            let expression = self.expression(depth + 1)?;
            let value = match self.peek() == Some('=') {
                true => {
                    self.next();
                    Some(self.expression(depth + 1)?)
                }
                false => None,
            };
            arguments.push(Argument { expression, value });
            match self.next() {
                Some(',') => {}
                Some(')') => return Ok(arguments),
                Some(found) => return Err(self.unexpected(found, "`,` or `)`")),
                None => return Err(format!("a `)` is missing in `{}`", self.text)),
            }
        }
    }

    fn quoted(&mut self) -> Result<Expression, String> {
        self.next();
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some('\'') if self.rest.peek() == Some(&'\'') => {
                    self.rest.next();
                    text.push('\'');
                }
                Some('\'') => return Ok(Expression::Text(text)),
                Some(c) => text.push(c),
                None => return Err(format!("a text in `{}` is not closed with a single quote", self.text)),
            }
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.next_if(|&c| c.is_ascii_alphanumeric() || c == '_' || c == '.' || (c == '-' && word.is_empty())) {
            word.push(c);
        }
        word
    }

    fn peek(&mut self) -> Option<char> {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        self.peek();
        self.rest.next()
    }

    fn unexpected(&self, found: char, expected: &str) -> String {
        format!("expected {expected}, found `{found}` in `{}`", self.text)
    }
}
