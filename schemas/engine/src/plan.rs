//! Plans a SELECT for all layers: an analysed SELECT becomes the states that are kept, the ranges they are merged over,
//! and the expressions over the merged values.
//!
//! ```text
//! events --prepare--> keys, tile, arguments --Partial--> states per (key, tile)
//!                                                          +--merge over ranges--> values --project--> row
//! ```
//!
//! DataFusion's analyser runs; its optimizer does not, because it would rewrite DISTINCT. See
//! `docs/internals/states.md`.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use crate::functions::{DirectMerge, Flaw, judged, peak_factor};
use crate::plan::covers::LastCovers;
use crate::plan::links::{EdgeKind, LinkPlan, PairRangeIndex};
use crate::plan::need::Need;
use crate::plan::tile_function::kept_tiles;
use definitions::durations::format_bytes;
use definitions::{OnError, StreamDefinition};
use types::Result;
use types::sql_types::sql_name;
use types::tiles::EdgesFrom;
use types::tiles::{Floors, Level, Micros, TimeRange};

mod analyse;
mod as_written;
mod brackets;
mod byte_texts;
mod casts;
mod columns;
mod computable;
mod covers;
mod decimal_texts;
mod decimals;
mod decimals_of_doubles;
mod distinct_sums;
mod doubles;
mod doubles_of_sets;
mod elements;
pub mod explain;
mod exponents;
mod extract;
mod hidden;
mod ignored;
mod interval_epochs;
mod intervals;
mod json_operators;
pub mod links;
mod lower;
mod named_zones;
mod need;
mod number_arrays;
mod one_input;
mod ordered_distinct;
mod overflow;
mod positions;
mod refuse;
mod rewrite;
mod scalar_subqueries;
mod select_place;
mod session;
mod session_zone;
mod skipped_rows;
#[cfg(test)]
mod testing;
pub(crate) mod tile_function;
mod typed_texts;
mod unions;
mod uuids;
mod within;
mod written;

pub use analyse::{Planned, Planner};
pub(crate) use analyse::{asks_for_time, with_other_unknown_names, with_position};
pub use brackets::{LACKS_BRACKETS, lacks_brackets};
pub use byte_texts::{BytesInHexadecimal, hexadecimal_bytes};
pub use computable::check_supported;
pub(crate) use computable::{check_expressions, simplified_events, simplify_or_keep, unstable_function};
pub(crate) use covers::Cover;
pub use decimals_of_doubles::DecimalsOfDoubles;
pub(crate) use hidden::{node_name, strip_casts};
pub use ignored::{ignored_clause, ignored_in_calls};
pub use interval_epochs::EpochsOfYears;
pub(crate) use links::check_on_types;
pub use named_zones::LocalTimesInNamedZones;
pub(crate) use need::AskedUses;
pub use overflow::IntegersDoNotWrap;
pub use positions::keep_numbered_keys;
pub use scalar_subqueries::ScalarSubqueriesMayBeNull;
pub(crate) use select_place::{SelectError, SelectPlace};
pub use session::{asking_session_builder, planning_session, query_session_builder, session_builder, session_config};
pub use session_zone::compute_in_zone;
pub use typed_texts::{TextType, TypedTextColumns};
pub(crate) use written::{ColumnNames, sql_of};

/// How one view is kept and answered. Everything here follows from the view's SELECT and its streams' definitions.
#[derive(Debug, Clone)]
pub struct ViewPlan {
    pub view: Arc<str>,
    /// The streams that the view reads, each once.
    pub streams: Vec<Arc<StreamDefinition>>,
    /// The group keys, named like the view's columns.
    pub keys: Vec<FieldRef>,
    /// The states kept per key and tile. The first is [`types::columns::EVENTS`].
    pub states: Vec<StateExpr>,
    /// The ranges that the states are merged over. The one at `existence` decides which keys have a row.
    pub ranges: Vec<TimeRange>,
    pub existence: RangeIndex,
    /// The view's columns, in the order of its SELECT.
    pub columns: Vec<OutputColumn>,
    /// How rows are computed from the states.
    pub answering: Answering,
    /// The levels of the view's tiles, finest first.
    pub levels: Vec<Level>,
    /// What happens to an event on which an expression fails.
    pub on_error: OnError,
    /// Identifies the format of the state rows; see [`crate::functions::state_stamp`].
    pub stamp: String,
    /// The stamp of the previous format, whose rows are read too ([`crate::states::conform`]).
    stamp_before: Option<String>,
    /// Maps events to keys, tile and arguments.
    pub(crate) prepare: LogicalPlan,
    /// Which of [`ViewPlan::answer_keys`] are UUIDs.
    uuid_keys: Vec<bool>,
    state_schema: SchemaRef,
    /// Built on first use.
    output_schema: OnceLock<SchemaRef>,
    /// What all columns need. Built on first use as well.
    need_of_all: OnceLock<Need>,
    last_covers: LastCovers,
}

