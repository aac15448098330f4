//! The definitions of sinks that score events: the streams and views that they read, and the rows that they produce.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use committed::registry::{LiveSink, LiveView, Registry};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use engine::fresh::ViewVersion;
use engine::sinks::{JoinedView, SinkPlan};
use types::columns::{EVENT_TIME, OFFSET, PARTITION};
use types::sql_types::timestamp_type;
use types::{Error, Result};

use super::portion::Portion;
use super::scored::ScoredRecords;
use super::{CHANGED, CHANGED_VERDICT, VERDICT};
use crate::history::{SeenStates, WantedKeys, each_once};

/// The columns with the place of a scored event, in addition to those of the sink.
const PLACE: [(&str, &str); 3] = [("_partition", PARTITION), ("_offset", OFFSET), ("_event_time", EVENT_TIME)];
/// The column that says why the SELECT failed on an event; the event's other columns are then NULL.
const ERROR: &str = "_error";
const CHANGED_ERROR: &str = "_error_changed";

pub(super) const HELP: &str =
    "all edges of linked views are held in memory, and of the keys of other views one of 64 parts at a time: raise the limit";

/// The definitions that score.
pub(super) struct ScoringPlans<'a> {
    pub(super) live: PlannedSink<'a>,
    pub(super) changed: Option<PlannedSink<'a>>,
    /// If there are two definitions: the column in which both put their decision.
    pub(super) verdict: Option<&'a str>,
}

/// A definition of a sink, planned.
pub(super) struct PlannedSink<'a> {
    registry: &'a Registry,
    pub(super) sink: &'a LiveSink,
    pub(super) plan: Arc<SinkPlan>,
}

impl<'a> PlannedSink<'a> {
    pub(super) fn new(which: &str, registry: &'a Registry, sink: &'a LiveSink) -> Result<PlannedSink<'a>> {
        Ok(PlannedSink { registry, sink, plan: plan_of_sink(which, sink)? })
    }

    /// The view that it joins.
    pub(super) fn joined(&self, join: &JoinedView) -> Result<&'a LiveView> {
        let live = self.registry.served(&join.plan.view);
        live.ok_or_else(|| Error::internal("a sink joins a view that is not served").with("view", &join.plan.view))
    }
}

/// Returns the plan by which a definition makes its records. `which` names the definition in errors, if there are two.
///
/// Errors: `Input` if it cannot be planned.
pub fn plan_of_sink(which: &str, sink: &LiveSink) -> Result<Arc<SinkPlan>> {
    sink.plan.clone().map_err(|found| Error::input(format!("the {which} sink \"{}\" cannot be planned: {found}", sink.name)))
}

impl<'a> ScoringPlans<'a> {
    pub(super) fn stream(&self) -> &Arc<StreamDefinition> {
        &self.live.plan.stream
    }

