//! What one query is answered from: one read view and one time, for all views that it reads.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use committed::registry::LiveView;
use committed::retention::reaches_past_archive;
use definitions::StreamDefinition;
use engine::plan::ColumnKind;
use types::Result;
use types::tiles::Micros;

use crate::read_view::{LoadedView, ReadView, ReadViewId, ServingClock};
use crate::value_errors::{OnValueError, ValueErrors};

/// Why an answer is degraded that stands where an earlier one did.
const KEPT: &str = "uncommitted work was withdrawn and is being read again: the answer stays at the newest cut before that";

/// Cheap to clone; clones share what turns out to be estimated or could not be computed.
#[derive(Debug, Clone)]
pub(crate) struct QueryContext {
    pub(crate) read_view: Arc<ReadView>,
    /// The read view's identity, where it is known and none of the views needs the archive.
    pub(crate) read_view_id: Option<ReadViewId>,
    pub(crate) as_of: Option<Micros>,
    pub(crate) estimated: Arc<EstimatedColumns>,
    pub(crate) errors: Arc<ValueErrors>,
    /// True if none of its views needs the archive, which is found out once.
    is_from_layers: bool,
}

impl QueryContext {
    /// The context of a query of these views. If one of them must be computed from the archive, which holds what is
    /// committed, all of them are answered at the committed vector: an answer has one position.
    pub(crate) fn new(read_view: impl Into<Arc<ReadView>>, as_of: Option<Micros>, views: &[impl AsRef<str>]) -> Result<QueryContext> {
        let (estimated, errors) = (Arc::default(), Arc::default());
        let (read_view, read_view_id) = (read_view.into(), None);
        let context = QueryContext { read_view, read_view_id, as_of, estimated, errors, is_from_layers: false };
        let mut archive = false;
        for view in views {
            archive |= context.needs_archive(context.read_view.view(view.as_ref())?);
        }
        if !archive {
            return Ok(QueryContext { is_from_layers: !views.is_empty(), ..context });
        }
        Ok(QueryContext { read_view: Arc::new(context.read_view.committed()), ..context })
    }

    /// The same; `id` identifies the read view that it was made with.
    pub(crate) fn identified(self, id: ReadViewId) -> QueryContext {
        QueryContext { read_view_id: self.is_from_layers.then_some(id), ..self }
    }

    /// The same, with values that could not be computed treated like this.
    pub(crate) fn on_value_error(self, on_error: OnValueError) -> QueryContext {
        QueryContext { errors: Arc::new(ValueErrors::new(on_error)), ..self }
    }

    /// The time at which a view is answered.
    pub(crate) fn t(&self, view: &LiveView) -> Micros {
        self.as_of.unwrap_or_else(|| self.read_view.t_of(view))
    }

    /// The time of a query that asks no view.
    pub(crate) fn t_without_view(&self) -> Micros {
        let read_view = &self.read_view;
        self.as_of.unwrap_or_else(|| match read_view.clock {
            ServingClock::Wall => read_view.now,
            ServingClock::Event => read_view.loaded.state.partitions.values().filter_map(|p| p.max_event_time).max().unwrap_or_default(),
        })
    }

    /// Also without `as_of`, when the snapshot was made for a later time (by another clock).
    pub(crate) fn needs_archive(&self, view: &LoadedView) -> bool {
        if self.is_from_layers {
            return false;
        }
        match self.as_of {
            Some(t) => !view.answers_at(t, self.read_view.max_event_time(&view.live)),
            None => !view.keeps(self.t(&view.live)),
        }
    }

    /// The streams of which an answer of this view may lack events, because it reaches past their archive.
    pub(crate) fn past_retention<'a>(&'a self, view: &'a LoadedView) -> impl Iterator<Item = &'a Arc<str>> + 'a {
        let (read_view, t) = (&self.read_view, self.t(&view.live));
        let reaches_past = move |stream: &StreamDefinition| {
            let now = match read_view.clock {
                ServingClock::Wall => Some(read_view.now),
                ServingClock::Event => read_view.newest_event(|name| *name == *stream.name),
            };
            now.is_some_and(|now| reaches_past_archive(&read_view.loaded.registry, &view.live, stream, t, now))
        };
        view.live.plan.streams.iter().filter(move |stream| reaches_past(stream)).map(|stream| &stream.name)
    }

    /// Returns why an answer of these views is degraded, if it is: it is made without a published snapshot, or it is as
    /// old as one before it.
    pub(crate) fn degraded<'a>(&self, views: impl IntoIterator<Item = &'a LoadedView>) -> Option<String> {
        if self.read_view.is_kept {
            return Some(KEPT.into());
        }
        let lacking = views.into_iter().find(|view| self.lacks_snapshot(view))?;
        Some(format!("the snapshot of the view \"{}\" is damaged or of another format: the answer is made without it", lacking.live.name))
    }

    /// True when the published snapshot cannot be read (it is damaged, or of another format): the answer is made
    /// without it.
    fn lacks_snapshot(&self, view: &LoadedView) -> bool {
        let published = self.read_view.loaded.state.snapshot(&view.live.name, view.live.version);
        published.is_some_and(|published| view.snapshot.as_ref().is_none_or(|copy| copy.manifest.run != published.run))
    }

    /// Waits until all of a view's snapshot is copied.
    pub(crate) async fn fetch_all(&self, view: &str) -> Result<()> {
        match self.read_view.view(view)?.copying() {
            Some(copy) => copy.fetch_all().await,
            None => Ok(()),
        }
    }
}

/// The columns that turned out to be estimates while an answer was made: a node had more neighbours than are followed.
#[derive(Debug, Default)]
pub(crate) struct EstimatedColumns(Mutex<BTreeSet<String>>);

impl EstimatedColumns {
    /// Notes the values among these columns of a view.
    pub(crate) fn note(&self, view: &LiveView, columns: &[usize]) {
        let values = columns.iter().map(|column| &view.plan.columns[*column]).filter(|column| matches!(column.kind, ColumnKind::Value(_)));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(values.map(|column| column.field.name().clone()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The names noted so far.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
