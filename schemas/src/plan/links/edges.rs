//! The edges of a linked view as an ordinary state table: both sides under one list of columns, keys before conditions before
//! arguments, and the states that are kept of them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::functions_aggregate::expr_fn::{count, max};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Projection, Union, lit};
use datafusion::physical_expr::aggregate::{AggregateFunctionExpr, LoweredAggregateBuilder};
use datafusion::prelude::SessionContext;

use crate::error::{Error, Result};
use crate::events::EVENT_TIME;
use crate::plan::Use;
use crate::plan::columns::{Columns, Reach, StateCall, events_state, is_approximate, position_or_push, sql_of};
use crate::plan::links::calls::{Argument, LinkCall};
use crate::plan::links::split::Joined;
use crate::plan::links::{Condition, EdgeKind, EdgeLayout, EndPoint, Ends, LinkAggregate, Over, PairRange, Side};
use crate::plan::lower::simplify_inputs;
use crate::tiles::Range;

/// The key column that tells the sides apart: false is the side of the group keys.
const SIDE: &str = "far_side";

pub(super) struct Edges<'a> {
    joined: &'a Joined,
    kind: EdgeKind,
    pub(super) layout: EdgeLayout,
    near_ends: Vec<Expr>,
    far_ends: Vec<Expr>,
    /// Conditions of one side, in the order of their columns.
    flags: Vec<(Side, Expr)>,
    /// Arguments of states over far events.
    arguments: Vec<Expr>,
    key_names: Vec<String>,
    states: Vec<StateCall>,
    pub(super) conditions: Vec<Condition>,
    pub(super) seen: usize,
    pub(super) ends: Vec<Ends>,
    /// How many of `ends` stand in WHERE: a `<>` that is said twice is one.
    pub(super) apart: usize,
    /// Per call: its conditions, its `<>` beyond the view's, and its state where it is over one.
    placed: Vec<Placed>,
}

struct Placed {
    near: usize,
    far: usize,
    apart: Vec<usize>,
    over: PlacedOver,
}

enum PlacedOver {
    Ends(EndPoint),
    State(usize),
}

