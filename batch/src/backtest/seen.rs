//! The rows of views as events see them: the states of all events before, and of those of the same chunk.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::RecordBatch;
use committed::registry::{LiveView, Registry};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use engine::sinks::{JoinedView, SinkPlan};
use engine::states::{AddedStates, PerEventStates, Pieces, Seen, SeenEvent, StateRows, answer_seen, merge_all, merge_small_parts};
use types::tiles::Micros;
use types::{Error, Result};

/// The states of the views that a sink joins.
pub(super) struct SeenStates {
    views: BTreeMap<Arc<str>, SeenView>,
    reserved: MemoryReservation,
}

struct SeenView {
    live: LiveView,
    states: PerEventStates,
    /// The states of the chunks before the present one, in few parts.
    before: Vec<StateRows>,
    /// Of the present chunk.
    added: Option<AddedStates>,
}

impl SeenStates {
    pub(super) fn new(registry: &Registry, plan: &SinkPlan, session: &SessionContext, pool: Arc<dyn MemoryPool>) -> Result<Self> {
        let mut views = BTreeMap::new();
        for name in plan.joins.iter().map(|join| &join.plan.view) {
            let missing = || Error::internal("a sink joins a view that is not served").with("view", name);
            let live = registry.served(name).ok_or_else(missing)?.clone();
            let states = PerEventStates::new(live.plan.clone(), live.codec.clone(), &plan.stream.name, session)?.ok_or_else(missing)?;
            views.insert(name.clone(), SeenView { live, states, before: Vec::new(), added: None });
        }
        Ok(Self { views, reserved: MemoryConsumer::new("states of a backtest").register(&pool) })
    }

    /// Goes on to the next events. Errors: `Unavailable` if the states need more than the memory limit.
    pub(super) async fn add(&mut self, events: &RecordBatch) -> Result<()> {
        let mut bytes = 0;
        for view in self.views.values_mut() {
            if let Some(added) = view.added.take()
                && !added.is_empty()
            {
                view.before.push(merge_all(&view.live.plan, &view.live.codec, &[added.rows()])?);
                merge_small_parts(&view.live.plan, &view.live.codec, &mut view.before)?;
            }
            view.added = Some(view.states.of(events).await?);
            bytes += view.bytes();
        }
        self.reserved.try_resize(bytes).map_err(|error| {
            Error::unavailable(format!("the states of the sink's views need {bytes} bytes, more than the memory limit leaves"))
                .with("setting", "batch.memory_limit")
                .with("help", "a backtest holds the states of all keys: raise the limit")
                .caused_by(Error::from(error))
        })
    }

    /// The row of a joined view for each of some events of the present chunk. `counted`: how many events of the chunk each
    /// of them counts.
    pub(super) fn rows(
        &self,
        join: &JoinedView,
        stream: &StreamDefinition,
        events: &RecordBatch,
        times: &[Micros],
        counted: &[u32],
    ) -> Result<RecordBatch> {
        let view = self.views.get(&join.plan.view).ok_or_else(|| Error::internal("a view of a sink is not read"))?;
        let (columns, has_key) = join.keys(stream, events)?;
        let encoded = view.live.codec.encode(&columns, events.num_rows())?;
        let (mut keys, mut known, mut before) = (Vec::new(), HashMap::new(), Pieces::default());
        let mut seen = Vec::with_capacity(times.len());
        for (event, key) in encoded.iter().flatten().enumerate() {
            // An event without a key sees nothing: its key is one of its own, which nothing is found for.
            let has_key = has_key.value(event);
            let index = *known.entry((has_key, key)).or_insert_with(|| {
                let index = keys.len() as u32;
                keys.push(key);
                if has_key {
                    view.before.iter().for_each(|rows| before.add_fresh(rows.batch(), rows.find(key), index));
                }
                index
            });
            seen.push(SeenEvent { key: index, counted: if has_key { counted[event] } else { 0 }, t: times[event] });
        }
        let seen = Seen { keys: &keys, before: &before, added: view.added.as_ref(), events: &seen };
        answer_seen(&view.live.plan, &view.live.codec, &seen, &join.wanted)
    }
}

impl SeenView {
    fn bytes(&self) -> usize {
        let added = self.added.iter().map(AddedStates::rows);
        self.before.iter().chain(added).map(|rows| rows.batch().get_array_memory_size()).sum()
    }
}
