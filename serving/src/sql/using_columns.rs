//! The columns of `JOIN .. USING` as in PostgreSQL: each is one column, comes first in `*`, and has the value of the
//! side that has one. In DataFusion it has that of the left side, which is NULL in some rows of a RIGHT or FULL JOIN.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, VisitorMut, WildcardAdditionalOptions,
};
use definitions::syntax::SyntaxNode;
use types::{Error, Reason, Result};

use super::literals::call;
use super::names::resolved;
use super::params::inner_mut;
use super::wildcards::leave_out;

/// Rewrites `*` and these columns' names in each SELECT that joins two tables by them.
///
/// Errors: `Input` for a RIGHT or FULL JOIN by such columns that is NATURAL, or that is joined with other tables.
pub(super) fn rewrite(statement: &mut Statement) -> Result<()> {
    let mut rewriter = UsingRewriter { outcome: Ok(()) };
    if let Some(statement) = inner_mut(statement) {
        let _ = statement.visit_mut(&mut rewriter);
    }
    rewriter.outcome
}

struct UsingRewriter {
    outcome: Result<()>,
}

impl VisitorMut for UsingRewriter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let Query { body, order_by, .. } = query;
        self.outcome = rewrite_body(body, order_by.as_mut());
        if self.outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Rewrites the SELECTs of a query's body; its subqueries are visited separately.
fn rewrite_body(body: &mut SetExpr, order_by: Option<&mut OrderBy>) -> Result<()> {
    match body {
        SetExpr::Select(select) => rewrite_select(select, order_by),
        SetExpr::SetOperation { left, right, .. } => {
            rewrite_body(left, None)?;
            rewrite_body(right, None)
        }
        _ => Ok(()),
    }
}

fn rewrite_select(select: &mut Select, order_by: Option<&mut OrderBy>) -> Result<()> {
    let Some(columns) = UsingColumns::find(select) else { return refuse_others(select) };
    let items = std::mem::take(&mut select.projection).into_iter();
    select.projection = items.flat_map(|item| columns.items(item)).collect();
    if columns.side == ValueSide::Left {
        return Ok(());
    }
    let _ = select.visit_mut(&mut UsingNames { columns: &columns, depth: 0 });
    if let Some(OrderBy { kind: OrderByKind::Expressions(sorts), .. }) = order_by {
        for sort in sorts {
            // A name alone is that of a column of the SELECT, if there is one.
            let is_of_select = matches!(&sort.expr, Expr::Identifier(name) if select.projection.iter().any(|item| is_called(item, name)));
            if !is_of_select {
                let _ = sort.expr.visit_mut(&mut UsingNames { columns: &columns, depth: 0 });
            }
        }
    }
    Ok(())
}

/// The columns by which two tables are joined.
struct UsingColumns {
    names: Vec<Ident>,
    side: ValueSide,
    left: Ident,
    right: Ident,
}

/// The side of a join whose value a column has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueSide {
    Left,
    Right,
    /// Whichever is not NULL.
    Either,
}

impl UsingColumns {
    fn find(select: &Select) -> Option<UsingColumns> {
        let [tables] = &select.from[..] else { return None };
        let [join] = &tables.joins[..] else { return None };
        let (side, constraint) = joined(&join.join_operator)?;
        let JoinConstraint::Using(names) = constraint else { return None };
        let name = |name: &ObjectName| match &name.0[..] {
            [only] => only.as_ident().cloned(),
            _ => None,
        };
        let names = names.iter().map(name).collect::<Option<Vec<_>>>()?;
        Some(UsingColumns { names, side, left: name_of(&tables.relation)?, right: name_of(&join.relation)? })
    }

    fn is_one(&self, name: &Ident) -> bool {
        self.names.iter().any(|column| resolved(column) == resolved(name))
    }

    fn value(&self, name: &Ident) -> Expr {
        let column = |table: &Ident| Expr::CompoundIdentifier(vec![table.clone(), name.clone()]);
        match self.side {
            ValueSide::Left => column(&self.left),
            ValueSide::Right => column(&self.right),
            ValueSide::Either => call("coalesce", vec![column(&self.left), column(&self.right)]),
        }
    }

    /// Returns the items that replace an item of a SELECT.
    fn items(&self, item: SelectItem) -> Vec<SelectItem> {
        match item {
            SelectItem::Wildcard(options) if options == WildcardAdditionalOptions::default() => {
                let values = self.names.iter().map(|name| self.item(name));
                values.chain([self.others(&self.left), self.others(&self.right)]).collect()
            }
            SelectItem::UnnamedExpr(Expr::Identifier(name)) if self.side != ValueSide::Left && self.is_one(&name) => {
                vec![self.item(&name)]
            }
            item => vec![item],
        }
    }

    /// Returns the item for the column of this name.
    fn item(&self, name: &Ident) -> SelectItem {
        match self.side {
            ValueSide::Either => SelectItem::ExprWithAlias { expr: self.value(name), alias: name.clone() },
            _ => SelectItem::UnnamedExpr(self.value(name)),
        }
    }

