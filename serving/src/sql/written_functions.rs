//! Functions of PostgreSQL that are written with others: `div(a, b)`, `width_bucket`, `make_timestamp`, `format`,
//! `age`, `bool_or` and `string_agg` over windows that slide, the zone of a time, `substring(x FROM 'pattern')`, and
//! patterns of `to_timestamp` and `to_date`.

use datafusion::sql::sqlparser::ast::{
    DataType, DateTimeField, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Value, WindowType,
};
use definitions::syntax::SyntaxNode;
use engine::functions::{MAKE_INTERVAL, PARTS_OF_INTERVAL, chrono_pattern};
use types::{Error, Reason, Result};

use super::literals::{call, cast, expression, first_argument, literal, name_of, plain_arguments, take_arguments, taken, text_of};
use super::names::resolved;

/// Each with the number of its arguments and what has its value.
const FUNCTIONS: [(&str, usize, &str); 8] = [
    ("div", 2, "($1 - $1 % $2) / $2"),
    (
        "width_bucket",
        4,
        "CASE WHEN ($2 < $3 AND $1 < $2) OR ($2 > $3 AND $1 > $2) THEN 0 \
              WHEN ($2 < $3 AND $1 >= $3) OR ($2 > $3 AND $1 <= $3) THEN $4 + 1 \
              ELSE CAST((($1 - $2) * $4 - (($1 - $2) * $4) % ($3 - $2)) / ($3 - $2) AS INT) + 1 END",
    ),
    ("make_timestamp", 6, "CAST(make_date($1, $2, $3) AS TIMESTAMP) + make_interval(0, 0, 0, 0, $4, $5, $6)"),
    ("make_timestamptz", 6, "CAST(CAST(make_date($1, $2, $3) AS TIMESTAMP) + make_interval(0, 0, 0, 0, $4, $5, $6) AS TIMESTAMPTZ)"),
    ("age", 1, "age(CAST(current_date AS TIMESTAMP), CAST($1 AS TIMESTAMP))"),
    ("age", 2, "age(CAST($1 AS TIMESTAMP), CAST($2 AS TIMESTAMP))"),
    // U+FDD0 is no character: texts do not have it.
    ("regexp_split_to_array", 2, "string_to_array(regexp_replace($1, $2, '\u{fdd0}', 'g'), '\u{fdd0}')"),
    ("regexp_split_to_table", 2, "unnest(string_to_array(regexp_replace($1, $2, '\u{fdd0}', 'g'), '\u{fdd0}'))"),
];

/// Whether a call of this function may be written with others.
pub(super) fn is_written(name: &str) -> bool {
    FUNCTIONS.iter().any(|(known, ..)| *known == name) || matches!(name, MAKE_INTERVAL | "format")
}

