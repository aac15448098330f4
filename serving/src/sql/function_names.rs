//! Functions that have another name in PostgreSQL, and functions whose results have another type there. A position or a
//! number of items is unsigned to DataFusion, and what is computed with it a DECIMAL: here it is a BIGINT. And calls
//! that can be written with others: `mod(a, b)`, `date_trunc` with a zone, `extract(second FROM ts)`,
//! `percentile_disc`.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, DateTimeField, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, ObjectName, Select, SelectItem, TimezoneInfo, Value, VisitorMut,
};
use definitions::syntax::SyntaxNode;
use types::Result;

use super::copies::Copies;
use super::literals::{arguments, call, cast, first_argument, literal, name_of, nested, taken, text_of};
use super::params::inner_mut;
use super::written_functions::{self, is_written, written};

/// Functions whose results are unsigned in DataFusion and always fit BIGINT.
const UNSIGNED: [&str; 15] = [
    "row_number",
    "rank",
    "dense_rank",
    "ntile",
    "array_length",
    "list_length",
    "cardinality",
    "array_ndims",
    "list_ndims",
    "array_position",
    "list_position",
    "array_indexof",
    "list_indexof",
    "approx_distinct",
    "regr_count",
];

/// Functions of PostgreSQL, each with the name that DataFusion has for it. All times of a query are one. DataFusion's
/// own `array_remove` and `array_replace` change the first such item only.
const OTHER_NAMES: [(&str, &str); 9] = [
    ("variance", "var_samp"),
    ("every", "bool_and"),
    ("sign", "signum"),
    ("ceiling", "ceil"),
    (ARRAY_REMOVE, "array_remove_all"),
    (ARRAY_REPLACE, "array_replace_all"),
    ("clock_timestamp", NOW),
    ("statement_timestamp", NOW),
    ("transaction_timestamp", NOW),
];
const NOW: &str = "now";
const ARRAY_REMOVE: &str = "array_remove";
const ARRAY_REPLACE: &str = "array_replace";
const ENCODE: &str = "encode";
const DATE_PART: &str = "date_part";
const DATE_TRUNC: &str = "date_trunc";

/// Rewrites the calls of these functions, and those that other expressions stand for.
///
/// Errors: `Input` for a constant pattern of one that is not supported.
pub(super) fn rewrite(statement: &mut Statement) -> Result<()> {
    let Some(statement) = inner_mut(statement) else { return Ok(()) };
    let _ = statement.visit_mut(&mut ColumnsNamedAsCalls);
    let mut copies = Copies::default();
    statement.visit_expressions_mut(|expr| {
        copies.take(expr, copies_of(expr))?;
        let other = match rewritten(expr) {
            Some(other) => Some(other),
            None => written(expr)?,
        };
        if let Some(other) = other {
            *expr = other;
        }
        Ok(())
    })
}

/// How often an operand of a call is written in what stands for the call, at most.
fn copies_of(call: &Expr) -> usize {
    match call {
        Expr::Function(function) if name_of(function).as_deref() == Some("percentile_disc") => 4,
        other => written_functions::copies(other),
    }
}

/// Names the columns of a SELECT that are a rewritten call after the function that the user wrote, as PostgreSQL does.
struct ColumnsNamedAsCalls;

impl VisitorMut for ColumnsNamedAsCalls {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            let Expr::Function(function) = &*expr else { continue };
            let name = name_of(function).filter(|name| match name.as_str() {
                "mod" | "percentile_disc" | ARRAY_REMOVE | ARRAY_REPLACE => true,
                ENCODE => base64(function).is_some(),
                other => is_written(other),
            });
            if let Some(name) = name {
                *item = SelectItem::ExprWithAlias { expr: taken(expr), alias: Ident::with_quote('"', name) };
            }
        }
        ControlFlow::Continue(())
    }
}