impl<'a> Edges<'a> {
    pub(super) fn of(joined: &'a Joined, calls: &[LinkCall], group_names: &[String], kind: EdgeKind) -> Result<Edges<'a>> {
        let (mut near_ends, mut far_ends) = (Vec::new(), Vec::new());
        let all_apart = || joined.apart.iter().chain(calls.iter().flat_map(|call| &call.apart));
        let arguments = calls.iter().filter_map(|call| match &call.argument {
            Argument::Ends(side, argument) => Some((*side, argument)),
            Argument::Events { .. } => None,
        });
        let ends = all_apart().flat_map(|(near, far)| [(Side::Near, near), (Side::Far, far)]).chain(arguments);
        for (side, expr) in ends {
            match side {
                _ if joined.via(expr).is_some() => {}
                Side::Near if joined.groups.contains(expr) => {}
                Side::Near => drop(position_or_push(&mut near_ends, expr.clone())),
                Side::Far => drop(position_or_push(&mut far_ends, expr.clone())),
            }
        }
        let counts = [joined.groups.len(), joined.near.via.len(), near_ends.len(), far_ends.len()];
        let mut edges = Edges {
            joined,
            kind,
            layout: layout(counts),
            near_ends,
            far_ends,
            flags: Vec::new(),
            arguments: Vec::new(),
            key_names: Vec::new(),
            states: vec![events_state()],
            conditions: Vec::new(),
            seen: 0,
            ends: Vec::new(),
            apart: 0,
            placed: Vec::new(),
        };
        edges.name_keys(group_names);
        edges.condition(None)?;
        edges.seen = edges.state(last_seen(), "max(event_time)".to_owned());
        for (near, far) in &joined.apart {
            let ends = Ends { near: edges.end(Side::Near, near)?.column, far: edges.end(Side::Far, far)?.column };
            position_or_push(&mut edges.ends, ends);
        }
        edges.apart = edges.ends.len();
        for call in calls {
            let placed = edges.place(call)?;
            edges.placed.push(placed);
        }
        Ok(edges)
    }

    fn name_keys(&mut self, group_names: &[String]) {
        let mut names = vec![SIDE.to_owned()];
        let named = |prefix: &str, expr: &Expr| match expr {
            Expr::Column(column) => format!("{prefix}{}", column.name),
            _ => format!("{prefix}value"),
        };
        let via = self.joined.near.via.iter().map(|expr| named("via_", expr));
        let near = self.near_ends.iter().map(|expr| named("near_", expr));
        let far = self.far_ends.iter().map(|expr| named("far_", expr));
        for mut name in group_names.iter().cloned().chain(via).chain(near).chain(far) {
            while names.contains(&name) {
                name.push('_');
            }
            names.push(name);
        }
        self.key_names = names;
    }

    /// The key column that holds an end point.
    fn end(&self, side: Side, expr: &Expr) -> Result<EndPoint> {
        let within =
            |columns: &std::ops::Range<usize>, known: &[Expr]| known.iter().position(|known| known == expr).map(|at| columns.start + at);
        let via = self.joined.via(expr).map(|at| self.layout.via.start + at);
        let own = match side {
            Side::Near => within(&self.layout.groups, &self.joined.groups).or_else(|| within(&self.layout.near_ends, &self.near_ends)),
            Side::Far => within(&self.layout.far_ends, &self.far_ends),
        };
        let column = via.or(own).ok_or_else(|| Error::internal(format!("the end point {expr} has no column")))?;
        Ok(EndPoint { side, column })
    }

    fn place(&mut self, call: &LinkCall) -> Result<Placed> {
        let near = self.condition(call.near.as_ref().map(|condition| (Side::Near, condition)))?;
        let far = self.condition(call.far.as_ref().map(|condition| (Side::Far, condition)))?;
        let mut apart = Vec::new();
        for (near, far) in &call.apart {
            let ends = Ends { near: self.end(Side::Near, near)?.column, far: self.end(Side::Far, far)?.column };
            let at = position_or_push(&mut self.ends, ends);
            if at >= self.apart {
                position_or_push(&mut apart, at);
            }
        }
        let over = match &call.argument {
            Argument::Ends(side, argument) => PlacedOver::Ends(self.end(*side, argument)?),
            Argument::Events { .. } => PlacedOver::State(self.far_state(call)?),
        };
        Ok(Placed { near, far, apart, over })
    }

    /// The condition of this side, with the state that says which edges meet it.
    fn condition(&mut self, condition: Option<(Side, &Expr)>) -> Result<usize> {
        let flag = condition.map(|(side, expr)| self.flag(side, expr));
        let (call, sql) = match self.kind {
            EdgeKind::Liveness => (last_seen(), "max(event_time)".to_owned()),
            EdgeKind::Full => (count(lit(1i64)), "count(*)".to_owned()),
        };
        let state = match (flag, self.kind) {
            (None, EdgeKind::Full) => 0,
            (None, _) => self.state(call, sql),
            (Some(_), _) => {
                let (call, sql) = self.filtered(call, sql, condition, flag)?;
                self.state(call, sql)
            }
        };
        let condition = Condition { side: condition.map(|(side, _)| side), state };
        let known = self.conditions.iter().position(|known| known.state == condition.state && known.side == condition.side);
        Ok(known.unwrap_or_else(|| {
            self.conditions.push(condition);
            self.conditions.len() - 1
        }))
    }

    /// The state of the far edges that a call merges.
    fn far_state(&mut self, call: &LinkCall) -> Result<usize> {
        let mut function = call.function.clone();
        for argument in &mut function.params.args {
            if !matches!(argument, Expr::Literal(..)) {
                let of_far = self.joined.via(argument).map_or_else(|| argument.clone(), |via| self.joined.far.via[via].clone());
                let at = position_or_push(&mut self.arguments, of_far);
                *argument = Expr::Column(Column::from_name(argument_column(at)));
            }
        }
        let sql = sql_of(&Expr::AggregateFunction(call.function.clone()));
        let far = call.far.as_ref().map(|condition| (Side::Far, condition));
        let flag = far.map(|(side, expr)| self.flag(side, expr));
        let (call, sql) = self.filtered(Expr::AggregateFunction(function), sql, far, flag)?;
        Ok(self.state(call, sql))
    }

    fn flag(&mut self, side: Side, expr: &Expr) -> usize {
        position_or_push(&mut self.flags, (side, expr.clone()))
    }

    fn filtered(&self, call: Expr, sql: String, condition: Option<(Side, &Expr)>, flag: Option<usize>) -> Result<(Expr, String)> {
        let (Some((side, condition)), Some(flag)) = (condition, flag) else { return Ok((call, sql)) };
        let Expr::AggregateFunction(mut function) = call else { return Err(Error::internal("a state is an aggregate")) };
        function.params.filter = Some(Box::new(Expr::Column(Column::from_name(flag_column(flag)))));
        let of = if side == Side::Near { "near" } else { "far" };
        Ok((Expr::AggregateFunction(function), format!("{sql} FILTER (WHERE {of}: {})", sql_of(condition))))
    }

    fn state(&mut self, call: Expr, sql: String) -> usize {
        if let Some(known) = self.states.iter().position(|known| known.call == call) {
            return known;
        }
        let function = match &call {
            Expr::AggregateFunction(function) => function.func.name().to_owned(),
            _ => String::new(),
        };
        if function == "count" && sql == "count(*)" {
            return 0;
        }
        self.states.push(StateCall { call, sql, function, approximate: false });
        self.states.len() - 1
    }

    /// The aggregate over both sides' edges, and the states, ranges and uses that are kept of them.
    pub(super) fn columns(&self, ranges: &[PairRange]) -> Result<(Aggregate, Columns)> {
        let union = LogicalPlan::Union(Union::try_new_with_loose_types(vec![
            Arc::new(self.events_of(Side::Near)?),
            Arc::new(self.events_of(Side::Far)?),
        ])?);
        let groups = (0..self.key_names.len()).map(|key| Expr::Column(Column::from_name(key_column(key)))).collect();
        let aggregate = Aggregate::try_new(Arc::new(union), groups, vec![self.states[0].call.clone()])?;
        let mut columns = Columns { keys: self.key_names.clone(), ..Columns::default() };
        columns.states = self.states.clone();
        match self.kind {
            EdgeKind::Liveness => columns.ranges.push(Range::ALL),
            EdgeKind::Full => {
                for range in ranges.iter().flat_map(|range| [range.near, range.far]) {
                    position_or_push(&mut columns.ranges, range);
                }
            }
        }
        let longest = Range::longest(&columns.ranges);
        columns.existence = position_or_push(&mut columns.ranges, longest);
        for state in self.conditions.iter().map(|condition| condition.state).chain([self.seen]) {
            for range in 0..columns.ranges.len() {
                position_or_push(&mut columns.uses, Use { state, range });
            }
        }
        Ok((aggregate, columns))
    }

    /// One side's events under the columns that both share.
    fn events_of(&self, side: Side) -> Result<LogicalPlan> {
        let of = self.joined.side(side);
        let null_of = |expr: &Expr, other: Side| -> Result<Expr> {
            let data_type = expr.get_type(self.joined.side(other).input.schema())?;
            Ok(lit(ScalarValue::try_new_null(&data_type)?))
        };
        let own = |exprs: &[Expr], of: Side| -> Result<Vec<Expr>> {
            exprs.iter().map(|expr| if of == side { Ok(expr.clone()) } else { null_of(expr, of) }).collect()
        };
        let mut exprs = vec![lit(side == Side::Far)];
        exprs.extend(own(&self.joined.groups, Side::Near)?);
        exprs.extend(of.via.iter().cloned());
        exprs.extend(own(&self.near_ends, Side::Near)?);
        exprs.extend(own(&self.far_ends, Side::Far)?);
        let names: Vec<String> = (0..exprs.len()).map(key_column).collect();
        exprs.extend(self.flags.iter().map(|(of, flag)| if *of == side { flag.clone() } else { lit(false) }));
        exprs.extend(own(&self.arguments, Side::Far)?);
        let names = names.into_iter().chain((0..self.flags.len()).map(flag_column)).chain((0..self.arguments.len()).map(argument_column));
        let exprs = exprs.into_iter().zip(names).map(|(expr, name)| expr.alias(name)).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(of.filtered()?))?))
    }

    pub(super) fn aggregates(&self, calls: &[LinkCall], session: &SessionContext) -> Result<Vec<LinkAggregate>> {
        let lowered = calls.iter().zip(&self.placed).map(|(call, placed)| {
            let over = match (&call.argument, &placed.over) {
                (Argument::Ends(side, argument), PlacedOver::Ends(end)) => {
                    let data_type = argument.get_type(self.joined.side(*side).input.schema())?;
                    Over::Ends { aggregate: over_ends(&call.function, argument, data_type, session)?, argument: *end }
                }
                (Argument::Events { idempotent }, PlacedOver::State(state)) => Over::States { state: *state, idempotent: *idempotent },
                _ => return Err(Error::internal("an aggregate of a linked view changed what it is over")),
            };
            Ok(LinkAggregate {
                sql: call.sql.clone(),
                function: call.function.func.name().to_owned(),
                near: placed.near,
                far: placed.far,
                apart: placed.apart.clone(),
                over,
                approximate: is_approximate(call.function.func.name()),
            })
        });
        lowered.collect()
    }
}

