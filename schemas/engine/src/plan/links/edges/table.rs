//! The edges as one ordinary table. The events of both sides have one list of columns: keys, then conditions, then
//! arguments.

use std::sync::Arc;

use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Projection, Union, lit};

use super::Edges;
use crate::plan::columns::{AggregateRange, SelectParts, position_or_push};
use crate::plan::links::{EdgeKind, PairRange, Side};
use crate::plan::{RangeIndex, Use};
use types::Result;
use types::tiles::TimeRange;

impl Edges<'_> {
    /// Returns the aggregate over both sides' edges, and the states, ranges and uses that are kept of them.
    pub(in crate::plan::links) fn columns(&self, ranges: &[PairRange]) -> Result<(Aggregate, SelectParts)> {
        let union = LogicalPlan::Union(Union::try_new_with_loose_types(vec![
            Arc::new(self.events_of(Side::Near)?),
            Arc::new(self.events_of(Side::Far)?),
        ])?);
        let groups = (0..self.key_names.len()).map(|key| Expr::Column(Column::from_name(key_column(key)))).collect();
        let aggregate = Aggregate::try_new(Arc::new(union), groups, vec![self.states[0].call.clone()])?;
        let mut columns = SelectParts { keys: self.key_names.clone(), ..SelectParts::default() };
        columns.states = self.states.clone();
        match self.kind {
            EdgeKind::Liveness => columns.ranges.push(TimeRange::ALL),
            EdgeKind::Full => {
                for range in ranges.iter().flat_map(|range| [range.near, range.far]) {
                    position_or_push(&mut columns.ranges, range);
                }
            }
        }
        let longest = TimeRange::longest(&columns.ranges);
        columns.existence = RangeIndex(position_or_push(&mut columns.ranges, longest));
        for state in self.conditions.iter().map(|condition| condition.state).chain([self.seen]) {
            for range in 0..columns.ranges.len() {
                position_or_push(&mut columns.uses, Use { state, range: RangeIndex(range) });
            }
        }
        Ok((aggregate, columns))
    }

    /// Returns one side's events with the columns that both sides share.
    fn events_of(&self, side: Side) -> Result<LogicalPlan> {
        let joined = self.joined.side(side);
        let null_of = |expr: &Expr, other: Side| -> Result<Expr> {
            let data_type = expr.get_type(self.joined.side(other).input.schema())?;
            Ok(lit(ScalarValue::try_new_null(&data_type)?))
        };
        let own = |exprs: &[Expr], owner: Side| -> Result<Vec<Expr>> {
            exprs.iter().map(|expr| if owner == side { Ok(expr.clone()) } else { null_of(expr, owner) }).collect()
        };
        let mut exprs = vec![lit(side == Side::Far)];
        exprs.extend(own(&self.joined.groups, Side::Near)?);
        exprs.extend(joined.via.iter().cloned());
        exprs.extend(own(&self.near_ends, Side::Near)?);
        exprs.extend(own(&self.far_ends, Side::Far)?);
        let names: Vec<String> = (0..exprs.len()).map(key_column).collect();
        exprs.extend(self.flags.iter().map(|(owner, flag)| if *owner == side { flag.clone() } else { lit(false) }));
        exprs.extend(own(&self.arguments, Side::Far)?);
        let names = names.into_iter().chain((0..self.flags.len()).map(flag_column)).chain((0..self.arguments.len()).map(argument_column));
        let exprs = exprs.into_iter().zip(names).map(|(expr, name)| expr.alias(name)).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(joined.filtered()?))?))
    }
}

fn key_column(index: usize) -> String {
    format!("c{index}")
}

pub(super) fn flag_column(index: usize) -> String {
    format!("f{index}")
}

pub(super) fn argument_column(index: usize) -> String {
    format!("x{index}")
}
