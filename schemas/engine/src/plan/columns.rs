//! Fans the columns of a SELECT out over windows, and determines which states and ranges they need.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};

use crate::plan::written::{ColumnNames, ordered_sql_of, sql_of};
use crate::plan::{ColumnRangeIndex, RangeIndex, StateIndex, Use, UseIndex, within};
use definitions::{StreamDefinition, ViewDefinition};
use types::columns::{AS_OF, EVENTS};
use types::tiles::{Level, TimeRange};
use types::{Error, Result};

/// The aggregates whose results are estimates, or depend (slightly) on the order of merging.
const APPROXIMATE: [&str; 6] =
    ["approx_distinct", "approx_percentile_cont", "approx_percentile_cont_with_weight", "approx_median", "top_k", "approx_top_k"];

/// A SELECT, taken apart.
#[derive(Debug, Default)]
pub(super) struct SelectParts {
    /// Names of the keys, in the order of GROUP BY.
    pub(super) keys: Vec<String>,
    /// The states that are kept. The first is the count of events.
    pub(super) states: Vec<StateCall>,
    pub(super) ranges: Vec<TimeRange>,
    pub(super) existence: RangeIndex,
    pub(super) uses: Vec<Use>,
    pub(super) outputs: Vec<SelectOutput>,
}

