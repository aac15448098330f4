//! Types and literals that PostgreSQL has and DataFusion has not: `$1::uuid`, `'x'::json`, `::name`, `::float` with 64
//! bits, `'\x00ff'::bytea`, arrays as texts, `= ANY ('{a,b}')`, times as `time_texts` has them, time zones in letters
//! of any case, `U&'\00e4'`, `ESCAPE`, `SIMILAR TO`, `1e300`, comparisons of rows and regular expressions. They are
//! rewritten before a statement is planned.

use std::ops::{ControlFlow, RangeInclusive};

use arrow::array::timezone::Tz;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    Interval, TypedString, Value,
};
use definitions::syntax::SyntaxNode;
use definitions::time_zones;
use engine::functions::{AS_JSON, AS_UUID};
use engine::plan::hexadecimal_bytes;
use types::{Error, Reason, Result};

use super::copies::Copies;
use super::like_escape::without_escape;
use super::literals::{call, literal, text_of};
use super::params::inner_mut;
use super::similar_to::as_regular_expression;
use super::time_texts::{known_value, with_units};
use super::{array_text, literals, regular_expressions, row_values};

/// Types whose values are any texts.
const TEXTS: [&str; 2] = ["name", "bpchar"];
/// Of a decimal, with room for those before the exponent.
const MOST_DIGITS: i32 = 60;
/// Binary digits of a FLOAT that PostgreSQL keeps in 64 bits.
const DIGITS_OF_DOUBLES: RangeInclusive<u64> = 25..=53;
/// Each is a call of its own, which the planner descends into.
const MOST_NESTED_CALLS: usize = 16;

/// Rewrites the casts and array literals of a statement.
///
/// Errors: `Input` for a literal that is no array, for bytes that are not in pairs of hexadecimal digits, for a time
/// zone that is not known, and for a pattern of SIMILAR TO that is no constant.
pub(super) fn rewrite(statement: &mut Statement) -> Result<()> {
    let Some(statement) = inner_mut(statement) else { return Ok(()) };
    let (mut nested_calls, mut copies) = (0, Copies::default());
    statement.visit_expressions_mut(|expr| {
        let (copied, times) = row_values::copied(expr)?;
        copies.take(copied, times)?;
        let Some(rewritten) = rewritten(expr)? else { return Ok(()) };
        *expr = rewritten;
        if let Expr::Function(call) = &*expr
            && has_cast_call(&call.args)
        {
            nested_calls += 1;
        }
        if nested_calls > MOST_NESTED_CALLS {
            return Err(Error::input(format!("found more than {MOST_NESTED_CALLS} casts to uuid and json within others")));
        }
        Ok(())
    })
}

fn rewritten(expr: &Expr) -> Result<Option<Expr>> {
    match expr {
        Expr::Value(value) => of_value(&value.value),
        Expr::Cast { kind, expr: operand, data_type, array: false, format: None } if is_of_time(data_type) => {
            time_cast(kind, text_of(operand), data_type)
        }
        Expr::TypedString(TypedString { data_type, value, .. }) if is_of_time(data_type) => {
            time_cast(&CastKind::Cast, text_of(&Expr::Value(value.clone())), data_type)
        }
        Expr::Interval(interval) => {
            let units = text_of(&interval.value).filter(|_| interval.leading_field.is_none()).and_then(with_units);
            Ok(units.map(|text| Expr::Interval(Interval { value: Box::new(literal(Some(text))), ..interval.clone() })))
        }
        Expr::AtTimeZone { timestamp, time_zone } => at_time_zone(timestamp, time_zone),
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, array: false, format: None } => cast(expr, data_type),
        Expr::Cast { kind: CastKind::TryCast, expr, data_type: float @ DataType::Float(_), array: false, format: None } => {
            let cast = |data_type| Expr::Cast { kind: CastKind::TryCast, expr: expr.clone(), data_type, array: false, format: None };
            Ok(known_type(float).map(cast))
        }
        Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false }) => cast(&Expr::Value(value.clone()), data_type),
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, is_some: _ } => in_list(left, right, false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => in_list(left, right, true),
        similar @ Expr::SimilarTo { .. } => as_regular_expression(similar),
        other => Ok(without_escape(other).or_else(|| row_values::compared(other)).or_else(|| regular_expressions::translated(other))),
    }
}

fn is_of_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Date | DataType::Interval { .. })
}

/// Returns the cast of a text, in a spelling that DataFusion knows.
fn time_cast(kind: &CastKind, text: Option<&str>, data_type: &DataType) -> Result<Option<Expr>> {
    let value = text.map(|text| known_value(data_type, text)).transpose()?.flatten();
    let cast = |value| {
        let (kind, data_type) = (kind.clone(), data_type.clone());
        Expr::Cast { kind, expr: Box::new(value), data_type, array: false, format: None }
    };
    Ok(value.map(cast))
}

