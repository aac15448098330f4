//! Linked views: aggregates over the equi-join of two streams, kept as edges and answered by walking them.
//!
//! ```text
//! near events --(false, group keys, join keys, ends)--+
//!                                                     UNION ALL --Partial--> edges --walk--> pairs --aggregates--> row
//! far events ---(true, join keys, ends) --------------+
//! ```
//!
//! The edges of both sides are rows of one ordinary state table: an edge is a key, and its state holds when it was last
//! seen or, where multiplicities or upper edges matter, how often in each tile. Nothing is joined before a query, so
//! batch, speed and handover work as for any view, and each side may have its own window.

use std::sync::Arc;
use types::tiles::EdgesFrom;

use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Projection, lit};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::prelude::SessionContext;

use crate::functions::judged;
use crate::plan::columns;
use crate::plan::columns::{AggregateRange, CallUse};
use crate::plan::hidden::streams_of;
use crate::plan::{Answering, RangeIndex, StateIndex, Use, ViewPlan, lower, uuids};
use definitions::{MAX_STATE_BYTES, StreamDefinition, ViewDefinition};
use types::columns::EVENT_TIME;
use types::tiles::{Level, Micros, TimeRange};
use types::{Error, Result};

mod calls;
mod edges;
mod keys;
mod split;

pub(super) use keys::check_key_types;
pub(crate) use keys::check_on_types;
pub(super) use split::has_join;

/// The number of neighbours that a walk follows from one node, unless WITH (max_degree = ..) sets it.
pub const MAX_DEGREE: usize = 10_000;

/// An index into [`LinkPlan::conditions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConditionIndex(pub usize);

impl ConditionIndex {
    /// The condition that every edge meets.
    pub const NONE: ConditionIndex = ConditionIndex(0);
}

/// An index into [`LinkPlan::aggregates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateIndex(pub usize);

/// An index into [`LinkPlan::ranges`], not into the ranges that edges are kept over ([`ViewPlan::ranges`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PairRangeIndex(pub usize);

/// An index into [`LinkPlan::edge_uses`], not into what the columns need ([`LinkPlan::uses`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EdgeUseIndex(pub(crate) usize);

/// An index into [`LinkPlan::ends`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndsIndex(pub usize);

/// The columns of a linked view, and how its edges are walked to answer them.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    /// The group keys, named like the view's columns.
    pub keys: Vec<FieldRef>,
    /// The names of the two tables in the SELECT, near and far.
    pub tables: [String; 2],
    /// The streams that each side reads, near and far; both may read the same one.
    pub streams: [Vec<Arc<str>>; 2],
    pub layout: EdgeLayout,
    pub kind: EdgeKind,
    /// At a node with more neighbours than this, a walk samples them and estimates.
    pub max_degree: usize,
    /// The conditions under which edges are counted, with the state for each. The first has no condition.
    pub conditions: Vec<Condition>,
    /// The state that holds when an edge was last seen.
    pub seen: StateIndex,
    /// What is merged for each edge: the states and ranges are those of the [`ViewPlan`].
    pub edge_uses: Vec<Use>,
    /// Pairs of end points that must differ, if their index is in [`LinkPlan::apart`] or in the aggregate's.
    pub ends: Vec<Ends>,
    /// The pairs of `ends` that are in WHERE.
    pub apart: Vec<EndsIndex>,
    /// The ranges that columns need. The one at `existence` decides which keys have a row.
    pub ranges: Vec<PairRange>,
    pub existence: PairRangeIndex,
    pub aggregates: Vec<LinkAggregate>,
    /// The values that the columns need.
    pub uses: Vec<PairUse>,
    pub value_schema: SchemaRef,
}

/// A merged value of pairs: one aggregate over one range. For edges this is a [`Use`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairUse {
    pub aggregate: AggregateIndex,
    pub range: PairRangeIndex,
}

