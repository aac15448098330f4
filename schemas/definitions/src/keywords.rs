//! Keywords in the places of names. The parser takes `offset` after a comma for the clause, and its error is about
//! whatever follows. Here the word itself is found, so that an error can say to write it in double quotes.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Interval, Statement};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};

use types::Error;
use types::sql_dialect::SqlDialect;
use types::sql_errors::{SqlPlace, parser_text};

use crate::syntax::SyntaxNode;

/// At most this many words are tried, and named: each is one more parse.
const MOST: usize = 8;
/// Where a parser stops that has read everything.
const END_OF_TEXT: SqlPlace = SqlPlace { line: usize::MAX, column: usize::MAX };
/// A text with more words and symbols is not parsed again.
const LONGEST: usize = 2_000;
/// Words after which an expression begins.
const BEFORE_A_NAME: [&str; 11] = ["select", "distinct", "by", "where", "having", "and", "or", "not", "on", "when", "then"];

/// A keyword that would be a name in double quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeywordAsName {
    /// As the name is written in double quotes.
    pub(crate) name: String,
    pub(crate) place: SqlPlace,
}

/// Returns the error for a text that cannot be parsed because keywords are used as names; `None` where
/// quotes would not help.
pub fn refusal(sql: &str) -> Option<Error> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().ok()?;
    error(&keywords_as_names(&tokens))
}

/// Returns the error for a statement of this text that uses INTERVAL as a name.
pub fn interval_refusal(sql: &str, statement: &Statement) -> Option<Error> {
    let after = word_as_interval(statement)?;
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().ok()?;
    error(&[interval_before(&tokens, after)?])
}

fn error(found: &[KeywordAsName]) -> Option<Error> {
    let SqlPlace { line, column } = found.first()?.place;
    let names: Vec<String> = found.iter().map(|keyword| format!("\"{}\"", keyword.name)).collect();
    let names = names.join(", ");
    let are = if found.len() == 1 { "is a keyword" } else { "are keywords" };
    Some(Error::not_understood(format_args!("{names} {are}")).with("line", line).with("column", column).with("help", help(&names)))
}

/// `names`: in double quotes.
pub(crate) fn help(names: &str) -> String {
    format!("to name a column, write it in double quotes: {names}")
}

/// Returns INTERVAL where a query that can be parsed has it in the place of a name: `SELECT interval FROM a` is an
/// interval of `from` to the parser.
pub(crate) fn interval_as_name(query: &impl SyntaxNode, tokens: &[TokenWithSpan]) -> Option<KeywordAsName> {
    interval_before(tokens, word_as_interval(query)?)
}

/// Where a word without quotes is the value of an interval, which has none but texts and numbers.
fn word_as_interval(node: &impl SyntaxNode) -> Option<SqlPlace> {
    let mut found = None;
    let _ = node.visit_expressions(|expr| {
        if let Expr::Interval(Interval { value, .. }) = expr
            && let Expr::Identifier(word) = &**value
            && word.quote_style.is_none()
        {
            found = Some(SqlPlace { line: word.span.start.line as usize, column: word.span.start.column as usize });
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found
}

/// The last INTERVAL before a place.
fn interval_before(tokens: &[TokenWithSpan], after: SqlPlace) -> Option<KeywordAsName> {
    let is_interval = |token: &TokenWithSpan| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::INTERVAL);
    let last = tokens.iter().take_while(|token| place(token) < after).filter(|token| is_interval(token)).last()?;
    Some(KeywordAsName { name: "interval".to_owned(), place: place(last) })
}

/// Returns the keywords of statements that cannot be parsed: with each of them in double quotes, the parser gets
/// further. None for statements that can be parsed.
pub(crate) fn keywords_as_names(tokens: &[TokenWithSpan]) -> Vec<KeywordAsName> {
    let is_read = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_) | Token::EOF);
    let mut tokens: Vec<TokenWithSpan> = tokens.iter().filter(is_read).cloned().collect();
    let mut found = Vec::new();
    if tokens.len() > LONGEST {
        return found;
    }
    while let Some(stopped) = stopped_at(&tokens) {
        let gets_further = |at: &usize| stopped_at(&with_quotes(&tokens, *at)).is_none_or(|later| later > stopped);
        let next = candidates(&tokens, stopped).into_iter().find(gets_further);
        let Some(at) = next.filter(|_| found.len() < MOST) else { break };
        let place = place(&tokens[at]);
        found.push(KeywordAsName { name: tokens[at].token.to_string().to_lowercase(), place });
        tokens = with_quotes(&tokens, at);
    }
    found.sort_by_key(|keyword| keyword.place);
    found
}

/// Where the parser stops.
fn stopped_at(tokens: &[TokenWithSpan]) -> Option<SqlPlace> {
    let mut parser = Parser::new(&SqlDialect).with_tokens_with_locations(tokens.to_vec());
    match parser.parse_statements() {
        Err(error) => Some(parser_text(&error.to_string()).1.unwrap_or(END_OF_TEXT)),
        // It takes END for the end of a block, and leaves what follows.
        Ok(_) => Some(parser.peek_token()).filter(|next| next.token != Token::EOF).map(|next| place(&next)),
    }
}

/// The keywords without quotes that may be names, up to the place at which the parser stops: the last ones.
fn candidates(tokens: &[TokenWithSpan], stopped: SqlPlace) -> Vec<usize> {
    let reached = tokens.partition_point(|token| place(token) <= stopped);
    let candidates: Vec<usize> = (1..reached).filter(|at| may_be_name(tokens, *at)).collect();
    candidates[candidates.len().saturating_sub(MOST)..].to_vec()
}

/// `at`: not the first.
fn may_be_name(tokens: &[TokenWithSpan], at: usize) -> bool {
    let Token::Word(Word { quote_style: None, keyword, .. }) = &tokens[at].token else { return false };
    let before = &tokens[at - 1].token;
    let next = tokens.get(at + 1).map(|next| &next.token);
    let is_in_list = *before == Token::Comma || next == Some(&Token::Comma);
    match keyword {
        Keyword::NoKeyword => false,
        // Before these a column may simply be missing.
        Keyword::FROM | Keyword::SELECT if !is_in_list => false,
        // Neither a call, nor the end of the text.
        _ => begins_an_expression(before) && next.is_some_and(|next| *next != Token::LParen),
    }
}

fn begins_an_expression(token: &Token) -> bool {
    match token {
        Token::Word(Word { value, quote_style: None, .. }) => BEFORE_A_NAME.iter().any(|word| value.eq_ignore_ascii_case(word)),
        Token::Comma | Token::LParen | Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq => true,
        Token::Plus | Token::Minus | Token::Mul | Token::Div | Token::Mod | Token::StringConcat => true,
        _ => false,
    }
}

fn with_quotes(tokens: &[TokenWithSpan], at: usize) -> Vec<TokenWithSpan> {
    let mut tokens = tokens.to_vec();
    if let Token::Word(word) = &mut tokens[at].token {
        *word = Word { value: word.value.to_lowercase(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
    }
    tokens
}

fn place(token: &TokenWithSpan) -> SqlPlace {
    SqlPlace { line: token.span.start.line as usize, column: token.span.start.column as usize }
}

#[cfg(test)]
mod tests;