/// How the rows of a view are computed from its states.
#[derive(Debug, Clone)]
pub enum Answering {
    /// GROUP BY over streams: the states of a key are merged over ranges.
    Grouped(MergedValues),
    /// A SELECT over a JOIN: the states are edges, which are walked.
    Linked(Arc<LinkPlan>),
}

/// The values that are merged for each key of a grouped view. Its columns are expressions over them.
#[derive(Debug, Clone)]
pub struct MergedValues {
    /// In the order of the columns of a row of merged values.
    pub uses: Vec<Use>,
    /// A row of merged values: the keys, [`types::columns::AS_OF`], the events per range, then one value per use.
    pub(crate) schema: SchemaRef,
}

/// One kept aggregate state.
#[derive(Debug, Clone)]
pub struct StateExpr {
    /// The aggregate as SQL, without `within`.
    pub sql: String,
    pub function: String,
    pub aggregate: Arc<AggregateFunctionExpr>,
    /// Whether the aggregate has an accumulator for many groups. Asking the aggregate takes longer than merging a row.
    pub(crate) has_groups: bool,
    /// How the state is merged where that needs no accumulator.
    pub(crate) direct: Option<DirectMerge>,
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    /// Whether its argument is the event time, unchanged.
    pub is_of_event_time: bool,
    /// The fields of this state in a state row.
    pub fields: Vec<FieldRef>,
    /// Whether the result may differ (slightly) with the order of merging.
    pub approximate: bool,
    /// The aggregate's value over no rows: one row of its type.
    pub nothing: ArrayRef,
    /// The greatest size of a state that collects values (`functions::limited`).
    pub limit_bytes: Option<u64>,
    /// Whether its values come with flaws (`functions::judged`).
    pub is_judged: bool,
    /// The types of its fields in the previous format, if they were different.
    types_before: Option<Vec<DataType>>,
}

impl StateExpr {
    /// The type of its values without their flaws.
    pub(crate) fn value_type(&self) -> DataType {
        let whole = self.aggregate.field().data_type().clone();
        match judged::value_type(&whole).filter(|_| self.is_judged) {
            Some(value) => value.clone(),
            None => whole,
        }
    }

    /// Explains why a value of this state could not be computed, and what to do.
    fn why(&self, flaw: Flaw) -> String {
        let sql = &self.sql;
        match flaw {
            Flaw::SumTooLarge => sum_too_large(sql, &self.value_type()),
            Flaw::StateTooLarge => {
                let limit = format_bytes(self.limit_bytes.unwrap_or_default());
                let instead = match self.function.as_str() {
                    "count" => "approx_distinct",
                    "median" => "approx_median",
                    "percentile_cont" => "approx_percentile_cont",
                    "array_agg" | "string_agg" => "last_n or top_k",
                    _ => "a shorter window or a finer key",
                };
                format!("{sql} keeps more than max_state_bytes = '{limit}' of this key: use {instead}, or raise max_state_bytes")
            }
        }
    }
}

fn sum_too_large(sql: &str, data_type: &DataType) -> String {
    format!("{sql} is past the range of {}: sum values that are cast to a DECIMAL of more digits, or to DOUBLE", sql_name(data_type))
}

/// A merged value: one state over one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Use {
    pub state: StateIndex,
    pub range: RangeIndex,
}

/// An index into [`ViewPlan::states`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateIndex(pub usize);

impl StateIndex {
    /// The state that every row has: the number of its events.
    pub const EVENTS: StateIndex = StateIndex(0);
}

