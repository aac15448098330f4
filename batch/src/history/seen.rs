//! The rows of views at each moment, from the states of all earlier events and of the events of the current chunk.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use committed::registry::LiveView;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::prelude::SessionContext;
use definitions::OnError;
use engine::fresh::ViewVersion;
use engine::states::{AddedStates, PerEventStates, SeenBy, StateRows, compact_pairwise, keep_from, merge_sets, rows_seen};
use engine::walk::{LinkedView, NoEdges};
use types::failures::Failure;
use types::tiles::Micros;
use types::{Error, Result};

use super::{StreamEvents, WantedKeys};

/// The states of some views.
pub(crate) struct SeenStates {
    views: BTreeMap<ViewVersion, SeenView>,
    reserved: MemoryReservation,
    /// The help text for the error if the states do not fit.
    help: &'static str,
}

struct SeenView {
    live: LiveView,
    /// The state computation for each stream that counts.
    states: Vec<(Arc<str>, PerEventStates)>,
    /// The keys whose rows are asked for; `None`: of every key.
    wanted: Option<WantedKeys>,
    /// The states of the chunks before the present one, in few parts.
    before: Vec<StateRows>,
    /// How many rows these had after tiles that no window reaches any more were last dropped.
    kept: usize,
    /// The states that the present chunk adds.
    added: Option<AddedStates>,
}

/// The rows of a view that are asked for, each by a key and at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedRows<'a> {
    pub(crate) keys: &'a [ArrayRef],
    /// A row without a key sees nothing.
    pub(crate) has_key: &'a BooleanArray,
    pub(crate) times: &'a [Micros],
    /// How many events of the present chunk each row counts.
    pub(crate) counted: &'a [u32],
}

impl SeenStates {
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>, help: &'static str) -> Self {
        Self { views: BTreeMap::new(), reserved: MemoryConsumer::new("states of views").register(pool), help }
    }

    /// Adds a view that reads some of these streams, before the first events come. The events of its other streams do
    /// not count.
    pub(crate) fn add_view(
        &mut self,
        live: &LiveView,
        streams: &[Arc<str>],
        wanted: Option<WantedKeys>,
        session: &SessionContext,
    ) -> Result<()> {
        let mut states = Vec::new();
        for stream in streams {
            if let Some(of_stream) = PerEventStates::new(live.plan.clone(), live.codec.clone(), stream, session)? {
                states.push((stream.clone(), of_stream));
            }
        }
        let view = SeenView { live: live.clone(), states, wanted, before: Vec::new(), kept: 0, added: None };
        self.views.insert(live.view_version(), view);
        Ok(())
    }

    /// Moves on to the next events. No row is asked for at a time before `since` any more; `None` if that is unknown.
    /// Afterwards the caller [reserves](SeenStates::reserve) the memory of the states.
    pub(crate) async fn add(&mut self, events: &[StreamEvents], since: Option<Micros>) -> Result<()> {
        for view in self.views.values_mut() {
            view.add(events, since).await?;
        }
        Ok(())
    }

    /// Reserves memory for the present states.
    ///
    /// Errors: `Unavailable` if they need more than the memory limit.
    pub(crate) fn reserve(&self) -> Result<()> {
        let bytes: usize = self.views.values().map(SeenView::bytes).sum();
        let reserved = self.reserved.try_resize(bytes).map_err(Error::from);
        reserved.map_err(|error| self.exceed(format!("need {bytes} bytes, more than the memory limit leaves"), error))
    }

    /// Wraps an error of sorting the events, for which the states leave too little memory.
    pub(crate) fn leave_no_room(&self, error: Error) -> Error {
        self.exceed("leave too little of the memory limit to sort the events".to_owned(), error)
    }

    fn exceed(&self, what: String, error: Error) -> Error {
        Error::unavailable(format!("the states of the views {what}"))
            .with("setting", "batch.memory_limit")
            .with("help", self.help)
            .caused_by(error)
    }

    /// Returns the rows that are asked for, with the columns `wanted` (indices into the plan's).
    pub(crate) fn rows(&self, view: &ViewVersion, asked: WantedRows<'_>, wanted: &[usize]) -> Result<RecordBatch> {
        let view = self.views.get(view).ok_or_else(|| Error::internal("a view is not read").with("view", &view.name))?;
        let (plan, codec) = (&view.live.plan, &view.live.codec);
        let WantedRows { keys, has_key, times, counted } = asked;
        let by = SeenBy { keys, has_key, t: times, before: &view.before, added: view.added.as_ref(), counted, wanted };
        match plan.links() {
            None => rows_seen((plan, codec), &codec.encode(keys, times.len())?, &by, &mut |_, _| Ok(())),
            Some(links) => LinkedView { plan, codec, links }.rows_seen(&NoEdges, &by),
        }
    }
}

impl SeenView {
    async fn add(&mut self, events: &[StreamEvents], since: Option<Micros>) -> Result<()> {
        let (plan, codec) = (&self.live.plan, &self.live.codec);
        if let Some(added) = self.added.take()
            && !added.is_empty()
        {
            self.before.push(merge_sets(plan, codec, &[added.rows()])?);
            compact_pairwise(plan, codec, &mut self.before)?;
        }
        self.drop_old(since)?;
        let (plan, codec) = (&self.live.plan, &self.live.codec);
        let (mut of_parts, mut failure) = (Vec::new(), None);
        for part in events {
            let Some((_, states)) = self.states.iter_mut().find(|(stream, _)| *stream == part.stream) else { continue };
            let mut added = states.compute_reporting(&part.events, &mut |failed| failure = failure.take().or(Some(failed))).await?;
            if let Some(wanted) = &self.wanted {
                added = added.of_keys(|key| wanted.contains(key))?;
            }
            of_parts.push((added, part.places.as_slice()));
        }
        if let Some(failure) = failure.filter(|_| plan.on_error == OnError::Refuse) {
            return Err(refused(&self.live, failure));
        }
        self.added = match of_parts.len() {
            0 => None,
            1 if events.len() == 1 => of_parts.pop().map(|(added, _)| added),
            _ => Some(AddedStates::together(plan, codec, &of_parts)?),
        };
        Ok(())
    }

    /// Drops the tiles that no window reaches at `since` or later, whenever the rows have doubled. Rows without tiles
    /// stay: those of all time, and of edges of which only the last time is kept.
    fn drop_old(&mut self, since: Option<Micros>) -> Result<()> {
        let Some(from) = since.and_then(|since| self.live.plan.oldest_tile(since)) else { return Ok(()) };
        let rows = |parts: &[StateRows]| parts.iter().map(StateRows::len).sum::<usize>();
        if rows(&self.before) > 2 * self.kept {
            self.before = self.before.iter().map(|part| keep_from(part, Some(from))).collect::<Result<_>>()?;
            self.before.retain(|part| !part.is_empty());
            self.kept = rows(&self.before);
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        let added = self.added.iter().map(AddedStates::rows);
        self.before.iter().chain(added).map(StateRows::memory_bytes).sum()
    }
}

fn refused(live: &LiveView, failure: Failure) -> Error {
    Error::input(format!("the view \"{}\" has on_error = 'refuse' and fails on an event: {}", live.name, failure.reason))
        .with("partition", failure.partition)
        .with("offset", failure.offset)
}
