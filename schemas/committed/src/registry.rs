//! The registry: the catalog's definitions, parsed and planned. Every process works from the catalog, not from its
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus};
use definitions::{AlertDefinition, Definitions, SinkDefinition, StreamDefinition, ViewDefinition, parse};
use engine::alerts::AlertPlan;
use engine::fresh::ViewVersion;
use engine::functions::Functions;
use engine::plan::links::LinkPlan;
use engine::plan::{Planned, Planner, ViewPlan};
use engine::sinks::{SinkPlan, Sources, stream_of};
use engine::states::KeyCodec;
use engine::walk::{EdgeLayers, Walk};
use types::suggest::nearest;
use types::tiles::Micros;
use types::{Error, Result};

/// A live view version: served, being built or kept.
#[derive(Debug, Clone)]
pub struct LiveView {
    pub name: Arc<str>,
    pub version: u32,
    pub status: DefinitionStatus,
    pub definition: Arc<ViewDefinition>,
    pub plan: Arc<ViewPlan>,
    pub codec: Arc<KeyCodec>,
}

impl LiveView {
    /// Returns the streams that the view reads.
    pub fn streams(&self) -> Vec<Arc<str>> {
        self.plan.streams.iter().map(|stream| stream.name.clone()).collect()
    }

    /// Returns a walk over this linked view's edges at `t`.
    pub fn walk<'a>(&'a self, links: &'a LinkPlan, edges: &'a dyn EdgeLayers, t: Micros) -> Walk<'a> {
        Walk::new(&self.plan, &self.codec, links, edges, t)
    }
}

/// A stream as it is currently decoded.
#[derive(Debug, Clone)]
pub struct LiveStream {
    pub version: u32,
    pub definition: Arc<StreamDefinition>,
}

/// A sink, and how its records are made.
#[derive(Debug, Clone)]
pub struct LiveSink {
    pub name: Arc<str>,
    pub version: u32,
    pub definition: Arc<SinkDefinition>,
    /// The stream after FROM, if the text says it plainly: known also where the sink cannot be planned.
    pub reads: Option<Arc<str>>,
    /// The mistakes, where it cannot be planned any more: a view that it joins was changed or dropped.
    pub plan: Result<Arc<SinkPlan>, Arc<str>>,
}

/// An alert, and how the rows that satisfy it are found.
#[derive(Debug, Clone)]
pub struct LiveAlert {
    pub name: Arc<str>,
    pub version: u32,
    pub definition: Arc<AlertDefinition>,
    /// The mistakes, where it cannot be planned any more: the view that it watches was changed or dropped.
    pub plan: Result<Arc<AlertPlan>, Arc<str>>,
}

/// The live definitions of one catalog state, planned.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    pub streams: BTreeMap<Arc<str>, LiveStream>,
    /// Views that keep states: served versions, those being built and those kept.
    pub views: Vec<LiveView>,
    pub sinks: Vec<LiveSink>,
    pub alerts: Vec<LiveAlert>,
    /// The definitions behind this registry, so that a reader knows when to reload.
    records: Vec<DefinitionRecord>,
}

impl Registry {
    /// Parses and plans the live definitions of a catalog state.
    pub async fn load(state: &CatalogState, functions: &Functions) -> Result<Registry> {
        let mut streams = BTreeMap::new();
        for record in state.live(DefinitionKind::Stream) {
            let definition = Arc::new(parse::parse_stream(&record.sql).map_err(|error| stored(record, &error))?);
            streams.insert(record.name.clone(), LiveStream { version: record.version, definition });
        }
        let records: Vec<&DefinitionRecord> = state.live(DefinitionKind::View).collect();
        let definitions =
            records.iter().map(|r| parse::parse_view(&r.sql).map_err(|error| stored(r, &error))).collect::<Result<Vec<_>>>()?;
        let mut views = Vec::new();
        for (record, definition) in records.iter().zip(&definitions) {
            // The views that this view can use: the newest live version of each.
            let others = records.iter().zip(&definitions).filter(|(r, _)| r.name != record.name).map(|(_, d)| d.clone());
            let project = Definitions {
                streams: streams.values().map(|stream: &LiveStream| (*stream.definition).clone()).collect(),
                views: others.chain([definition.clone()]).collect(),
                ..Definitions::default()
            };
            let planned = Planner::new(&project, functions.clone()).plan(definition).await;
            let Planned::Kept(plan) = planned.map_err(|found| {
                Error::input(format!("a stored definition no longer plans: {found}"))
                    .with("view", &record.name)
                    .with("version", record.version)
            })?
            else {
                continue;
            };
            let codec = Arc::new(KeyCodec::for_plan(&plan)?);
            let view = LiveView {
                name: record.name.clone(),
                version: record.version,
                status: record.status,
                definition: Arc::new(definition.clone()),
                plan,
                codec,
            };
            views.push(view);
        }
        let mut registry = Registry { streams, views, sinks: Vec::new(), alerts: Vec::new(), records: live(state).cloned().collect() };
        for record in state.live(DefinitionKind::Sink) {
            let definition = Arc::new(parse::parse_sink(&record.sql).map_err(|error| stored(record, &error))?);
            let plan = registry.plan_sink(&definition, functions).await;
            let reads = stream_of(&definition.select).map(Arc::from);
            registry.sinks.push(LiveSink { name: record.name.clone(), version: record.version, definition, reads, plan });
        }
        for record in state.live(DefinitionKind::Alert) {
            let definition = Arc::new(parse::parse_alert(&record.sql).map_err(|error| stored(record, &error))?);
            let plan = registry.plan_alert(&definition, functions).await;
            registry.alerts.push(LiveAlert { name: record.name.clone(), version: record.version, definition, plan });
        }
        Ok(registry)
    }