/// An index into [`ViewPlan::ranges`], not into those of pairs ([`LinkPlan::ranges`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RangeIndex(pub usize);

/// An index into the uses that columns are computed from: [`MergedValues::uses`], or [`LinkPlan::uses`] for a linked
/// view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UseIndex(pub usize);

/// An index into the ranges that columns are computed over: [`ViewPlan::ranges`], or [`LinkPlan::ranges`] for a linked
/// view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnRangeIndex(pub usize);

impl ColumnRangeIndex {
    /// Returns the range of a grouped view.
    pub(crate) fn in_view(self) -> RangeIndex {
        RangeIndex(self.0)
    }

    /// Returns the range of a linked view.
    pub(crate) fn in_links(self) -> PairRangeIndex {
        PairRangeIndex(self.0)
    }
}

/// One column of the view.
#[derive(Debug, Clone)]
pub struct OutputColumn {
    pub field: FieldRef,
    pub kind: ColumnKind,
}

impl OutputColumn {
    /// The merged values that the column is computed from.
    pub fn uses(&self) -> &[UseIndex] {
        match &self.kind {
            ColumnKind::Key(_) => &[],
            ColumnKind::Value(value) => &value.uses,
        }
    }
}

/// Where the values of a column of an answer come from.
#[derive(Debug, Clone)]
pub enum ColumnKind {
    /// The group key at this index.
    Key(usize),
    /// An expression over merged values.
    Value(ValueColumn),
}

/// A column that is computed from merged values.
#[derive(Debug, Clone)]
pub struct ValueColumn {
    /// An expression over the value batch. It is evaluated only for rows with events in one of `ranges`, or for all
    /// rows if there are no ranges or the expression is a single merged value: over no events that is the aggregate's
    /// own value (0 for a count, else NULL).
    pub expr: Arc<dyn PhysicalExpr>,
    pub uses: Vec<UseIndex>,
    pub ranges: Vec<ColumnRangeIndex>,
    /// The expression as SQL, for `explain`.
    pub sql: String,
    /// The text of the window, for a column that was fanned out over windows.
    pub window: Option<String>,
    pub approximate: bool,
    /// Whether it is computed from [`types::columns::AS_OF`], so that it changes as time passes.
    pub reads_time: bool,
}

impl ViewPlan {
    /// Whether one of these columns is computed from the time of the answer.
    pub fn reads_time(&self, columns: &[usize]) -> bool {
        let kind = |column: &usize| self.columns.get(*column).map(|column| &column.kind);
        columns.iter().any(|column| matches!(kind(column), Some(ColumnKind::Value(value)) if value.reads_time))
    }

    /// The finest level, which is what the speed layer keeps.
    pub fn finest(&self) -> Level {
        self.levels[0]
    }

    /// Whether the view reads this stream.
    pub fn reads(&self, stream: &str) -> bool {
        self.streams.iter().any(|known| &*known.name == stream)
    }

    /// The schema of a state row: the keys, [`LEVEL`](types::columns::LEVEL) (UInt8), [`TILE`](types::columns::TILE)
    /// (the tile's start), then each state's fields.
    pub fn state_schema(&self) -> &SchemaRef {
        &self.state_schema
    }

    /// Whether state rows with this stamp can be read.
    pub fn reads_stamp(&self, stamp: &str) -> bool {
        self.stamp == stamp || self.stamp_before.as_deref() == Some(stamp)
    }

    /// Adds to the stamps something else that the rows depend on.
    fn add_to_stamps(&mut self, text: &str) {
        self.stamp.push_str(text);
        if let Some(before) = &mut self.stamp_before {
            before.push_str(text);
        }
    }

    /// Explains why this merged value could not be computed, and what to do.
    pub(crate) fn why(&self, usage: UseIndex, flaw: Flaw) -> String {
        let state = match &self.answering {
            Answering::Grouped(values) => values.uses.get(usage.0).map(|usage| self.state(usage.state)),
            Answering::Linked(links) => {
                let Some(aggregate) = links.uses.get(usage.0).map(|usage| links.aggregate(usage.aggregate)) else { return String::new() };
                let field = links.value_schema.field(links.keys.len() + 1 + links.ranges.len() + usage.0);
                return sum_too_large(&aggregate.sql, field.data_type());
            }
        };
        state.map_or_else(String::new, |state| state.why(flaw))
    }

