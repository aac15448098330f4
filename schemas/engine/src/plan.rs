//! Planning a SELECT into layers: one analysed SELECT becomes the states that are kept, the ranges they are merged over, and
//! the expressions that stand above the merged values.
//!
//! ```text
//! events --prepare--> keys, tile, arguments --Partial--> states per (key, tile) --merge over ranges--> values --project--> row
//! ```
//!
//! The analyser of DataFusion runs, its optimizer does not (it would rewrite DISTINCT); see `docs/internals/states.md`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use types::columns::{LEVEL, TILE};

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use crate::plan::tile_function::kept_tiles;
use definitions::StreamDefinition;
use types::Result;
use types::sql_types::timestamp_type;
use types::tiles::EdgesFrom;
use types::tiles::{Floors, Level, Micros, Range};

mod analyse;
mod columns;
mod doubles;
pub mod explain;
mod hidden;
pub mod links;
mod lower;
mod refuse;
mod session;
mod tile_function;
mod within;

pub use analyse::{Planned, Planner};
pub use links::LinkPlan;
pub use session::{asking_session_builder, planning_session, session_builder, session_config};

/// How one view is kept and answered. Everything here is fixed by the view's SELECT and its streams' definitions.
#[derive(Debug, Clone)]
pub struct ViewPlan {
    pub view: Arc<str>,
    /// The streams it reads, each once.
    pub streams: Vec<Arc<StreamDefinition>>,
    /// The group keys, under the names of the view's columns.
    pub keys: Vec<FieldRef>,
    /// What is kept per key and tile. The first is [`types::columns::EVENTS`].
    pub states: Vec<StateExpr>,
    /// What the states are merged over. The one at `existence` decides which keys have a row.
    pub ranges: Vec<Range>,
    pub existence: usize,
    /// The merged values that the columns need, in the order of the value batch.
    pub uses: Vec<Use>,
    /// The view's columns, in the order of its SELECT.
    pub columns: Vec<OutputColumn>,
    /// For a view over a JOIN: its states are edges, and this is how they are walked to answer it.
    pub links: Option<Arc<LinkPlan>>,
    /// The levels its tiles live on, finest first.
    pub ladder: Vec<Level>,
    /// Names the format of the state rows; see [`crate::functions::state_stamp`].
    pub stamp: String,
    /// Events to keys, tile and arguments.
    pub(crate) prepare: LogicalPlan,
    state_schema: SchemaRef,
    value_schema: SchemaRef,
    /// Made when it is first asked for.
    output_schema: OnceLock<SchemaRef>,
}

/// One kept aggregate state.
#[derive(Debug, Clone)]
pub struct StateExpr {
    /// The aggregate as SQL, without `within`.
    pub sql: String,
    pub function: String,
    pub aggregate: Arc<AggregateFunctionExpr>,
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    /// The fields its state takes in a state row.
    pub fields: Vec<FieldRef>,
    /// Merged in another order it may answer (slightly) other values.
    pub approximate: bool,
    /// The aggregate's value of no rows: one row of its type.
    pub nothing: ArrayRef,
}

/// A merged value: one state over one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Use {
    pub state: usize,
    pub range: usize,
}

/// One column of the view.
#[derive(Debug, Clone)]
pub struct OutputColumn {
    pub field: FieldRef,
    pub kind: ColumnKind,
}

impl OutputColumn {
    /// The merged values that it is made of: indices into [`ViewPlan::uses`], of a linked view into [`LinkPlan::uses`].
    pub fn uses(&self) -> &[usize] {
        match &self.kind {
            ColumnKind::Key(_) => &[],
            ColumnKind::Value(value) => &value.uses,
        }
    }
}

#[derive(Debug, Clone)]
pub enum ColumnKind {
    /// The group key of this index.
    Key(usize),
    /// An expression over merged values.
    Value(ValueColumn),
}

#[derive(Debug, Clone)]
pub struct ValueColumn {
    /// Over the value batch; evaluated only for rows with events in one of `ranges` (always, when there are none, and where it is
    /// one merged value alone).
    pub expr: Arc<dyn PhysicalExpr>,
    /// Indices into [`ViewPlan::uses`], of a linked view into [`LinkPlan::uses`].
    pub uses: Vec<usize>,
    /// Indices into [`ViewPlan::ranges`].
    pub ranges: Vec<usize>,
    /// A bare count: 0, not NULL, where there are no events.
    pub bare_count: bool,
    /// The expression as SQL, for `explain`.
    pub sql: String,
    /// The window's text, for a column that was fanned out.
    pub window: Option<String>,
    pub approximate: bool,
}

