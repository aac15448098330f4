//! A stream's columns: `name TYPE [NOT NULL] [OPTIONS (path = '$.a', unit = 'ms')]`.

use datafusion::sql::sqlparser::tokenizer::{Token, Word};

use super::options::Options;
use super::tokens::{Cursor, TextPosition};
use super::{column_types, json_path, names};
use crate::{Column, ColumnType, Diagnostics, TimeUnit};
use types::suggest;

/// A column as declared. `column` is absent if something in it is wrong: the name is still known, so that options that
/// name it are not reported too.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) at: TextPosition,
    pub(super) column: Option<Column>,
}

/// Reads the columns from `(` to `)`. Returns `None` if there is no list.
pub(super) fn parse(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<Vec<Declared>> {
    let open_at = cursor.place();
    if !cursor.take(&Token::LParen) {
        problems.push(cursor.expected("'(' and the stream's columns"));
        return None;
    }
    let mut columns: Vec<Declared> = Vec::new();
    if cursor.take(&Token::RParen) {
        problems.push(open_at.error("the stream has no columns").help("expected at least its event time: ts TIMESTAMPTZ NOT NULL"));
        return Some(columns);
    }
    loop {
        if let Some(declared) = parse_column(cursor, problems) {
            match columns.iter().any(|other| other.name == declared.name) {
                true => {
                    let message = format!("the column '{}' is declared twice", declared.name);
                    problems.push(declared.at.error(message).help("rename or remove one of the two"));
                }
                false => columns.push(declared),
            }
        }
        cursor.skip_item();
        let comma_at = cursor.place();
        if cursor.take(&Token::Comma) {
            if cursor.at(&Token::RParen) {
                problems.push(comma_at.error("found a ',' behind the last column").help("remove it"));
                cursor.advance();
                return Some(columns);
            }
        } else if cursor.take(&Token::RParen) {
            return Some(columns);
        } else {
            problems.push(cursor.expected("')' after the columns"));
            return Some(columns);
        }
    }
}

/// Reads one column up to the following `,` or `)`, or up to its first mistake.
fn parse_column(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<Declared> {
    let at = cursor.place();
    let lexeme = cursor.peek();
    let Some((lexeme, name)) = lexeme.and_then(|lexeme| Some((lexeme, names::identifier(&lexeme.token.token)?))) else {
        problems.push(cursor.expected("a column: name TYPE"));
        return None;
    };
    if is_table_constraint(cursor) {
        let message = format!("found the constraint {}", cursor.text(lexeme).to_uppercase());
        problems.push(at.error(message).help("a stream has no constraints; the id is named WITH (id = '..')"));
        return None;
    }
    cursor.advance();
    let before = problems.len();
    problems.extend(names::check(&name, "column", at));
    // Members of a record keep the case in which the column was written.
    let member = match &lexeme.token.token {
        Token::Word(Word { value, .. }) => value.clone(),
        _ => name.clone(),
    };
    let column_type = column_types::parse(cursor, problems);
    let mut column = Column {
        name: name.clone(),
        column_type: column_type.clone().unwrap_or(ColumnType::Text),
        nullable: true,
        path: vec![member],
        unit: None,
    };
    if column_type.is_some() {
        parse_attributes(&mut column, cursor, problems);
    }
    let is_right = problems.len() == before;
    Some(Declared { name, at, column: is_right.then_some(column) })
}

fn is_table_constraint(cursor: &Cursor<'_>) -> bool {
    let second = |word: &str| cursor.peek_second().is_some_and(|lexeme| lexeme.is_word(word) || lexeme.is(&Token::LParen));
    (cursor.at_word("primary") && second("key"))
        || (cursor.at_word("foreign") && second("key"))
        || (cursor.at_word("watermark") && second("for"))
        || ((cursor.at_word("unique") || cursor.at_word("check")) && second("("))
}

/// `NOT NULL`, `NULL` and `OPTIONS (..)`, in any order.
fn parse_attributes(column: &mut Column, cursor: &mut Cursor<'_>, problems: &mut Diagnostics) {
    let mut options_seen = false;
    loop {
        let at = cursor.place();
        if cursor.take_words(&["not", "null"]) {
            column.nullable = false;
        } else if cursor.take_word("null") {
            // NULL allowed: the default
        } else if cursor.at_word("options") && !options_seen {
            cursor.advance();
            options_seen = true;
            parse_options(column, cursor, problems);
        } else if cursor.is_at_end() || cursor.at(&Token::Comma) || cursor.at(&Token::RParen) {
            return;
        } else {
            let help = match cursor.peek().map(|lexeme| cursor.text(lexeme).to_ascii_lowercase()).as_deref() {
                Some("primary" | "unique") => "a stream has no constraints; the id is named WITH (id = '..')",
                Some("default" | "generated" | "as") => "a stream holds what was sent; make up values in a view, with coalesce(..)",
                Some("references" | "check" | "constraint") => "a stream has no constraints; filter in a view, with WHERE",
                Some("precision") => "write DOUBLE alone",
                Some("path" | "unit") => "write OPTIONS (path = '$.a.b', unit = 'ms')",
                _ => "expected NOT NULL, OPTIONS (..), ',' or ')'",
            };
            problems.push(at.error(format!("found {}", cursor.found())).help(help));
            return;
        }
    }
}

fn parse_options(column: &mut Column, cursor: &mut Cursor<'_>, problems: &mut Diagnostics) {
    let options = Options::parse(cursor, "column", &["path", "unit"], problems);
    if let Some((text, entry)) = options.text("path", problems) {
        match json_path::parse(text) {
            Ok(path) => column.path = path,
            Err(wrong) => problems.push(entry.inside(wrong.offset).error(wrong.message).help(wrong.help)),
        }
    }
    if let Some((text, entry)) = options.text("unit", problems) {
        column.unit = match text {
            "s" => Some(TimeUnit::Seconds),
            "ms" => Some(TimeUnit::Millis),
            "us" => Some(TimeUnit::Micros),
            "ns" => Some(TimeUnit::Nanos),
            _ => {
                problems.push(entry.value_at.error(format!("unknown unit '{text}'")).help(unit_help(text)));
                None
            }
        };
        if column.column_type != ColumnType::TimestampTz {
            let message = format!("the column '{}' has a unit but is not TIMESTAMPTZ", column.name);
            problems.push(entry.name_at.error(message).help("remove the unit, or make it a TIMESTAMPTZ"));
        }
    }
}

fn unit_help(found: &str) -> String {
    match suggest::nearest(found, ["s", "ms", "us", "ns"]) {
        Some(near) if found.len() > 1 => format!("did you mean '{near}'? expected s, ms, us or ns"),
        _ => "expected s, ms, us or ns".to_owned(),
    }
}