/// Whether a number such as `1e300` has more digits than a decimal can have.
fn has_large_exponent(number: &str) -> bool {
    let exponent = number.split_once(['e', 'E']).and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    exponent.is_some_and(|exponent| exponent.abs() > MOST_DIGITS)
}

/// `U&'\00e4'` is a text, `1e300` a DOUBLE, and `b'101'` of a type that is not known here.
fn of_value(value: &Value) -> Result<Option<Expr>> {
    match value {
        Value::UnicodeStringLiteral(text) => Ok(Some(literal(Some(text.clone())))),
        Value::SingleQuotedByteStringLiteral(bits) => {
            Err(Error::input(format!("not supported: the bit string b'{bits}'")).with_reason(Reason::NotSupported))
        }
        Value::Number(number, _) if has_large_exponent(number) => {
            Ok(Some(literals::cast(literal(Some(number.clone())), DataType::DoublePrecision)))
        }
        _ => Ok(None),
    }
}

fn cast(operand: &Expr, data_type: &DataType) -> Result<Option<Expr>> {
    if *data_type == DataType::Bytea {
        return text_of(operand).and_then(|text| text.strip_prefix("\\x")).map(bytes).transpose();
    }
    let (item_type, is_array) = match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item_type, None)) => (&**item_type, true),
        other => (other, false),
    };
    let known_type = known_type(item_type);
    let literal = match (is_array, text_of(operand)) {
        (true, Some(text)) => Some(array_of(array_text::items(text)?)),
        _ => None,
    };
    if known_type.is_none() && literal.is_none() {
        return Ok(None);
    }
    let known_type = known_type.unwrap_or_else(|| item_type.clone());
    let data_type = match is_array {
        true => DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(known_type), None)),
        false => known_type,
    };
    let operand = Box::new(literal.unwrap_or_else(|| operand.clone()));
    let cast = Expr::Cast { kind: CastKind::Cast, expr: operand, data_type, array: false, format: None };
    Ok(Some(match item_type {
        DataType::Uuid => call(AS_UUID, vec![cast]),
        DataType::JSON | DataType::JSONB => call(AS_JSON, vec![cast]),
        _ => cast,
    }))
}

/// The bytes of `'\x00ff'::bytea`, which DataFusion would take for the text itself.
fn bytes(digits: &str) -> Result<Expr> {
    hexadecimal_bytes(digits)?;
    Ok(Expr::Value(Value::HexStringLiteral(digits.to_owned()).into()))
}

/// The type that DataFusion knows in the place of one that it does not, or takes for another.
fn known_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Uuid | DataType::JSON | DataType::JSONB => Some(DataType::Text),
        DataType::CharacterVarying(length) => Some(DataType::Varchar(*length)),
        DataType::Float(ExactNumberInfo::None) => Some(DataType::DoublePrecision),
        DataType::Float(ExactNumberInfo::Precision(digits)) if DIGITS_OF_DOUBLES.contains(digits) => Some(DataType::DoublePrecision),
        DataType::Custom(name, modifiers) if modifiers.is_empty() => {
            let name = name.to_string().to_lowercase();
            TEXTS.contains(&name.as_str()).then_some(DataType::Text)
        }
        _ => None,
    }
}

/// Writes the name of a zone in its known spelling. DataFusion accepts any name where only the zone of an instant
/// changes.
fn at_time_zone(timestamp: &Expr, time_zone: &Expr) -> Result<Option<Expr>> {
    let Some(name) = text_of(time_zone).filter(|name| name.parse::<Tz>().is_err()) else { return Ok(None) };
    let Some(known) = time_zones::known_name(name) else {
        let message = format!("the time zone \"{name}\" is not known: {}", time_zones::expected(name));
        return Err(Error::input(message).with_reason(Reason::UnknownTimeZone));
    };
    Ok(Some(Expr::AtTimeZone { timestamp: Box::new(timestamp.clone()), time_zone: Box::new(literal(Some(known.to_owned()))) }))
}

/// Writes UTC after `AT TIME ZONE` in another spelling. Otherwise it could not be distinguished from the type of a time
/// without a named zone, which is shown in the session's zone.
pub(super) fn tell_utc_apart(statement: &mut Statement) -> Result<()> {
    let Some(statement) = inner_mut(statement) else { return Ok(()) };
    statement.visit_expressions_mut(|expr| {
        if let Expr::AtTimeZone { time_zone, .. } = expr
            && text_of(time_zone) == Some("UTC")
        {
            **time_zone = literal(Some("+00:00".to_owned()));
        }
        Ok(())
    })
}