/// The places of an edge's parts among the keys of its state row. The first key is the side (`false`: near, the side of
/// the group keys).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeLayout {
    /// The group keys; NULL in far edges.
    pub groups: std::ops::Range<usize>,
    /// The join keys, of both sides.
    pub via: std::ops::Range<usize>,
    /// The near end points that are not group keys; NULL in far edges.
    pub near_ends: std::ops::Range<usize>,
    /// The far end points; NULL in near edges.
    pub far_ends: std::ops::Range<usize>,
}

/// What an edge keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKind {
    /// One row for all time: when it was last seen. The edge is live in a window whose left edge is not after that
    /// time.
    Liveness,
    /// A row per tile: how often it was seen, and the far side's states.
    Full,
}

/// A side of the join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The side of the group keys.
    Near,
    Far,
}

/// Something of each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Both<T> {
    pub(crate) near: T,
    pub(crate) far: T,
}

impl<T: Copy> Both<T> {
    pub(crate) fn side(&self, side: Side) -> T {
        match side {
            Side::Near => self.near,
            Side::Far => self.far,
        }
    }
}

/// A condition on the events of one side. Only edges whose events meet it are counted.
#[derive(Debug, Clone)]
pub struct Condition {
    /// `None` for no condition, which is valid for either side.
    pub side: Option<Side>,
    /// The state: the greatest event time ([`EdgeKind::Liveness`]), or the number of events.
    pub state: StateIndex,
}

/// A key column of an edge's state row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyColumn(pub usize);

/// An end point of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndPoint {
    pub side: Side,
    pub column: KeyColumn,
}

/// `far <> near`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    pub near: KeyColumn,
    pub far: KeyColumn,
}

impl Ends {
    /// Returns the key column of a side.
    pub fn column(&self, side: Side) -> KeyColumn {
        match side {
            Side::Near => self.near,
            Side::Far => self.far,
        }
    }
}

/// An aggregate over the pairs of a linked view.
#[derive(Debug, Clone)]
pub struct LinkAggregate {
    /// The call as the user wrote it, without `within`.
    pub sql: String,
    pub function: String,
    pub near: ConditionIndex,
    pub far: ConditionIndex,
    /// In addition to [`LinkPlan::apart`].
    pub apart: Vec<EndsIndex>,
    pub input: AggregateInput,
    pub approximate: bool,
}

impl LinkAggregate {
    /// A side's condition.
    pub fn condition(&self, side: Side) -> ConditionIndex {
        match side {
            Side::Near => self.near,
            Side::Far => self.far,
        }
    }
}

/// The values that an aggregate merges.
#[derive(Debug, Clone)]
pub enum AggregateInput {
    /// The distinct end points of the pairs: a pair counts once, however often it occurs.
    Ends { aggregate: Arc<AggregateFunctionExpr>, argument: EndPoint },
    /// A state of the far edges, once for each near event. `idempotent`: merging it once is enough.
    States { state: StateIndex, idempotent: bool },
}

/// A range of event time for each side of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PairRange {
    pub near: TimeRange,
    pub far: TimeRange,
}

