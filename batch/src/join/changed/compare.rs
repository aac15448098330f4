//! Compares edges of two snapshots: may an edge contribute differently to an answer than before?

use arrow::array::{Array, AsArray, BooleanArray, TimestampMicrosecondArray};
use arrow::datatypes::TimestampMicrosecondType;
use arrow_row::{RowConverter, Rows, SortField};
use committed::registry::LiveView;
use engine::plan::StateIndex;
use engine::plan::links::{EdgeKind, LinkPlan, PairRange};
use engine::states::{StateRows, tiles};
use types::tiles::{Micros, TimeRange};
use types::{Error, Result};

use super::JoinTimes;

/// Where a row of a snapshot is.
#[derive(Clone, Copy)]
pub(super) struct RowPosition {
    pub(super) chunk: usize,
    /// Its index in the chunk.
    pub(super) row: usize,
}

/// Rows of two snapshots, prepared for comparison.
pub(super) enum Comparing<'a> {
    /// An edge contributes by whether it is live in each range, under each condition. Being seen again need not change
    /// that.
    Liveness { old: Vec<LastSeen<'a>>, new: Vec<LastSeen<'a>>, near: Vec<Edge>, far: Vec<Edge> },
    /// A row contributes its states, while its tile is in a range.
    Full { old: Vec<Rows>, new: Vec<TiledRows<'a>>, near: Vec<Passed>, far: Vec<Passed> },
}

/// An interval of event time that an edge of a range passed over.
pub(super) type Passed = std::ops::Range<Micros>;

/// The left edge of a range before and now, for a condition (by index). `None`: all time.
pub(super) struct Edge {
    pub(super) condition: usize,
    pub(super) before: Option<Micros>,
    pub(super) now: Option<Micros>,
}

/// When edges were last seen, under each condition.
pub(super) struct LastSeen<'a> {
    pub(super) far: &'a BooleanArray,
    pub(super) last: Vec<&'a TimestampMicrosecondArray>,
}

/// Rows with tiles.
pub(super) struct TiledRows<'a> {
    far: &'a BooleanArray,
    tiles: &'a [Micros],
    states: Rows,
}

impl<'a> Comparing<'a> {
    pub(super) fn new(view: &LiveView, links: &LinkPlan, old: &'a [StateRows], new: &'a [StateRows], times: JoinTimes) -> Result<Self> {
        let seen = |rows: &'a [StateRows]| rows.iter().map(|rows| LastSeen::from_rows(view, links, rows)).collect::<Result<Vec<_>>>();
        Ok(match links.kind {
            EdgeKind::Liveness => Comparing::Liveness {
                old: seen(old)?,
                new: seen(new)?,
                near: edges(links, |range| range.near, times),
                far: edges(links, |range| range.far, times),
            },
            EdgeKind::Full => Comparing::Full {
                old: old.iter().map(|rows| encoded_states(view, rows)).collect::<Result<_>>()?,
                new: new.iter().map(|rows| TiledRows::from_rows(view, rows)).collect::<Result<_>>()?,
                near: passed(links, |range| range.near, times),
                far: passed(links, |range| range.far, times),
            },
        })
    }

    /// Whether a row of the old snapshot, of the new one, or of both, may contribute differently.
    pub(super) fn differ(&self, old: Option<RowPosition>, new: Option<RowPosition>) -> bool {
        match self {
            Comparing::Liveness { old: was, new: is, near, far } => {
                let (was, is) = (old.map(|at| (&was[at.chunk], at.row)), new.map(|at| (&is[at.chunk], at.row)));
                let is_far = was.or(is).is_some_and(|(rows, row)| rows.far.value(row));
                let live =
                    |at: Option<(&LastSeen<'_>, usize)>, condition, from| at.is_some_and(|(rows, row)| rows.is_live(row, condition, from));
                let edges = if is_far { far } else { near };
                edges.iter().any(|edge| live(was, edge.condition, edge.before) != live(is, edge.condition, edge.now))
            }
            Comparing::Full { old: was, new: is, near, far } => {
                let (Some(old), Some(new)) = (old, new) else { return true };
                let rows = &is[new.chunk];
                let passed = if rows.far.value(new.row) { far } else { near };
                let tile = rows.tiles[new.row];
                was[old.chunk].row(old.row) != rows.states.row(new.row) || passed.iter().any(|passed| passed.contains(&tile))
            }
        }
    }
}

impl<'a> LastSeen<'a> {
    pub(super) fn from_rows(view: &LiveView, links: &LinkPlan, rows: &'a StateRows) -> Result<Self> {
        let last = links.conditions.iter().map(|condition| {
            let seen = rows.batch().column(view.plan.state_offset(condition.state)).as_primitive_opt::<TimestampMicrosecondType>();
            seen.ok_or_else(|| Error::corrupt("when an edge was seen is no timestamp"))
        });
        Ok(Self { far: side(rows)?, last: last.collect::<Result<_>>()? })
    }

    fn is_live(&self, row: usize, condition: usize, from: Option<Micros>) -> bool {
        let seen = self.last[condition];
        seen.is_valid(row) && from.is_none_or(|from| from <= seen.value(row))
    }
}

impl<'a> TiledRows<'a> {
    fn from_rows(view: &LiveView, rows: &'a StateRows) -> Result<Self> {
        Ok(Self { far: side(rows)?, tiles: tiles(rows.batch())?, states: encoded_states(view, rows)? })
    }
}

pub(super) fn side(rows: &StateRows) -> Result<&BooleanArray> {
    rows.batch().column(0).as_boolean_opt().ok_or_else(|| Error::internal("the side of an edge changed its type"))
}

/// Encodes the states of rows as bytes that are equal if and only if the states are.
fn encoded_states(view: &LiveView, rows: &StateRows) -> Result<Rows> {
    let states = &rows.batch().columns()[view.plan.state_offset(StateIndex::EVENTS)..];
    let fields = states.iter().map(|state| SortField::new(state.data_type().clone())).collect();
    Ok(RowConverter::new(fields)?.convert_columns(states)?)
}

/// Returns the left edges of a side's ranges, for each condition.
pub(super) fn edges(links: &LinkPlan, side: fn(&PairRange) -> TimeRange, times: JoinTimes) -> Vec<Edge> {
    let of_condition = |condition| {
        let ranges = links.ranges.iter().map(side);
        ranges.map(move |range| Edge { condition, before: range.at(times.before).from, now: range.at(times.now).from })
    };
    (0..links.conditions.len()).flat_map(of_condition).collect()
}

/// Returns the intervals of event time that an edge of a range passed over.
pub(super) fn passed(links: &LinkPlan, side: fn(&PairRange) -> TimeRange, times: JoinTimes) -> Vec<Passed> {
    let mut passed = Vec::new();
    for range in links.ranges.iter().map(side) {
        let (one, two) = (range.at(times.before), range.at(times.now));
        for (one, two) in one.from.zip(two.from).into_iter().chain(one.to.zip(two.to)).filter(|(one, two)| one != two) {
            passed.push(one.min(two)..one.max(two));
        }
    }
    passed
}
