//! The rows of views as the events of a micro-batch see them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, TimestampMicrosecondArray};
use committed::registry::{LiveSink, LiveView, Registry};
use datafusion::prelude::SessionContext;
use definitions::Features;
use engine::fresh::ViewVersion;
use engine::sinks::{JoinedView, SinkPlan};
use engine::states::{AddedStates, PerEventStates, SeenBy, StateRows, merge_all, merge_similar_parts};
use serving::{ReadView, rows_seen};
use types::tiles::Micros;
use types::{Error, Result};

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
    /// The states of the chunks before the current one, in few parts.
    before: Vec<StateRows>,
    /// The states of the current chunk.
    added: Option<AddedStates>,
}

impl FeatureReader {
    /// Begins the micro-batch of a partition of this stream.
    pub(crate) fn begin(&mut self, registry: &Registry, views: &[ViewVersion], stream: &Arc<str>, session: &SessionContext) -> Result<()> {
        self.stream = stream.clone();
        self.views.clear();
        self.states.retain(|(of, version), _| of != stream || views.contains(version));
        for version in views {
            let live = registry.view(&version.0, version.1);
            let live = live.ok_or_else(|| Error::internal("a view of a sink is not live").with("view", &version.0))?.clone();
            if let Entry::Vacant(entry) = self.states.entry((stream.clone(), version.clone())) {
                entry.insert(PerEventStates::new(live.plan.clone(), live.codec.clone(), stream, session)?);
            }
            self.views.insert(version.clone(), ViewFeatures { live, before: Vec::new(), added: None });
        }
        Ok(())
    }

    /// Continues with the events of the next chunk.
    pub(crate) async fn add(&mut self, events: &RecordBatch) -> Result<()> {
        for (version, view) in &mut self.views {
            let Some(Some(states)) = self.states.get_mut(&(self.stream.clone(), version.clone())) else { continue };
            if let Some(added) = view.added.take() {
                view.before.push(merge_all(&view.live.plan, &view.live.codec, &[added.rows()])?);
                merge_similar_parts(&view.live.plan, &view.live.codec, &mut view.before)?;
            }
            view.added = Some(states.compute(events).await?);
        }
        Ok(())
    }

    /// The rows of each joined view, for the events of the current chunk from `first` on.
    pub(crate) fn rows(&self, sink: &LiveSink, plan: &SinkPlan, chunk: &Chunk<'_>, first: usize) -> Result<Vec<RecordBatch>> {
        let events = chunk.after(first);
        let itself = match sink.definition.features {
            Features::Inclusive => 1,
            Features::Exclusive => 0,
        };
        let counted: Vec<u32> = (first..chunk.events.num_rows()).map(|event| event as u32 + itself).collect();
        plan.joins.iter().map(|join| self.rows_of(join, plan, chunk, (&events, first), &counted)).collect()
    }

    fn rows_of(
        &self,
        join: &JoinedView,
        plan: &SinkPlan,
        chunk: &Chunk<'_>,
        (events, first): (&RecordBatch, usize),
        counted: &[u32],
    ) -> Result<RecordBatch> {
        let view = self.views.values().find(|view| view.live.name == join.plan.view);
        let view = view.ok_or_else(|| Error::internal("a view of a sink is not read").with("view", &join.plan.view))?;
        let (keys, has_key): (Vec<ArrayRef>, BooleanArray) = join.keys(&plan.stream, events)?;
        let loaded = chunk.read_view.view(&view.live.name)?;
        let seen = SeenBy {
            keys: &keys,
            has_key: &has_key,
            t: &chunk.times[first..],
            before: &view.before,
            added: view.added.as_ref(),
            counted,
            wanted: &join.wanted,
        };
        let rows = rows_seen(chunk.read_view, loaded, &seen)?;
        debug_assert!(rows.num_columns() == 0 || rows.num_rows() == has_key.len());
        Ok(rows)
    }
}
