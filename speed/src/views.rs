//! The views that a worker computes states for: one Partial per live view version.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use committed::registry::{LiveView, Registry};
use datafusion::prelude::SessionContext;
use engine::fresh::ViewVersion;
use engine::plan::ViewPlan;
use engine::states::{KeyCodec, Partial, StateRows, merge_rows};
use tracing::warn;
use types::Result;

pub(crate) struct Views {
    kept: Vec<Kept>,
}

struct Kept {
    view: LiveView,
    partial: Partial,
    /// True if it failed on an event of the epoch.
    fails: bool,
}

impl Views {
    pub(crate) async fn new(registry: &Registry, session: &SessionContext) -> Result<Self> {
        let mut kept = Vec::with_capacity(registry.views.len());
        for view in &registry.views {
            kept.push(Kept { view: view.clone(), partial: Partial::new(view.plan.clone(), session).await?, fails: false });
        }
        Ok(Self { kept })
    }

    /// Returns the states that these events add, with an entry for each view version that reads one of the streams. A
    /// view whose expressions fail on an event (a division by zero, a text that is no number) gets no states until the
    /// next epoch; the other views continue.
    pub(crate) async fn states(&mut self, events: &BTreeMap<Arc<str>, Vec<RecordBatch>>) -> BTreeMap<ViewVersion, Arc<StateRows>> {
        let mut made = BTreeMap::new();
        for kept in self.kept.iter_mut().filter(|kept| !kept.fails && kept.reads_any(events)) {
            match kept.states(events).await {
                Ok(rows) => drop(made.insert((kept.view.name.clone(), kept.view.version), Arc::new(rows))),
                Err(error) => {
                    kept.fails = true;
                    warn!(view = %kept.view.name, version = kept.view.version, %error, "a view failed on an event; the others continue");
                    metrics::counter!("basestream_speed_view_failures_total", "view" => kept.view.name.to_string()).increment(1);
                }
            }
        }
        made
    }

    /// Begins a new epoch: views that failed in the last one are tried again.
    pub(crate) fn try_again(&mut self) {
        self.kept.iter_mut().for_each(|kept| kept.fails = false);
    }

    pub(crate) fn live(&self) -> Vec<LiveView> {
        self.kept.iter().map(|kept| kept.view.clone()).collect()
    }

    pub(crate) fn plans(&self) -> BTreeMap<ViewVersion, (Arc<ViewPlan>, Arc<KeyCodec>)> {
        let of = |kept: &Kept| ((kept.view.name.clone(), kept.view.version), (kept.view.plan.clone(), kept.view.codec.clone()));
        self.kept.iter().map(of).collect()
    }
}

impl Kept {
    fn reads_any(&self, events: &BTreeMap<Arc<str>, Vec<RecordBatch>>) -> bool {
        self.view.plan.streams.iter().any(|stream| events.contains_key(&stream.name))
    }

    async fn states(&mut self, events: &BTreeMap<Arc<str>, Vec<RecordBatch>>) -> Result<StateRows> {
        let mut batches = Vec::new();
        for (stream, events) in events.iter().filter(|(_, events)| !events.is_empty()) {
            batches.extend(self.partial.states(stream, events).await?);
        }
        merge_rows(&self.view.plan, &self.view.codec, &batches)
    }
}
