//! The contents of a linked view's edges: their keys, the conditions of each side, and the states that are kept. The
//! [`table`] of both sides' events is built from them, and so are the inputs of the view's [`aggregates`].

use datafusion::common::Column;
use datafusion::functions_aggregate::expr_fn::{count, max};
use datafusion::logical_expr::{Expr, lit};

use crate::plan::StateIndex;
use crate::plan::columns::{StateCall, events_state, position_or_push};
use crate::plan::links::calls::{CallArgument, LinkCall};
use crate::plan::links::split::StreamJoin;
use crate::plan::links::{Both, Condition, ConditionIndex, EdgeKind, EdgeLayout, EndPoint, Ends, EndsIndex, KeyColumn, Side};
use crate::plan::written::{ColumnNames, sql_of};
use types::columns::EVENT_TIME;
use types::{Error, Result};

mod aggregates;
mod table;

use table::{argument_column, flag_column};

/// The key column that distinguishes the sides: false is the side of the group keys.
const SIDE: &str = "far_side";

pub(super) struct Edges<'a> {
    joined: &'a StreamJoin,
    kind: EdgeKind,
    pub(super) layout: EdgeLayout,
    near_ends: Vec<Expr>,
    far_ends: Vec<Expr>,
    /// Conditions on one side, in the order of their columns.
    flags: Vec<(Side, Expr)>,
    /// Arguments of states over far events.
    arguments: Vec<Expr>,
    key_names: Vec<String>,
    states: Vec<StateCall>,
    pub(super) conditions: Vec<Condition>,
    pub(super) seen: StateIndex,
    pub(super) ends: Vec<Ends>,
    /// How many of `ends` are in WHERE; a repeated `<>` counts once.
    pub(super) apart: usize,
    /// For each call: its conditions, its `<>` in addition to the view's, and its state if it is over one.
    placed: Vec<Placed>,
}

struct Placed {
    near: ConditionIndex,
    far: ConditionIndex,
    apart: Vec<EndsIndex>,
    input: PlacedInput,
}

enum PlacedInput {
    Ends(EndPoint),
    State(StateIndex),
}

