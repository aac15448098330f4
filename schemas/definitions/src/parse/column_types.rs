//! Column types.

use datafusion::sql::sqlparser::tokenizer::{Token, Word};

use super::tokens::Cursor;
use crate::{ColumnType, Diagnostics};
use types::suggest;

const KNOWN: &str = "TEXT, BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p,s), DATE, TIMESTAMPTZ, UUID, BYTEA, JSON, and arrays such as TEXT[]";
const NAMES: [&str; 11] = ["TEXT", "BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL", "DATE", "TIMESTAMPTZ", "UUID", "BYTEA", "JSON"];
const LARGEST_PRECISION: u8 = 38;

/// Type names of other systems.
const ELSEWHERE: [(&str, &str); 28] = [
    ("string", "TEXT"),
    ("varchar", "TEXT"),
    ("char", "TEXT"),
    ("character", "TEXT"),
    ("bool", "BOOLEAN"),
    ("integer", "INT"),
    ("int4", "INT"),
    ("int32", "INT"),
    ("smallint", "INT"),
    ("tinyint", "INT"),
    ("int8", "BIGINT"),
    ("int64", "BIGINT"),
    ("long", "BIGINT"),
    ("float", "DOUBLE"),
    ("float8", "DOUBLE"),
    ("real", "DOUBLE"),
    ("numeric", "DECIMAL(p,s)"),
    ("money", "DECIMAL(p,s)"),
    ("number", "DECIMAL(p,s)"),
    ("timestamp", "TIMESTAMPTZ"),
    ("datetime", "TIMESTAMPTZ"),
    ("timestamp_ltz", "TIMESTAMPTZ"),
    ("blob", "BYTEA"),
    ("binary", "BYTEA"),
    ("bytes", "BYTEA"),
    ("jsonb", "JSON"),
    ("object", "JSON"),
    ("array", "a type with [], such as TEXT[]"),
];

/// Reads a type. Returns `None` and records the mistake if it is wrong; the cursor is then somewhere in the column.
pub(super) fn parse(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<ColumnType> {
    let Some(Token::Word(Word { value, quote_style: None, .. })) = cursor.peek().map(|lexeme| &lexeme.token.token) else {
        problems.push(cursor.expected(&format!("a type: {KNOWN}")));
        return None;
    };
    let at = cursor.place();
    let item = match value.to_ascii_uppercase().as_str() {
        "TEXT" => ColumnType::Text,
        "BOOLEAN" => ColumnType::Boolean,
        "INT" => ColumnType::Int,
        "BIGINT" => ColumnType::BigInt,
        "DOUBLE" => ColumnType::Double,
        "DECIMAL" => return decimal(cursor, problems).and_then(|item| array_of(item, cursor, problems)),
        "DATE" => ColumnType::Date,
        "TIMESTAMPTZ" => ColumnType::TimestampTz,
        "UUID" => ColumnType::Uuid,
        "BYTEA" => ColumnType::Bytea,
        "JSON" => ColumnType::Json,
        _ => {
            problems.push(at.error(format!("unknown type '{value}'")).help(help_for(value)));
            return None;
        }
    };
    cursor.advance();
    array_of(item, cursor, problems)
}

/// Returns the type itself, or an array of it if `[]` follows.
fn array_of(item: ColumnType, cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<ColumnType> {
    if !cursor.take(&Token::LBracket) {
        return Some(item);
    }
    if !cursor.take(&Token::RBracket) {
        problems.push(cursor.expected("']': arrays have no fixed length"));
        return None;
    }
    if cursor.at(&Token::LBracket) {
        problems.push(cursor.place().error("found an array of arrays").help("use JSON, or an array of one dimension"));
        return None;
    }
    Some(ColumnType::Array(Box::new(item)))
}

fn decimal(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<ColumnType> {
    let at = cursor.place();
    cursor.advance();
    if !cursor.take(&Token::LParen) {
        problems.push(at.error("found DECIMAL without its digits").help("write DECIMAL(p,s), such as DECIMAL(18,2)"));
        return None;
    }
    let precision_at = cursor.place();
    let precision = whole_number(cursor, problems)?;
    let has_scale = cursor.take(&Token::Comma);
    let scale_at = cursor.place();
    let scale = if has_scale { whole_number(cursor, problems)? } else { 0 };
    if !cursor.take(&Token::RParen) {
        problems.push(cursor.expected("')'"));
        return None;
    }
    if !(1..=LARGEST_PRECISION).contains(&precision) {
        let message = format!("DECIMAL has {precision} digits");
        problems.push(precision_at.error(message).help(format!("expected 1 to {LARGEST_PRECISION}")));
        return None;
    }
    if scale > precision {
        let message = format!("DECIMAL has {scale} digits behind the point of {precision} in all");
        problems.push(scale_at.error(message).help(format!("expected 0 to {precision}")));
        return None;
    }
    Some(ColumnType::Decimal { precision, scale: scale as i8 })
}

fn whole_number(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<u8> {
    let number = match cursor.peek().map(|lexeme| &lexeme.token.token) {
        Some(Token::Number(text, _)) => text.parse().ok(),
        _ => None,
    };
    if number.is_none() {
        problems.push(cursor.expected(&format!("a whole number up to {LARGEST_PRECISION}")));
        return None;
    }
    cursor.advance();
    number
}

fn help_for(found: &str) -> String {
    let lower = found.to_lowercase();
    let elsewhere = ELSEWHERE.iter().find(|(name, _)| *name == lower).map(|(_, ours)| *ours);
    match elsewhere.or_else(|| suggest::nearest(&lower, NAMES)) {
        Some(ours) => format!("did you mean {ours}? the types are {KNOWN}"),
        None => format!("the types are {KNOWN}"),
    }
}
