//! Backtests: what a sink would have decided about archived events, each with the rows of views as it saw them when it
//! came.
//!
//! ```text
//! archive -- events of the range (unordered) --> keys that they ask for (scored_keys)
//! archive -- sort (order) --> events one after another --+-- states of events before (seen) --> rows of views
//!                                                        +------------------------------------ SELECT --> scored rows
//! ```
//!
//! The events of the sink's stream, and of the others that its views read, are read once, in the order in which they
//! became known; no event is a query of its own. Before that, the events of the range are read for their keys. The
//! sorts spill. The states of these keys, and all edges of linked views, are held in memory, under the limit of the
//! batch layer: a backtest that needs more ends with an error.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use catalog::CatalogState;
use committed::registry::{LiveSink, Registry};
use datafusion::execution::memory_pool::MemoryPool;
use definitions::Features;
use engine::plan::planning_session;
use engine::sinks::JoinedView;
use types::Result;
use types::columns::EVENT_TIME;
use types::tiles::Micros;

use crate::history::{
    Archived, CLOCK, Known, MergedChunk, MergedEvents, NEWEST, Order, PLACE, SeenStates, StreamEvents, WantedRows, micros, ordered,
    unordered,
};
use crate::layer::Batch;
use crate::memory::PeakPool;
use crate::session::open_session;

mod late;
mod plans;
mod scored;
mod scored_keys;

pub use late::ReceivedLate;
pub use plans::plan_of_sink;

use late::LateEvents;
use plans::{PlannedSink, ScoringPlans};
use scored::ScoredRecords;
use scored_keys::ScoredKeys;

/// For which time the windows of an event's rows are read, with [`Known::Log`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BacktestClock {
    /// When the log received the event.
    Wall,
    /// The greatest event time of the event's partition up to it.
    Event,
}

/// A sink over a range of event times.
#[derive(Debug)]
pub struct Backtest<'a> {
    pub registry: &'a Registry,
    pub sink: &'a LiveSink,
    /// An edited definition that scores the same events.
    pub changed: Option<ChangedSink<'a>>,
    /// The first event time that is scored.
    pub from: Micros,
    /// The first event time that is not.
    pub to: Micros,
    pub known: Known,
    pub clock: BacktestClock,
}

/// An edited definition of a sink, over the same stream.
#[derive(Debug, Clone, Copy)]
pub struct ChangedSink<'a> {
    /// The views that it joins. One with the version of a view of the other registry is that view.
    pub registry: &'a Registry,
    pub sink: &'a LiveSink,
    /// The column of both in which they decide.
    pub verdict: &'a str,
}

/// What became of a range of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backtested {
    /// The events that have a row.
    pub rows: u64,
    /// Of each view with windows that the sinks read.
    pub received_late: Vec<ReceivedLate>,
}

/// What a backtest does, with the number of events that it has read for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BacktestProgress {
    /// It finds the keys that the events of the range ask for.
    FindingKeys(u64),
    /// It computes what the events see, and scores those of the range.
    Scoring(u64),
}

/// What comes before the names of the changed sink's columns.
pub const CHANGED: &str = "_changed_";
/// The verdict of the sink, as text, where a changed definition scores too.
pub const VERDICT: &str = "_verdict";
pub const CHANGED_VERDICT: &str = "_verdict_changed";
/// In the place of a verdict: WHERE does not hold.
pub const NO_VERDICT: &str = "(none)";

/// Called with scored rows.
pub type OnRows<'a> = dyn FnMut(&RecordBatch) -> Result<()> + Send + 'a;

impl Backtest<'_> {
    /// The columns of scored rows: those of the sink, then `_partition`, `_offset`, `_event_time` and `_error`.
    ///
    /// With a changed definition, its columns follow those of the sink, each with [`CHANGED`] before its name, and at
    /// the end are its error, the verdict of the sink ([`VERDICT`]) and its own. A verdict is the text of the column,
    /// or [`NO_VERDICT`], `(error)` or `(null)`.
    pub fn output(&self) -> Result<SchemaRef> {
        Ok(self.plans()?.output())
    }

    fn plans(&self) -> Result<ScoringPlans<'_>> {
        let changed = self.changed.map(|changed| PlannedSink::new("changed", changed.registry, changed.sink)).transpose()?;
        let verdict = self.changed.map(|changed| changed.verdict);
        let plans = ScoringPlans { live: PlannedSink::new("live", self.registry, self.sink)?, changed, verdict };
        plans.check()?;
        Ok(plans)
    }

    fn event_order(&self) -> EventOrder {
        match self.known {
            Known::Log => EventOrder { order: Order::Arrived, by: CLOCK, before: None },
            Known::Event => EventOrder { order: Order::Dated, by: PLACE, before: Some(self.to) },
        }
    }

    /// Those of some events that are scored, in their order.
    fn in_range(&self, events: &RecordBatch) -> Result<Vec<u32>> {
        let range = self.from..self.to;
        let times = micros(events, EVENT_TIME)?.iter().enumerate();
        Ok(times.filter(|(_, time)| range.contains(*time)).map(|(event, _)| event as u32).collect())
    }

    /// The time for which each event's rows are read.
    fn times<'e>(&self, events: &'e RecordBatch) -> Result<&'e [Micros]> {
        micros(
            events,
            match (self.known, self.clock) {
                (Known::Event, _) => EVENT_TIME,
                (Known::Log, BacktestClock::Event) => NEWEST,
                (Known::Log, BacktestClock::Wall) => CLOCK,
            },
        )
    }

    /// The time before which no event's rows are read from this chunk on, if that is known.
    fn since(&self, chunk: &MergedChunk) -> Option<Micros> {
        match (self.known, self.clock) {
            // Partitions are ahead of one another.
            (Known::Log, BacktestClock::Event) => None,
            _ => chunk.times.first().copied(),
        }
    }
}