fn last_seen() -> Expr {
    max(Expr::Column(Column::from_name(EVENT_TIME)))
}

/// An aggregate of the end points themselves: what the plain SELECT would compute over the pairs.
fn over_ends(
    function: &AggregateFunction,
    argument: &Expr,
    data_type: DataType,
    session: &SessionContext,
) -> Result<Arc<AggregateFunctionExpr>> {
    let schema = Schema::new(vec![Field::new("x", data_type, true)]);
    let logical = Arc::new(DFSchema::try_from(schema.clone())?);
    let x = Expr::Column(Column::from_name("x"));
    let mut function = function.clone();
    let inputs = function.params.args.iter_mut().chain(function.params.order_by.iter_mut().map(|sort| &mut sort.expr));
    inputs.filter(|input| *input == argument).for_each(|input| *input = x.clone());
    let call = simplify_inputs(Expr::AggregateFunction(function), &logical, session)?;
    let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let lowered = LoweredAggregateBuilder::new(&call, &logical, &schema, &props, &context).with_name("x").build()?;
    Ok(lowered.aggregate)
}

fn layout([groups, via, near_ends, far_ends]: [usize; 4]) -> EdgeLayout {
    let mut at = 1;
    let mut next = |count: usize| {
        at += count;
        at - count..at
    };
    EdgeLayout { groups: next(groups), via: next(via), near_ends: next(near_ends), far_ends: next(far_ends) }
}

fn key_column(index: usize) -> String {
    format!("c{index}")
}

fn flag_column(index: usize) -> String {
    format!("f{index}")
}

fn argument_column(index: usize) -> String {
    format!("x{index}")
}
