//! `explain`: shows the three layers as SQL, in the style of ClickHouse's -State and -Merge combinators, and the states
//! that are kept.

use std::fmt::Write;

use serde::Serialize;

pub mod links;
mod ranges;

use ranges::{length, range_text};

use crate::plan::columns::position_or_push;
use crate::plan::written::{ColumnNames, sql_of};
use crate::plan::{Answering, ColumnKind, Use, ViewPlan};
use datafusion::logical_expr::LogicalPlan;
use definitions::durations::format_bytes;
use types::columns::EVENTS;
use types::sql_types::sql_name;
use types::tiles::{TimeRange, most_tiles};

/// The result of `explain VIEW`.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    pub view: String,
    /// What batch and speed compute: states per key and tile.
    pub states_sql: String,
    /// What serving computes: the states of both, merged over each window.
    pub answer_sql: String,
    pub states: Vec<StateExplanation>,
    pub ranges: Vec<RangeExplanation>,
    /// The levels of tiles, finest first.
    pub levels: Vec<String>,
    /// Columns whose values are estimates.
    pub approximate: Vec<String>,
    /// For a view over a JOIN: its edges, and how they are walked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<links::LinksExplanation>,
}

/// A state that a view keeps.
#[derive(Debug, Clone, Serialize)]
pub struct StateExplanation {
    pub aggregate: String,
    /// Name and SQL type of each of its fields in a state row.
    pub fields: Vec<(String, String)>,
    pub approximate: bool,
    /// For a state that collects values: how much the state of one key may hold (`max_state_bytes`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl StateExplanation {
    /// How the state is kept, as text.
    pub fn kept_as(&self) -> String {
        let fields = self.fields.iter().map(|(_, data_type)| data_type.as_str()).collect::<Vec<_>>().join(", ");
        match self.max_bytes {
            Some(bytes) => format!("{fields}; up to {} of a key", format_bytes(bytes)),
            None => fields,
        }
    }
}

/// A range of event time that a view answers.
#[derive(Debug, Clone, Serialize)]
pub struct RangeExplanation {
    pub range: String,
    pub hop: String,
    /// The greatest number of tiles that are merged for one key, over all times `t`.
    pub tiles: usize,
}

/// Explains a plan.
pub fn explain(plan: &ViewPlan) -> Explanation {
    Explanation {
        view: plan.view.to_string(),
        states_sql: states_sql(plan),
        answer_sql: match &plan.answering {
            Answering::Grouped(values) => answer_sql(plan, &values.uses),
            Answering::Linked(links) => links::answer_sql(plan, links),
        },
        links: plan.links().map(|links| links::explain(plan, links)),
        states: plan
            .states
            .iter()
            .map(|state| StateExplanation {
                aggregate: if state.sql == EVENTS { "count(*)".into() } else { state.sql.clone() },
                fields: state.fields.iter().map(|field| (field.name().clone(), sql_name(field.data_type()))).collect(),
                approximate: state.approximate,
                max_bytes: state.limit_bytes,
            })
            .collect(),
        ranges: asked_ranges(plan).iter().map(|range| explain_range(plan, range)).collect(),
        levels: plan.levels.iter().map(ToString::to_string).collect(),
        approximate: plan
            .columns
            .iter()
            .filter(|column| matches!(&column.kind, ColumnKind::Value(value) if value.approximate))
            .map(|column| column.field.name().clone())
            .collect(),
    }
}

fn states_sql(plan: &ViewPlan) -> String {
    let keys: Vec<String> = plan.keys.iter().map(|key| key.name().clone()).collect();
    let mut sql = String::from("SELECT ");
    for key in &keys {
        let _ = write!(sql, "{key}, ");
    }
    let _ = write!(sql, "tile('{}', event_time) AS tile", plan.finest());
    for (i, state) in plan.states.iter().enumerate() {
        let _ = write!(sql, ",\n       {} AS s{i}", combinator(&state.sql, "state"));
    }
    let _ = write!(sql, "\nFROM {}", from_sql(&plan.prepare));
    let _ = write!(sql, "\nGROUP BY {}", keys.iter().map(String::as_str).chain(["tile"]).collect::<Vec<_>>().join(", "));
    sql
}

