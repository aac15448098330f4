//! The aggregates of a linked view: which side each of them reads, under which conditions, and over which ranges.

use std::sync::Arc;

use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Expr};

use crate::plan::columns::{Call, counts_all, is_approximate, position_or_push, strip_alias};
use crate::plan::links::split::{Conjunct, StreamJoin};
use crate::plan::links::{Both, PairRange, Side};
use crate::plan::within;
use crate::plan::written::{ColumnNames, sql_of};
use definitions::StreamDefinition;
use types::tiles::{Level, TimeRange};
use types::{Error, Result};

/// Aggregates that are computed from a state of the far edges, merged once for each near event.
const COUNTED: [&str; 3] = ["count", "sum", "avg"];
/// Aggregates for which merging once is enough.
const IDEMPOTENT: [&str; 6] = ["min", "max", "bool_and", "bool_or", "bit_and", "bit_or"];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct LinkCall {
    pub(super) sql: String,
    /// The call without its FILTER.
    pub(super) function: AggregateFunction,
    pub(super) near: Option<Expr>,
    pub(super) far: Option<Expr>,
    /// The expressions that must differ.
    pub(super) apart: Vec<Both<Expr>>,
    pub(super) argument: CallArgument,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallArgument {
    /// The distinct values of an expression of one side.
    Ends(Side, Expr),
    /// The events of the far side.
    Events { idempotent: bool },
}

pub(super) struct Parsed {
    pub(super) calls: Vec<LinkCall>,
    /// The aggregates of the SELECT, in its order, in the form that the columns need.
    pub(super) columns: Vec<Call<PairRange>>,
}

pub(super) fn parse(
    aggregate: &Aggregate,
    joined: &StreamJoin,
    streams: &[Arc<StreamDefinition>],
    precision: Option<Level>,
) -> Result<Parsed> {
    let mut parsed = Parsed { calls: Vec::new(), columns: Vec::new() };
    for expr in &aggregate.aggr_expr {
        let Expr::AggregateFunction(function) = strip_alias(expr) else {
            return Err(Error::input(format!("{} is not an aggregate call", sql_of(expr, ColumnNames::WithTable))));
        };
        let parser = Parser { joined, streams, precision };
        let (call, range) = parser.call(function)?;
        let name = function.func.name();
        parsed.columns.push(Call {
            range,
            spelled: spelled(&call),
            approximate: is_approximate(name),
            state: position_or_push(&mut parsed.calls, call),
        });
    }
    Ok(parsed)
}

struct Parser<'a> {
    joined: &'a StreamJoin,
    streams: &'a [Arc<StreamDefinition>],
    precision: Option<Level>,
}

