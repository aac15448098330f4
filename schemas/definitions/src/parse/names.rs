//! Names of definitions and columns.

use datafusion::sql::sqlparser::tokenizer::{Token, Word};

use super::tokens::{Cursor, TextPosition};
use crate::{Diagnostic, Diagnostics};

const LONGEST: usize = 100;

/// Reads the name of a definition. Returns `None` if there is none; a wrong name is recorded and returned.
pub(super) fn definition_name(cursor: &mut Cursor<'_>, what: &str, problems: &mut Diagnostics) -> Option<(String, TextPosition)> {
    let begins_the_rest = ["as", "with", "select"].iter().any(|word| cursor.at_word(word));
    let name = (!begins_the_rest).then(|| cursor.peek().and_then(|lexeme| identifier(&lexeme.token.token))).flatten();
    let Some(name) = name else {
        problems.push(cursor.expected(&format!("the {what}'s name")));
        return None;
    };
    let at = cursor.place();
    cursor.advance();
    problems.extend(check(&name, what, at));
    if name == "system" {
        problems.push(at.error(format!("the {what} is named 'system'")).help("choose another name: system holds the system's own tables"));
    }
    if cursor.at(&Token::Period) {
        let help = format!("{} has a plain name and no schema", with_article(what));
        problems.push(cursor.place().error("found a name with a '.'").help(help));
        while cursor.take(&Token::Period) {
            cursor.advance();
        }
    }
    Some((name, at))
}

/// `a stream`, `an alert`.
pub(super) fn with_article(what: &str) -> String {
    if what.starts_with('a') { format!("an {what}") } else { format!("a {what}") }
}

/// Returns an identifier by SQL's rules: lower case without quotes, unchanged in double quotes.
pub(super) fn identifier(token: &Token) -> Option<String> {
    match token {
        Token::Word(Word { value, quote_style: None, .. }) => Some(value.to_lowercase()),
        Token::Word(Word { value, quote_style: Some('"'), .. }) => Some(value.clone()),
        _ => None,
    }
}

/// Returns what is wrong with a name. A name has letters, digits and `_`, and begins with a letter; a leading `_` and
/// `__` are reserved for the system.
pub(super) fn check(name: &str, what: &str, at: TextPosition) -> Option<Diagnostic> {
    let wrong = |problem: &str, help: &str| Some(at.error(format!("the {what}'s name '{name}' {problem}")).help(help));
    let allowed = "names are letters (a to z), digits and '_', with a letter in front";
    let first = name.chars().next();
    if name.chars().count() > LONGEST {
        return Some(at.error(format!("the {what}'s name is longer than {LONGEST} characters")).help("choose a shorter one"));
    }
    if first == Some('_') {
        return wrong("begins with '_'", "names with a leading '_' are reserved");
    }
    if let Some(odd) = name.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '_') {
        return wrong(&format!("holds '{}'", odd.escape_debug()), allowed);
    }
    if !first.is_some_and(|first| first.is_ascii_alphabetic()) {
        return wrong("does not begin with a letter", allowed);
    }
    if name.contains("__") {
        return wrong("holds '__'", "names with '__' are reserved");
    }
    None
}
