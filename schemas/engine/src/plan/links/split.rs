//! Takes a join apart: its two sides, its join keys, each side's conditions in WHERE, and which end points must differ.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, BinaryExpr, Expr, Filter, Join, LogicalPlan, Operator};

use crate::plan::columns::strip_alias;
use crate::plan::links::{Both, Side};
use crate::plan::written::{ColumnNames, sql_of};
use types::{Error, Result};

/// A join of two streams, the side of the group keys first.
pub(super) struct StreamJoin {
    pub(super) near: JoinSide,
    pub(super) far: JoinSide,
    /// The group keys, as expressions over the near side.
    pub(super) groups: Vec<Expr>,
    /// `far <> near` in WHERE or ON.
    pub(super) apart: Vec<Both<Expr>>,
}

pub(super) struct JoinSide {
    pub(super) input: LogicalPlan,
    /// The join keys, in the order of the other side's.
    pub(super) via: Vec<Expr>,
    conditions: Vec<Expr>,
}

/// A condition, classified by its subject.
pub(super) enum Conjunct {
    One(Side, Expr),
    /// They must be equal.
    Equal(Both<Expr>),
    /// They must differ.
    Apart(Both<Expr>),
}

pub(super) fn take_apart(aggregate: &Aggregate) -> Result<StreamJoin> {
    let mut conditions = Vec::new();
    let join = join_below(&aggregate.input, &mut conditions)?;
    if join.join_type != JoinType::Inner || has_join(&join.left) || has_join(&join.right) {
        return Err(Error::internal("the view's text let a join through that is not one of two streams"));
    }
    conditions.extend(join.filter.iter().flat_map(|filter| split_conjunction(filter)).cloned());
    conditions.extend(join.on.iter().map(|(left, right)| left.clone().eq(right.clone())));
    let side = |input: &Arc<LogicalPlan>| JoinSide { input: (**input).clone(), via: Vec::new(), conditions: Vec::new() };
    let mut joined = StreamJoin { near: side(&join.left), far: side(&join.right), groups: Vec::new(), apart: Vec::new() };
    for condition in &conditions {
        if condition.column_refs().is_empty() {
            // `WHERE false` excludes all events of both sides.
            joined.near.conditions.push(condition.clone());
            joined.far.conditions.push(condition.clone());
            continue;
        }
        match joined.sort(condition)? {
            Conjunct::One(Side::Near, condition) => joined.near.conditions.push(condition),
            Conjunct::One(Side::Far, condition) => joined.far.conditions.push(condition),
            Conjunct::Equal(both) => {
                joined.near.via.push(both.near);
                joined.far.via.push(both.far);
            }
            Conjunct::Apart(both) => joined.apart.push(both),
        }
    }
    if joined.near.via.is_empty() {
        return Err(Error::input("the streams are joined by no equality: expected ON a.key = b.key"));
    }
    joined.choose_sides(aggregate)?;
    Ok(joined)
}

/// Returns the join below WHERE.
fn join_below<'a>(plan: &'a LogicalPlan, conditions: &mut Vec<Expr>) -> Result<&'a Join> {
    match plan {
        LogicalPlan::Filter(filter) => {
            conditions.extend(split_conjunction(&filter.predicate).into_iter().cloned());
            join_below(&filter.input, conditions)
        }
        LogicalPlan::Join(join) => Ok(join),
        _ => Err(Error::internal("a linked view without a join")),
    }
}