impl PairRange {
    /// Returns the range of a side.
    pub fn range(&self, side: Side) -> &TimeRange {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

impl AggregateRange for PairRange {
    fn everything() -> Self {
        PairRange { near: TimeRange::ALL, far: TimeRange::ALL }
    }

    fn trailing(window: std::time::Duration, precision: Option<Level>) -> Self {
        let range = TimeRange::trailing(window, precision);
        PairRange { near: range, far: range }
    }

    /// The longest range of each side.
    fn longest(ranges: &[PairRange]) -> PairRange {
        let side = |of: fn(&PairRange) -> TimeRange| TimeRange::longest(&ranges.iter().map(of).collect::<Vec<_>>());
        PairRange { near: side(|range| range.near), far: side(|range| range.far) }
    }
}

impl LinkPlan {
    /// Returns a range of pairs.
    pub fn range(&self, index: PairRangeIndex) -> &PairRange {
        &self.ranges[index.0]
    }

    pub(crate) fn aggregate(&self, index: AggregateIndex) -> &LinkAggregate {
        &self.aggregates[index.0]
    }

    /// The range that decides which keys have a row: per side the longest.
    pub(crate) fn longest_range(&self) -> &PairRange {
        self.range(self.existence)
    }

    /// The ranges over a stream's events: those of the side that reads it, or of both.
    pub(crate) fn ranges_over(&self, stream: &str) -> impl Iterator<Item = &TimeRange> {
        let reads = |side: &Side| self.streams[*side as usize].iter().any(|known| **known == *stream);
        let sides: Vec<Side> = [Side::Near, Side::Far].into_iter().filter(reads).collect();
        self.ranges.iter().flat_map(move |pair| sides.clone().into_iter().map(move |side| pair.range(side)))
    }

    /// The edges' use that determines which edges of a side, under a condition, lie in a range.
    ///
    /// [`EdgeKind::Liveness`]: the greatest event time, to be compared with the range's left edge. [`EdgeKind::Full`]:
    /// the number of events.
    pub(crate) fn edge_use(&self, edges: &ViewPlan, condition: ConditionIndex, range: &TimeRange) -> Result<EdgeUseIndex> {
        self.state_use(edges, self.conditions[condition.0].state, range)
    }

    /// The edges' use that holds when edges were last seen.
    pub(crate) fn seen_use(&self, edges: &ViewPlan, range: &TimeRange) -> Result<EdgeUseIndex> {
        self.state_use(edges, self.seen, range)
    }

    /// Finds a range among those of the edge plan.
    fn edge_range(&self, edges: &ViewPlan, range: &TimeRange) -> Option<RangeIndex> {
        let range = if self.kind == EdgeKind::Liveness { &TimeRange::ALL } else { range };
        edges.ranges.iter().position(|known| known == range).map(RangeIndex)
    }

    /// Returns the times before which no event can count at `t` or later: the left edges of each side's longest range.
    /// For rows kept by tile, the floors of the tiles determine this instead.
    pub fn edges_from(&self, t: Micros) -> EdgesFrom {
        let longest = self.longest_range();
        match self.kind {
            EdgeKind::Liveness => EdgesFrom { near: longest.near.at(t).from, far: longest.far.at(t).from },
            EdgeKind::Full => EdgesFrom::default(),
        }
    }

    /// Returns the use of one of the edges' states over a range.
    pub(crate) fn use_over(&self, edges: &ViewPlan, state: StateIndex, range: &TimeRange) -> Result<Use> {
        let range = self.edge_range(edges, range).ok_or_else(|| not_kept(edges))?;
        Ok(Use { state, range })
    }

    fn state_use(&self, edges: &ViewPlan, state: StateIndex, range: &TimeRange) -> Result<EdgeUseIndex> {
        let usage = self.use_over(edges, state, range)?;
        let found = self.edge_uses.iter().position(|known| *known == usage);
        found.map(EdgeUseIndex).ok_or_else(|| not_kept(edges))
    }
}

fn not_kept(edges: &ViewPlan) -> Error {
    Error::internal("a linked view asks for what its edges do not keep").with("view", &edges.view)
}

/// Plans a view whose aggregates are over a JOIN.
pub(super) fn plan(
    view: &ViewDefinition,
    session: &SessionContext,
    top: &Projection,
    aggregate: &Aggregate,
    streams: &[Arc<StreamDefinition>],
) -> Result<ViewPlan> {
    let joined = split::take_apart(aggregate)?;
    let parsed = calls::parse(aggregate, &joined, streams, view.precision)?;
    let windowed = columns::windowed_columns::<PairRange>(view, top, aggregate, parsed.columns)?;
    let kind = edge_kind(&parsed.calls, &windowed.ranges);
    let edges = edges::Edges::for_join(&joined, &parsed.calls, &windowed.keys, kind)?;
    let below = streams_of(&aggregate.input, streams)?;
    let streams_of_sides = [streams_of_side(&joined.near, streams)?, streams_of_side(&joined.far, streams)?];
    let (edge_aggregate, edge_columns) = edges.columns(&windowed.ranges)?;
    let table = lower::state_table(session, &edge_aggregate, &edge_columns, streams, MAX_STATE_BYTES)?;
    let keys: Vec<FieldRef> = table.keys[edges.layout.groups.clone()].to_vec();
    let aggregates = edges.aggregates(&parsed.calls, session)?;
    let of_pairs = |usage: &CallUse| PairUse { aggregate: AggregateIndex(usage.state), range: usage.range.in_links() };
    let uses: Vec<PairUse> = windowed.uses.iter().map(of_pairs).collect();
    let value_types: Vec<DataType> = uses.iter().map(|usage| value_type(&aggregates[usage.aggregate.0], &table)).collect();
    let value_schema = lower::value_schema(&keys, windowed.ranges.len(), &value_types);
    let outputs = lower::lower_outputs(&windowed.outputs, &keys, &value_schema, session)?;
    let links = LinkPlan {
        keys,
        tables: [joined.near.table(), joined.far.table()],
        streams: streams_of_sides,
        layout: edges.layout.clone(),
        kind,
        max_degree: view.max_degree.map_or(MAX_DEGREE, |most| most as usize),
        conditions: edges.conditions.clone(),
        seen: edges.seen,
        edge_uses: edge_columns.uses,
        apart: (0..edges.apart).map(EndsIndex).collect(),
        ends: edges.ends.clone(),
        ranges: windowed.ranges,
        existence: windowed.existence.in_links(),
        aggregates,
        uses,
        value_schema,
    };
    // The edges' own keys hold more than the view's.
    let uuid_keys = uuids::of_keys(aggregate, streams);
    Ok(table.into_plan(view, below, outputs, uuid_keys, Answering::Linked(Arc::new(links))))
}

/// The time at which an edge was last seen is enough, unless a call counts events or a window has an upper edge.
fn edge_kind(calls: &[calls::LinkCall], ranges: &[PairRange]) -> EdgeKind {
    let upper_edge = |range: &PairRange| range.near.until.is_some() || range.far.until.is_some();
    let counts = calls.iter().any(|call| !call.is_over_ends());
    if counts || ranges.iter().any(upper_edge) { EdgeKind::Full } else { EdgeKind::Liveness }
}

/// Returns the names of the streams that a side reads.
fn streams_of_side(side: &split::JoinSide, streams: &[Arc<StreamDefinition>]) -> Result<Vec<Arc<str>>> {
    Ok(streams_of(&side.input, streams)?.iter().map(|stream| stream.name.clone()).collect())
}

/// Returns the type of an aggregate's values without their flaws.
fn value_type(aggregate: &LinkAggregate, table: &lower::StateTable) -> DataType {
    match &aggregate.input {
        AggregateInput::Ends { aggregate, .. } => {
            let whole = aggregate.field().data_type().clone();
            if judged::is_judged(&whole) { judged::value_type(&whole).cloned().unwrap_or(whole) } else { whole }
        }
        AggregateInput::States { state, .. } => table.states[state.0].value_type(),
    }
}

/// Returns the plan of edges without the events before `from`. Its first column is the side of the edge (true: far).
pub(super) fn edges_past(from: &EdgesFrom, edges: &LogicalPlan) -> Result<LogicalPlan> {
    if *from == EdgesFrom::default() {
        return Ok(edges.clone());
    }
    let is_far = Expr::Column(Column::from(edges.schema().qualified_field(0)));
    let time = || Expr::Column(Column::from_name(EVENT_TIME));
    let past = |edge: Option<Micros>| {
        edge.map_or(lit(true), |edge| time().gt_eq(lit(ScalarValue::TimestampMicrosecond(Some(edge), Some("UTC".into())))))
    };
    let kept = is_far.clone().and(past(from.far)).or(Expr::Not(Box::new(is_far)).and(past(from.near)));
    Ok(LogicalPlanBuilder::from(edges.clone()).filter(kept)?.build()?)
}

#[cfg(test)]
mod tests;
