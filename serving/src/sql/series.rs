//! `generate_series` and `unnest` in FROM, as PostgreSQL has them: a step may be a text (`'1 day'`), and the column of
//! a function with the alias `d` may be called `d`. In DataFusion the column of `generate_series` is called `value`.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, ObjectName, ObjectNamePart, TableAlias, TableAliasColumnDef, TableFactor,
    VisitorMut,
};
use definitions::syntax::SyntaxNode;

use super::literals::text_of;
use super::names::resolved;
use super::params::inner_mut;

const SERIES: &str = "generate_series";

/// Converts each step that is a text to an interval.
pub(super) fn read_steps(statement: &mut Statement) {
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut SeriesSteps);
    }
}

struct SeriesSteps;

impl VisitorMut for SeriesSteps {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(args), .. } = factor
            && is_series(name)
            && let [_, _, FunctionArg::Unnamed(FunctionArgExpr::Expr(step))] = &mut args.args[..]
            && text_of(step).is_some()
        {
            let expr = Box::new(step.clone());
            let data_type = DataType::Interval { fields: None, precision: None };
            *step = Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None };
        }
        ControlFlow::Continue(())
    }
}

/// Names the only column of each function like the function's alias, unless the alias names columns itself. Returns
/// whether there is such a function.
pub(super) fn name_columns(statement: &mut Statement) -> bool {
    let mut columns = SeriesColumns { is_named: false };
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut columns);
    }
    columns.is_named
}

struct SeriesColumns {
    is_named: bool,
}

impl VisitorMut for SeriesColumns {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let Some(alias) = alias_of_function(factor)
            && alias.columns.is_empty()
        {
            alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
            self.is_named = true;
        }
        ControlFlow::Continue(())
    }
}

fn alias_of_function(factor: &mut TableFactor) -> Option<&mut TableAlias> {
    match factor {
        TableFactor::Table { name, alias, args: Some(_), with_ordinality: false, .. } if is_series(name) => alias.as_mut(),
        TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality: false, .. } if array_exprs.len() == 1 => {
            alias.as_mut()
        }
        _ => None,
    }
}

fn is_series(name: &ObjectName) -> bool {
    matches!(&name.0[..], [ObjectNamePart::Identifier(name)] if resolved(name) == SERIES)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    #[test]
    fn a_step_may_be_a_text_and_a_column_be_called_as_the_alias() {
        let parsed = |sql: &str| DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
        let mut statement =
            parsed("SELECT * FROM generate_series(a, b, '1 day') AS d, generate_series(1, 3, 2) AS e, range(1, 2, 'x') AS f");
        read_steps(&mut statement);
        let read = "SELECT * FROM generate_series(a, b, CAST('1 day' AS INTERVAL)) AS d, generate_series(1, 3, 2) AS e, \
                    range(1, 2, 'x') AS f";
        assert_eq!(statement.to_string(), read);
        let mut statement = parsed("SELECT * FROM generate_series(1, 2) AS d, UNNEST(ARRAY[1]) AS u, generate_series(1, 2) AS e (n)");
        assert!(name_columns(&mut statement));
        let named = "SELECT * FROM generate_series(1, 2) AS d (d), UNNEST(ARRAY[1]) AS u (u), generate_series(1, 2) AS e (n)";
        assert_eq!(statement.to_string(), named);
        for same in ["SELECT * FROM generate_series(1, 2)", "SELECT * FROM v AS d", "SELECT * FROM range(1, 2) AS d"] {
            assert!(!name_columns(&mut parsed(same)), "{same}");
        }
    }
}