    fn each(&self) -> impl Iterator<Item = &PlannedSink<'a>> {
        std::iter::once(&self.live).chain(&self.changed)
    }

    /// Each view that a definition joins, with the definition.
    pub(super) fn joins(&self) -> impl Iterator<Item = (&PlannedSink<'a>, &JoinedView)> {
        self.each().flat_map(|planned| planned.plan.joins.iter().map(move |join| (planned, join)))
    }

    /// Refuses definitions that cannot be compared.
    pub(super) fn check(&self) -> Result<()> {
        let (Some(changed), Some(verdict)) = (&self.changed, self.verdict) else { return Ok(()) };
        let (name, stream) = (&changed.sink.name, &changed.plan.stream.name);
        if *stream != self.stream().name {
            return Err(Error::input(format!("the changed sink \"{name}\" reads the stream \"{stream}\""))
                .with("expected", format!("FROM {}, as the sink that is live", self.stream().name)));
        }
        for (which, plan) in [("live", &self.live.plan), ("changed", &changed.plan)] {
            if plan.output.column_with_name(verdict).is_none() {
                return Err(
                    Error::input(format!("the {which} sink \"{name}\" has no column \"{verdict}\"")).with("columns", plan.column_names())
                );
            }
        }
        Ok(())
    }

    /// The views that the definitions join.
    pub(super) fn views(&self) -> Result<BTreeMap<ViewVersion, &'a LiveView>> {
        let mut views = BTreeMap::new();
        for (planned, join) in self.joins() {
            let live = planned.joined(join)?;
            views.insert(live.view_version(), live);
        }
        Ok(views)
    }

    /// Whether a view is read by its keys alone, without links.
    pub(super) fn has_keys(&self) -> Result<bool> {
        Ok(self.views()?.values().any(|live| live.plan.links().is_none()))
    }

    /// Returns empty states of a portion's views, from before the first event. For a view with keys in `asked`, only
    /// the states of these keys are kept.
    pub(super) fn states(
        &self,
        portion: Portion,
        memory: &Arc<dyn MemoryPool>,
        mut asked: BTreeMap<ViewVersion, WantedKeys>,
        planning: &SessionContext,
    ) -> Result<SeenStates> {
        let mut seen = SeenStates::new(memory, HELP);
        for (view, live) in self.views()?.into_iter().filter(|(_, live)| portion.has_view(live)) {
            seen.add_view(live, &live.streams(), asked.remove(&view), planning)?;
        }
        Ok(seen)
    }

    /// The streams whose events count, that of the sink first.
    pub(super) fn streams(&self) -> Vec<&Arc<StreamDefinition>> {
        let joined = self.joins().flat_map(|(_, join)| &join.plan.streams);
        each_once(std::iter::once(self.stream()).chain(joined))
    }

    /// The rows of these events, with the columns of [`ScoringPlans::output`].
    pub(super) fn rows(
        &self,
        events: &RecordBatch,
        with_row: &[u32],
        live: &ScoredRecords,
        changed: Option<&ScoredRecords>,
    ) -> Result<RecordBatch> {
        let mut columns = live.columns(with_row)?;
        if let Some(changed) = changed {
            columns.extend(changed.columns(with_row)?);
        }
        let places = UInt32Array::from(with_row.to_vec());
        for (_, name) in PLACE {
            let column = events.column_by_name(name).ok_or_else(|| Error::internal(format!("events lack {name}")))?;
            columns.push(take(column, &places, None)?);
        }
        columns.push(Arc::new(live.errors(with_row)));
        if let (Some(changed), Some(verdict)) = (changed, self.verdict) {
            columns.push(Arc::new(changed.errors(with_row)));
            for scored in [live, changed] {
                columns.push(Arc::new(scored.verdicts(with_row, verdict)?));
            }
        }
        Ok(RecordBatch::try_new(self.output(), columns)?)
    }

    /// The columns of the sinks, NULL where their SELECTs fail, and the places of the events.
    pub(super) fn output(&self) -> SchemaRef {
        let of_live = self.live.plan.output.fields().iter().map(|field| (field.name().clone(), field.data_type().clone()));
        let changed = self.changed.iter().flat_map(|changed| changed.plan.output.fields());
        let of_changed = changed.map(|field| (format!("{CHANGED}{}", field.name()), field.data_type().clone()));
        let mut fields: Vec<Field> = of_live.chain(of_changed).map(|(name, data_type)| Field::new(name, data_type, true)).collect();
        let types = [DataType::Int32, DataType::Int64, timestamp_type()];
        fields.extend(PLACE.iter().zip(types).map(|((name, _), data_type)| Field::new(*name, data_type, false)));
        fields.push(Field::new(ERROR, DataType::Utf8, true));
        if self.changed.is_some() {
            fields.push(Field::new(CHANGED_ERROR, DataType::Utf8, true));
            fields.extend([VERDICT, CHANGED_VERDICT].map(|name| Field::new(name, DataType::Utf8, false)));
        }
        Arc::new(Schema::new(fields))
    }
}
