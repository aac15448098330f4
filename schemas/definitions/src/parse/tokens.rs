//! Splits a text into tokens with their places, and provides a cursor over the tokens of one statement.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};

use crate::Diagnostic;
use types::sql_errors::SqlPlace;

/// A token that is not white space or a comment, and its byte range in the text.
#[derive(Debug, Clone)]
pub(super) struct Lexeme {
    pub(super) token: TokenWithSpan,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Line and column, counted from 1, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TextPosition {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A position in one statement: reads words and symbols, and never moves past the end.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    source: &'a str,
    lexemes: &'a [Lexeme],
    next: usize,
}

/// Cuts a text into tokens. If it cannot continue (an open quote), returns the tokens so far and the reason.
pub(super) fn cut(source: &str) -> (Vec<Lexeme>, Option<Diagnostic>) {
    let mut tokens = Vec::new();
    // The dialect that our sessions use for planning.
    let outcome = Tokenizer::new(&GenericDialect {}, source).tokenize_with_location_into_buf(&mut tokens);
    let mut problem = outcome.err().map(|error| TextPosition::from(error.location).error(lower_first(&error.message)));
    let mut bytes = ByteFinder::new(source);
    let mut lexemes = Vec::with_capacity(tokens.len());
    let mut reached = Location::new(1, 1);
    for token in tokens {
        if token.span.start != reached {
            problem.get_or_insert_with(|| comment_hint(reached));
            break;
        }
        reached = token.span.end;
        let (start, end) = (bytes.find(token.span.start), bytes.find(token.span.end));
        if !matches!(token.token, Token::Whitespace(_) | Token::EOF) {
            lexemes.push(Lexeme { token, start, end });
        }
    }
    if problem.is_none() && TextPosition::from(reached) != TextPosition::behind(source) {
        problem = Some(comment_hint(reached));
    }
    (lexemes, problem)
}

/// The tokenizer reads `/*! .. */` as SQL, and its tokens have no places; the places of all other tokens are
/// contiguous.
fn comment_hint(at: Location) -> Diagnostic {
    TextPosition::from(at).error("found a comment that begins with '/*!' at or before this place").help("write /* .. */ or -- ..")
}

impl Lexeme {
    pub(super) fn place(&self) -> TextPosition {
        self.token.span.start.into()
    }

    /// Returns the place right after the token.
    pub(super) fn end_place(&self) -> TextPosition {
        self.token.span.end.into()
    }

    pub(super) fn is(&self, token: &Token) -> bool {
        self.token.token == *token
    }

