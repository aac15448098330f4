//! The views a worker keeps up: one Partial per live view version.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::prelude::SessionContext;
use schemas::Result;
use schemas::fresh::ViewVersion;
use schemas::plan::ViewPlan;
use schemas::registry::{LiveView, Registry};
use schemas::states::{KeyCodec, Partial, StateRows, merge_rows};

pub(crate) struct Views {
    kept: Vec<Kept>,
}

struct Kept {
    view: LiveView,
    partial: Partial,
}

impl Views {
    pub(crate) async fn new(registry: &Registry, session: &SessionContext) -> Result<Self> {
        let mut kept = Vec::with_capacity(registry.views.len());
        for view in &registry.views {
            kept.push(Kept { view: view.clone(), partial: Partial::new(view.plan.clone(), session).await? });
        }
        Ok(Self { kept })
    }

    /// The states that these events add, per view version; views that get none are left out.
    pub(crate) async fn states(&mut self, events: &BTreeMap<Arc<str>, Vec<RecordBatch>>) -> Result<BTreeMap<ViewVersion, Arc<StateRows>>> {
        let mut made = BTreeMap::new();
        for kept in &mut self.kept {
            let mut batches = Vec::new();
            for (stream, events) in events {
                batches.extend(kept.partial.states(stream, events).await?);
            }
            if !batches.is_empty() {
                let rows = merge_rows(&kept.view.plan, &kept.view.codec, &batches)?;
                made.insert((kept.view.name.clone(), kept.view.version), Arc::new(rows));
            }
        }
        Ok(made)
    }

    /// The live views that read one of these streams.
    pub(crate) fn reading<'a>(&'a self, streams: &'a [Arc<str>]) -> impl Iterator<Item = &'a LiveView> + 'a {
        self.kept.iter().map(|kept| &kept.view).filter(|view| view.plan.streams.iter().any(|stream| streams.contains(&stream.name)))
    }

    pub(crate) fn plans(&self) -> BTreeMap<ViewVersion, (Arc<ViewPlan>, Arc<KeyCodec>)> {
        let of = |kept: &Kept| ((kept.view.name.clone(), kept.view.version), (kept.view.plan.clone(), kept.view.codec.clone()));
        self.kept.iter().map(of).collect()
    }
}