#[derive(Debug, Clone)]
pub(super) struct StateCall {
    /// The aggregate call without `within`. Its ORDER BY is not completed yet.
    pub(super) call: Expr,
    /// The call as its fields are named: without ORDER BY, unless an earlier state has that name, and with a number if
    /// two have that too.
    pub(super) sql: String,
    /// The call as it is shown.
    pub(super) shown: String,
    pub(super) function: String,
    pub(super) approximate: bool,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each column of a view, while it is planned")]
pub(super) enum SelectOutput {
    Key {
        group: usize,
    },
    Value {
        name: String,
        expr: Expr,
        uses: Vec<UseIndex>,
        ranges: Vec<ColumnRangeIndex>,
        /// It is one aggregate alone.
        bare: bool,
        sql: String,
        window: Option<String>,
        approximate: bool,
    },
}

/// Returns the name of a use's column in the value batch.
pub(super) fn use_column(usage: UseIndex) -> String {
    format!("v{}", usage.0)
}

/// Returns the name of the column with a range's count of events in the value batch.
pub(super) fn events_column(range: ColumnRangeIndex) -> String {
    format!("e{}", range.0)
}

/// Returns the name of a key in the value batch and in the prepared events.
pub(super) fn key_column(index: usize) -> String {
    format!("k{index}")
}

pub(super) fn fan_out(
    view: &ViewDefinition,
    top: &Projection,
    aggregate: &Aggregate,
    streams: &[Arc<StreamDefinition>],
) -> Result<SelectParts> {
    let mut states = vec![events_state()];
    let calls = aggregate.aggr_expr.iter().map(|expr| call_of(expr, view, aggregate, streams, &mut states));
    let calls = calls.collect::<Result<Vec<_>>>()?;
    let WindowedColumns { keys, ranges, existence, uses, outputs } = windowed_columns::<TimeRange>(view, top, aggregate, calls)?;
    let of_state = |usage: CallUse| Use { state: StateIndex(usage.state), range: usage.range.in_view() };
    let uses = uses.into_iter().map(of_state).collect();
    Ok(SelectParts { keys, states, ranges, existence: existence.in_view(), uses, outputs })
}

/// Returns the state that every row has: the number of its events.
pub(super) fn events_state() -> StateCall {
    let call = datafusion::functions_aggregate::expr_fn::count(datafusion::prelude::lit(1i64));
    StateCall { call, sql: EVENTS.into(), shown: EVENTS.into(), function: "count".into(), approximate: false }
}

/// Takes an aggregate of the SELECT apart into its range and its state, which is added to `states` unless it has an
/// equal one already.
fn call_of(
    expr: &Expr,
    view: &ViewDefinition,
    aggregate: &Aggregate,
    streams: &[Arc<StreamDefinition>],
    states: &mut Vec<StateCall>,
) -> Result<Call<TimeRange>> {
    let Expr::AggregateFunction(function) = strip_alias(expr) else {
        return Err(Error::input(format!("{} is not an aggregate call", sql_of(expr, ColumnNames::Bare))));
    };
    let split = within::split(function.params.filter.as_deref(), &aggregate.input, streams, view.precision)?;
    let mut function = function.clone();
    function.params.filter = split.rest.map(Box::new);
    let state = state_of(function, states);
    Ok(Call { state, range: split.range, spelled: states[state].call.clone(), approximate: states[state].approximate })
}

/// Returns the index of this call's state. Equal calls share one.
fn state_of(function: AggregateFunction, states: &mut Vec<StateCall>) -> usize {
    if counts_rows(&function) {
        return 0;
    }
    let name = function.func.name().to_owned();
    let call = Expr::AggregateFunction(function);
    if let Some(known) = states.iter().position(|state| state.call == call) {
        return known;
    }
    let (sql, shown) = (sql_of(&call, ColumnNames::Bare), ordered_sql_of(&call, ColumnNames::Bare));
    // Two calls may differ in their order alone, or in a cast, which is not shown, as do round(x) and x::BIGINT.
    let mut names = [sql, shown.clone()].into_iter().chain((2..).map(|number| format!("{shown} #{number}")));
    let sql = names.find(|name| states.iter().all(|state| state.sql != *name)).unwrap_or_default();
    let approximate = is_approximate(&name);
    states.push(StateCall { call, sql, shown, function: name, approximate });
    states.len() - 1
}

/// Whether the call is `count(*)` without FILTER.
fn counts_rows(function: &AggregateFunction) -> bool {
    function.params.filter.is_none() && counts_all(function)
}

/// Whether the call is `count(*)`, with or without FILTER.
pub(super) fn counts_all(function: &AggregateFunction) -> bool {
    let counts_literal = matches!(function.params.args.as_slice(), [Expr::Literal(value, _)] if !value.is_null());
    function.func.name() == "count" && !function.params.distinct && counts_literal
}

pub(super) fn is_approximate(function: &str) -> bool {
    APPROXIMATE.contains(&function)
}

/// The range of an aggregate: one range of event time, or one for each side of a join.
pub(super) trait AggregateRange: Clone + PartialEq {
    /// The range without windows.
    fn everything() -> Self;
    fn trailing(window: Duration, precision: Option<Level>) -> Self;
    /// Returns the range that decides which keys have a row, from the ranges (at least one) that columns use.
    fn longest(ranges: &[Self]) -> Self;
}

impl AggregateRange for TimeRange {
    fn everything() -> Self {
        TimeRange::ALL
    }

    fn trailing(window: Duration, precision: Option<Level>) -> Self {
        TimeRange::trailing(window, precision)
    }

    /// Returns the longest window, with its edge at the coarsest hop used, and without an upper edge.
    fn longest(ranges: &[TimeRange]) -> TimeRange {
        match ranges.iter().map(|range| range.window).reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))) {
            None | Some(None) => TimeRange::ALL,
            Some(Some(window)) => {
                let hop = ranges.iter().filter(|range| range.window == Some(window)).map(|range| range.hop).max();
                TimeRange { window: Some(window), until: None, hop: hop.unwrap_or(Level::Second1) }
            }
        }
    }
}

/// An aggregate of the SELECT, as columns use it.
pub(super) struct Call<R> {
    /// The index of its state; of a linked view, that of its aggregate.
    pub(super) state: usize,
    /// The range that the call names itself.
    pub(super) range: Option<R>,
    /// The call without `within`.
    pub(super) spelled: Expr,
    pub(super) approximate: bool,
}

/// One aggregate over one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallUse {
    /// [`Call::state`].
    pub(super) state: usize,
    /// Of [`WindowedColumns::ranges`].
    pub(super) range: ColumnRangeIndex,
}

