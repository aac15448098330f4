//! Limits how deeply a text may nest, before anything parses it. A parser builds a tree from a chain such as
//! `a + b + c`, and an unbounded tree takes an unbounded stack: in the parser, in the planner, or when it is dropped.
//!
//! Words and symbols are counted, whatever they mean, so that no operator can be forgotten.

use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, PostgreSqlDialect};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use types::{Error, Result};

/// Words and symbols between two brackets, in one item of a list; after FROM, across commas as well.
pub(crate) const MAX_STRETCH: usize = 1_024;
/// Nested brackets.
pub(crate) const MAX_BRACKETS: usize = 64;
/// Queries that WITH names.
pub(crate) const MAX_PARTS: usize = 128;
/// Nested EXPLAINs.
pub(crate) const MAX_EXPLAINS: usize = 4;
/// Words and symbols in one text.
pub(crate) const MAX_TOKENS: usize = 200_000;

/// Where a text exceeds a limit, and which limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TooDeep {
    pub(crate) location: Location,
    pub(crate) found: String,
    pub(crate) help: &'static str,
}

/// Returns how many tokens, of those that a text goes on with, count as one word of their stretch.
type WordLength = fn(&[&TokenWithSpan]) -> usize;

/// Returns the first place at which a text exceeds a limit.
pub(crate) fn too_deep<'a>(tokens: impl IntoIterator<Item = &'a TokenWithSpan>) -> Option<TooDeep> {
    first_excess(tokens, one_token)
}

fn first_excess<'a>(tokens: impl IntoIterator<Item = &'a TokenWithSpan>, word_length: WordLength) -> Option<TooDeep> {
    let mut text = Text { stretches: vec![Stretch::default()], ..Text::default() };
    let tokens: Vec<&TokenWithSpan> =
        tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF)).collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let length = word_length(&tokens[at..]);
        text.take(&token.token, tokens.get(at + 1).map(|next| &next.token));
        text.tokens += length - 1;
        if let Some((found, help)) = text.passes() {
            return Some(TooDeep { location: token.span.start, found, help });
        }
        at += length;
    }
    None
}

fn one_token(_: &[&TokenWithSpan]) -> usize {
    1
}

fn plain_arm_or_token(tokens: &[&TokenWithSpan]) -> usize {
    plain_arm(tokens).unwrap_or(1)
}

/// The length of an arm of a CASE that compares with a constant and returns one, such as `WHEN t.a = 'x' THEN -1`. It
/// nests nothing: the arms of a CASE are a list. Nothing else in SQL looks like it: where THEN is the name of what
/// stands before it, no constant follows.
fn plain_arm(tokens: &[&TokenWithSpan]) -> Option<usize> {
    let token = |at: usize| tokens.get(at).map(|token| &token.token);
    let is = |at: usize, word: &str| token(at).is_some_and(|token| is_word(token, word));
    let after_constant = |at: usize| match token(at)? {
        Token::Number(..) | Token::SingleQuotedString(_) => Some(at + 1),
        Token::Minus if matches!(token(at + 1), Some(Token::Number(..))) => Some(at + 2),
        _ => None,
    };
    if !is(0, "when") {
        return None;
    }
    let constant = match (token(1), token(2), token(3), token(4)) {
        (Some(Token::Word(_)), Some(Token::Eq), ..) => 3,
        (Some(Token::Word(_)), Some(Token::Period), Some(Token::Word(_)), Some(Token::Eq)) => 5,
        _ => 1,
    };
    let then = after_constant(constant).filter(|at| is(*at, "then"))?;
    let end = after_constant(then + 1)?;
    ["when", "else", "end"].into_iter().any(|word| is(end, word)).then_some(end)
}

/// A text may have this many bytes: its tokens take a multiple of them.
const MAX_TEXT_BYTES: usize = 2 << 20;

/// Refuses a text that is too long to be taken apart.
///
/// Errors: `Limit`.
pub fn check_length(sql: &str) -> Result<()> {
    match sql.len() {
        0..=MAX_TEXT_BYTES => Ok(()),
        found => {
            Err(Error::limit(format!("found an SQL text of {found} bytes, expected at most {MAX_TEXT_BYTES}: pass values as parameters")))
        }
    }
}