/// Whether a join occurs anywhere in a plan.
pub(in crate::plan) fn has_join(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let _ = plan.apply(|node| {
        found |= matches!(node, LogicalPlan::Join(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

impl StreamJoin {
    /// Returns the side whose columns an expression reads: near if it has no columns, `None` if it reads both.
    pub(super) fn side_of(&self, expr: &Expr) -> Option<Side> {
        let columns = expr.column_refs();
        let has_all = |side: &JoinSide| columns.iter().all(|column| side.input.schema().has_column(column));
        match () {
            () if has_all(&self.near) => Some(Side::Near),
            () if has_all(&self.far) => Some(Side::Far),
            () => None,
        }
    }

    pub(super) fn side(&self, side: Side) -> &JoinSide {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }

    /// Returns the index of the join key that equals this expression, on either side.
    pub(super) fn via(&self, expr: &Expr) -> Option<usize> {
        let position = |side: &JoinSide| side.via.iter().position(|via| via == expr);
        position(&self.near).or_else(|| position(&self.far))
    }

    /// Classifies a condition by its subject.
    pub(super) fn sort(&self, condition: &Expr) -> Result<Conjunct> {
        if let Some(side) = self.side_of(condition) {
            return Ok(Conjunct::One(side, condition.clone()));
        }
        if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition {
            let (near, far) = match (self.side_of(left), self.side_of(right)) {
                (Some(Side::Near), Some(Side::Far)) => (left, right),
                (Some(Side::Far), Some(Side::Near)) => (right, left),
                _ => return Err(both_sides(condition)),
            };
            let both = Both { near: (**near).clone(), far: (**far).clone() };
            match op {
                Operator::Eq => return Ok(Conjunct::Equal(both)),
                Operator::NotEq => return Ok(Conjunct::Apart(both)),
                _ => {}
            }
        }
        Err(both_sides(condition))
    }

    /// Chooses as near side the one whose columns are the group keys. A join key belongs to both sides.
    fn choose_sides(&mut self, aggregate: &Aggregate) -> Result<()> {
        let groups: Vec<Expr> = aggregate.group_expr.iter().map(|expr| strip_alias(expr).clone()).collect();
        if groups.is_empty() {
            return Err(Error::input(
                "an aggregate over a JOIN without GROUP BY would walk every edge: expected GROUP BY a column of one side",
            ));
        }
        let own: Vec<Option<Side>> = groups.iter().filter(|group| self.via(group).is_none()).map(|group| self.side_of(group)).collect();
        let of_both = own.iter().position(Option::is_none).map(|at| sql_of(&groups[at], ColumnNames::WithTable));
        let mixed = own.contains(&Some(Side::Near)) && own.contains(&Some(Side::Far));
        if mixed || of_both.is_some() {
            return Err(Error::input(
                "the group keys are of both sides of the JOIN, so that no row has one node to walk from: expected all of them of one side",
            ));
        }
        let first = own.first().copied().flatten().or_else(|| self.side_of(&groups[0]));
        if first == Some(Side::Far) {
            std::mem::swap(&mut self.near, &mut self.far);
            self.apart.iter_mut().for_each(|both| std::mem::swap(&mut both.near, &mut both.far));
        }
        self.groups = groups
            .into_iter()
            .map(|group| match self.via(&group) {
                Some(via) => self.near.via[via].clone(),
                None => group,
            })
            .collect();
        Ok(())
    }
}

impl JoinSide {
    /// The name of the side's table in the SELECT.
    pub(super) fn table(&self) -> String {
        let tables = self.input.schema().iter().filter_map(|(table, _)| table);
        tables.map(|table| table.table().to_owned()).next().unwrap_or_default()
    }

    /// Returns the side's events that can join: they meet its conditions, and none of their join keys is NULL.
    pub(super) fn filtered(&self) -> Result<LogicalPlan> {
        let not_null = self.via.iter().map(|via| via.clone().is_not_null());
        let all = self.conditions.iter().cloned().chain(not_null).reduce(Expr::and);
        let all = all.ok_or_else(|| Error::internal("a side of a join has join keys"))?;
        Ok(LogicalPlan::Filter(Filter::try_new(all, Arc::new(self.input.clone()))?))
    }
}

fn both_sides(condition: &Expr) -> Error {
    Error::input(format!(
        "the condition {} compares the two sides of the JOIN: expected conditions over one side each, = between join \
         keys, and <> between end \
         points",
        sql_of(condition, ColumnNames::WithTable)
    ))
}
