//! The rows of views as the events of a micro-batch see them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, TimestampMicrosecondArray};
use arrow::compute::concat_batches;
use committed::registry::{LiveSink, LiveView, Registry};
use datafusion::prelude::SessionContext;
use definitions::Features;
use engine::fresh::ViewVersion;
use engine::sinks::{JoinedView, SinkPlan};
use engine::states::{AddedStates, PerEventStates, SeenBy, StateRows, compact_by_eight, merge_sets};
use serving::{LoadedView, ReadView, rows_seen};
use types::tiles::Micros;
use types::{Error, Result};

/// The most events of a section, if its view is linked.
const MAX_LINKED_SECTION_EVENTS: usize = 512;

/// Some consecutive events of one partition.
pub(crate) struct Chunk<'a> {
    pub(crate) read_view: &'a ReadView,
    pub(crate) events: &'a RecordBatch,
    /// The time at which each event's rows are read.
    pub(crate) times: &'a [Micros],
}

impl Chunk<'_> {
    pub(crate) fn after(&self, first: usize) -> RecordBatch {
        self.events.slice(first, self.events.num_rows() - first)
    }

    pub(crate) fn times_array(&self, first: usize) -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from(self.times[first..].to_vec()).with_timezone("UTC"))
    }
}

/// The versions of the views that sinks join, each once.
pub(crate) fn joined_views<'p>(registry: &Registry, plans: impl IntoIterator<Item = &'p SinkPlan>) -> Result<Vec<ViewVersion>> {
    let names: BTreeSet<&Arc<str>> = plans.into_iter().flat_map(|plan| &plan.joins).map(|join| &join.plan.view).collect();
    let version = |name: &Arc<str>| {
        let live = registry.served(name).ok_or_else(|| Error::internal("a sink joins a view that is not served").with("view", name))?;
        Ok(live.view_version())
    };
    names.into_iter().map(version).collect()
}

/// Computes what the events of a partition's micro-batch add to each joined view, chunk by chunk.
#[derive(Default)]
pub(crate) struct FeatureReader {
    views: BTreeMap<ViewVersion, ViewFeatures>,
    /// Kept for each stream from one micro-batch to the next, because planning takes longer than computing.
    states: BTreeMap<(Arc<str>, ViewVersion), Option<PerEventStates>>,
    stream: Arc<str>,
}

struct ViewFeatures {
    live: LiveView,
    /// The states of the sections before the last one, in few parts.
    before: Vec<StateRows>,
    /// The sections of the current chunk.
    sections: Vec<Section>,
}

/// Consecutive events of a chunk: all of them, or a few if the view is linked, because each event walks over the edges
/// that the events before it in its section have added.
struct Section {
    /// Rows of the chunk.
    events: Range<usize>,
    /// The states of the sections before it.
    before: Vec<StateRows>,
    /// What each event adds. `None` if the view does not read the stream.
    added: Option<AddedStates>,
}

impl FeatureReader {
    /// Begins the micro-batch of a partition of this stream.
    pub(crate) fn begin(&mut self, registry: &Registry, views: &[ViewVersion], stream: &Arc<str>, session: &SessionContext) -> Result<()> {
        self.stream = stream.clone();
        self.views.clear();
        self.states.retain(|(of, version), _| of != stream || views.contains(version));
        for version in views {
            let live = registry.view(&version.name, version.version);
            let live = live.ok_or_else(|| Error::internal("a view of a sink is not live").with("view", &version.name))?.clone();
            if let Entry::Vacant(entry) = self.states.entry((stream.clone(), version.clone())) {
                entry.insert(PerEventStates::new(live.plan.clone(), live.codec.clone(), stream, session)?);
            }
            self.views.insert(version.clone(), ViewFeatures { live, before: Vec::new(), sections: Vec::new() });
        }
        Ok(())
    }

    /// Continues with the events of the next chunk.
    pub(crate) async fn add(&mut self, events: &RecordBatch) -> Result<()> {
        for (version, view) in &mut self.views {
            let states = self.states.get_mut(&(self.stream.clone(), version.clone())).and_then(Option::as_mut);
            view.add(events, states).await?;
        }
        Ok(())
    }