/// Same as `too_deep`, for a text, in the dialects of all that parse it: what is one literal in one is an expression in
/// another. Errors: `Input` with line and column, `Limit` for a text that is too long. Accepts a text that is not SQL:
/// the parser refuses it.
pub fn check_depth(sql: &str) -> Result<()> {
    check(sql, one_token)
}

/// Same as `check_depth`, for a text that is parsed and not planned: a plain arm of a CASE counts as one word. To
/// plan a CASE that is compared with a constant takes time cubic in its arms.
pub fn check_depth_to_parse(sql: &str) -> Result<()> {
    check(sql, plain_arm_or_token)
}

fn check(sql: &str, word_length: WordLength) -> Result<()> {
    check_length(sql)?;
    for dialect in [&GenericDialect {} as &dyn Dialect, &PostgreSqlDialect {}] {
        let mut tokens = Vec::new();
        let _ = Tokenizer::new(dialect, sql).tokenize_with_location_into_buf(&mut tokens);
        if let Some(TooDeep { location, found, help }) = first_excess(&tokens, word_length) {
            return Err(Error::input(format!("line {}, column {}: found {found}: {help}", location.line, location.column)));
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Text {
    tokens: usize,
    parts: usize,
    explains: usize,
    /// The open brackets, innermost last.
    stretches: Vec<Stretch>,
}

/// The content between two brackets.
#[derive(Debug, Default)]
struct Stretch {
    tokens: usize,
    /// Nested types, as in `ARRAY<ARRAY<..` and `INT[][]..`; subscripts count as well.
    types: usize,
    is_past_from: bool,
}

impl Text {
    fn take(&mut self, token: &Token, next: Option<&Token>) {
        self.tokens += 1;
        let is_inside = self.stretches.len() > 1;
        let Some(stretch) = self.stretches.last_mut() else { return };
        stretch.tokens += 1;
        match token {
            Token::LParen | Token::LBrace => self.stretches.push(Stretch::default()),
            Token::LBracket => {
                stretch.types += 1;
                self.stretches.push(Stretch::default());
            }
            Token::RParen | Token::RBrace | Token::RBracket if is_inside => drop(self.stretches.pop()),
            Token::Comma if !stretch.is_past_from => *stretch = Stretch::default(),
            Token::SemiColon => self.end_statement(),
            _ if is_word(token, "from") => stretch.is_past_from = true,
            _ if is_word(token, "explain") => self.explains += 1,
            _ if is_word(token, "as") => self.parts += usize::from(next == Some(&Token::LParen)),
            _ => {
                stretch.types += usize::from(next == Some(&Token::Lt) && ["array", "struct", "map"].iter().any(|word| is_word(token, word)))
            }
        }
    }

    fn end_statement(&mut self) {
        (self.parts, self.explains) = (0, 0);
        self.stretches = vec![Stretch::default()];
    }

    fn passes(&self) -> Option<(String, &'static str)> {
        let stretch = self.stretches.last()?;
        let more = |limit: usize, of: &str| format!("more than {limit} {of}");
        if self.tokens > MAX_TOKENS {
            return Some((more(MAX_TOKENS, "words and symbols"), "ask in several texts"));
        }
        if self.stretches.len() > MAX_BRACKETS || stretch.types > MAX_BRACKETS {
            return Some((more(MAX_BRACKETS, "brackets in one another"), "name parts of it with WITH"));
        }
        if self.parts > MAX_PARTS {
            return Some((more(MAX_PARTS, "named parts"), "ask in several texts"));
        }
        if self.explains > MAX_EXPLAINS {
            return Some((more(MAX_EXPLAINS, "times EXPLAIN"), "expected one"));
        }
        (stretch.tokens > MAX_STRETCH).then(|| {
            (more(MAX_STRETCH, "words and symbols in a row"), "put parts of it into brackets, or a long list of values into IN (..)")
        })
    }
}

fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

#[cfg(test)]
mod tests;
