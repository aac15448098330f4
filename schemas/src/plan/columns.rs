//! Fanning a SELECT's columns out over windows, and telling which states and ranges they need.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, Projection};
use datafusion::sql::unparser::expr_to_sql;

use crate::definitions::{StreamDefinition, ViewDefinition};
use crate::error::{Error, Result};
use crate::plan::{AS_OF, EVENTS, Use, within};
use crate::tiles::{Level, Range};

/// The aggregates whose answers are estimates, or depend (slightly) on the order of merging.
const APPROXIMATE: [&str; 6] =
    ["approx_distinct", "approx_percentile_cont", "approx_percentile_cont_with_weight", "approx_median", "top_k", "approx_top_k"];

/// A SELECT, taken apart.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Names of the keys, in the order of GROUP BY.
    pub(super) keys: Vec<String>,
    /// What is kept; the first is the count of events.
    pub(super) states: Vec<StateCall>,
    pub(super) ranges: Vec<Range>,
    pub(super) existence: usize,
    pub(super) uses: Vec<Use>,
    pub(super) outputs: Vec<Output>,
}

#[derive(Debug)]
pub(super) struct StateCall {
    /// The aggregate call without `within`; its order is not yet completed.
    pub(super) call: Expr,
    pub(super) sql: String,
    pub(super) function: String,
    pub(super) approximate: bool,
}

#[derive(Debug)]
pub(super) enum Output {
    Key {
        group: usize,
    },
    Value {
        name: String,
        expr: Expr,
        uses: Vec<usize>,
        ranges: Vec<usize>,
        bare_count: bool,
        sql: String,
        window: Option<String>,
        approximate: bool,
    },
}

/// The name of a use's column in the value batch.
pub(super) fn use_column(index: usize) -> String {
    format!("v{index}")
}

/// The name of a range's count of events in the value batch.
pub(super) fn events_column(range: usize) -> String {
    format!("e{range}")
}

/// The name of a key in the value batch and in the prepared events.
pub(super) fn key_column(index: usize) -> String {
    format!("k{index}")
}

pub(super) fn fan_out(
    view: &ViewDefinition,
    top: &Projection,
    aggregate: &Aggregate,
    streams: &[Arc<StreamDefinition>],
) -> Result<Columns> {
    let mut fan = Fan { view, aggregate, calls: Vec::new(), columns: Columns::default() };
    fan.count_events();
    fan.take_calls_apart(streams)?;
    fan.name_keys(top)?;
    for expr in &top.expr {
        fan.column(expr)?;
    }
    fan.settle_existence();
    fan.refuse_colliding_names()?;
    Ok(fan.columns)
}

struct Fan<'a> {
    view: &'a ViewDefinition,
    aggregate: &'a Aggregate,
    /// Per aggregate of the SELECT: its state, and the range it names itself.
    calls: Vec<(usize, Option<Range>)>,
    columns: Columns,
}

