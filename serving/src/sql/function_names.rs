//! Functions that have another name in PostgreSQL, and functions whose results have another type there. A position or a
//! number of items is unsigned to DataFusion, and what is computed with it a DECIMAL: here it is a BIGINT.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart,
};
use definitions::syntax::SyntaxNode;
use types::Result;

use super::names::resolved;
use super::params::inner_mut;

/// Functions whose results are unsigned to DataFusion, and never past BIGINT.
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

/// Functions of PostgreSQL, each with the name that DataFusion has for it.
const OTHER_NAMES: [(&str, &str); 3] = [("variance", "var_samp"), ("every", "bool_and"), ("sign", "signum")];
/// `date(ts)` is a cast.
const DATE: &str = "date";

/// Rewrites the calls of these functions.
pub(super) fn rewrite(statement: &mut Statement) -> Result<()> {
    let Some(statement) = inner_mut(statement) else { return Ok(()) };
    statement.visit_expressions_mut(|expr| {
        let Expr::Function(call) = expr else { return Ok(()) };
        let Some(name) = name_of(call) else { return Ok(()) };
        if let Some((_, known)) = OTHER_NAMES.iter().find(|(other, _)| *other == name) {
            call.name = ObjectName::from(vec![Ident::new(*known)]);
        } else if name == DATE {
            if let Some(operand) = only_argument(call) {
                *expr = cast(operand, DataType::Date);
            }
        } else if UNSIGNED.contains(&name.as_str()) {
            // A copy of a deep expression takes much of the stack.
            let call = std::mem::replace(expr, Expr::Identifier(Ident::new("")));
            *expr = cast(call, DataType::BigInt(None));
        }
        Ok(())
    })
}

/// The name of a function that is called without a schema.
fn name_of(call: &Function) -> Option<String> {
    match &call.name.0[..] {
        [ObjectNamePart::Identifier(name)] => Some(resolved(name)),
        _ => None,
    }
}

/// The argument of a call that has one and nothing else.
fn only_argument(call: &mut Function) -> Option<Expr> {
    if call.over.is_some() || call.filter.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &mut call.args else { return None };
    match &mut list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(operand))] if list.duplicate_treatment.is_none() && list.clauses.is_empty() => {
            Some(std::mem::replace(operand, Expr::Identifier(Ident::new(""))))
        }
        _ => None,
    }
}

fn cast(operand: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(operand), data_type, array: false, format: None }
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
            ("SELECT date(max(ts)) FROM v", "SELECT CAST(max(ts) AS DATE) FROM v"),
            ("SELECT date(a, b), count(*), \"Rank\"(a), s.rank(a) FROM v", "SELECT date(a, b), count(*), \"Rank\"(a), s.rank(a) FROM v"),
        ] {
            let mut statement = DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
            rewrite(&mut statement).unwrap();
            assert_eq!(statement.to_string(), expected);
        }
    }
}