    /// Returns a kept state.
    pub fn state(&self, index: StateIndex) -> &StateExpr {
        &self.states[index.0]
    }

    /// Returns a range of the states.
    pub fn range(&self, index: RangeIndex) -> &TimeRange {
        &self.ranges[index.0]
    }

    /// Returns which of the ranges that columns are computed over decides whether a key has a row.
    pub(crate) fn existence_of_rows(&self) -> ColumnRangeIndex {
        match &self.answering {
            Answering::Grouped(_) => ColumnRangeIndex(self.existence.0),
            Answering::Linked(links) => ColumnRangeIndex(links.existence.0),
        }
    }

    /// Returns the index of a state's first field in a state row.
    pub fn state_offset(&self, state: StateIndex) -> usize {
        self.keys.len() + 2 + self.states[..state.0].iter().map(|s| s.fields.len()).sum::<usize>()
    }

    /// Returns the indices of a state's fields in a state row.
    pub fn state_columns(&self, state: StateIndex) -> Range<usize> {
        let from = self.state_offset(state);
        from..from + self.state(state).fields.len()
    }

    /// For a grouped view, the values that are merged for each key.
    pub fn values(&self) -> Option<&MergedValues> {
        match &self.answering {
            Answering::Grouped(values) => Some(values),
            Answering::Linked(_) => None,
        }
    }

    /// The peak memory of a table of states while they are returned, as a multiple of what its aggregates report that
    /// they hold.
    pub fn peak_factor(&self) -> f64 {
        /// The factor for the keys, which are copied.
        const KEYS: f64 = 2.0;
        self.states.iter().map(|state| peak_factor(&state.aggregate)).fold(KEYS, f64::max)
    }

    /// For a view over a JOIN, how its edges are walked.
    pub fn links(&self) -> Option<&Arc<LinkPlan>> {
        match &self.answering {
            Answering::Grouped(_) => None,
            Answering::Linked(links) => Some(links),
        }
    }

    /// The same, if edges keep only when they were last seen ([`EdgeKind::Liveness`]).
    pub fn liveness_links(&self) -> Option<&Arc<LinkPlan>> {
        self.links().filter(|links| links.kind == EdgeKind::Liveness)
    }

    /// The keys by which rows are queried. The states of a linked view have other keys: those of its edges.
    pub fn answer_keys(&self) -> &[FieldRef] {
        self.links().map_or(&self.keys, |links| &links.keys)
    }

    /// Whether the texts of a key, by its index in [`ViewPlan::answer_keys`], are UUIDs.
    pub fn is_uuid(&self, key: usize) -> bool {
        self.uuid_keys.get(key).copied().unwrap_or(false)
    }

    /// The schema of the view's own columns.
    pub fn output_schema(&self) -> SchemaRef {
        self.output_schema.get_or_init(|| Arc::new(Schema::new(self.columns.iter().map(|c| c.field.clone()).collect::<Vec<_>>()))).clone()
    }

    /// Whether these are all columns, in their order.
    pub(crate) fn are_all(&self, columns: &[usize]) -> bool {
        columns.iter().copied().eq(0..self.columns.len())
    }

    /// Whether any of its columns counts over a limited time.
    pub fn has_windows(&self) -> bool {
        match self.links() {
            Some(links) => links.ranges.iter().any(|pair| pair.near != TimeRange::ALL || pair.far != TimeRange::ALL),
            None => self.ranges.iter().any(|range| *range != TimeRange::ALL),
        }
    }

    /// The windows of these columns (indices into [`ViewPlan::columns`]): their ranges except those of all time.
    pub fn windows(&self, columns: &[usize]) -> Vec<TimeRange> {
        let value = |column: &usize| match &self.columns.get(*column)?.kind {
            ColumnKind::Value(value) => Some(value),
            ColumnKind::Key(_) => None,
        };
        let mut windows = Vec::new();
        for range in columns.iter().filter_map(value).flat_map(|value| &value.ranges) {
            match self.links() {
                Some(links) => {
                    let pair = links.range(range.in_links());
                    windows.extend([pair.near, pair.far]);
                }
                None => windows.push(*self.range(range.in_view())),
            }
        }
        windows.retain(|range| range.window.is_some());
        windows
    }