fn answer_sql(plan: &ViewPlan, uses: &[Use]) -> String {
    let mut lines = Vec::new();
    for column in &plan.columns {
        match &column.kind {
            ColumnKind::Key(_) => lines.push(column.field.name().clone()),
            ColumnKind::Value(value) => {
                let mut sql = value.sql.clone();
                for index in &value.uses {
                    let usage = uses[index.0];
                    let state = plan.state(usage.state);
                    let call = if state.sql == EVENTS { "count(*)" } else { &state.sql };
                    let merged =
                        format!("{}_merge(s{}) FILTER ({})", function_of(call), usage.state.0, range_text(plan.range(usage.range)));
                    sql = sql.replacen(call, &merged, 1);
                }
                lines.push(format!("{sql} AS {}", column.field.name()));
            }
        }
    }
    let keys: Vec<&str> = plan.keys.iter().map(|key| key.name().as_str()).collect();
    let view = &plan.view;
    let mut sql = format!("SELECT {}\nFROM (SELECT * FROM {view}__batch UNION ALL SELECT * FROM {view}__speed)", lines.join(",\n       "));
    let _ = write!(sql, "\nWHERE {}", range_text(plan.range(plan.existence)));
    if !keys.is_empty() {
        let _ = write!(sql, "\nGROUP BY {}", keys.join(", "));
    }
    sql
}

/// Turns `sum(amount) FILTER (..)` into `sum_state(amount) FILTER (..)`.
fn combinator(sql: &str, suffix: &str) -> String {
    if sql == EVENTS {
        return format!("count_{suffix}(*)");
    }
    match sql.split_once('(') {
        Some((function, rest)) => format!("{function}_{suffix}({rest}"),
        None => sql.to_owned(),
    }
}

fn function_of(call: &str) -> &str {
    call.split_once('(').map_or(call, |(function, _)| function)
}

/// Returns the ranges that columns need. For a view over a JOIN: those of both sides, each once.
fn asked_ranges(plan: &ViewPlan) -> Vec<TimeRange> {
    let Some(links) = plan.links() else { return plan.ranges.clone() };
    let mut ranges = Vec::new();
    for range in links.ranges.iter().flat_map(|pair| [pair.near, pair.far]) {
        position_or_push(&mut ranges, range);
    }
    ranges
}

fn explain_range(plan: &ViewPlan, range: &TimeRange) -> RangeExplanation {
    let text = match (range.window, range.until) {
        (None, None) => "all time".into(),
        (None, Some(until)) => format!("until {} ago", length(until)),
        (Some(window), None) => length(window),
        (Some(window), Some(until)) => format!("{} ago to {} ago", length(window), length(until)),
    };
    // An edge that keeps only when it was last seen has one row, whatever the range.
    let tiles = match plan.liveness_links().is_some() {
        true => 1,
        false => most_tiles(range, &plan.levels),
    };
    RangeExplanation { range: text, hop: range.hop.to_string(), tiles }
}

/// Returns FROM and WHERE of the prepared events, if they have a short form.
fn from_sql(prepare: &LogicalPlan) -> String {
    let mut filters = Vec::new();
    let mut sources = Vec::new();
    collect(prepare, &mut sources, &mut filters);
    let mut sql = sources.join(" UNION ALL ");
    if !filters.is_empty() {
        let _ = write!(sql, "\nWHERE {}", filters.join(" AND "));
    }
    sql
}

fn collect(plan: &LogicalPlan, sources: &mut Vec<String>, filters: &mut Vec<String>) {
    match plan {
        LogicalPlan::TableScan(scan) => sources.push(scan.table_name.table().to_owned()),
        LogicalPlan::Filter(filter) => {
            filters.push(sql_of(&filter.predicate, ColumnNames::Bare));
            collect(&filter.input, sources, filters);
        }
        LogicalPlan::Union(union) => {
            for input in &union.inputs {
                let (mut below, mut conditions) = (Vec::new(), Vec::new());
                collect(input, &mut below, &mut conditions);
                sources.push(match conditions.is_empty() {
                    true => below.join(" UNION ALL "),
                    false => format!("(SELECT .. FROM {} WHERE {})", below.join(" UNION ALL "), conditions.join(" AND ")),
                });
            }
        }
        other => other.inputs().into_iter().for_each(|input| collect(input, sources, filters)),
    }
}

#[cfg(test)]
mod tests;
