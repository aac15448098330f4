//! Removes words of PostgreSQL that the parser does not know and that change no answer: `AS MATERIALIZED (..)` of a
//! WITH, and `BETWEEN ASYMMETRIC`, which is `BETWEEN`.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use types::{Error, Reason, Result};

/// Returns the text with spaces in place of these words, so that all others keep their positions. `None` if it has none
/// of them.
///
/// Errors: `Input` for `BETWEEN SYMMETRIC`, which would change the answer.
pub(super) fn without_ignored(sql: &str) -> Result<Option<String>> {
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location() else { return Ok(None) };
    let tokens: Vec<&TokenWithSpan> = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let mut ignored = Vec::new();
    for at in 0..tokens.len() {
        let is = |after: usize, word: &str| tokens.get(at + after).is_some_and(|token| is_word(&token.token, word));
        let opens = |after: usize| tokens.get(at + after).is_some_and(|token| token.token == Token::LParen);
        if is(0, "between") && is(1, "symmetric") && !is(2, "and") {
            let message = "not supported: BETWEEN SYMMETRIC, write BETWEEN least(a, b) AND greatest(a, b)";
            return Err(Error::input(message).with_reason(Reason::NotSupported));
        }
        if is(0, "as") && is(1, "materialized") && opens(2) || is(0, "between") && is(1, "asymmetric") && !is(2, "and") {
            ignored.push(tokens[at + 1].span);
        }
        if is(0, "as") && is(1, "not") && is(2, "materialized") && opens(3) {
            ignored.extend([tokens[at + 1].span, tokens[at + 2].span]);
        }
    }
    if ignored.is_empty() {
        return Ok(None);
    }
    let (mut line, mut column) = (1, 1);
    let kept = sql.chars().map(|char| {
        let place = (line, column);
        (line, column) = if char == '\n' { (line + 1, 1) } else { (line, column + 1) };
        let is_ignored = ignored.iter().any(|span| {
            let (start, end) = ((span.start.line, span.start.column), (span.end.line, span.end.column));
            start <= place && place < end
        });
        if is_ignored { ' ' } else { char }
    });
    Ok(Some(kept.collect()))
}

fn is_word(token: &Token, expected: &str) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_keep_their_places() {
        for (sql, expected) in [
            ("WITH a AS\n materialized (SELECT 'ä')\nTABLE a", "WITH a AS\n              (SELECT 'ä')\nTABLE a"),
            ("WITH a AS NOT MATERIALIZED (SELECT 1) TABLE a", "WITH a AS                  (SELECT 1) TABLE a"),
            ("SELECT 1 BETWEEN ASYMMETRIC 2 AND 3", "SELECT 1 BETWEEN            2 AND 3"),
        ] {
            assert_eq!(without_ignored(sql).unwrap().as_deref(), Some(expected));
        }
        for same in ["SELECT materialized AS materialized", "SELECT 1 BETWEEN symmetric AND 3", "SELECT 'AS MATERIALIZED ('"] {
            assert_eq!(without_ignored(same).unwrap(), None, "{same}");
        }
        let error = without_ignored("SELECT 1 BETWEEN SYMMETRIC 3 AND 2").unwrap_err();
        assert!(error.message().starts_with("not supported: BETWEEN SYMMETRIC"), "{error}");
    }
}