impl ViewPlan {
    /// The finest level: what the speed layer keeps.
    pub fn finest(&self) -> Level {
        self.ladder[0]
    }

    /// Whether the view's events come from this stream.
    pub fn reads(&self, stream: &str) -> bool {
        self.streams.iter().any(|known| &*known.name == stream)
    }

    /// A state row: the keys, [`LEVEL`] (UInt8), [`TILE`] (the tile's start), then each state's fields.
    pub fn state_schema(&self) -> &SchemaRef {
        &self.state_schema
    }

    /// The index of a state's first field in a state row.
    pub fn state_offset(&self, state: usize) -> usize {
        self.keys.len() + 2 + self.states[..state].iter().map(|s| s.fields.len()).sum::<usize>()
    }

    /// A row of merged values: the keys, [`types::columns::AS_OF`], the events per range, then one value per use.
    pub fn value_schema(&self) -> &SchemaRef {
        &self.value_schema
    }

    /// The keys that a row is asked for by. A linked view's states have others: those of its edges.
    pub fn answer_keys(&self) -> &[FieldRef] {
        self.links.as_ref().map_or(&self.keys, |links| &links.keys)
    }

    /// The view's own columns.
    pub fn output_schema(&self) -> SchemaRef {
        self.output_schema.get_or_init(|| Arc::new(Schema::new(self.columns.iter().map(|c| c.field.clone()).collect::<Vec<_>>()))).clone()
    }

    /// The longest window; `None` is all time.
    pub fn horizon(&self) -> Option<Duration> {
        self.ranges[self.existence].window
    }

    /// The plan of what is kept past these floors: its events go straight to the finest tile that is
    /// ([`finest_kept`](types::tiles::finest_kept)), for [`climb`](crate::states::climb) to go on from. Events of edges before
    /// `edges_from` are left out.
    pub fn kept_past(&self, floors: &[(Level, Option<Micros>)], edges_from: &EdgesFrom) -> Result<ViewPlan> {
        Ok(ViewPlan { prepare: links::edges_past(edges_from, &kept_tiles(&self.prepare, floors)?)?, ..self.clone() })
    }

    /// Of a linked view, before what its sides' events can count no more at `t` or later ([`LinkPlan::edges_from`]).
    pub fn edges_from(&self, t: Micros) -> EdgesFrom {
        self.links.as_ref().map_or_else(EdgesFrom::default, |links| links.edges_from(t))
    }

    /// The event time before which no event of any stream can count at `t` or later; `None`: all can.
    pub fn oldest_kept(&self, t: Micros) -> Option<Micros> {
        let of_tiles = self.floors(t).into_iter().map(|(_, floor)| floor).min().flatten();
        let EdgesFrom { near, far } = self.edges_from(t);
        of_tiles.or(near.min(far))
    }

    /// Per level, the tile start before which no row can be asked for any more at `t` or later; `None`: all are kept.
    ///
    /// A level is needed from a window's left edge up to the next coarser tile's start, and likewise below an `until`.
    pub fn floors(&self, t: Micros) -> Floors {
        self.ladder.iter().enumerate().map(|(i, level)| (*level, self.floor_of(i, t))).collect()
    }

    /// The same of one level; `None` also where the ladder has no such level.
    pub fn floor(&self, level: Level, t: Micros) -> Option<Micros> {
        let index = self.ladder.iter().position(|of| *of == level)?;
        self.floor_of(index, t)
    }

    fn floor_of(&self, index: usize, t: Micros) -> Option<Micros> {
        let level = self.ladder[index];
        if level == Level::All {
            return None;
        }
        let coarser = self.ladder.get(index + 1).copied().filter(|l| *l != Level::All);
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

/// The schema of a state row.
fn state_schema(keys: &[FieldRef], states: &[StateExpr]) -> SchemaRef {
    let hidden = [Arc::new(Field::new(LEVEL, DataType::UInt8, false)), Arc::new(Field::new(TILE, timestamp_type(), false))];
    let states = states.iter().flat_map(|state| state.fields.iter().cloned());
    Arc::new(Schema::new(keys.iter().cloned().chain(hidden).chain(states).collect::<Vec<_>>()))
}