impl Parser<'_> {
    fn call(&self, function: &AggregateFunction) -> Result<(LinkCall, Option<PairRange>)> {
        let mut bare = function.clone();
        bare.params.filter = None;
        let mut call =
            LinkCall { sql: String::new(), argument: self.argument(&mut bare)?, function: bare, near: None, far: None, apart: Vec::new() };
        let mut ranges: Both<Option<TimeRange>> = Both { near: None, far: None };
        for condition in function.params.filter.iter().flat_map(|filter| split_conjunction(filter)) {
            if let Some(args) = within::call(condition) {
                self.range(args, &mut ranges)?;
                continue;
            }
            if within::mentions(condition) {
                return Err(Error::input(
                    "within() is inside OR, NOT or another expression: expected it as a condition of its own, joined by AND",
                ));
            }
            match self.joined.sort(condition)? {
                Conjunct::One(Side::Near, condition) => call.near = Some(and(call.near.take(), condition)),
                Conjunct::One(Side::Far, condition) => call.far = Some(and(call.far.take(), condition)),
                Conjunct::Apart(both) => call.apart.push(both),
                Conjunct::Equal(..) => {
                    return Err(Error::input(format!(
                        "the FILTER compares the two sides: {}; expected = in ON or WHERE, where it joins",
                        sql_of(condition, ColumnNames::WithTable)
                    )));
                }
            }
        }
        // `count(c.x)` counts pairs in which c.x is not NULL.
        if let CallArgument::Events { .. } = call.argument
            && let [argument] = function.params.args.as_slice()
            && !counts_all(function)
            && self.side(argument)? == Side::Near
        {
            call.near = Some(and(call.near.take(), argument.clone().is_not_null()));
        }
        call.sql = sql_of(&spelled(&call), ColumnNames::WithTable);
        let range = match ranges {
            Both { near: None, far: None } => None,
            Both { near, far } => Some(PairRange { near: near.unwrap_or(TimeRange::ALL), far: far.unwrap_or(TimeRange::ALL) }),
        };
        Ok((call, range))
    }

    /// Returns the argument of a call. A count of near values is rewritten to a count of pairs.
    fn argument(&self, function: &mut AggregateFunction) -> Result<CallArgument> {
        let name = function.func.name().to_owned();
        let params = &mut function.params;
        let ends = params.distinct || name == "approx_distinct";
        if ends {
            let [argument] = params.args.as_slice() else {
                return Err(Error::input(format!("{name}() takes one expression over a JOIN, found {}", params.args.len())));
            };
            if params.order_by.iter().any(|sort| sort.expr != *argument) {
                return Err(Error::input(format!(
                    "{name}(DISTINCT ..) over a JOIN is ordered by what it collects: expected ORDER BY {argument}"
                )));
            }
            return Ok(CallArgument::Ends(self.side(argument)?, argument.clone()));
        }
        let idempotent = IDEMPOTENT.contains(&name.as_str());
        if !idempotent && !COUNTED.contains(&name.as_str()) {
            return Err(Error::input(format!(
                "{name}() over a JOIN is not kept exactly: expected count, sum, avg, {}, approx_distinct, or an \
                 aggregate of DISTINCT values",
                IDEMPOTENT.join(", ")
            )));
        }
        if !params.order_by.is_empty() {
            return Err(Error::input(format!("{name}() over a JOIN takes no ORDER BY")));
        }
        let [argument] = params.args.as_slice() else {
            return Err(Error::input(format!("{name}() takes one expression, found {}", params.args.len())));
        };
        if name == "count" && !matches!(argument, Expr::Literal(..)) && self.side(argument)? == Side::Near {
            params.args = vec![datafusion::prelude::lit(1i64)];
            return Ok(CallArgument::Events { idempotent });
        }
        if !matches!(argument, Expr::Literal(..)) && self.side(argument)? == Side::Near && self.joined.via(argument).is_none() {
            return Err(Error::input(format!(
                "{name}({}) reads the side of the group keys: expected a column of the other side; keep it in a view of its own stream",
                sql_of(argument, ColumnNames::WithTable)
            )));
        }
        Ok(CallArgument::Events { idempotent })
    }

    fn side(&self, expr: &Expr) -> Result<Side> {
        self.joined.side_of(expr).ok_or_else(|| {
            Error::input(format!(
                "{} reads both sides of the JOIN: expected columns of one side in an aggregate",
                sql_of(expr, ColumnNames::WithTable)
            ))
        })
    }

    fn range(&self, args: &[Expr], ranges: &mut Both<Option<TimeRange>>) -> Result<()> {
        let time = args.first().ok_or_else(|| Error::input("within() takes an event time and a window"))?;
        let side = self.side(time)?;
        let slot = if side == Side::Near { &mut ranges.near } else { &mut ranges.far };
        if slot.is_some() {
            return Err(Error::input(
                "one FILTER holds two calls of within() for one side: expected one; within(ts, '31d', '1d') gives both edges of a range",
            ));
        }
        *slot = Some(within::range_of(args, &self.joined.side(side).input, self.streams, self.precision)?);
        Ok(())
    }
}

impl LinkCall {
    pub(super) fn is_over_ends(&self) -> bool {
        matches!(self.argument, CallArgument::Ends(..))
    }
}

fn and(known: Option<Expr>, more: Expr) -> Expr {
    match known {
        Some(known) => known.and(more),
        None => more,
    }
}

/// Returns the call with all its conditions, without `within`.
fn spelled(call: &LinkCall) -> Expr {
    let apart = call.apart.iter().map(|both| both.far.clone().not_eq(both.near.clone()));
    let mut function = call.function.clone();
    function.params.filter = call.near.iter().chain(&call.far).cloned().chain(apart).reduce(Expr::and).map(Box::new);
    Expr::AggregateFunction(function)
}
