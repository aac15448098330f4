//! Regular expressions of PostgreSQL that are other ones to DataFusion: a dot matches the end of a line too, `\m`, `\M`
//! and `\y` are edges of words, and `\&` in what `regexp_replace` puts in is all of the match. Patterns that are no
//! constants stay as they are.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::literals::{literal, name_of, text_of};

const REPLACE: &str = "regexp_replace";
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
            let of_replacement = argument(function, 2).filter(|text| name == REPLACE && text.contains("\\&"));
            let of_replacement = of_replacement.map(|text| text.replace("\\&", "${0}"));
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

fn pattern(text: &str) -> Option<String> {
    let (mut written, mut has_dot) = (String::new(), false);
    let mut chars = text.chars();
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
        ] {
            assert_eq!(pattern(text).as_deref(), expected, "{text}");
        }
    }
}