    /// Plans an alert over the served versions of the views.
    async fn plan_alert(&self, alert: &AlertDefinition, functions: &Functions) -> Result<Arc<AlertPlan>, Arc<str>> {
        let planned = AlertPlan::new(alert, functions, &self.served_plans()).await;
        planned.map(Arc::new).map_err(|found| found.to_string().into())
    }

    fn served_plans(&self) -> Vec<Arc<ViewPlan>> {
        let names: BTreeSet<&str> = self.views.iter().map(|view| &*view.name).collect();
        names.into_iter().filter_map(|name| Some(self.served(name)?.plan.clone())).collect()
    }

    /// Plans a sink over the streams and the served versions of the views.
    async fn plan_sink(&self, sink: &SinkDefinition, functions: &Functions) -> Result<Arc<SinkPlan>, Arc<str>> {
        let streams: Vec<_> = self.streams.values().map(|stream| stream.definition.clone()).collect();
        let views = self.served_plans();
        let planned = SinkPlan::new(sink, functions, Sources { streams: &streams, views: &views }).await;
        planned.map(Arc::new).map_err(|found| found.to_string().into())
    }

    /// Returns a sink that cannot be planned over what is served here, and why.
    pub async fn broken_sink(&self, functions: &Functions) -> Option<(Arc<str>, Arc<str>)> {
        for sink in &self.sinks {
            if let Err(found) = self.plan_sink(&sink.definition, functions).await {
                return Some((sink.name.clone(), found));
            }
        }
        None
    }

    /// Returns an alert that cannot be planned over what is served here, and why.
    pub async fn broken_alert(&self, functions: &Functions) -> Option<(Arc<str>, Arc<str>)> {
        for alert in &self.alerts {
            if let Err(found) = self.plan_alert(&alert.definition, functions).await {
                return Some((alert.name.clone(), found));
            }
        }
        None
    }

    /// True if a catalog state has other live definitions than this registry: other versions, or another text of one,
    /// whose options changed in place.
    pub fn is_stale(&self, state: &CatalogState) -> bool {
        !live(state).eq(&self.records)
    }

    /// Returns the version of a view that is served: the active one, or the one being built if there is no other.
    pub fn served(&self, name: &str) -> Option<&LiveView> {
        let of_name = || self.views.iter().filter(|view| &*view.name == name);
        of_name().find(|view| view.status == DefinitionStatus::Active).or_else(|| self.building(name))
    }

    /// Returns the version of a view that is being built.
    pub fn building(&self, name: &str) -> Option<&LiveView> {
        let building = self.views.iter().filter(|view| &*view.name == name && view.status == DefinitionStatus::Building);
        building.max_by_key(|view| view.version)
    }

    /// Returns the registry as it would be if this version of a view were served.
    pub fn serving(&self, name: &str, version: u32) -> Registry {
        let mut registry = self.clone();
        for view in registry.views.iter_mut().filter(|view| &*view.name == name) {
            view.status = match view.status {
                _ if view.version == version => DefinitionStatus::Active,
                DefinitionStatus::Active => DefinitionStatus::Kept,
                status => status,
            };
        }
        registry
    }

    pub fn view(&self, name: &str, version: u32) -> Option<&LiveView> {
        self.views.iter().find(|view| &*view.name == name && view.version == version)
    }

    /// Returns plans and codecs by view version.
    pub fn plans(&self) -> BTreeMap<ViewVersion, (Arc<ViewPlan>, Arc<KeyCodec>)> {
        self.views.iter().map(|view| ((view.name.clone(), view.version), (view.plan.clone(), view.codec.clone()))).collect()
    }
}

/// Returns the error for a name that no view has. It says so if the name is a stream's.
pub fn no_view<'a>(name: &str, views: impl IntoIterator<Item = &'a str>, streams: impl IntoIterator<Item = &'a str>) -> Error {
    let views: BTreeSet<&str> = views.into_iter().collect();
    let near = nearest(name, views.iter().copied()).map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default();
    let listed = match views.is_empty() {
        true => "no view is defined yet".to_owned(),
        false => format!("expected one of {}", views.into_iter().collect::<Vec<_>>().join(", ")),
    };
    match streams.into_iter().any(|stream| stream == name) {
        true => Error::not_found(format!("\"{name}\" is a stream, and this is about views: {listed}"))
            .with("help", format!("SQL reads its events: SELECT .. FROM {name}")),
        false => Error::not_found(format!("there is no view \"{name}\": {near}{listed}")),
    }
}

fn live(state: &CatalogState) -> impl Iterator<Item = &DefinitionRecord> {
    DefinitionKind::ALL.into_iter().flat_map(|kind| state.live(kind))
}

fn stored(record: &DefinitionRecord, error: &Error) -> Error {
    Error::corrupt(format!("the catalog's definition does not parse: {}", error.message()))
        .with("name", &record.name)
        .with("version", record.version)
}

#[cfg(test)]
mod tests;