    /// Returns a `*` for all other columns of a table.
    fn others(&self, table: &Ident) -> SelectItem {
        let mut options = WildcardAdditionalOptions::default();
        leave_out(&mut options, &self.names.iter().map(resolved).collect::<Vec<_>>());
        let table = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![table.clone()]));
        SelectItem::QualifiedWildcard(table, options)
    }
}

/// Replaces the names of the columns by their values, in a SELECT but not in its subqueries.
struct UsingNames<'a> {
    columns: &'a UsingColumns,
    /// How many subqueries enclose the visited expression: names in them may be those of their own tables.
    depth: usize,
}

impl VisitorMut for UsingNames<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && self.columns.is_one(name)
        {
            *expr = self.columns.value(name);
        }
        ControlFlow::Continue(())
    }
}

/// Refuses a RIGHT or FULL JOIN by columns of one name where these are not known.
fn refuse_others(select: &Select) -> Result<()> {
    let joins = select.from.iter().flat_map(|tables| &tables.joins);
    for join in joins {
        if let Some((ValueSide::Right | ValueSide::Either, JoinConstraint::Using(_) | JoinConstraint::Natural)) =
            joined(&join.join_operator)
        {
            let message = "not supported: a RIGHT or FULL JOIN that is NATURAL, or has USING beside other joins: write ON, and \
                           coalesce(a.k, b.k) for the column of both sides";
            return Err(Error::input(message).with_reason(Reason::NotSupported));
        }
    }
    Ok(())
}

/// Returns the common columns of a join, and the side whose values they have.
fn joined(join: &JoinOperator) -> Option<(ValueSide, &JoinConstraint)> {
    match join {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => Some((ValueSide::Left, constraint)),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => Some((ValueSide::Right, constraint)),
        JoinOperator::FullOuter(constraint) => Some((ValueSide::Either, constraint)),
        _ => None,
    }
}

/// The name by which a SELECT knows a table.
fn name_of(table: &TableFactor) -> Option<Ident> {
    match table {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, alias: None, args: None, .. } => name.0.last()?.as_ident().cloned(),
        _ => None,
    }
}

fn is_called(item: &SelectItem, name: &Ident) -> bool {
    let called = match item {
        SelectItem::UnnamedExpr(Expr::Identifier(column)) => column,
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => match parts.last() {
            Some(column) => column,
            None => return false,
        },
        SelectItem::ExprWithAlias { alias, .. } => alias,
        _ => return false,
    };
    resolved(called) == resolved(name)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    fn rewritten(sql: &str) -> Result<String> {
        let mut statement = DFParserBuilder::new(sql).build().unwrap().parse_statement().unwrap();
        rewrite(&mut statement)?;
        Ok(statement.to_string())
    }

    #[test]
    fn a_column_of_both_sides_comes_first_and_has_the_value_that_is_there() {
        for (sql, expected) in [
            (
                "SELECT * FROM a JOIN b AS c USING (k, l)",
                "SELECT a.k, a.l, a.* EXCEPT (\"k\", \"l\"), c.* EXCEPT (\"k\", \"l\") FROM a JOIN b AS c USING(k, l)",
            ),
            (
                "SELECT *, n FROM a RIGHT JOIN b USING (k) WHERE k > 1 ORDER BY k, k + n",
                "SELECT b.k, a.* EXCEPT (\"k\"), b.* EXCEPT (\"k\"), n FROM a RIGHT JOIN b USING(k) WHERE b.k > 1 ORDER BY k, b.k + n",
            ),
            (
                "SELECT k, count(*) FROM a FULL JOIN b USING (k) WHERE a.k IN (SELECT k FROM c) GROUP BY K",
                "SELECT coalesce(a.k, b.k) AS k, count(*) FROM a FULL JOIN b USING(k) WHERE a.k IN (SELECT k FROM c) \
                 GROUP BY coalesce(a.K, b.K)",
            ),
            (
                "SELECT n FROM (SELECT k FROM a RIGHT JOIN b USING (k)) AS c ORDER BY k",
                "SELECT n FROM (SELECT b.k FROM a RIGHT JOIN b USING(k)) AS c ORDER BY k",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        for same in [
            "SELECT k FROM a LEFT JOIN b USING(k) WHERE k > 1 ORDER BY k",
            "SELECT * FROM a JOIN b ON a.k = b.k",
            "SELECT * FROM a JOIN b USING(k) JOIN c USING(k)",
            "SELECT * EXCEPT (k) FROM a JOIN b USING(k)",
        ] {
            assert_eq!(rewritten(same).unwrap(), same);
        }
        for other in ["SELECT k FROM a NATURAL FULL JOIN b", "SELECT k FROM a JOIN b USING (k) RIGHT JOIN c USING (k)"] {
            assert_eq!(rewritten(other).unwrap_err().reason(), Some(Reason::NotSupported), "{other}");
        }
    }
}