    /// True if this is the word, unquoted, in any case.
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.token.token, Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case(word))
    }
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a str, lexemes: &'a [Lexeme]) -> Self {
        Self { source, lexemes, next: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'a Lexeme> {
        self.lexemes.get(self.next)
    }

    pub(super) fn peek_second(&self) -> Option<&'a Lexeme> {
        self.lexemes.get(self.next + 1)
    }

    pub(super) fn advance(&mut self) -> Option<&'a Lexeme> {
        let lexeme = self.lexemes.get(self.next)?;
        self.next += 1;
        Some(lexeme)
    }

    /// Returns the remaining tokens.
    pub(super) fn rest(&self) -> &'a [Lexeme] {
        &self.lexemes[self.next.min(self.lexemes.len())..]
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.next >= self.lexemes.len()
    }

    pub(super) fn at_word(&self, word: &str) -> bool {
        self.peek().is_some_and(|lexeme| lexeme.is_word(word))
    }

    pub(super) fn at(&self, token: &Token) -> bool {
        self.peek().is_some_and(|lexeme| lexeme.is(token))
    }

    /// Consumes the word if it is next.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        self.next += usize::from(found);
        found
    }

    /// Consumes the words if all of them are next.
    pub(super) fn take_words(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(i, word)| self.lexemes.get(self.next + i).is_some_and(|lexeme| lexeme.is_word(word)));
        self.next += if found { words.len() } else { 0 };
        found
    }

    /// Consumes the symbol if it is next.
    pub(super) fn take(&mut self, token: &Token) -> bool {
        let found = self.at(token);
        self.next += usize::from(found);
        found
    }

    /// Returns the place of the next token, or the place right after the last one.
    pub(super) fn place(&self) -> TextPosition {
        match (self.peek(), self.lexemes.last()) {
            (Some(lexeme), _) => lexeme.place(),
            (None, Some(last)) => last.end_place(),
            (None, None) => TextPosition { line: 1, column: 1 },
        }
    }

    /// Returns the next token as messages show it.
    pub(super) fn found(&self) -> String {
        match self.peek() {
            Some(lexeme) => self.describe(lexeme),
            None => "the end of the statement".to_owned(),
        }
    }

    /// Returns an error at the next token: what was found, and what was expected.
    pub(super) fn expected(&self, what: &str) -> Diagnostic {
        self.place().error(format!("found {}", self.found())).help(format!("expected {what}"))
    }

    /// Returns a token's text, shortened.
    pub(super) fn describe(&self, lexeme: &Lexeme) -> String {
        const LONGEST: usize = 40;
        let text = self.text(lexeme);
        match text.chars().count() > LONGEST {
            true => format!("{}..", text.chars().take(LONGEST).collect::<String>()),
            false if text.starts_with('\'') => text.to_owned(),
            false => format!("'{text}'"),
        }
    }

    pub(super) fn text(&self, lexeme: &Lexeme) -> &'a str {
        self.source.get(lexeme.start..lexeme.end).unwrap_or_default()
    }

    /// Returns the source from the first of these tokens to the last.
    pub(super) fn text_of(&self, lexemes: &[Lexeme]) -> &'a str {
        match (lexemes.first(), lexemes.last()) {
            (Some(first), Some(last)) => self.source.get(first.start..last.end).unwrap_or_default(),
            _ => "",
        }
    }

    /// Moves to the next `,` or `)` of the list the cursor is in, or to the end.
    pub(super) fn skip_item(&mut self) {
        let mut depth = 0usize;
        while let Some(lexeme) = self.peek() {
            match lexeme.token.token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 0 => return,
                Token::RParen => depth -= 1,
                Token::Comma if depth == 0 => return,
                _ => {}
            }
            self.next += 1;
        }
    }
}

impl TextPosition {
    pub(super) fn error(self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(self.line, self.column, message)
    }

    pub(super) fn right(self, characters: usize) -> TextPosition {
        TextPosition { column: self.column.saturating_add(characters), ..self }
    }

    /// Returns the place right after a text that begins at 1:1.
    pub(super) fn behind(text: &str) -> TextPosition {
        let last_line = text.rsplit('\n').next().unwrap_or_default();
        TextPosition { line: text.matches('\n').count() + 1, column: last_line.chars().count() + 1 }
    }
}

impl From<Location> for TextPosition {
    fn from(location: Location) -> Self {
        TextPosition { line: location.line as usize, column: location.column as usize }
    }
}

impl From<SqlPlace> for TextPosition {
    fn from(SqlPlace { line, column }: SqlPlace) -> Self {
        TextPosition { line, column }
    }
}

/// Finds the byte of a location. Locations mostly rise, so the search continues from the last one; otherwise it
/// restarts at the line.
struct ByteFinder<'a> {
    source: &'a str,
    lines: Vec<usize>,
    at: Location,
    byte: usize,
}

impl<'a> ByteFinder<'a> {
    fn new(source: &'a str) -> Self {
        let lines = std::iter::once(0).chain(source.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Self { source, lines, at: Location::new(1, 1), byte: 0 }
    }

    fn find(&mut self, location: Location) -> usize {
        if location.line != self.at.line || location.column < self.at.column {
            let line = (location.line as usize).saturating_sub(1);
            self.byte = self.lines.get(line).copied().unwrap_or(self.source.len());
            self.at = Location::new(location.line, 1);
        }
        let mut characters = self.source[self.byte..].chars();
        while self.at.column < location.column {
            match characters.next() {
                Some(character) if character != '\n' => self.byte += character.len_utf8(),
                _ => break,
            }
            self.at.column += 1;
        }
        self.byte
    }
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_lowercase().chain(characters).collect(),
        None => String::new(),
    }
}