/// What takes the place of an expression; `None` where it stays, but for the name of a function.
fn rewritten(expr: &mut Expr) -> Option<Expr> {
    let function = match expr {
        Expr::Extract { field, expr: time, .. } => return extracted(field, time),
        Expr::Function(function) => function,
        _ => return None,
    };
    let name = name_of(function)?;
    if let Some((_, known)) = OTHER_NAMES.iter().find(|(other, _)| *other == name) {
        function.name = ObjectName::from(vec![Ident::new(*known)]);
        return None;
    }
    match name.as_str() {
        ENCODE => {
            if let Some(place) = base64(function)
                && let FunctionArguments::List(list) = &mut function.args
            {
                list.args[place] = FunctionArg::Unnamed(FunctionArgExpr::Expr(literal(Some("base64pad".to_owned()))));
            }
            None
        }
        "date" => arguments(function).map(|[operand]| cast(operand, DataType::Date)),
        "mod" => arguments(function).map(|[dividend, divisor]| remainder(dividend, divisor)),
        DATE_TRUNC => arguments(function).map(|[unit, time, zone]| truncated_in_zone(unit, time, zone)),
        "localtimestamp" if function.args == FunctionArguments::None => Some(cast_now(DataType::Timestamp(None, TimezoneInfo::None))),
        "localtime" if function.args == FunctionArguments::None => Some(cast_now(DataType::Time(None, TimezoneInfo::None))),
        "percentile_disc" => discrete_percentile(function),
        // A copy of a deep expression takes much of the stack.
        unsigned if UNSIGNED.contains(&unsigned) => Some(cast(taken(expr), DataType::BigInt(None))),
        _ => None,
    }
}

/// `extract(second FROM ts)` as `date_part`, which is a DOUBLE, cast to a decimal. `None` for the parts that are the
/// same in both.
fn extracted(field: &DateTimeField, time: &mut Expr) -> Option<Expr> {
    let digits = match field {
        DateTimeField::Second | DateTimeField::Seconds => ExactNumberInfo::PrecisionAndScale(8, 6),
        DateTimeField::Millisecond | DateTimeField::Milliseconds => ExactNumberInfo::PrecisionAndScale(8, 3),
        _ => return None,
    };
    let part = call(DATE_PART, vec![literal(Some(field.to_string())), taken(time)]);
    Some(cast(part, DataType::Decimal(digits)))
}

/// The place of the argument of `encode` that names the format, if that is base64: DataFusion writes no `=` at its end.
fn base64(function: &Function) -> Option<usize> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(format))] if text_of(format)?.eq_ignore_ascii_case("base64") => Some(1),
        _ => None,
    }
}

fn remainder(dividend: Expr, divisor: Expr) -> Expr {
    let (left, right) = (nested(dividend), nested(divisor));
    Expr::Nested(Box::new(Expr::BinaryOp { left, op: BinaryOperator::Modulo, right }))
}

/// `date_trunc('day', ts, 'Europe/Berlin')` is an instant, as the time of a zone is here.
fn truncated_in_zone(unit: Expr, time: Expr, zone: Expr) -> Expr {
    let instant = cast(time, DataType::Timestamp(None, TimezoneInfo::Tz));
    call(DATE_TRUNC, vec![unit, Expr::AtTimeZone { timestamp: Box::new(instant), time_zone: Box::new(zone) }])
}

/// `percentile_disc(0.9) WITHIN GROUP (ORDER BY x)` as the item of the sorted list at this share of its length. `None`
/// where the share is not written as a number from 0 to 1.
fn discrete_percentile(function: &mut Function) -> Option<Expr> {
    let [order] = function.within_group.as_slice() else { return None };
    let order = order.clone();
    if !matches!(first_argument(function)?, Expr::Value(value) if is_share(&value.value)) {
        return None;
    }
    let filter = function.filter.take();
    let Some([share]) = arguments(function) else {
        function.filter = filter;
        return None;
    };
    let is_present = Expr::IsNotNull(Box::new(order.expr.clone()));
    let filter = match filter {
        Some(filter) => Expr::BinaryOp { left: nested(*filter), op: BinaryOperator::And, right: nested(is_present) },
        None => is_present,
    };
    let count = filtered(call("count", vec![order.expr.clone()]), &filter);
    let mut values = filtered(call("array_agg", vec![order.expr.clone()]), &filter);
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut values {
        list.clauses.push(FunctionArgumentClause::OrderBy(vec![order]));
    }
    let share =
        Expr::BinaryOp { left: Box::new(cast(share, DataType::DoublePrecision)), op: BinaryOperator::Multiply, right: Box::new(count) };
    let place = cast(call("ceil", vec![share]), DataType::BigInt(None));
    let first = Expr::Value(Value::Number("1".to_owned(), false).into());
    Some(call("array_element", vec![values, call("greatest", vec![first, place])]))
}

