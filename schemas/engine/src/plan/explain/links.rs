//! What `explain` shows for a view over a JOIN: which kind of edges it keeps, what they cost, and how they are walked.

use serde::Serialize;
use std::fmt::Write;

use super::ranges::edges_text;
use crate::plan::links::{EdgeKind, LinkPlan, PairRangeIndex};
use crate::plan::{ColumnKind, ViewPlan};
use types::tiles::EdgesFrom;

/// What a linked view keeps, and how it is walked.
#[derive(Debug, Clone, Serialize)]
pub struct LinksExplanation {
    /// `liveness` or `full`.
    pub kind: &'static str,
    /// What is kept, and its cost.
    pub kept: String,
    /// At a node with more neighbours than this a walk takes a sample, and the answer is marked as approximate.
    pub max_degree: usize,
}

pub(super) fn explain(plan: &ViewPlan, links: &LinkPlan) -> LinksExplanation {
    let bytes: usize =
        plan.states.iter().flat_map(|state| &state.fields).map(|field| field.data_type().primitive_width().unwrap_or(16)).sum();
    let (kind, kept) = match links.kind {
        EdgeKind::Liveness => {
            let is_bounded = links.edges_from(0) != EdgesFrom::default();
            let left_out = if is_bounded { "; batch runs leave out what lies before a side's longest range" } else { "" };
            (
                "liveness",
                format!("one row per edge and side, for all windows: its key, and {bytes} bytes of when it was last seen{left_out}"),
            )
        }
        EdgeKind::Full => {
            let levels: Vec<String> = plan.levels.iter().map(ToString::to_string).collect();
            let tiles = levels.join(", ");
            ("full", format!("a row per edge, side and tile with events (levels {tiles}): its key, and about {bytes} bytes of states"))
        }
    };
    LinksExplanation { kind, kept, max_degree: links.max_degree }
}

/// Returns the walk as a join of the edges with themselves. Each side is named like its table in the view.
pub(super) fn answer_sql(plan: &ViewPlan, links: &LinkPlan) -> String {
    let [near, far] = &links.tables;
    let mut lines = Vec::new();
    for column in &plan.columns {
        let name = column.field.name();
        match &column.kind {
            ColumnKind::Key(_) => lines.push(format!("{near}.{name}")),
            ColumnKind::Value(value) => {
                let ranges: Vec<String> =
                    value.ranges.iter().map(|range| over(links, range.in_links())).filter(|over| !over.is_empty()).collect();
                let ranges = if ranges.is_empty() { "all time".to_owned() } else { ranges.join("; ") };
                lines.push(format!("{} AS {name} /* {} */", value.sql, ranges));
            }
        }
    }
    let via: Vec<&str> = plan.keys[links.layout.via.clone()].iter().map(|key| key.name().as_str()).collect();
    let side = plan.keys[0].name();
    let keys: Vec<String> = links.keys.iter().map(|key| format!("{near}.{}", key.name())).collect();
    let (columns, via) = (lines.join(",\n       "), via.join(", "));
    let mut sql = format!("SELECT {columns}\nFROM {0}__edges {near} JOIN {0}__edges {far} USING ({via})", plan.view);
    let existence = Some(over(links, links.existence)).filter(|over| !over.is_empty());
    let conditions: Vec<String> = [format!("NOT {near}.{side}"), format!("{far}.{side}")].into_iter().chain(existence).collect();
    let _ = write!(sql, "\nWHERE {}\nGROUP BY {}", conditions.join(" AND "), keys.join(", "));
    sql
}

/// A range as conditions on either edge: on when it was last seen, or on its tiles. Empty for all time.
fn over(links: &LinkPlan, range: PairRangeIndex) -> String {
    let range = links.range(range);
    let column = match links.kind {
        EdgeKind::Liveness => format!("s{}", links.seen.0),
        EdgeKind::Full => "tile".to_owned(),
    };
    let [near, far] = links.tables.each_ref().map(|table| format!("{table}.{column}"));
    edges_text(&near, &range.near).into_iter().chain(edges_text(&far, &range.far)).collect::<Vec<_>>().join(" AND ")
}
