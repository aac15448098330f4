//! `CREATE PARAMETER name [type] = literal [WITH (description = '..')]`.

use datafusion::sql::sqlparser::tokenizer::{Token, Word};

use super::column_types;
use super::found::{DefinitionHead, Found};
use super::options::Options;
use super::tokens::Cursor;
use crate::{ColumnType, Diagnostics, Origin, ParameterDefinition, ParameterType};

const OPTIONS: [&str; 1] = ["description"];
const TYPES: &str = "BIGINT, DOUBLE, DECIMAL(p,s), TEXT, BOOLEAN or INTERVAL";
const LITERAL: &str = "a value: 20, 0.5, 'text', true or INTERVAL '30 minutes'";

/// Reads what follows the name.
pub(super) fn parse(head: DefinitionHead, mut cursor: Cursor<'_>, problems: &mut Diagnostics) -> Option<Found> {
    let before = problems.len();
    let declared = match cursor.at(&Token::Eq) {
        true => None,
        false => Some(value_type(&mut cursor, problems)?),
    };
    if !cursor.take(&Token::Eq) {
        let after = if declared.is_some() { "'=' and the value" } else { "'=' and the value, or a type" };
        problems.push(cursor.expected(after));
        return None;
    }
    let value_at = cursor.place();
    let (found, text) = literal(&mut cursor, problems)?;
    let value_type = declared.unwrap_or(found);
    // A number in quotes is a text, and a text without quotes is none.
    let fits = fits(value_type, found).then(|| value_type.value(&text));
    let value = fits.unwrap_or_else(|| Err(format!("the value is {found}: expected {value_type}")));
    let value = value.map_err(|problem| problems.push(value_at.error(problem).help(format!("a parameter has one type: {TYPES}")))).ok();
    let options = match cursor.take_word("with") {
        true => Options::parse(&mut cursor, "parameter", &OPTIONS, problems),
        false => Options::none(),
    };
    if !cursor.is_at_end() {
        problems.push(cursor.expected("WITH (description = '..'), ';' or the end of the file"));
    }
    let description = options.text("description", problems).map(|(text, _)| text.to_owned());
    if problems.len() > before {
        return None;
    }
    let origin = Origin { file: None, line: head.line };
    let definition = ParameterDefinition { name: head.name, value_type, value: value?, description, sql: head.sql, origin };
    Some(Found::Parameter { definition, name_at: head.name_at })
}

fn value_type(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<ParameterType> {
    if cursor.take_word("interval") {
        return Some(ParameterType::Interval);
    }
    let at = cursor.place();
    match column_types::parse(cursor, problems)? {
        ColumnType::BigInt => Some(ParameterType::BigInt),
        ColumnType::Double => Some(ParameterType::Double),
        ColumnType::Decimal { precision, scale } => {
            Some(ParameterType::Decimal { precision, scale: u8::try_from(scale).unwrap_or_default() })
        }
        ColumnType::Text => Some(ParameterType::Text),
        ColumnType::Boolean => Some(ParameterType::Boolean),
        other => {
            problems.push(at.error(format!("a parameter is not {other}")).help(format!("expected {TYPES}")));
            None
        }
    }
}

/// Reads a literal: its own type, and its value as a text.
fn literal(cursor: &mut Cursor<'_>, problems: &mut Diagnostics) -> Option<(ParameterType, String)> {
    let sign = match (cursor.take(&Token::Minus), cursor.take(&Token::Plus)) {
        (true, false) => "-",
        (false, _) => "",
        (true, true) => {
            problems.push(cursor.expected(LITERAL));
            return None;
        }
    };
    if sign.is_empty() && cursor.take_word("interval") {
        return match cursor.peek().map(|lexeme| &lexeme.token.token) {
            Some(Token::SingleQuotedString(text)) => {
                cursor.advance();
                Some((ParameterType::Interval, text.clone()))
            }
            _ => {
                problems.push(cursor.expected("the interval in quotes: INTERVAL '30 minutes'"));
                None
            }
        };
    }
    let found = match cursor.peek().map(|lexeme| &lexeme.token.token) {
        Some(Token::Number(text, _)) => {
            let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
            Some((if is_whole { ParameterType::BigInt } else { ParameterType::Double }, format!("{sign}{text}")))
        }
        Some(Token::SingleQuotedString(text)) if sign.is_empty() => Some((ParameterType::Text, text.clone())),
        Some(Token::Word(Word { value, quote_style: None, .. }))
            if sign.is_empty() && (value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false")) =>
        {
            Some((ParameterType::Boolean, value.to_lowercase()))
        }
        _ => None,
    };
    match found {
        Some(_) => drop(cursor.advance()),
        None => problems.push(cursor.expected(LITERAL)),
    }
    found
}

/// Whether a literal can be a value of the type. Whether it is one, its text says.
fn fits(value_type: ParameterType, literal: ParameterType) -> bool {
    use ParameterType::{BigInt, Boolean, Decimal, Double, Interval, Text};
    match value_type {
        BigInt | Double | Decimal { .. } => matches!(literal, BigInt | Double),
        Text => literal == Text,
        Boolean => literal == Boolean,
        Interval => matches!(literal, Interval | Text),
    }
}
