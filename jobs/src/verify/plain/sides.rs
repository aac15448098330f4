//! The relations that a view's SELECT reads: one, or two that are joined. Each has its own event time, and each column
//! name in a join belongs to one of them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Select, TableAlias, TableFactor,
};
use definitions::syntax::SyntaxNode;
use types::tiles::Micros;
use types::{Error, Result};

use super::names::resolved;
use super::span::RelativeSpan;

/// The last columns of every table and every inner SELECT.
pub(super) const HIDDEN: [&str; 4] = ["__event_time", "__source", "__partition", "__offset"];

/// The relations of a SELECT, in order of appearance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sides {
    pub(super) sides: Vec<JoinedRelation>,
    pub(super) on: Option<Expr>,
    pub(super) using: Vec<Ident>,
}

/// One relation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JoinedRelation {
    /// The qualifier of its columns; `None` if it is the only relation.
    pub(super) qualifier: Option<Ident>,
    pub(super) relation: TableFactor,
    /// The names of its columns, without the hidden ones.
    pub(super) columns: BTreeSet<String>,
}

/// Which events an aggregate counts: on each side those in a span. In a join, the pairs with both events in their
/// spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reach(pub(super) Vec<RelativeSpan>);

impl Sides {
    pub(super) fn is_joined(&self) -> bool {
        self.sides.len() > 1
    }

    /// Returns the same span for every side.
    pub(super) fn reach(&self, span: RelativeSpan) -> Reach {
        Reach(vec![span; self.sides.len()])
    }

    /// Returns the condition of a reach as SQL; `None` if every event meets it.
    pub(super) fn condition(&self, reach: &Reach, t: Micros) -> Option<String> {
        let sides = self.sides.iter().zip(&reach.0);
        let conditions: Vec<String> = sides.filter_map(|(side, span)| span.condition(&side.event_time(), t)).collect();
        (!conditions.is_empty()).then(|| conditions.join(" AND "))
    }

    /// Returns the sides whose columns an expression names.
    pub(super) fn named_in(&self, expr: &Expr) -> BTreeSet<usize> {
        let mut named = BTreeSet::new();
        let _ = expr.visit_expressions(|expr| {
            match expr {
                Expr::Identifier(column) => named.extend(self.having(column)),
                Expr::CompoundIdentifier(parts) => {
                    let first = parts.first();
                    let qualified = first.and_then(|first| self.sides.iter().position(|side| side.is_called(first)));
                    named.extend(qualified.or_else(|| first.and_then(|first| self.having(first))));
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        named
    }

    /// Returns the side that a time belongs to.
    pub(super) fn side_of_time(&self, time: &Expr) -> Result<usize> {
        if !self.is_joined() {
            return Ok(0);
        }
        match self.named_in(time).into_iter().collect::<Vec<_>>().as_slice() {
            [side] => Ok(*side),
            _ => Err(Error::input(format!(
                "within({time}, ..) does not name the event time of one side: expected the column with its table"
            ))),
        }
    }

    /// Returns the first side with such a column: a join's USING gives both sides the same name.
    fn having(&self, column: &Ident) -> Option<usize> {
        let name = resolved(column);
        self.sides.iter().position(|side| side.columns.contains(&name))
    }
}

impl JoinedRelation {
    pub(super) fn event_time(&self) -> String {
        self.column(HIDDEN[0])
    }

    pub(super) fn column(&self, column: &str) -> String {
        match &self.qualifier {
            Some(qualifier) => format!("{qualifier}.{column}"),
            None => column.to_owned(),
        }
    }

    fn is_called(&self, name: &Ident) -> bool {
        self.qualifier.as_ref().is_some_and(|qualifier| resolved(qualifier) == resolved(name))
    }
}

/// A join's condition; empty for `a, b`, which has it in WHERE.
#[derive(Debug, Default)]
pub(super) struct JoinCondition {
    pub(super) on: Option<Expr>,
    pub(super) using: Vec<Ident>,
}

/// Returns the relations of a FROM clause, and the condition that joins them.
pub(super) fn relations(select: &mut Select) -> Result<(Vec<&mut TableFactor>, JoinCondition)> {
    let shown = select.from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let refused =
        || Error::input(format!("a view reads one relation or joins two: expected FROM a JOIN b ON a.x = b.x, found FROM {shown}"));
    match select.from.as_mut_slice() {
        [one] => match one.joins.as_mut_slice() {
            [] => Ok((vec![&mut one.relation], JoinCondition::default())),
            [join] => {
                let condition = match &join.join_operator {
                    JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) | JoinOperator::CrossJoin(constraint) => constraint,
                    _ => return Err(refused()),
                };
                let condition = match condition {
                    JoinConstraint::On(on) => JoinCondition { on: Some(on.clone()), using: Vec::new() },
                    JoinConstraint::Using(columns) => {
                        JoinCondition { on: None, using: columns.iter().filter_map(only_part).cloned().collect() }
                    }
                    JoinConstraint::None => JoinCondition::default(),
                    JoinConstraint::Natural => return Err(refused()),
                };
                Ok((vec![&mut one.relation, &mut join.relation], condition))
            }
            _ => Err(refused()),
        },
        [a, b] if a.joins.is_empty() && b.joins.is_empty() => Ok((vec![&mut a.relation, &mut b.relation], JoinCondition::default())),
        _ => Err(refused()),
    }
}

/// Returns the name of a joined relation; a subquery without a name gets one.
pub(super) fn qualifier(relation: &mut TableFactor, index: usize) -> Result<Ident> {
    match relation {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => Ok(alias.name.clone()),
        TableFactor::Table { name, .. } => only_part(name).cloned().ok_or_else(|| Error::input(format!("there is no stream {name}"))),
        TableFactor::Derived { alias, .. } => {
            let name = Ident::new(format!("__side{index}"));
            *alias = Some(TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None });
            Ok(name)
        }
        other => Err(Error::input(format!("only streams, views without aggregate and subqueries are joined, found {other}"))),
    }
}

fn only_part(name: &ObjectName) -> Option<&Ident> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name),
        _ => None,
    }
}
