//! PostgreSQL's operators that read JSON, in every session: `->` and `->>`, and `#>` and `#>>` with one path for all
//! rows.
//!
//! JSON is a text here. A member that is missing, and any member of a text that is not JSON, is NULL.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use types::sql_types::sql_name;
use types::value_texts::array_items;

use crate::functions::{json_member, json_member_as_text};
use crate::plan::hidden::strip_casts;
use crate::plan::typed_texts::MAKE_ARRAY;

/// Runs before DataFusion's own planners.
#[derive(Debug)]
pub(super) struct JsonOperators;

impl ExprPlanner for JsonOperators {
    fn plan_binary_op(&self, operation: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (read, is_path): (ScalarUDF, bool) = match operation.op {
            BinaryOperator::Arrow => (json_member(), false),
            BinaryOperator::LongArrow => (json_member_as_text(), false),
            BinaryOperator::HashArrow => (json_member(), true),
            BinaryOperator::HashLongArrow => (json_member_as_text(), true),
            _ => return Ok(PlannerResult::Original(operation)),
        };
        let RawBinaryExpr { op, left, right } = operation;
        let json = match left.get_type(schema)? {
            of if of.is_string() => left,
            DataType::Null => cast(left, DataType::Utf8),
            of => return plan_err!("found {} before {op}, expected JSON or TEXT", sql_name(&of)),
        };
        let steps = if is_path { path(right, &op, schema)? } else { vec![step(right, &op, schema)?] };
        let args = std::iter::once(json).chain(steps).collect();
        Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(read), args))))
    }
}

/// The name of a member, or the place of an item.
fn step(step: Expr, op: &BinaryOperator, schema: &DFSchema) -> Result<Expr> {
    match step.get_type(schema)? {
        of if of.is_string() => Ok(step),
        DataType::Null => Ok(cast(step, DataType::Utf8)),
        DataType::Int64 => Ok(step),
        of if of.is_integer() => Ok(cast(step, DataType::Int64)),
        of => plan_err!("found {} after {op}, expected the name of a member or the number of an item", sql_name(&of)),
    }
}

/// The steps of `'{a,b}'` or `ARRAY['a', 'b']`. Another array of texts, such as a parameter, is passed as it is.
fn path(path: Expr, op: &BinaryOperator, schema: &DFSchema) -> Result<Vec<Expr>> {
    let is_text = |step: &Expr| matches!(step, Expr::Literal(ScalarValue::Utf8(Some(_)), _));
    let steps = match strip_casts(&path) {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => {
            array_items(text).and_then(|items| items.into_iter().map(|item| item.map(lit)).collect())
        }
        Expr::ScalarFunction(array) if array.name() == MAKE_ARRAY => array.args.iter().all(is_text).then(|| array.args.clone()),
        Expr::Column(_) => None,
        _ => match path.get_type(schema)? {
            DataType::List(item) if item.data_type().is_string() => Some(vec![path]),
            _ => None,
        },
    };
    match steps {
        Some(steps) if !steps.is_empty() => Ok(steps),
        _ => plan_err!("expected a path after {op} that is one for all rows, such as '{{a,b}}' or ARRAY['a', 'b']"),
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;

    use crate::functions::Functions;
    use crate::plan::planning_session;
    use crate::plan::written::{ColumnNames, sql_of};
    use types::sql_dialect::parse_statement;
    use types::sql_errors::constants_as_sql;

    const JSON: &str = r#"'{"a": {"b": [10, {"c": "x"}]}, "t": "two words", "n": 1.50, "z": null, "y": true}'"#;

    async fn answer(expression: &str) -> Result<String, String> {
        let session = planning_session(&Functions::standard()).unwrap();
        let sql = format!("SELECT {expression} AS found FROM (VALUES ({JSON}, 'a')) AS events(j, k)");
        let plan = session.state().statement_to_plan(parse_statement(&sql).unwrap()).await.map_err(|error| error.to_string())?;
        let rows = session.execute_logical_plan(plan).await.unwrap().collect().await.map_err(|error| error.to_string())?;
        Ok(if rows[0].column(0).is_null(0) { "NULL".to_owned() } else { array_value_to_string(rows[0].column(0), 0).unwrap() })
    }

    #[tokio::test]
    async fn members_are_those_of_postgresql() {
        for (expression, expected) in [
            ("j -> 't'", "\"two words\""),
            ("j ->> 't'", "two words"),
            ("j ->> 'n'", "1.50"),
            ("CAST(j ->> 'n' AS DECIMAL(4,2)) * 2", "3.00"),
            ("j -> 'z'", "null"),
            ("j ->> 'z'", "NULL"),
            ("j ->> 'missing'", "NULL"),
            ("j -> 'a'", r#"{"b": [10, {"c": "x"}]}"#),
            ("j -> k ->> 'b'", r#"[10, {"c": "x"}]"#),
            ("j -> 'a' -> 'b' -> 1 ->> 'c'", "x"),
            ("j -> 'a' -> 'b' ->> -2", "10"),
            ("j #>> '{a,b,1,c}'", "x"),
            ("j #> ARRAY['a', 'b', '1']", r#"{"c": "x"}"#),
            ("j #>> CAST(ARRAY['a', 'b', '0'] AS TEXT[])", "10"),
            ("j #>> string_to_array('a.b.0', '.')", "10"),
            ("j ->> 't' = 'two words' AND j ->> 'y' = 'true'", "true"),
            ("'no JSON' ->> 't'", "NULL"),
            ("NULL ->> 't'", "NULL"),
            ("j ->> NULL", "NULL"),
            ("j ->> 't' || '!'", "two words!"),
        ] {
            assert_eq!(answer(expression).await.as_deref(), Ok(expected), "{expression}");
        }
    }

    #[tokio::test]
    async fn a_column_is_named_by_the_operator() {
        let session = planning_session(&Functions::standard()).unwrap();
        for sql in ["j ->> 'a'", "j -> 'a' -> 0 ->> 'b'"] {
            let statement = parse_statement(&format!("SELECT {sql} FROM (VALUES ('{{}}')) AS events(j)")).unwrap();
            let plan = session.state().statement_to_plan(statement).await.unwrap();
            assert_eq!(constants_as_sql(plan.schema().field(0).name()), format!("events.{sql}"));
            let shown = plan.expressions().iter().map(|expr| sql_of(expr, ColumnNames::Bare)).collect::<Vec<_>>();
            assert_eq!(shown.concat().replace(['(', ')'], ""), sql);
        }
    }

    #[tokio::test]
    async fn operands_that_are_no_json_or_no_step_are_refused() {
        for (expression, expected) in [
            ("1 -> 'a'", "found BIGINT before ->, expected JSON or TEXT"),
            ("j ->> 1.5", "found DECIMAL(2,1) after ->>, expected the name of a member or the number of an item"),
            ("j #>> k", "expected a path after #>> that is one for all rows, such as '{a,b}' or ARRAY['a', 'b']"),
            ("j #> '{}'", "expected a path after #>"),
            ("j #> 'a'", "expected a path after #>"),
        ] {
            let refusal = answer(expression).await.unwrap_err();
            assert!(refusal.contains(expected), "{expression}: {refusal}");
        }
    }
}