    /// Returns how long after its event time an event of this stream can count in an answer for the present: the
    /// longest window over the stream, plus the hop by which the window's left edge may lie earlier. `None` means for
    /// ever.
    ///
    /// Edges that are kept by tile ([`EdgeKind::Full`]) count on both sides for as long as on the longer one.
    pub fn counts_for(&self, stream: &str) -> Option<Duration> {
        let stays: Vec<Option<Duration>> = match self.liveness_links() {
            Some(links) => links.ranges_over(stream).map(TimeRange::longest_stay).collect(),
            None => self.ranges.iter().map(TimeRange::longest_stay).collect(),
        };
        stays.into_iter().try_fold(Duration::ZERO, |longest, stay| stay.map(|stay| longest.max(stay)))
    }

    /// Returns the earliest time of this stream's events that count in an answer at `t`. `None`: all of them do.
    pub fn counts_from(&self, stream: &str, t: Micros) -> Option<Micros> {
        let starts: Vec<Option<Micros>> = match self.liveness_links() {
            Some(links) => links.ranges_over(stream).map(|range| range.at(t).from).collect(),
            None => self.ranges.iter().map(|range| range.at(t).from).collect(),
        };
        starts.into_iter().try_fold(t, |earliest, from| from.map(|from| earliest.min(from)))
    }

    /// Returns the plan for what is kept past these floors. Each event goes directly to the finest tile that is kept
    /// ([`finest_kept`](types::tiles::finest_kept)), where [`rollup`](crate::states::rollup) continues. Events of edges
    /// before `edges_from` are left out.
    pub fn kept_past(&self, floors: &[(Level, Option<Micros>)], edges_from: &EdgesFrom) -> Result<ViewPlan> {
        Ok(ViewPlan { prepare: links::edges_past(edges_from, &kept_tiles(&self.prepare, floors)?)?, ..self.clone() })
    }

    /// For a linked view, the times before which an event of either side cannot count at `t` or later
    /// ([`LinkPlan::edges_from`]).
    pub fn edges_from(&self, t: Micros) -> EdgesFrom {
        self.links().map_or_else(EdgesFrom::default, |links| links.edges_from(t))
    }

    /// Returns the event time before which no event of any stream can count at `t` or later. `None` if every event can.
    pub fn oldest_kept(&self, t: Micros) -> Option<Micros> {
        let EdgesFrom { near, far } = self.edges_from(t);
        self.oldest_tile(t).or(near.min(far))
    }

    /// Returns the start before which no tile of a state row can count at `t` or later. `None` if the tile excludes no
    /// row: the tile of all time begins at 0, and [`EdgeKind::Liveness`] has no other tiles.
    pub fn oldest_tile(&self, t: Micros) -> Option<Micros> {
        self.floors(t).into_iter().map(|(_, floor)| floor).min().flatten()
    }

    /// Returns, for each level, the tile start before which no row can be needed at `t` or later. `None` if all rows
    /// are kept.
    ///
    /// A level is needed from a window's left edge up to the start of the next coarser tile, and likewise below an
    /// `until`.
    pub fn floors(&self, t: Micros) -> Floors {
        self.levels.iter().enumerate().map(|(i, level)| (*level, self.floor_of(i, t))).collect()
    }

    /// Returns the floor of one level. `None` also if the view has no such level.
    pub fn floor(&self, level: Level, t: Micros) -> Option<Micros> {
        let index = self.levels.iter().position(|of| *of == level)?;
        self.floor_of(index, t)
    }

    fn floor_of(&self, index: usize, t: Micros) -> Option<Micros> {
        let level = self.levels[index];
        if level == Level::All {
            return None;
        }
        let coarser = self.levels.get(index + 1).copied().filter(|l| *l != Level::All);
        let mut floor = Micros::MAX;
        for range in self.ranges.iter().filter(|range| range.hop <= level) {
            let span = range.at(t);
            match (span.from, coarser) {
                (Some(from), _) => floor = floor.min(level.floor(from)),
                (None, None) => return None,
                (None, Some(_)) => {}
            }
            if let (Some(to), Some(coarser)) = (span.to, coarser) {
                floor = floor.min(coarser.floor(to));
            }
        }
        Some(floor)
    }
}
