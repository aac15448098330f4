use std::collections::BTreeSet;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use types::Error;

use super::*;

/// The hooks that were called, in order.
#[derive(Default)]
struct Called(Vec<&'static str>);

macro_rules! note {
    ($($hook:ident: $node:ty),+ $(,)?) => {
        impl Visitor for Called {
            type Break = ();
            $(
                fn $hook(&mut self, _: &$node) -> ControlFlow<()> {
                    self.0.push(stringify!($hook));
                    ControlFlow::Continue(())
                }
            )+
        }

        impl VisitorMut for Called {
            type Break = ();
            $(
                fn $hook(&mut self, _: &mut $node) -> ControlFlow<()> {
                    self.0.push(stringify!($hook));
                    ControlFlow::Continue(())
                }
            )+
        }
    };
}

note!(
    pre_visit_query: Query,
    post_visit_query: Query,
    pre_visit_select: Select,
    post_visit_select: Select,
    pre_visit_relation: ObjectName,
    post_visit_relation: ObjectName,
    pre_visit_table_factor: TableFactor,
    post_visit_table_factor: TableFactor,
    pre_visit_expr: Expr,
    post_visit_expr: Expr,
    pre_visit_statement: Statement,
    post_visit_statement: Statement,
    pre_visit_value: ValueWithSpan,
    post_visit_value: ValueWithSpan,
);

fn statement(sql: &str) -> Statement {
    Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0)
}

#[test]
fn every_hook_is_called_as_sqlparser_calls_it() {
    let mut statement = statement("WITH a AS (SELECT 1 AS x) SELECT f(x + 1) FROM a WHERE EXISTS (SELECT y FROM b) ORDER BY 2");
    let [mut expected, mut found, mut found_mut] = [(); 3].map(|()| Called::default());
    let _ = Visit::visit(&statement, &mut expected);
    let _ = SyntaxNode::visit(&statement, &mut found);
    let _ = statement.visit_mut(&mut found_mut);
    assert_eq!(BTreeSet::from_iter(&expected.0).len(), 14);
    assert_eq!(found.0, expected.0);
    assert_eq!(found_mut.0, expected.0);
}

#[test]
fn a_visit_ends_where_the_visitor_breaks() {
    let mut seen = Vec::new();
    let outcome = statement("SELECT f(x), y, z").visit_expressions(|expr| {
        seen.push(expr.to_string());
        if seen.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(outcome.is_break());
    assert_eq!(seen, ["f(x)", "x", "y"]);
}

#[test]
fn what_replaces_an_expression_is_not_visited_and_the_first_error_ends_the_visit() {
    let mut statement = statement("SELECT f(x), y, x");
    let outcome = statement.visit_expressions_mut(|expr| match expr.to_string().as_str() {
        "x" => {
            *expr = Parser::new(&GenericDialect {}).try_with_sql("f(x)").and_then(|mut parser| parser.parse_expr()).unwrap();
            Ok(())
        }
        "y" => Err(Error::input("found y")),
        _ => Ok(()),
    });
    assert_eq!(outcome.unwrap_err().message(), "found y");
    assert_eq!(statement.to_string(), "SELECT f(f(x)), y, x");
}
