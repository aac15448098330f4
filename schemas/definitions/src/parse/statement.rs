//! Splits a text into statements, and reads the head that all definitions have in common.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::found::{DefinitionHead, Found};
use super::tokens::{Cursor, Lexeme, TextPosition, cut};
use super::{alert, names, parameter, sink, stream, view};
use crate::Diagnostics;
use crate::depth::{TooDeep, too_deep};
use types::suggest;

/// The words after CREATE.
const KINDS: [&str; 5] = ["stream", "view", "sink", "alert", "parameter"];

/// Parses one text. Returns its definitions without mistakes, and all mistakes.
pub(super) fn parse_source(source: &str) -> (Vec<Found>, Diagnostics) {
    let (lexemes, cut_short) = cut(source);
    let mut problems = Diagnostics::new();
    if let Some(TooDeep { location, found, help }) = too_deep(lexemes.iter().map(|lexeme| &lexeme.token)) {
        problems.push(TextPosition::from(location).error(format!("found {found}")).help(help));
        return (Vec::new(), problems);
    }
    let mut statements = split(&lexemes, &mut problems);
    if let Some(problem) = cut_short {
        // The statement that could not be read to its end would only produce false mistakes.
        let open = statements.pop_if(|last| last.last().is_some_and(|token| token.end == lexemes.last().map_or(0, |end| end.end)));
        problems.push(problem.leaving_out(open.and_then(name_of)));
    }
    let mut found = Vec::new();
    for statement in statements {
        let mut own = Diagnostics::new();
        let item = parse_statement(Cursor::new(source, statement), &mut own);
        if own.has_errors() {
            let name = name_of(statement);
            problems.extend(own.into_iter().map(|problem| problem.leaving_out(name.clone())));
        } else {
            found.extend(item);
            problems.extend(own);
        }
    }
    (found, problems)
}

/// Splits at each `;`, and before a `CREATE STREAM`, `VIEW`, `SINK`, `ALERT` or `PARAMETER` whose preceding `;` is
/// missing.
fn split<'a>(lexemes: &'a [Lexeme], problems: &mut Diagnostics) -> Vec<&'a [Lexeme]> {
    let mut statements = Vec::new();
    let mut begin = 0;
    let mut depth = 0usize;
    for (i, lexeme) in lexemes.iter().enumerate() {
        let starts = |kind| lexemes.get(i + 1).is_some_and(|next| next.is_word(kind));
        match &lexeme.token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::SemiColon => {
                statements.push(&lexemes[begin..i]);
                begin = i + 1;
                depth = 0;
            }
            _ if i > begin && depth == 0 && lexeme.is_word("create") && KINDS.into_iter().any(starts) => {
                let end = lexemes[i - 1].end_place();
                let statement = &lexemes[begin..i];
                let problem = end.error("found the next CREATE without an end of this statement").help("write ';' here");
                problems.push(problem.leaving_out(name_of(statement)));
                statements.push(statement);
                begin = i;
            }
            _ => {}
        }
    }
    statements.push(&lexemes[begin.min(lexemes.len())..]);
    statements.retain(|statement| !statement.is_empty());
    statements
}

/// Returns the name that a statement would define: the last one before its `(`, WITH, AS or SELECT. That of a parameter
/// comes before its type.
fn name_of(statement: &[Lexeme]) -> Option<String> {
    if let [_, kind, name, ..] = statement
        && kind.is_word("parameter")
    {
        return names::identifier(&name.token.token);
    }
    let ends_the_head = |lexeme: &Lexeme| lexeme.is(&Token::LParen) || ["with", "as", "select"].iter().any(|word| lexeme.is_word(word));
    let head = statement.iter().take_while(|lexeme| !ends_the_head(lexeme));
    head.filter_map(|lexeme| names::identifier(&lexeme.token.token)).last()
}

fn parse_statement(mut cursor: Cursor<'_>, problems: &mut Diagnostics) -> Option<Found> {
    let line = cursor.place().line;
    let sql = cursor.text_of(cursor.rest()).to_owned();
    if !cursor.take_word("create") {
        let problem = cursor.expected("CREATE STREAM, CREATE VIEW, CREATE SINK, CREATE ALERT or CREATE PARAMETER");
        problems.push(problem);
        return None;
    }
    refuse_modifiers(&mut cursor, problems);
    let Some(what) = KINDS.into_iter().find(|kind| cursor.at_word(kind)) else {
        problems.push(unknown_kind(&cursor));
        return None;
    };
    cursor.advance();
    refuse_if_not_exists(&mut cursor, problems);
    let (name, name_at) = names::definition_name(&mut cursor, what, problems)?;
    let head = DefinitionHead { name: name.into(), name_at, line, sql };
    match what {
        "stream" => stream::parse(head, cursor, problems),
        "view" => view::parse(head, cursor, problems),
        "sink" => sink::parse(head, cursor, problems),
        "alert" => alert::parse(head, cursor, problems),
        _ => parameter::parse(head, cursor, problems),
    }
}

const ONE_NAME_ONE_DEFINITION: &str =
    "leave it out: the files say what there is, and 'apply' makes a new version where a definition has changed";

fn refuse_modifiers(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) {
    let at = cursor.place();
    if cursor.take_words(&["or", "replace"]) {
        problems.push(at.error("found OR REPLACE").help(ONE_NAME_ONE_DEFINITION));
    }
    for (word, reason) in [
        ("materialized", "leave it out: every view with an aggregate is kept up to date"),
        ("temporary", "leave it out: definitions are kept in the catalog"),
        ("temp", "leave it out: definitions are kept in the catalog"),
        ("external", "leave it out: a stream's place is its topic, WITH (topic = '..')"),
        ("unbounded", "leave it out: every stream is unbounded"),
        ("recursive", "leave it out: views that read themselves are not supported"),
    ] {
        let at = cursor.place();
        if cursor.take_word(word) {
            problems.push(at.error(format!("found {}", word.to_uppercase())).help(reason));
        }
    }
}

fn refuse_if_not_exists(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) {
    let at = cursor.place();
    if cursor.take_words(&["if", "not", "exists"]) {
        problems.push(at.error("found IF NOT EXISTS").help(ONE_NAME_ONE_DEFINITION));
    }
}

fn unknown_kind(cursor: &Cursor<'_>) -> crate::Diagnostic {
    let found = cursor.peek().map(|lexeme| cursor.text(lexeme).to_ascii_lowercase()).unwrap_or_default();
    let help = match suggest::nearest(&found, KINDS) {
        Some(near) => format!("did you mean {}?", near.to_uppercase()),
        None => "expected STREAM, VIEW, SINK, ALERT or PARAMETER: events come in through streams, answers are views, sinks and alerts put \
                 out records"
            .to_owned(),
    };
    cursor.place().error(format!("found CREATE {}", cursor.found())).help(help)
}
