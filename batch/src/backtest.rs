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
//! batch layer. Where they do not fit, the events go to files, and are read again for each `portion` of the keys.
//!
//! In reading order:
//!
//! - `plans`: the definitions that score; `context`: what all passes share.
//! - `at_once`: one `pass`, in which events are `chosen`, see their rows, and are scored (`scoring`, `scored`, `late`).
//! - `in_portions`: a pass for each portion, its rows in files (`batch_file`), and scoring at the end.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use catalog::CatalogState;
use committed::registry::{LiveSink, Registry};
use types::Result;
use types::columns::EVENT_TIME;
use types::tiles::Micros;

use crate::history::{CLOCK, Known, MergedChunk, NEWEST, Order, PLACE, micros};
use crate::layer::Batch;

mod at_once;
mod batch_file;
mod chosen;
mod context;
mod in_portions;
mod late;
mod pass;
mod plans;
mod portion;
mod scored;
mod scored_keys;
mod scoring;

pub use late::ReceivedLate;
pub use plans::plan_of_sink;

use at_once::score_at_once;
use context::BacktestContext;
use in_portions::score_in_portions;
use plans::{PlannedSink, ScoringPlans};
use portion::PortionError;
use scoring::Scoring;

/// The time for which the windows of an event's rows are read, with [`Known::Log`].
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
    /// The views that it joins. A view with the same version in both registries is the same view.
    pub registry: &'a Registry,
    pub sink: &'a LiveSink,
    /// The column in which both definitions put their decision.
    pub verdict: &'a str,
}

/// The result of scoring a range of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backtested {
    /// The events that have a row.
    pub rows: u64,
    /// One for each view with windows that the sinks read.
    pub received_late: Vec<ReceivedLate>,
}

/// The step of a backtest, with the number of events that it has read in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BacktestProgress {
    /// It finds the keys that the events of the range ask for.
    FindingKeys(u64),
    /// It scores the events of the range.
    Scoring(u64),
    /// The states of all keys do not fit into memory: it sorts the events into files.
    Sorting(u64),
    /// It computes from these files what the events see of a part of the keys.
    ReadingPart { part: u64, parts: u64, events: u64 },
}

/// The prefix of the names of the changed sink's columns.
pub const CHANGED: &str = "_changed_";
/// The verdict of the sink, as text, where a changed definition scores too.
pub const VERDICT: &str = "_verdict";
pub const CHANGED_VERDICT: &str = "_verdict_changed";
/// Replaces a verdict for an event for which WHERE does not hold.
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

    /// Returns those of some events that are scored, in their order.
    fn in_range(&self, events: &RecordBatch) -> Result<Vec<u32>> {
        let range = self.from..self.to;
        let times = micros(events, EVENT_TIME)?.iter().enumerate();
        Ok(times.filter(|(_, time)| range.contains(*time)).map(|(event, _)| event as u32).collect())
    }

    /// Returns the time for which each event's rows are read.
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

    /// Returns the time before which no event's rows are read from this chunk on, if that is known.
    fn since(&self, chunk: &MergedChunk) -> Option<Micros> {
        match (self.known, self.clock) {
            // Partitions are ahead of one another.
            (Known::Log, BacktestClock::Event) => None,
            _ => chunk.times.first().copied(),
        }
    }
}

/// The events that pass, and their order.
struct EventOrder {
    order: Order,
    /// The column by which they are ordered.
    by: &'static str,
    /// Events from this event time on do not pass.
    before: Option<Micros>,
}

impl Batch {
    /// Scores the events of a range, in the order in which they became known.
    ///
    /// Errors: `Input` for definitions that cannot be compared; `Unavailable` if the edges of linked views need more
    /// than the memory limit, or the states of the smallest part of the keys.
    pub async fn backtest(
        &self,
        state: &CatalogState,
        backtest: &Backtest<'_>,
        on_rows: &mut OnRows<'_>,
        on_progress: &(dyn Fn(BacktestProgress) + Sync),
    ) -> Result<Backtested> {
        let plans = backtest.plans()?;
        let mut scoring = Scoring::new(&plans, state.vector().to_string(), on_rows);
        let open = || BacktestContext::open(self, state, (backtest, &plans), on_progress);
        let at_once = score_at_once(&open()?, &mut scoring).await;
        match at_once {
            Ok(()) => {}
            Err(PortionError::Exceeds(_)) if plans.has_keys()? => score_in_portions(&open()?, &mut scoring).await?,
            Err(PortionError::Exceeds(error) | PortionError::Failed(error)) => return Err(error),
        }
        Ok(scoring.finish())
    }
}
