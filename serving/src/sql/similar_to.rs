//! `SIMILAR TO`, whose patterns are those of SQL: `%` and `_` as in LIKE, with `|`, `*`, `+`, `?`, `{}`, `()` and `[]`.
//! DataFusion takes them for regular expressions, in which `%` is a character. Here they become such expressions.

use std::iter::Peekable;
use std::str::Chars;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value};
use types::{Error, Reason, Result};

use super::literals::{literal, text_of};
use super::regular_expressions::with_unicode_classes;

/// `a SIMILAR TO 'x%'` as `a ~ '^(?s:x.*)$'`; `None` for any other expression.
///
/// Errors: `Input` where the pattern is no constant.
pub(super) fn as_regular_expression(expr: &Expr) -> Result<Option<Expr>> {
    let Expr::SimilarTo { negated, expr, pattern, escape_char } = expr else { return Ok(None) };
    let Some(pattern) = text_of(pattern) else {
        let message = "not supported: SIMILAR TO with a pattern that is no constant, write ~ and a regular expression";
        return Err(Error::input(message).with_reason(Reason::NotSupported));
    };
    let escape = match escape_char.as_ref().map(|escape| &escape.value) {
        None => Some('\\'),
        Some(Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) if text.chars().count() <= 1 => text.chars().next(),
        Some(other) => return Err(Error::input(format!("found ESCAPE {other}, expected one character"))),
    };
    Ok(Some(Expr::BinaryOp {
        left: expr.clone(),
        op: if *negated { BinaryOperator::PGRegexNotMatch } else { BinaryOperator::PGRegexMatch },
        right: Box::new(literal(Some(with_unicode_classes(&regular_expression(pattern, escape))))),
    }))
}

fn regular_expression(pattern: &str, escape: Option<char>) -> String {
    let (mut written, mut chars) = (String::from("^(?s:"), pattern.chars().peekable());
    while let Some(char) = chars.next() {
        match char {
            char if Some(char) == escape => escaped(&mut written, &mut chars),
            '%' => written.push_str(".*"),
            '_' => written.push('.'),
            '(' => written.push_str("(?:"),
            '[' => bracketed(&mut written, &mut chars, escape),
            '.' | '^' | '$' | '\\' => written.extend(['\\', char]),
            other => written.push(other),
        }
    }
    written.push_str(")$");
    written
}

fn escaped(written: &mut String, chars: &mut Peekable<Chars<'_>>) {
    written.push('\\');
    written.extend(chars.next());
}

/// Characters of which one has to match, after the bracket that opens them.
fn bracketed(written: &mut String, chars: &mut Peekable<Chars<'_>>, escape: Option<char>) {
    written.push('[');
    while let Some(char) = chars.next() {
        match char {
            char if Some(char) == escape => escaped(written, chars),
            // A class such as [:alpha:].
            '[' if chars.peek() == Some(&':') => {
                written.push('[');
                for char in chars.by_ref() {
                    written.push(char);
                    if char == ']' {
                        break;
                    }
                }
            }
            '[' | '&' | '~' | '\\' => written.extend(['\\', char]),
            other => written.push(other),
        }
        if char == ']' {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_becomes_a_regular_expression() {
        for (pattern, escape, expected) in [
            ("(acc|Bob)%", Some('\\'), "^(?s:(?:acc|Bob).*)$"),
            ("a_c", Some('\\'), "^(?s:a.c)$"),
            ("1.5$", Some('\\'), "^(?s:1\\.5\\$)$"),
            ("acc-[0-9]{2}", Some('\\'), "^(?s:acc-[0-9]{2})$"),
            ("[^%_.]", Some('\\'), "^(?s:[^%_.])$"),
            ("[[:alpha:]]+", Some('\\'), "^(?s:[[:alpha:]]+)$"),
            ("[[&]x", Some('\\'), "^(?s:[\\[\\&]x)$"),
            ("100\\%", Some('\\'), "^(?s:100\\%)$"),
            ("100#%\\", Some('#'), "^(?s:100\\%\\\\)$"),
            ("a\\", None, "^(?s:a\\\\)$"),
        ] {
            assert_eq!(regular_expression(pattern, escape), expected, "{pattern}");
        }
    }
}
