//! The views that a worker computes states for: one Partial per live view version.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use committed::registry::{LiveView, Registry};
use datafusion::prelude::SessionContext;
use engine::fresh::ViewVersion;
use engine::plan::ViewPlan;
use engine::states::{KeyCodec, Partial, StateRows, sort_and_merge};
use tracing::warn;
use types::Result;
use types::failures::Failures;

pub(crate) struct Views {
    maintained: Vec<MaintainedView>,
}

/// The states that the views compute from some events.
#[derive(Default)]
pub(crate) struct Computed {
    pub(crate) states: BTreeMap<ViewVersion, Arc<StateRows>>,
    pub(crate) failures: BTreeMap<ViewVersion, Arc<Failures>>,
}

impl Computed {
    fn add(&mut self, view: &LiveView, rows: StateRows, failures: Failures) {
        let version = view.view_version();
        if !failures.is_empty() {
            self.failures.insert(version.clone(), Arc::new(failures));
        }
        self.states.insert(version, Arc::new(rows));
    }
}

struct MaintainedView {
    view: LiveView,
    partial: Partial,
    /// True if the view could not be computed for an event of the epoch.
    fails: bool,
    /// Whether failing events of the epoch were reported.
    is_reported: bool,
}

impl Views {
    /// A view that cannot be computed at all gets no states, and the others continue.
    pub(crate) fn new(registry: &Registry, session: &SessionContext) -> Self {
        let mut maintained = Vec::with_capacity(registry.views.len());
        for view in &registry.views {
            match Partial::new(view.plan.clone(), session) {
                Ok(partial) => maintained.push(MaintainedView { view: view.clone(), partial, fails: false, is_reported: false }),
                Err(error) => {
                    warn!(view = %view.name, version = view.version, %error, "a view cannot be computed; the others continue");
                    metrics::counter!("basestream_speed_view_failures_total", "view" => view.name.to_string()).increment(1);
                }
            }
        }
        Self { maintained }
    }

    /// Returns the states that these events add, with an entry for each view version that reads one of the streams, and
    /// the events on which a view fails (a division by zero, a text that is no number). A view that cannot be computed,
    /// as with `on_error = 'refuse'`, gets no states until the next epoch; the other views continue.
    pub(crate) async fn states(&mut self, events: &BTreeMap<Arc<str>, Vec<RecordBatch>>) -> Computed {
        let mut made = Computed::default();
        for maintained in self.maintained.iter_mut().filter(|maintained| !maintained.fails && maintained.reads_any(events)) {
            match maintained.states(events).await {
                Ok(rows) => {
                    let failures = maintained.partial.take_failures();
                    maintained.report(&failures);
                    made.add(&maintained.view, rows, failures);
                }
                Err(error) => {
                    maintained.fails = true;
                    maintained.partial.take_failures();
                    let view = &maintained.view;
                    warn!(view = %view.name, version = view.version, %error, "a view failed on an event; the others continue");
                    metrics::counter!("basestream_speed_view_failures_total", "view" => view.name.to_string()).increment(1);
                }
            }
        }
        made
    }

    /// Begins a new epoch: views that failed in the last one are tried again, and failing events reported again.
    pub(crate) fn try_again(&mut self) {
        for maintained in &mut self.maintained {
            (maintained.fails, maintained.is_reported) = (false, false);
        }
    }

    pub(crate) fn live(&self) -> Vec<LiveView> {
        self.maintained.iter().map(|maintained| maintained.view.clone()).collect()
    }

    /// Each version, with the format of its states.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = (ViewVersion, Arc<str>)> {
        self.maintained.iter().map(|maintained| (maintained.view.view_version(), maintained.view.plan.stamp.as_str().into()))
    }

    pub(crate) fn plans(&self) -> BTreeMap<ViewVersion, (Arc<ViewPlan>, Arc<KeyCodec>)> {
        let plan_of =
            |maintained: &MaintainedView| (maintained.view.view_version(), (maintained.view.plan.clone(), maintained.view.codec.clone()));
        self.maintained.iter().map(plan_of).collect()
    }
}

impl MaintainedView {
    fn report(&mut self, failures: &Failures) {
        let Some(first) = failures.listed().next() else { return };
        let (view, count) = (&*self.view.name, failures.count());
        metrics::counter!("basestream_speed_failed_events_total", "view" => view.to_owned()).increment(count);
        if !std::mem::replace(&mut self.is_reported, true) {
            warn!(view, version = self.view.version, count, %first, "a view fails on events, which are left out of it");
        }
    }

    fn reads_any(&self, events: &BTreeMap<Arc<str>, Vec<RecordBatch>>) -> bool {
        self.view.plan.streams.iter().any(|stream| events.contains_key(&stream.name))
    }

    async fn states(&mut self, events: &BTreeMap<Arc<str>, Vec<RecordBatch>>) -> Result<StateRows> {
        let mut batches = Vec::new();
        for (stream, events) in events.iter().filter(|(_, events)| !events.is_empty()) {
            batches.extend(self.partial.states(stream, events).await?);
        }
        sort_and_merge(&self.view.plan, &self.view.codec, &batches)
    }
}
