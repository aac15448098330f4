//! Regular expressions of PostgreSQL that are other ones to DataFusion: a dot matches the end of a line too, `\m`, `\M`
//! and `\y` are edges of words, and `[[:alpha:]]` has letters of all languages. In what `regexp_replace` puts in, `\&`
//! is all of the match, `\1` to `\9` are its groups, `\\` is a backslash and `$` a dollar sign. Patterns that are no
//! constants stay as they are.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::literals::{literal, name_of, text_of};

const REPLACE: &str = "regexp_replace";
/// Classes of characters within brackets, which DataFusion takes for those of ASCII.
const CLASSES: [(&str, &str); 8] = [
    ("[:alpha:]", "\\p{Alphabetic}"),
    ("[:alnum:]", "\\p{Alphabetic}\\p{Nd}"),
    ("[:lower:]", "\\p{Lowercase}"),
    ("[:upper:]", "\\p{Uppercase}"),
    ("[:punct:]", "\\p{P}\\p{S}"),
    ("[:space:]", "\\s"),
    ("[:graph:]", "[^\\p{C}\\p{Z}]"),
    ("[:print:]", "[^\\p{C}\\p{Zl}\\p{Zp}]"),
];
/// A group that no pattern has: nothing is put in for it.
const NOTHING: &str = "${__}";
/// Their second argument is a pattern.
const FUNCTIONS: [&str; 5] = ["regexp_like", "regexp_match", REPLACE, "regexp_count", "regexp_instr"];

/// The same operator or call with a pattern that DataFusion understands; `None` where it stays.
pub(super) fn translated(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::BinaryOp { left, op, right } if is_match(op) => {
            let right = Box::new(literal(Some(pattern(text_of(right)?)?)));
            Some(Expr::BinaryOp { left: left.clone(), op: op.clone(), right })
        }
        Expr::Function(function) => {
            let name = name_of(function).filter(|name| FUNCTIONS.contains(&name.as_str()))?;
            let of_pattern = argument(function, 1).and_then(pattern);
            let of_replacement = argument(function, 2).filter(|_| name == REPLACE).and_then(replacement);
            if of_pattern.is_none() && of_replacement.is_none() {
                return None;
            }
            let mut function = function.clone();
            for (index, text) in [(1, of_pattern), (2, of_replacement)] {
                if let (FunctionArguments::List(list), Some(text)) = (&mut function.args, text) {
                    list.args[index] = FunctionArg::Unnamed(FunctionArgExpr::Expr(literal(Some(text))));
                }
            }
            Some(Expr::Function(function))
        }
        _ => None,
    }
}

fn is_match(op: &BinaryOperator) -> bool {
    use BinaryOperator::{PGRegexIMatch, PGRegexMatch, PGRegexNotIMatch, PGRegexNotMatch};
    matches!(op, PGRegexMatch | PGRegexIMatch | PGRegexNotMatch | PGRegexNotIMatch)
}

fn argument(function: &Function, index: usize) -> Option<&str> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.get(index)? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => text_of(argument),
        _ => None,
    }
}

/// What is put in for a match.
fn replacement(text: &str) -> Option<String> {
    let (mut written, mut chars) = (String::new(), text.chars().peekable());
    while let Some(char) = chars.next() {
        match (char, chars.peek().copied()) {
            ('$', _) => written.push_str("$$"),
            ('\\', Some('&')) => {
                chars.next();
                written.push_str("${0}");
            }
            ('\\', Some(group @ '1'..='9')) => {
                chars.next();
                written.extend(['\\', group]);
                // DataFusion would read all digits as the number of the group.
                if chars.peek().is_some_and(char::is_ascii_digit) {
                    written.push_str(NOTHING);
                }
            }
            ('\\', next) => {
                if next == Some('\\') {
                    chars.next();
                }
                written.push('\\');
                if chars.peek().is_some_and(|next| next.is_ascii_digit() || *next == '\\') {
                    written.push_str(NOTHING);
                }
            }
            (other, _) => written.push(other),
        }
    }
    (written != text).then_some(written)
}

/// The pattern with [`CLASSES`] of all characters.
pub(super) fn with_unicode_classes(text: &str) -> String {
    let (mut written, mut is_within) = (String::new(), false);
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        let class = CLASSES.into_iter().find(|(name, _)| is_within && char == '[' && chars.as_str().starts_with(&name[1..]));
        if let Some((name, class)) = class {
            written.push_str(class);
            chars = chars.as_str()[name.len() - 1..].chars();
            continue;
        }
        written.push(char);
        match char {
            '\\' => written.extend(chars.next()),
            '[' if is_within => {
                // Its bracket ends the class alone.
                if let Some(end) = chars.as_str().strip_prefix(':').and_then(|class| class.find(":]")) {
                    let (class, rest) = chars.as_str().split_at(end + 3);
                    written.push_str(class);
                    chars = rest.chars();
                }
            }
            '[' => {
                is_within = true;
                // A bracket that comes first is a character.
                for first in ['^', ']'] {
                    if chars.as_str().starts_with(first) {
                        written.extend(chars.next());
                    }
                }
            }
            ']' => is_within = false,
            _ => {}
        }
    }
    written
}

fn pattern(text: &str) -> Option<String> {
    let (mut written, mut has_dot) = (String::new(), false);
    let of_classes = with_unicode_classes(text);
    let mut chars = of_classes.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            has_dot |= char == '.';
            written.push(char);
            continue;
        }
        match chars.next() {
            Some('m') => written.push_str("\\b{start}"),
            Some('M') => written.push_str("\\b{end}"),
            Some('y') => written.push_str("\\b"),
            Some('Y') => written.push_str("\\B"),
            Some('Z') => written.push_str("\\z"),
            Some(other) => written.extend(['\\', other]),
            None => written.push('\\'),
        }
    }
    let written = if has_dot { format!("(?s){written}") } else { written };
    (written != text).then_some(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_that_of_postgresql() {
        for (text, expected) in [
            ("a.b", Some("(?s)a.b")),
            ("(?i)a.b", Some("(?s)(?i)a.b")),
            ("\\mab\\M", Some("\\b{start}ab\\b{end}")),
            ("\\yab\\Z", Some("\\bab\\z")),
            ("a\\.b", None),
            ("^\\d+$", None),
            ("[[:alpha:] ]+", Some("[\\p{Alphabetic} ]+")),
            ("[^[:alnum:][:punct:]]", Some("[^\\p{Alphabetic}\\p{Nd}\\p{P}\\p{S}]")),
            ("[]\\][:upper:]]", Some("[]\\]\\p{Uppercase}]")),
            ("[:alpha:]", None),
            ("\\[[:alpha:]", None),
            ("[[:digit:]]", None),
            ("[^[:digit:][:alpha:]]", Some("[^[:digit:]\\p{Alphabetic}]")),
        ] {
            assert_eq!(pattern(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_replacement_is_that_of_postgresql() {
        for (text, expected) in [
            ("<\\&>", Some("<${0}>")),
            ("$1", Some("$$1")),
            ("\\1-\\2", None),
            ("\\10", Some("\\1${__}0")),
            ("a\\\\b", Some("a\\b")),
            ("\\\\1", Some("\\${__}1")),
            ("\\\\\\1", Some("\\${__}\\1")),
            ("\\n", None),
            ("", None),
        ] {
            assert_eq!(replacement(text).as_deref(), expected, "{text}");
        }
    }
}