impl<'a> Edges<'a> {
    pub(super) fn for_join(joined: &'a StreamJoin, calls: &[LinkCall], group_names: &[String], kind: EdgeKind) -> Result<Edges<'a>> {
        let (mut near_ends, mut far_ends) = (Vec::new(), Vec::new());
        let all_apart = || joined.apart.iter().chain(calls.iter().flat_map(|call| &call.apart));
        let arguments = calls.iter().filter_map(|call| match &call.argument {
            CallArgument::Ends(side, argument) => Some((*side, argument)),
            CallArgument::Events { .. } => None,
        });
        let ends = all_apart().flat_map(|both| [(Side::Near, &both.near), (Side::Far, &both.far)]).chain(arguments);
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
            seen: StateIndex::EVENTS,
            ends: Vec::new(),
            apart: 0,
            placed: Vec::new(),
        };
        edges.name_keys(group_names);
        edges.condition(None)?;
        edges.seen = edges.state(last_seen(), "max(event_time)".to_owned());
        for both in &joined.apart {
            let ends = edges.ends_of(both)?;
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
        // The group keys keep the names that the user gave them; the names of added columns are changed on a conflict.
        let mut side = SIDE.to_owned();
        while group_names.contains(&side) {
            side.push('_');
        }
        let mut names: Vec<String> = std::iter::once(side).chain(group_names.iter().cloned()).collect();
        let named = |prefix: &str, expr: &Expr| match expr {
            Expr::Column(column) => format!("{prefix}{}", column.name),
            _ => format!("{prefix}value"),
        };
        let via = self.joined.near.via.iter().map(|expr| named("via_", expr));
        let near = self.near_ends.iter().map(|expr| named("near_", expr));
        let far = self.far_ends.iter().map(|expr| named("far_", expr));
        for mut name in via.chain(near).chain(far) {
            while names.contains(&name) {
                name.push('_');
            }
            names.push(name);
        }
        self.key_names = names;
    }

    /// Returns the key column that holds an end point.
    fn end(&self, side: Side, expr: &Expr) -> Result<EndPoint> {
        let within =
            |columns: &std::ops::Range<usize>, known: &[Expr]| known.iter().position(|known| known == expr).map(|at| columns.start + at);
        let via = self.joined.via(expr).map(|at| self.layout.via.start + at);
        let own = match side {
            Side::Near => within(&self.layout.groups, &self.joined.groups).or_else(|| within(&self.layout.near_ends, &self.near_ends)),
            Side::Far => within(&self.layout.far_ends, &self.far_ends),
        };
        let column = via.or(own).ok_or_else(|| Error::internal(format!("the end point {expr} has no column")))?;
        Ok(EndPoint { side, column: KeyColumn(column) })
    }

    fn ends_of(&self, both: &Both<Expr>) -> Result<Ends> {
        Ok(Ends { near: self.end(Side::Near, &both.near)?.column, far: self.end(Side::Far, &both.far)?.column })
    }

    fn place(&mut self, call: &LinkCall) -> Result<Placed> {
        let near = self.condition(call.near.as_ref().map(|condition| (Side::Near, condition)))?;
        let far = self.condition(call.far.as_ref().map(|condition| (Side::Far, condition)))?;
        let mut apart = Vec::new();
        for both in &call.apart {
            let ends = self.ends_of(both)?;
            let at = position_or_push(&mut self.ends, ends);
            if at >= self.apart {
                position_or_push(&mut apart, EndsIndex(at));
            }
        }
        let input = match &call.argument {
            CallArgument::Ends(side, argument) => PlacedInput::Ends(self.end(*side, argument)?),
            CallArgument::Events { .. } => PlacedInput::State(self.far_state(call)?),
        };
        Ok(Placed { near, far, apart, input })
    }

    /// The condition of this side, with the state that determines which edges meet it.
    fn condition(&mut self, condition: Option<(Side, &Expr)>) -> Result<ConditionIndex> {
        let flag = condition.map(|(side, expr)| self.flag(side, expr));
        let (call, sql) = match self.kind {
            EdgeKind::Liveness => (last_seen(), "max(event_time)".to_owned()),
            EdgeKind::Full => (count(lit(1i64)), "count(*)".to_owned()),
        };
        let state = match (flag, self.kind) {
            (None, EdgeKind::Full) => StateIndex::EVENTS,
            (None, _) => self.state(call, sql),
            (Some(_), _) => {
                let (call, sql) = self.filtered(call, sql, condition, flag)?;
                self.state(call, sql)
            }
        };
        let condition = Condition { side: condition.map(|(side, _)| side), state };
        let known = self.conditions.iter().position(|known| known.state == condition.state && known.side == condition.side);
        Ok(ConditionIndex(known.unwrap_or_else(|| {
            self.conditions.push(condition);
            self.conditions.len() - 1
        })))
    }

    /// Returns the state of the far edges that a call merges.
    fn far_state(&mut self, call: &LinkCall) -> Result<StateIndex> {
        let mut function = call.function.clone();
        for argument in &mut function.params.args {
            if !matches!(argument, Expr::Literal(..)) {
                let of_far = self.joined.via(argument).map_or_else(|| argument.clone(), |via| self.joined.far.via[via].clone());
                let at = position_or_push(&mut self.arguments, of_far);
                *argument = Expr::Column(Column::from_name(argument_column(at)));
            }
        }
        let sql = sql_of(&Expr::AggregateFunction(call.function.clone()), ColumnNames::WithTable);
        let far = call.far.as_ref().map(|condition| (Side::Far, condition));
        let flag = far.map(|(side, expr)| self.flag(side, expr));
        let (call, sql) = self.filtered(Expr::AggregateFunction(function), sql, far, flag)?;
        Ok(self.state(call, sql))
    }

    fn flag(&mut self, side: Side, expr: &Expr) -> usize {
        position_or_push(&mut self.flags, (side, expr.clone()))
    }

    fn filtered(&self, call: Expr, sql: String, condition: Option<(Side, &Expr)>, flag: Option<usize>) -> Result<(Expr, String)> {
        let (Some((_, condition)), Some(flag)) = (condition, flag) else { return Ok((call, sql)) };
        let Expr::AggregateFunction(mut function) = call else { return Err(Error::internal("a state is an aggregate")) };
        function.params.filter = Some(Box::new(Expr::Column(Column::from_name(flag_column(flag)))));
        Ok((Expr::AggregateFunction(function), format!("{sql} FILTER (WHERE {})", sql_of(condition, ColumnNames::WithTable))))
    }

    fn state(&mut self, call: Expr, sql: String) -> StateIndex {
        if let Some(known) = self.states.iter().position(|known| known.call == call) {
            return StateIndex(known);
        }
        let function = match &call {
            Expr::AggregateFunction(function) => function.func.name().to_owned(),
            _ => String::new(),
        };
        if function == "count" && sql == "count(*)" {
            return StateIndex::EVENTS;
        }
        let shown = sql;
        // Two calls may differ in a cast alone, which is not shown, as do round(x) and x::BIGINT.
        let mut names = std::iter::once(shown.clone()).chain((2..).map(|number| format!("{shown} #{number}")));
        let sql = names.find(|name| self.states.iter().all(|state| state.sql != *name)).unwrap_or_default();
        self.states.push(StateCall { call, shown, sql, function, approximate: false });
        StateIndex(self.states.len() - 1)
    }
}

fn last_seen() -> Expr {
    max(Expr::Column(Column::from_name(EVENT_TIME)))
}

fn layout([groups, via, near_ends, far_ends]: [usize; 4]) -> EdgeLayout {
    let mut at = 1;
    let mut next = |count: usize| {
        at += count;
        at - count..at
    };
    EdgeLayout { groups: next(groups), via: next(via), near_ends: next(near_ends), far_ends: next(far_ends) }
}