/// What stands for an expression; `None` where it stays.
///
/// Errors: `Input` for a pattern that is not supported.
pub(super) fn written(expr: &mut Expr) -> Result<Option<Expr>> {
    match expr {
        Expr::Function(function) => match name_of(function) {
            Some(name) => of_call(&name, function),
            None => Ok(None),
        },
        Expr::Extract { field, expr: time, .. } => match part(field) {
            Some(template) => filled(template, &[taken(time)]).map(Some),
            None => Ok(None),
        },
        Expr::Substring { expr: text, substring_from: Some(pattern), substring_for: None, .. } => match text_of(pattern) {
            Some(_) => filled("array_element(regexp_match($1, $2), 1)", &[taken(text), taken(pattern)]).map(Some),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// How often an operand of this expression is written in what stands for it, at most.
pub(super) fn copies(expr: &Expr) -> usize {
    let operands = |template: &str| template.matches('$').count();
    match expr {
        Expr::Function(function) => match name_of(function).as_deref() {
            Some("format") => first_argument(function).and_then(text_of).map_or(0, |text| text.matches('%').count()),
            Some("bool_or" | "bool_and" | "string_agg") if slides(function) => 2,
            Some(name) => FUNCTIONS.iter().filter(|(known, ..)| *known == name).map(|(.., template)| operands(template)).max().unwrap_or(0),
            None => 0,
        },
        Expr::Extract { field, .. } => part(field).map_or(0, operands),
        _ => 0,
    }
}

/// The parts of a time that depend on the session's zone, and the day of the Julian calendar.
fn part(field: &DateTimeField) -> Option<&'static str> {
    Some(match field {
        DateTimeField::Timezone => "CAST(date_part('epoch', CAST($1 AS TIMESTAMP)) - date_part('epoch', CAST($1 AS TIMESTAMPTZ)) AS INT)",
        DateTimeField::TimezoneHour => {
            "CAST(date_part('epoch', CAST($1 AS TIMESTAMP)) - date_part('epoch', CAST($1 AS TIMESTAMPTZ)) AS INT) / 3600"
        }
        DateTimeField::TimezoneMinute => {
            "CAST(date_part('epoch', CAST($1 AS TIMESTAMP)) - date_part('epoch', CAST($1 AS TIMESTAMPTZ)) AS INT) % 3600 / 60"
        }
        DateTimeField::Julian => "2440588 + date_part('epoch', CAST($1 AS TIMESTAMP)) / 86400",
        _ => return None,
    })
}

fn of_call(name: &str, function: &mut Function) -> Result<Option<Expr>> {
    match (name, plain_arguments(function)) {
        (MAKE_INTERVAL, _) => Ok(interval(function)),
        ("bool_or", _) => over_sliding(function, "max"),
        ("bool_and", _) => over_sliding(function, "min"),
        ("string_agg", _) => joined_over_sliding(function),
        ("current_timestamp" | "localtimestamp", Some(1)) => now_with_digits(name, function),
        ("to_timestamp" | "to_date", Some(2)) => with_chrono_pattern(name, function),
        ("format", Some(1..)) => formatted(function),
        (_, Some(count)) => match FUNCTIONS.iter().find(|(known, arguments, _)| *known == name && *arguments == count) {
            Some((_, _, template)) => filled(template, &take_arguments(function)).map(Some),
            None => Ok(None),
        },
        (_, None) => Ok(None),
    }
}

/// An expression with operands in the places of `$1`, `$2`, ..
fn filled(template: &str, operands: &[Expr]) -> Result<Expr> {
    let mut filled = expression(template)?;
    filled.visit_expressions_mut(|expr| {
        if let Some(operand) = place(expr).and_then(|place| operands.get(place)) {
            *expr = Expr::Nested(Box::new(operand.clone()));
        }
        Ok(())
    })?;
    Ok(Expr::Nested(Box::new(filled)))
}

fn place(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Placeholder(name) = &value.value else { return None };
    name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// `make_interval(hours => 2)` with all of its arguments in their order.
fn interval(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let mut parts = vec![number("0"); PARTS_OF_INTERVAL.len()];
    for (index, argument) in list.args.iter().enumerate() {
        let place_of = |name: &Ident| PARTS_OF_INTERVAL.iter().position(|part| *part == resolved(name));
        let (place, value) = match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (index, value),
            FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => (place_of(name)?, value),
            FunctionArg::ExprNamed { name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(value), .. } => (place_of(name)?, value),
            _ => return None,
        };
        *parts.get_mut(place)? = value.clone();
    }
    Some(call(MAKE_INTERVAL, parts))
}

/// A truth over a window that slides as the extreme of numbers: DataFusion has the one over such windows, not the
/// other.
fn over_sliding(function: &mut Function, extreme: &str) -> Result<Option<Expr>> {
    if !slides(function) {
        return Ok(None);
    }
    let FunctionArguments::List(list) = &mut function.args else { return Ok(None) };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(truth))] = list.args.as_mut_slice() else { return Ok(None) };
    *truth = cast(taken(truth), DataType::Int(None));
    function.name = ObjectName::from(vec![Ident::new(extreme)]);
    filled("$1 = 1", &[Expr::Function(function.clone())]).map(Some)
}

/// The same of `string_agg`, as the joined texts of an array.
fn joined_over_sliding(function: &Function) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    let [text, FunctionArg::Unnamed(FunctionArgExpr::Expr(separator))] = list.args.as_slice() else { return Ok(None) };
    if !slides(function) || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return Ok(None);
    }
    let over_texts = |name: &str| {
        let mut aggregate = function.clone();
        aggregate.name = ObjectName::from(vec![Ident::new(name)]);
        if let FunctionArguments::List(list) = &mut aggregate.args {
            list.args = vec![text.clone()];
        }
        Expr::Function(aggregate)
    };
    let operands = [over_texts("count"), over_texts("array_agg"), separator.clone()];
    filled("CASE WHEN $1 > 0 THEN array_to_string($2, $3) END", &operands).map(Some)
}

/// Whether the window may have a frame of its own.
fn slides(function: &Function) -> bool {
    match &function.over {
        Some(WindowType::NamedWindow(_)) => true,
        Some(WindowType::WindowSpec(window)) => window.window_name.is_some() || window.window_frame.is_some(),
        None => false,
    }
}

/// `current_timestamp(3)`; `None` for digits that `date_trunc` has no unit for.
fn now_with_digits(name: &str, function: &Function) -> Result<Option<Expr>> {
    let digits = first_argument(function).map(ToString::to_string).unwrap_or_default();
    let template = match (digits.as_str(), name) {
        ("0", "localtimestamp") => "CAST(date_trunc('second', now()) AS TIMESTAMP)",
        ("0", _) => "date_trunc('second', now())",
        ("3", "localtimestamp") => "CAST(date_trunc('millisecond', now()) AS TIMESTAMP)",
        ("3", _) => "date_trunc('millisecond', now())",
        ("6", "localtimestamp") => "CAST(now() AS TIMESTAMP)",
        ("6", _) => "now()",
        _ => {
            let message = format!("not supported: {name}({digits}), expected 0, 3 or 6 digits");
            return Err(Error::input(message).with_reason(Reason::NotSupported));
        }
    };
    filled(template, &[]).map(Some)
}