/// A SELECT's columns, fanned out over windows.
pub(super) struct WindowedColumns<R> {
    pub(super) keys: Vec<String>,
    pub(super) ranges: Vec<R>,
    pub(super) existence: ColumnRangeIndex,
    pub(super) uses: Vec<CallUse>,
    pub(super) outputs: Vec<SelectOutput>,
}

/// Fans out the columns of `top`. `calls` are the aggregates, in the order of the Aggregate.
pub(super) fn windowed_columns<R: AggregateRange>(
    view: &ViewDefinition,
    top: &Projection,
    aggregate: &Aggregate,
    calls: Vec<Call<R>>,
) -> Result<WindowedColumns<R>> {
    let existence = ColumnRangeIndex(0);
    let columns = WindowedColumns { keys: Vec::new(), ranges: Vec::new(), existence, uses: Vec::new(), outputs: Vec::new() };
    let mut builder = ColumnsBuilder { view, aggregate, calls, columns };
    builder.name_keys(top)?;
    for expr in &top.expr {
        builder.column(expr)?;
    }
    builder.settle_existence();
    builder.refuse_colliding_names()?;
    Ok(builder.columns)
}

struct ColumnsBuilder<'a, R> {
    view: &'a ViewDefinition,
    aggregate: &'a Aggregate,
    calls: Vec<Call<R>>,
    columns: WindowedColumns<R>,
}