impl Fan<'_> {
    fn count_events(&mut self) {
        let call = datafusion::functions_aggregate::expr_fn::count(datafusion::prelude::lit(1i64));
        self.columns.states.push(StateCall { call, sql: EVENTS.into(), function: "count".into(), approximate: false });
    }

    fn take_calls_apart(&mut self, streams: &[Arc<StreamDefinition>]) -> Result<()> {
        for expr in &self.aggregate.aggr_expr {
            let Expr::AggregateFunction(function) = strip_alias(expr) else {
                return Err(Error::input(format!("{expr} is not an aggregate call")));
            };
            let split = within::split(function.params.filter.as_deref(), &self.aggregate.input, streams, self.view.precision)?;
            let mut function = function.clone();
            function.params.filter = split.rest.map(Box::new);
            let state = self.state(function)?;
            self.calls.push((state, split.range));
        }
        Ok(())
    }

    /// The state of this call; equal calls share one.
    fn state(&mut self, function: AggregateFunction) -> Result<usize> {
        let counts_rows = function.func.name() == "count"
            && function.params.filter.is_none()
            && !function.params.distinct
            && matches!(function.params.args.as_slice(), [Expr::Literal(value, _)] if !value.is_null());
        if counts_rows {
            return Ok(0);
        }
        let name = function.func.name().to_owned();
        let call = Expr::AggregateFunction(function);
        if let Some(known) = self.columns.states.iter().position(|state| state.call == call) {
            return Ok(known);
        }
        let sql = sql_of(&call);
        let approximate = APPROXIMATE.contains(&name.as_str());
        self.columns.states.push(StateCall { call, sql, function: name, approximate });
        Ok(self.columns.states.len() - 1)
    }

    fn name_keys(&mut self, top: &Projection) -> Result<()> {
        for (group, expr) in self.aggregate.group_expr.iter().enumerate() {
            let name = top.expr.iter().find(|candidate| self.index_of(strip_alias(candidate)) == Some(group)).map(output_name);
            let Some(name) = name else {
                return Err(Error::input(format!(
                    "GROUP BY {} is not among the SELECT's columns: expected each key as a column, so that a row can be asked for",
                    sql_of(expr)
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
            self.columns.outputs.push(Output::Key { group });
            return Ok(());
        }
        let calls = self.calls_in(expr);
        let names_its_window = calls.iter().any(|call| self.calls[*call].1.is_some());
        if calls.is_empty() || names_its_window || self.view.windows.is_empty() {
            return self.value(name, expr, None, Range::ALL);
        }
        for window in &self.view.windows {
            let range = Range::trailing(window.length, self.view.precision);
            self.value(format!("{name}_{}", window.text), expr, Some(window.text.clone()), range)?;
        }
        Ok(())
    }

    /// One output column: `expr` with each aggregate over its own range, or over `otherwise` where it names none.
    fn value(&mut self, name: String, expr: &Expr, window: Option<String>, otherwise: Range) -> Result<()> {
        let (mut uses, mut ranges) = (Vec::new(), Vec::new());
        let bare_count = matches!(self.index_of(expr), Some(index) if index >= self.groups() && self.is_count(index - self.groups()));
        let approximate = self.calls_in(expr).iter().any(|call| self.columns.states[self.calls[*call].0].approximate);
        let sql = sql_of(&self.with_calls_spelled_out(expr)?);
        let rewritten = expr.clone().transform_down(|node| {
            if matches!(&node, Expr::ScalarFunction(function) if function.func.name() == "as_of") {
                return Ok(Transformed::yes(Expr::Column(Column::from_name(AS_OF))));
            }
            let Some(index) = self.index_of(&node) else { return Ok(Transformed::no(node)) };
            if index < self.groups() {
                return Ok(Transformed::yes(Expr::Column(Column::from_name(key_column(index)))));
            }
            let (state, own_range) = self.calls[index - self.groups()];
            let range = position_or_push(&mut self.columns.ranges, own_range.unwrap_or(otherwise));
            let position = position_or_push(&mut self.columns.uses, Use { state, range });
            position_or_push(&mut uses, position);
            position_or_push(&mut ranges, range);
            Ok(Transformed::yes(Expr::Column(Column::from_name(use_column(position)))))
        })?;
        self.columns.outputs.push(Output::Value { name, expr: rewritten.data, uses, ranges, bare_count, sql, window, approximate });
        Ok(())
    }

    /// The range that decides which keys have a row: the longest window, its edge at the coarsest hop met, without upper edge.
    fn settle_existence(&mut self) {
        let ranges = &self.columns.ranges;
        let of_windows = || self.view.windows.iter().map(|window| Range::trailing(window.length, self.view.precision));
        // A view of keys alone names no range: its windows decide.
        let ranges: Vec<Range> = if ranges.is_empty() { of_windows().collect() } else { ranges.clone() };
        let longest = match ranges.iter().map(|range| range.window).reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))) {
            None | Some(None) => Range::ALL,
            Some(Some(window)) => {
                let hop = ranges.iter().filter(|range| range.window == Some(window)).map(|range| range.hop).max();
                Range { window: Some(window), until: None, hop: hop.unwrap_or(Level::Second1) }
            }
        };
        self.columns.existence = position_or_push(&mut self.columns.ranges, longest);
    }

    fn refuse_colliding_names(&self) -> Result<()> {
        let mut seen = std::collections::BTreeSet::new();
        for output in &self.columns.outputs {
            let name = match output {
                Output::Key { group } => &self.columns.keys[*group],
                Output::Value { name, .. } => name,
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

    /// The output of the Aggregate that a column above it names.
    fn index_of(&self, expr: &Expr) -> Option<usize> {
        match expr {
            Expr::Column(column) => self.aggregate.schema.maybe_index_of_column(column),
            _ => None,
        }
    }

    fn is_count(&self, call: usize) -> bool {
        matches!(strip_alias(&self.aggregate.aggr_expr[call]), Expr::AggregateFunction(function) if function.func.name() == "count")
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
                let (state, _) = self.calls[index - self.groups()];
                Ok(Transformed::new(self.columns.states[state].call.clone(), true, TreeNodeRecursion::Jump))
            }
            None => Ok(Transformed::no(node)),
        })?;
        Ok(spelled.data)
    }
}

fn strip_alias(mut expr: &Expr) -> &Expr {
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
        return Err(Error::input(format!("the column name \"{name}\" is the system's: expected no leading _ and no __")));
    }
    Ok(())
}

fn position_or_push<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

/// An expression as SQL, without table names.
pub(super) fn sql_of(expr: &Expr) -> String {
    let bare = expr.clone().transform_down(|node| match node {
        Expr::Column(column) if column.relation.is_some() => Ok(Transformed::yes(Expr::Column(Column::from_name(column.name)))),
        Expr::Cast(cast) => Ok(Transformed::yes(*cast.expr)),
        other => Ok(Transformed::no(other)),
    });
    let bare = bare.map_or_else(|_| expr.clone(), |bare| bare.data);
    let text = expr_to_sql(&bare).map_or_else(|_| bare.schema_name().to_string(), |sql| sql.to_string());
    text.replace("count(1)", "count(*)")
}