fn is_share(value: &Value) -> bool {
    matches!(value, Value::Number(number, _) if number.parse().is_ok_and(|share: f64| (0.0..=1.0).contains(&share)))
}

fn filtered(aggregate: Expr, filter: &Expr) -> Expr {
    match aggregate {
        Expr::Function(function) => Expr::Function(Function { filter: Some(Box::new(filter.clone())), ..function }),
        other => other,
    }
}

fn cast_now(data_type: DataType) -> Expr {
    cast(call(NOW, Vec::new()), data_type)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    #[test]
    fn calls_are_those_that_the_planner_knows() {
        for (sql, expected) in [
            (
                "SELECT row_number() OVER (ORDER BY a) - 1, Cardinality(b) FROM v",
                "SELECT CAST(row_number() OVER (ORDER BY a) AS BIGINT) - 1, CAST(Cardinality(b) AS BIGINT) FROM v",
            ),
            ("SELECT variance(a), every(b) FILTER (WHERE c) FROM v", "SELECT var_samp(a), bool_and(b) FILTER (WHERE c) FROM v"),
            ("SELECT a FROM v WHERE sign(a - 1) < 0", "SELECT a FROM v WHERE signum(a - 1) < 0"),
            (
                "SELECT array_remove(a, 1), 1 + array_position(array_replace(a, 1, 2), 2)",
                "SELECT array_remove_all(a, 1) AS \"array_remove\", 1 + CAST(array_position(array_replace_all(a, 1, 2), 2) AS BIGINT)",
            ),
            (
                "SELECT encode(a, 'base64'), encode(a, 'hex'), length(encode(a, 'Base64'))",
                "SELECT encode(a, 'base64pad') AS \"encode\", encode(a, 'hex'), length(encode(a, 'base64pad'))",
            ),
            ("SELECT date(max(ts)) FROM v", "SELECT CAST(max(ts) AS DATE) FROM v"),
            ("SELECT mod(a + 1, b), clock_timestamp()", "SELECT ((a + 1) % (b)) AS \"mod\", now()"),
            ("SELECT localtimestamp, localtime", "SELECT CAST(now() AS TIMESTAMP), CAST(now() AS TIME)"),
            (
                "SELECT date_trunc('day', ts, 'Europe/Berlin'), date_trunc('day', ts)",
                "SELECT date_trunc('day', CAST(ts AS TIMESTAMPTZ) AT TIME ZONE 'Europe/Berlin'), date_trunc('day', ts)",
            ),
            (
                "SELECT extract(second FROM a), extract(century FROM a), extract(hour FROM a)",
                "SELECT CAST(date_part('SECOND', a) AS DECIMAL(8,6)), EXTRACT(CENTURY FROM a), EXTRACT(HOUR FROM a)",
            ),
            (
                "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY a DESC) FILTER (WHERE b)",
                "SELECT array_element(array_agg(a ORDER BY a DESC) FILTER (WHERE (b) AND (a IS NOT NULL)), \
                 greatest(1, CAST(ceil(CAST(0.5 AS DOUBLE PRECISION) * count(a) FILTER (WHERE (b) AND (a IS NOT NULL))) AS BIGINT))) \
                 AS \"percentile_disc\"",
            ),
            (
                "SELECT percentile_disc(2) WITHIN GROUP (ORDER BY a)",
                "SELECT percentile_disc(2) WITHIN GROUP (ORDER BY a) AS \"percentile_disc\"",
            ),
            ("SELECT div(a, 2), 1 + div(a, 2)", "SELECT (((a) - (a) % (2)) / (2)) AS \"div\", 1 + (((a) - (a) % (2)) / (2))"),
            ("SELECT date(a, b), count(*), \"Rank\"(a), s.rank(a) FROM v", "SELECT date(a, b), count(*), \"Rank\"(a), s.rank(a) FROM v"),
        ] {
            let mut statement = DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
            rewrite(&mut statement).unwrap();
            assert_eq!(statement.to_string(), expected);
        }
    }
}