/// A constant pattern of PostgreSQL's, as `YYYY-MM-DD`, as one of chrono.
fn with_chrono_pattern(name: &str, function: &mut Function) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = &mut function.args else { return Ok(None) };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(pattern))) = list.args.last_mut() else { return Ok(None) };
    let Some(text) = text_of(pattern) else { return Ok(None) };
    let of_chrono = chrono_pattern(text).map_err(|found| {
        let message =
            format!("{name}: the pattern '{text}' is not supported: found {found}, expected fields such as YYYY-MM-DD HH24:MI:SS");
        Error::input(message).with_reason(Reason::NotSupported)
    })?;
    *pattern = literal(Some(of_chrono));
    Ok(None)
}

/// `format('%s: %s', a, b)` as `concat(a, ': ', b)`. `None` for a text that is no constant.
fn formatted(function: &mut Function) -> Result<Option<Expr>> {
    let Some(text) = first_argument(function).and_then(text_of).map(str::to_owned) else { return Ok(None) };
    let operands = take_arguments(function);
    let (mut pieces, mut piece, mut next) = (Vec::new(), String::new(), 1_usize);
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        if char != '%' {
            piece.push(char);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            piece.push('%');
            continue;
        }
        let mut place = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            place.push(digit);
        }
        let (index, kind) = match chars.next() {
            Some('$') => (place.parse::<usize>().ok(), chars.next()),
            kind if place.is_empty() => (Some(next), kind),
            kind => (None, kind),
        };
        let (Some(index), Some('s')) = (index, kind) else {
            let message = "not supported: a format with other fields than %s, %1$s and %%; for %I and %L there is no function";
            return Err(Error::input(message).with_reason(Reason::NotSupported));
        };
        let operand = operands.get(index).filter(|_| index > 0);
        let operand = operand.ok_or_else(|| Error::input(format!("format: found {} arguments, expected {index}", operands.len() - 1)))?;
        pieces.extend([literal(Some(std::mem::take(&mut piece))), operand.clone()]);
        next = index + 1;
    }
    pieces.push(literal(Some(piece)));
    Ok(Some(call("concat", pieces)))
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::super::params::inner_mut;
    use super::*;

    fn rewritten(sql: &str) -> Result<String> {
        let mut statement = DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
        inner_mut(&mut statement).unwrap().visit_expressions_mut(|expr| {
            if let Some(other) = written(expr)? {
                *expr = other;
            }
            Ok(())
        })?;
        Ok(statement.to_string())
    }

    #[test]
    fn calls_are_written_with_functions_that_the_planner_knows() {
        for (sql, expected) in [
            ("SELECT div(a, 2)", "SELECT (((a) - (a) % (2)) / (2))"),
            ("SELECT age(a)", "SELECT (age(CAST(current_date AS TIMESTAMP), CAST((a) AS TIMESTAMP)))"),
            ("SELECT make_interval(hours => 2)", "SELECT make_interval(0, 0, 0, 0, 2, 0, 0)"),
            ("SELECT make_interval(1, 2)", "SELECT make_interval(1, 2, 0, 0, 0, 0, 0)"),
            ("SELECT substring(a FROM 'o(.)b')", "SELECT (array_element(regexp_match((a), ('o(.)b')), 1))"),
            ("SELECT substring(a FROM 2 FOR 3)", "SELECT SUBSTRING(a FROM 2 FOR 3)"),
            ("SELECT to_date(a, 'DD Mon YYYY')", "SELECT to_date(a, '%d %b %Y')"),
            ("SELECT to_timestamp(a, '%Y'), to_timestamp(a)", "SELECT to_timestamp(a, '%Y'), to_timestamp(a)"),
            ("SELECT format('%s-%2$s%%', a, b)", "SELECT concat('', a, '-', b, '%')"),
            ("SELECT localtimestamp(0)", "SELECT (CAST(date_trunc('second', now()) AS TIMESTAMP))"),
            (
                "SELECT bool_or(a) OVER (ORDER BY b ROWS 1 PRECEDING), bool_or(a) OVER (ORDER BY b)",
                "SELECT ((max(CAST(a AS INT)) OVER (ORDER BY b ROWS 1 PRECEDING)) = 1), bool_or(a) OVER (ORDER BY b)",
            ),
            (
                "SELECT string_agg(a, '-') OVER w FROM v WINDOW w AS (ORDER BY b)",
                "SELECT (CASE WHEN (count(a) OVER w) > 0 THEN array_to_string((array_agg(a) OVER w), ('-')) END) \
                 FROM v WINDOW w AS (ORDER BY b)",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        for (sql, found) in [
            ("SELECT format('%L', a)", "other fields than %s"),
            ("SELECT format('%s %s', a)", "found 1 arguments, expected 2"),
            ("SELECT to_date(a, 'YYYY WW')", "found WW"),
            ("SELECT current_timestamp(2)", "expected 0, 3 or 6 digits"),
        ] {
            assert!(rewritten(sql).unwrap_err().message().contains(found), "{sql}");
        }
    }
}