    /// The rows of each joined view, for the events of the current chunk from `first` on.
    pub(crate) fn rows(&self, sink: &LiveSink, plan: &SinkPlan, chunk: &Chunk<'_>, first: usize) -> Result<Vec<RecordBatch>> {
        let events = chunk.after(first);
        let inclusive = matches!(sink.definition.features, Features::Inclusive);
        plan.joins.iter().map(|join| self.rows_of(join, plan, chunk, (&events, first), inclusive)).collect()
    }

    /// Events count what comes before them, and themselves too if `inclusive`.
    fn rows_of(
        &self,
        join: &JoinedView,
        plan: &SinkPlan,
        chunk: &Chunk<'_>,
        (events, first): (&RecordBatch, usize),
        inclusive: bool,
    ) -> Result<RecordBatch> {
        let view = self.views.values().find(|view| view.live.name == join.plan.view);
        let view = view.ok_or_else(|| Error::internal("a view of a sink is not read").with("view", &join.plan.view))?;
        let (keys, has_key) = join.keys(&plan.stream, events)?;
        let loaded = chunk.read_view.view(&view.live.name)?;
        let read = JoinRead { chunk, loaded, join, first, keys, has_key, inclusive };
        let sections = view.sections.iter().filter(|section| section.events.end > first);
        let parts = sections.map(|section| read.section_rows(section)).collect::<Result<Vec<_>>>()?;
        let rows = match parts.as_slice() {
            [] => return Err(Error::internal("events of a sink are in no section").with("view", &join.plan.view)),
            [whole] => whole.clone(),
            [part, ..] => concat_batches(&part.schema(), &parts)?,
        };
        debug_assert!(rows.num_columns() == 0 || rows.num_rows() == read.has_key.len());
        Ok(rows)
    }
}

/// What is read of a view for the events of a chunk from `first` on.
struct JoinRead<'a> {
    chunk: &'a Chunk<'a>,
    loaded: &'a LoadedView,
    join: &'a JoinedView,
    first: usize,
    /// The key of each of these events, and whether it has one.
    keys: Vec<ArrayRef>,
    has_key: BooleanArray,
    inclusive: bool,
}

impl JoinRead<'_> {
    /// The rows for those of the events that are in this section.
    fn section_rows(&self, section: &Section) -> Result<RecordBatch> {
        let events = section.events.start.max(self.first)..section.events.end;
        let (at, count) = (events.start - self.first, events.len());
        let keys: Vec<ArrayRef> = self.keys.iter().map(|key| key.slice(at, count)).collect();
        let has_key = self.has_key.slice(at, count);
        let itself = u32::from(self.inclusive);
        let counted: Vec<u32> = events.clone().map(|event| (event - section.events.start) as u32 + itself).collect();
        let seen = SeenBy {
            keys: &keys,
            has_key: &has_key,
            t: &self.chunk.times[events],
            before: &section.before,
            added: section.added.as_ref(),
            counted: &counted,
            wanted: &self.join.wanted,
        };
        rows_seen(self.chunk.read_view, self.loaded, &seen)
    }
}

impl ViewFeatures {
    /// Continues with the events of the next chunk, section by section. `states` computes what they add.
    async fn add(&mut self, events: &RecordBatch, states: Option<&mut PerEventStates>) -> Result<()> {
        let rows = events.num_rows();
        let Some(states) = states else {
            self.sections = vec![Section { events: 0..rows, before: Vec::new(), added: None }];
            return Ok(());
        };
        let length = if self.live.plan.links().is_some() { MAX_LINKED_SECTION_EVENTS } else { rows.max(1) };
        self.fold_last_section()?;
        self.sections.clear();
        for from in (0..rows).step_by(length) {
            self.fold_last_section()?;
            let to = rows.min(from + length);
            let added = states.compute(&events.slice(from, to - from)).await?;
            self.sections.push(Section { events: from..to, before: self.before.clone(), added: Some(added) });
        }
        Ok(())
    }

    /// Counts what the last section adds among what is before the next one.
    fn fold_last_section(&mut self) -> Result<()> {
        let Some(added) = self.sections.last().and_then(|section| section.added.as_ref()) else { return Ok(()) };
        let (plan, codec) = (&self.live.plan, &self.live.codec);
        self.before.push(merge_sets(plan, codec, &[added.rows()])?);
        compact_by_eight(plan, codec, &mut self.before)
    }
}