/// Which events pass, and how.
struct EventOrder {
    order: Order,
    /// The column of that order.
    by: &'static str,
    /// Those from this event time on do not pass.
    before: Option<Micros>,
}

impl Batch {
    /// Scores the events of a range, in the order in which they became known.
    ///
    /// Errors: `Input` for definitions that cannot be compared; `Unavailable` if the states of their views need more
    /// than the memory limit.
    pub async fn backtest(
        &self,
        state: &CatalogState,
        backtest: &Backtest<'_>,
        on_rows: &mut OnRows<'_>,
        on_progress: &(dyn Fn(BacktestProgress) + Sync),
    ) -> Result<Backtested> {
        let plans = backtest.plans()?;
        let pool = Arc::new(PeakPool::new(self.settings.memory_limit_bytes));
        let session = open_session(&self.settings, &self.storage, &self.functions, pool.clone())?;
        let archived = Archived { storage: &self.storage, state };
        let memory: Arc<dyn MemoryPool> = pool;
        let of_range = unordered(&session, archived, plans.stream(), backtest.from..backtest.to).await?;
        let ScoredKeys { keys, reserved: _keys_are_held } = ScoredKeys::find(backtest, &plans, &memory, of_range, on_progress).await?;
        let EventOrder { order, by, before } = backtest.event_order();
        let mut streams = Vec::new();
        for stream in plans.streams() {
            streams.push((stream.name.clone(), ordered(&session, archived, stream, order, None..before).await?));
        }
        let mut events = MergedEvents::new(by, streams);
        let mut seen = plans.states(&memory, keys, &planning_session(&self.functions)?)?;
        let position = state.vector().to_string();
        let mut late = LateEvents::new(plans.each().flat_map(|planned| &planned.plan.joins));
        let (mut read, mut scored) = (0, 0);
        loop {
            let chunk = events.next().await?;
            if chunk.times.is_empty() {
                return Ok(Backtested { rows: scored, received_late: late.counted() });
            }
            seen.add(&chunk.parts, backtest.since(&chunk)).await?;
            for part in chunk.parts.iter().filter(|part| part.stream == plans.stream().name) {
                let rows = score(backtest, &plans, &seen, &mut late, (part, position.as_str()))?;
                scored += rows.num_rows() as u64;
                if rows.num_rows() > 0 {
                    on_rows(&rows)?;
                }
            }
            read += chunk.times.len() as u64;
            on_progress(BacktestProgress::Scoring(read));
        }
    }
}

/// The rows of those events of a part that are in the range.
fn score(
    backtest: &Backtest<'_>,
    plans: &ScoringPlans<'_>,
    seen: &SeenStates,
    late: &mut LateEvents,
    (part, position): (&StreamEvents, &str),
) -> Result<RecordBatch> {
    let chosen = backtest.in_range(&part.events)?;
    if chosen.is_empty() {
        return Ok(RecordBatch::new_empty(plans.output()));
    }
    let all_times = backtest.times(&part.events)?;
    let times: Vec<Micros> = chosen.iter().map(|event| all_times[*event as usize]).collect();
    let places: Vec<u32> = chosen.iter().map(|event| part.places[*event as usize]).collect();
    let events = take_record_batch(&part.events, &UInt32Array::from(chosen))?;
    let chosen = Chosen { events, places, times, seen, position };
    let live = chosen.scored_by(&plans.live)?;
    let changed = plans.changed.as_ref().map(|changed| chosen.scored_by(changed)).transpose()?;
    let has_row = |event: &u32| live.is_of(*event) || changed.as_ref().is_some_and(|changed| changed.is_of(*event));
    let with_row: Vec<u32> = (0..chosen.events.num_rows() as u32).filter(has_row).collect();
    let own_times = micros(&chosen.events, EVENT_TIME)?;
    for event in &with_row {
        late.add(own_times[*event as usize], chosen.times[*event as usize]);
    }
    plans.rows(&chosen.events, &with_row, &live, changed.as_ref())
}

/// The events of a chunk that are scored.
struct Chosen<'a> {
    events: RecordBatch,
    /// The place of each in the chunk.
    places: Vec<u32>,
    /// The time for which each event's rows are read.
    times: Vec<Micros>,
    seen: &'a SeenStates,
    position: &'a str,
}

impl Chosen<'_> {
    fn scored_by(&self, planned: &PlannedSink<'_>) -> Result<ScoredRecords> {
        let PlannedSink { sink, plan, .. } = planned;
        let itself = u32::from(sink.definition.features == Features::Inclusive);
        let counted: Vec<u32> = self.places.iter().map(|event| event + itself).collect();
        let row = |join: &JoinedView| {
            let (keys, has_key) = join.keys(&plan.stream, &self.events)?;
            let asked = WantedRows { keys: &keys, has_key: &has_key, times: &self.times, counted: &counted };
            self.seen.rows(&planned.joined(join)?.view_version(), asked, &join.wanted)
        };
        let rows = plan.joins.iter().map(row).collect::<Result<Vec<_>>>()?;
        let as_of: ArrayRef = Arc::new(TimestampMicrosecondArray::from(self.times.clone()).with_timezone("UTC"));
        Ok(ScoredRecords::new(plan.records(&self.events, &rows, self.position, &as_of)?, self.events.num_rows()))
    }
}