/// Rewrites `left = ANY ('{a,b}')` to `left IN ('a', 'b')`, whose texts get the type of the left side.
fn in_list(left: &Expr, right: &Expr, negated: bool) -> Result<Option<Expr>> {
    let Some(text) = text_of(right) else { return Ok(None) };
    let list = array_text::items(text)?.into_iter().map(literal).collect();
    Ok(Some(Expr::InList { expr: Box::new(left.clone()), list, negated }))
}

fn array_of(items: Vec<Option<String>>) -> Expr {
    Expr::Array(Array { elem: items.into_iter().map(literal).collect(), named: true })
}

/// Whether the arguments of one of our calls contain another one.
fn has_cast_call(args: &FunctionArguments) -> bool {
    let FunctionArguments::List(list) = args else { return false };
    list.args.iter().any(|arg| {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(operand)) = arg else { return false };
        operand.visit_expressions(|expr| if is_cast_call(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }).is_break()
    })
}

fn is_cast_call(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if [AS_UUID, AS_JSON].iter().any(|name| call.name.to_string() == *name))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    use super::*;

    fn rewritten(sql: &str) -> Result<String> {
        let mut parser = DFParserBuilder::new(sql).with_dialect(&GenericDialect {}).build().unwrap();
        let mut statement = parser.parse_statement().unwrap();
        rewrite(&mut statement)?;
        Ok(statement.to_string())
    }

    #[test]
    fn casts_and_array_literals_become_what_the_planner_knows() {
        for (sql, expected) in [
            ("SELECT $1::uuid", "SELECT as_uuid(CAST($1 AS TEXT))"),
            ("SELECT CAST(a AS UUID), uuid 'x'", "SELECT as_uuid(CAST(a AS TEXT)), as_uuid(CAST('x' AS TEXT))"),
            ("SELECT $1::uuid[]", "SELECT as_uuid(CAST($1 AS TEXT[]))"),
            ("SELECT '{x,NULL}'::uuid[]", "SELECT as_uuid(CAST(ARRAY['x', NULL] AS TEXT[]))"),
            ("SELECT a::json, b::jsonb", "SELECT as_json(CAST(a AS TEXT)), as_json(CAST(b AS TEXT))"),
            (
                "SELECT a::float, CAST(a AS FLOAT(53)), a::float(24), a::real, TRY_CAST(a AS FLOAT), a::float[]",
                "SELECT CAST(a AS DOUBLE PRECISION), CAST(a AS DOUBLE PRECISION), a::FLOAT(24), a::REAL, \
                 TRY_CAST(a AS DOUBLE PRECISION), CAST(a AS DOUBLE PRECISION[])",
            ),
            ("SELECT a::name, b::character varying, c::bpchar", "SELECT CAST(a AS TEXT), CAST(b AS VARCHAR), CAST(c AS TEXT)"),
            ("SELECT '\\x00fF'::bytea, CAST('\\x' AS BYTEA), bytea '\\xab'", "SELECT X'00fF', X'', X'ab'"),
            ("SELECT '{1,2}'::int[], '{}'::text[]", "SELECT CAST(ARRAY['1', '2'] AS INT[]), CAST(ARRAY[] AS TEXT[])"),
            ("SELECT 1 FROM v WHERE a = ANY ('{x,\"y z\"}')", "SELECT 1 FROM v WHERE a IN ('x', 'y z')"),
            ("SELECT 1 FROM v WHERE a <> ALL ('{x}')", "SELECT 1 FROM v WHERE a NOT IN ('x')"),
            ("SELECT TIMESTAMP '2026-01-01 02:30'", "SELECT CAST('2026-01-01 02:30:00' AS TIMESTAMP)"),
            ("SELECT '2026-01-01T02:30+01:00'::timestamptz", "SELECT '2026-01-01T02:30:00+01:00'::TIMESTAMPTZ"),
            ("SELECT '2026-02-02 +00'::date, CAST('2026-02-02-05' AS DATE)", "SELECT '2026-02-02'::DATE, CAST('2026-02-02' AS DATE)"),
            ("SELECT '2026-02-02 -05'::timestamp", "SELECT '2026-02-02 00:00:00'::TIMESTAMP"),
            (
                "SELECT DATE '2026-02-02Z', '2026-02-02 +00'::timestamptz",
                "SELECT CAST('2026-02-02' AS DATE), '2026-02-02 00:00:00+00'::TIMESTAMPTZ",
            ),
            ("SELECT '2026-05-01 12:34'::date, U&'\\00e4'", "SELECT '2026-05-01'::DATE, 'ä'"),
            (
                "SELECT 'today'::date, ' NOW '::timestamptz, DATE 'yesterday'",
                "SELECT current_date::DATE, now()::TIMESTAMPTZ, CAST(current_date - INTERVAL '1 day' AS DATE)",
            ),
            (
                "SELECT '1:30'::interval, INTERVAL '2 days 1:30:15'",
                "SELECT '1 hours 30 minutes 0 seconds'::INTERVAL, INTERVAL '2 days 1 hours 30 minutes 15 seconds'",
            ),
            ("SELECT a LIKE 'x/_%' ESCAPE '/', a NOT ILIKE 'x' ESCAPE ''", "SELECT a LIKE 'x\\_%', a NOT ILIKE 'x'"),
            ("SELECT a LIKE $1 || '%' ESCAPE '/'", "SELECT a LIKE like_pattern(CAST($1 || '%' AS TEXT), '/')"),
            ("SELECT a AT TIME ZONE 'europe/berlin'", "SELECT a AT TIME ZONE 'Europe/Berlin'"),
            ("SELECT 1e300, 1e20", "SELECT CAST('1e300' AS DOUBLE PRECISION), 1e20"),
            ("SELECT 1 FROM v WHERE (a, b) IN ((1, NULL), (2, 3))", "SELECT 1 FROM v WHERE ((a = 1 AND b = NULL) OR (a = 2 AND b = 3))"),
            ("SELECT (a, b) <> (1, 2), a ~ 'x.y'", "SELECT NOT (a = 1 AND b = 2), a ~ '(?s)x.y'"),
            ("SELECT regexp_replace(a, 'b', '[\\&]', 'g')", "SELECT regexp_replace(a, 'b', '[${0}]', 'g')"),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected, "{sql}");
        }
        for same in [
            "SELECT TIMESTAMP '2026-01-01 02:30:15', TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-01 0230', TIMESTAMP 'x'",
            "SELECT TIMESTAMP '2026-01-01 02:30.5'",
            "SELECT a AT TIME ZONE '+01:00', a AT TIME ZONE 'UTC'",
        ] {
            assert_eq!(rewritten(same).unwrap(), same);
        }
        for same in [
            "SELECT a::INT, '{a}'",
            "SELECT '2026-02-02'::DATE, a::DATE, '2026-02-02 +00'",
            "SELECT a = ANY(b), a = ANY($1)",
            "SELECT 'x'::BYTEA, $1::BYTEA, a::BYTEA",
            "SELECT a LIKE 'x', a LIKE 'x\\_' ESCAPE '\\', a LIKE 'x' ESCAPE 'yz'",
            "SELECT CAST(a AS TEXT[])",
        ] {
            assert_eq!(rewritten(same).unwrap(), same);
        }
    }

    #[test]
    fn utc_that_is_named_is_told_from_that_of_all_times() {
        let mut parser = DFParserBuilder::new("SELECT a AT TIME ZONE 'UTC', a AT TIME ZONE 'Europe/Berlin', 'UTC'").build().unwrap();
        let mut statement = parser.parse_statement().unwrap();
        tell_utc_apart(&mut statement).unwrap();
        assert_eq!(statement.to_string(), "SELECT a AT TIME ZONE '+00:00', a AT TIME ZONE 'Europe/Berlin', 'UTC'");
    }

    #[test]
    fn what_is_no_array_and_what_nests_without_end_is_refused() {
        let error = rewritten("SELECT a = ANY ('x')").unwrap_err();
        assert!(error.message().starts_with("malformed array literal: \"x\""), "{error}");
        let error = rewritten("SELECT b'101'").unwrap_err();
        assert_eq!((error.message(), error.reason()), ("not supported: the bit string b'101'", Some(Reason::NotSupported)));
        let error = rewritten("SELECT a AT TIME ZONE 'Europe/Berlim'").unwrap_err();
        assert_eq!(error.message(), "the time zone \"Europe/Berlim\" is not known: did you mean 'Europe/Berlin'?");
        for wrong in ["\\x0", "\\x0g"] {
            let error = rewritten(&format!("SELECT '{wrong}'::bytea")).unwrap_err();
            assert!(error.message().starts_with(&format!("invalid bytes: found \"{wrong}\"")), "{error}");
            assert_eq!(error.reason(), Some(Reason::InvalidText));
        }
        let nested = |casts: usize| rewritten(&format!("SELECT a{}", "::uuid::text".repeat(casts)));
        assert!(nested(MOST_NESTED_CALLS).is_ok());
        assert!(nested(200).unwrap_err().message().starts_with("found more than 16 casts"));
    }
}
