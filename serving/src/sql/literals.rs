//! Literals, calls and other expressions in the syntax of a statement.

use std::mem;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, Value,
};
use datafusion::sql::sqlparser::parser::Parser;
use types::Result;
use types::sql_dialect::SqlDialect;

use super::names::resolved;

/// A literal of a text, or NULL.
pub(super) fn literal(text: Option<String>) -> Expr {
    Expr::Value(text.map_or(Value::Null, Value::SingleQuotedString).into())
}

/// The text of a literal, which may be in parentheses, as after `ANY`.
pub(super) fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(expr) => text_of(expr),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// A call of a function.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The expression that a text is.
pub(super) fn expression(text: &str) -> Result<Expr> {
    let parsed = Parser::new(&SqlDialect).try_with_sql(text).and_then(|mut parser| parser.parse_expr());
    Ok(parsed.map_err(DataFusionError::from)?)
}

pub(super) fn cast(operand: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(operand), data_type, array: false, format: None }
}

pub(super) fn nested(expr: Expr) -> Box<Expr> {
    Box::new(Expr::Nested(Box::new(expr)))
}

/// The expression, which something else takes the place of.
pub(super) fn taken(expr: &mut Expr) -> Expr {
    mem::replace(expr, Expr::Identifier(Ident::new("")))
}

/// The name of a function that is called without a schema.
pub(super) fn name_of(call: &Function) -> Option<String> {
    match &call.name.0[..] {
        [ObjectNamePart::Identifier(name)] => Some(resolved(name)),
        _ => None,
    }
}

pub(super) fn first_argument(function: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.first()? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument),
        _ => None,
    }
}

/// How many arguments a call has, if they are expressions, and it has neither a window nor a filter.
pub(super) fn plain_arguments(function: &Function) -> Option<usize> {
    if function.over.is_some() || function.filter.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_plain = |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
    let is_call_of_plain = list.duplicate_treatment.is_none() && list.clauses.is_empty() && list.args.iter().all(is_plain);
    is_call_of_plain.then_some(list.args.len())
}

/// Takes the arguments that are expressions.
pub(super) fn take_arguments(function: &mut Function) -> Vec<Expr> {
    let FunctionArguments::List(list) = &mut function.args else { return Vec::new() };
    let operands = list.args.drain(..).filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(operand)) => Some(operand),
        _ => None,
    });
    operands.collect()
}

/// Takes the arguments of a call that has `N` of them, all plain expressions, and neither a window nor a filter.
pub(super) fn arguments<const N: usize>(function: &mut Function) -> Option<[Expr; N]> {
    if plain_arguments(function)? != N {
        return None;
    }
    take_arguments(function).try_into().ok()
}
