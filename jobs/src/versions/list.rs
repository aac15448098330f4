//! The views of a catalog state: which version answers or is built, what it reads, and how its runs are made.

use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, DefinitionStatus};
use committed::building::BuildProgress;
use committed::registry::{LiveView, Registry};
use serde::Serialize;
use types::Strategy;
use types::tiles::Micros;

use crate::status::BuildingReport;

/// A version of a view that is served or being built. A view without an aggregate is inlined where it is used: nothing
/// of it is kept, built or run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedView {
    pub view: Arc<str>,
    pub version: u32,
    /// False for a view without an aggregate.
    pub keeps_states: bool,
    pub streams: Vec<Arc<str>>,
    pub status: DefinitionStatus,
    /// How far it is built, while it is.
    pub building: Option<BuildingReport>,
    pub strategy: Option<Strategy>,
    /// When it runs; `None` for runs on request.
    pub schedule: Option<String>,
}

impl ListedView {
    /// `served`, `building, 43 %, about 2 min`, `inlined`
    pub fn state(&self) -> String {
        match (&self.building, self.status) {
            _ if !self.keeps_states => "inlined".to_owned(),
            (Some(building), _) => format!("building, {}", building.text()),
            (None, DefinitionStatus::Building) => "building".to_owned(),
            (None, _) => "served".to_owned(),
        }
    }
}

/// Returns the views in the order of their names, of each the version that is served before the one that is being
/// built. Kept versions are left out.
pub(super) fn list_views(state: &CatalogState, registry: &Registry, now: Micros) -> Vec<ListedView> {
    let records = state.live(DefinitionKind::View).filter(|record| record.status != DefinitionStatus::Kept);
    let listed = records.map(|record| {
        let live = registry.view(&record.name, record.version);
        let is_building = record.status == DefinitionStatus::Building;
        ListedView {
            view: record.name.clone(),
            version: record.version,
            keeps_states: live.is_some(),
            streams: live.map(LiveView::streams).unwrap_or_default(),
            status: record.status,
            building: live.filter(|_| is_building).map(|live| BuildingReport::new(&BuildProgress::from_state(state, live, now), now)),
            strategy: live.map(|live| live.definition.strategy.unwrap_or_default()),
            schedule: live.and_then(|live| live.definition.schedule.as_ref()).map(ToString::to_string),
        }
    });
    let mut views: Vec<ListedView> = listed.collect();
    views.sort_by_key(|view| (view.view.clone(), view.status == DefinitionStatus::Building, view.version));
    views
}