impl<R: AggregateRange> ColumnsBuilder<'_, R> {
    fn name_keys(&mut self, top: &Projection) -> Result<()> {
        for (group, expr) in self.aggregate.group_expr.iter().enumerate() {
            let name = top.expr.iter().find(|candidate| self.index_of(strip_alias(candidate)) == Some(group)).map(output_name);
            let Some(name) = name else {
                return Err(Error::input(format!(
                    "GROUP BY {} is not among the SELECT's columns: expected each key as a column, so that a row can be looked up",
                    self.sql_of(expr)
                )));
            };
            self.columns.keys.push(name);
        }
        Ok(())
    }

    fn column(&mut self, expr: &Expr) -> Result<()> {
        let name = output_name(expr);
        check_name(&name)?;
        let expr = strip_alias(expr);
        if let Some(group) = self.index_of(expr).filter(|index| *index < self.groups()) {
            self.columns.outputs.push(SelectOutput::Key { group });
            return Ok(());
        }
        let calls = self.calls_in(expr);
        let names_its_window = calls.iter().any(|call| self.calls[*call].range.is_some());
        if calls.is_empty() || names_its_window || self.view.windows.is_empty() {
            return self.value(name, expr, None, R::everything());
        }
        for window in &self.view.windows {
            let range = R::trailing(window.length, self.view.precision);
            self.value(format!("{name}_{}", window.text), expr, Some(window.text.clone()), range)?;
        }
        Ok(())
    }

    /// Adds one output column: `expr` with each aggregate over its own range, or over `otherwise` if it names none.
    fn value(&mut self, name: String, expr: &Expr, window: Option<String>, otherwise: R) -> Result<()> {
        let (mut uses, mut ranges) = (Vec::new(), Vec::new());
        let bare = self.index_of(expr).is_some_and(|index| index >= self.groups());
        let approximate = self.calls_in(expr).iter().any(|call| self.calls[*call].approximate);
        let sql = self.sql_of(&self.with_calls_spelled_out(expr)?);
        let rewritten = expr.clone().transform_down(|node| {
            if matches!(&node, Expr::ScalarFunction(function) if function.func.name() == "as_of") {
                return Ok(Transformed::yes(Expr::Column(Column::from_name(AS_OF))));
            }
            let Some(index) = self.index_of(&node) else { return Ok(Transformed::no(node)) };
            if index < self.groups() {
                return Ok(Transformed::yes(Expr::Column(Column::from_name(key_column(index)))));
            }
            let call = &self.calls[index - self.groups()];
            let range = position_or_push(&mut self.columns.ranges, call.range.clone().unwrap_or_else(|| otherwise.clone()));
            let range = ColumnRangeIndex(range);
            let usage = UseIndex(position_or_push(&mut self.columns.uses, CallUse { state: call.state, range }));
            position_or_push(&mut uses, usage);
            position_or_push(&mut ranges, range);
            Ok(Transformed::yes(Expr::Column(Column::from_name(use_column(usage)))))
        })?;
        self.columns.outputs.push(SelectOutput::Value { name, expr: rewritten.data, uses, ranges, bare, sql, window, approximate });
        Ok(())
    }

    fn settle_existence(&mut self) {
        // A view with only keys names no range: its windows decide.
        if self.columns.ranges.is_empty() {
            let of_windows = self.view.windows.iter().map(|window| R::trailing(window.length, self.view.precision));
            let longest = R::longest(&of_windows.collect::<Vec<_>>());
            self.columns.ranges.push(longest);
            return;
        }
        let longest = R::longest(&self.columns.ranges);
        self.columns.existence = ColumnRangeIndex(position_or_push(&mut self.columns.ranges, longest));
    }

    fn refuse_colliding_names(&self) -> Result<()> {
        let mut seen = std::collections::BTreeSet::new();
        for output in &self.columns.outputs {
            let name = match output {
                SelectOutput::Key { group } => &self.columns.keys[*group],
                SelectOutput::Value { name, .. } => name,
            };
            if !seen.insert(name.as_str()) {
                return Err(Error::input(format!(
                    "two columns are named \"{name}\": expected each name once (a window appends its text to a name)"
                )));
            }
        }
        Ok(())
    }

    fn groups(&self) -> usize {
        self.aggregate.group_expr.len()
    }

    fn sql_of(&self, expr: &Expr) -> String {
        ordered_sql_of(expr, if is_linked(self.aggregate) { ColumnNames::WithTable } else { ColumnNames::Bare })
    }

    /// Returns the index of the Aggregate's output that an expression above it names.
    fn index_of(&self, expr: &Expr) -> Option<usize> {
        match expr {
            Expr::Column(column) => self.aggregate.schema.maybe_index_of_column(column),
            _ => None,
        }
    }

    fn calls_in(&self, expr: &Expr) -> Vec<usize> {
        let mut calls = Vec::new();
        let _ = expr.apply(|node| {
            if let Some(call) = self.index_of(node).and_then(|index| index.checked_sub(self.groups())) {
                calls.push(call);
            }
            Ok(TreeNodeRecursion::Continue)
        });
        calls
    }

    fn with_calls_spelled_out(&self, expr: &Expr) -> Result<Expr> {
        let spelled = expr.clone().transform_down(|node| match self.index_of(&node) {
            Some(index) if index < self.groups() => Ok(Transformed::yes(self.aggregate.group_expr[index].clone())),
            Some(index) => {
                let spelled = self.calls[index - self.groups()].spelled.clone();
                Ok(Transformed::new(spelled, true, TreeNodeRecursion::Jump))
            }
            None => Ok(Transformed::no(node)),
        })?;
        Ok(spelled.data)
    }
}

pub(super) fn strip_alias(mut expr: &Expr) -> &Expr {
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    expr
}

fn output_name(expr: &Expr) -> String {
    match expr {
        Expr::Alias(alias) => alias.name.clone(),
        Expr::Column(column) => column.name.clone(),
        other => other.schema_name().to_string(),
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.starts_with('_') || name.contains("__") {
        return Err(Error::input(format!("the column name \"{name}\" is reserved: expected no leading _ and no __")));
    }
    Ok(())
}

pub(super) fn position_or_push<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

/// Whether a plan's aggregates are directly over a JOIN.
pub(super) fn is_linked(aggregate: &Aggregate) -> bool {
    fn below(plan: &LogicalPlan) -> bool {
        match plan {
            LogicalPlan::Filter(filter) => below(&filter.input),
            other => matches!(other, LogicalPlan::Join(_)),
        }
    }
    below(&aggregate.input)
}
