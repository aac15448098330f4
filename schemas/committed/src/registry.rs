//! The registry: the catalog's definitions, parsed and planned. Every process works from the catalog, not from its
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::ArrayRef;
use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus, ParameterRecord, PauseRecord};
use definitions::{AlertDefinition, Definitions, Diagnostics, SinkDefinition, StreamDefinition, ViewDefinition, parse};
use engine::alerts::AlertPlan;
use engine::fresh::ViewVersion;
use engine::functions::Functions;
use engine::parameters::{Parameter, Parameters};
use engine::plan::links::LinkPlan;
use engine::plan::{Planned, Planner, ViewPlan};
use engine::sinks::{SinkPlan, Sources, stream_of};
use engine::states::KeyCodec;
use engine::walk::{EdgeLayers, Walk};
use types::tiles::Micros;
use types::{Error, Result};

use crate::names::{DefinedName, no_view};

/// The version of a view that is not applied.
const UNAPPLIED: u32 = 0;

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
    /// Returns the name and the version of the view.
    pub fn view_version(&self) -> ViewVersion {
        ViewVersion::new(self.name.clone(), self.version)
    }

    /// Returns the streams that the view reads.
    pub fn streams(&self) -> Vec<Arc<str>> {
        self.plan.streams.iter().map(|stream| stream.name.clone()).collect()
    }

    /// Returns the key columns that encoded keys of its rows stand for. Those of a linked view are the prefixes of
    /// their near edges.
    pub fn decoded_keys(&self, keys: &[&[u8]]) -> Result<Vec<ArrayRef>> {
        match self.plan.links() {
            Some(_) => self.codec.nodes()?.groups_of(keys),
            None => self.codec.decode(keys.iter().copied()),
        }
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
    /// Since when it puts nothing out because a user paused it.
    pub paused_since: Option<Micros>,
}

impl LiveSink {
    /// How its records are made.
    ///
    /// Errors: `Unavailable` if a view that it joins was changed or dropped, with the mistakes.
    pub fn planned(&self) -> Result<&Arc<SinkPlan>> {
        self.plan.as_ref().map_err(|found| {
            Error::unavailable(format!("the sink \"{}\" cannot be planned any more: {found}", self.name))
                .with("help", "change the sink or the view that it joins, and run `basestream apply`")
        })
    }
}

/// An alert, and how the rows that satisfy it are found.
#[derive(Debug, Clone)]
pub struct LiveAlert {
    pub name: Arc<str>,
    pub version: u32,
    pub definition: Arc<AlertDefinition>,
    /// The mistakes, where it cannot be planned any more: the view that it watches was changed or dropped.
    pub plan: Result<Arc<AlertPlan>, Arc<str>>,
    /// Since when it is not evaluated because a user paused it.
    pub paused_since: Option<Micros>,
}

/// A sink or an alert that cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenOutput {
    pub kind: DefinitionKind,
    pub name: Arc<str>,
    /// The mistakes.
    pub found: Arc<str>,
}

/// What sinks and alerts are planned over.
struct Readable {
    streams: Vec<Arc<StreamDefinition>>,
    /// The served versions.
    views: Vec<Arc<ViewPlan>>,
    /// The views without an aggregate.
    staging: BTreeSet<Arc<str>>,
}

/// The live definitions of one catalog state, planned.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    pub streams: BTreeMap<Arc<str>, LiveStream>,
    /// The streams that began anew in another topic while nothing of them was committed: no record of the topic before
    /// is read again.
    pub moved: BTreeSet<Arc<str>>,
    /// Views that keep states: served versions, those being built and those kept.
    pub views: Vec<LiveView>,
    pub sinks: Vec<LiveSink>,
    pub alerts: Vec<LiveAlert>,
    /// The values with which sinks and alerts are planned.
    pub parameters: Parameters,
    /// The definitions behind this registry, what was paused, and the values of parameters, so that a reader knows when
    /// to reload.
    records: Vec<DefinitionRecord>,
    pauses: Vec<PauseRecord>,
    values: Vec<ParameterRecord>,
}

impl Registry {
    /// Parses and plans the live definitions of a catalog state.
    pub async fn load(state: &CatalogState, functions: &Functions) -> Result<Registry> {
        let streams = live_streams(state)?;
        let moved = moved_streams(state, &streams);
        let views = live_views(state, &streams, functions).await?;
        let (parameters, values) = (parameters_of(state)?, state.parameters.clone());
        let (records, pauses) = (live(state).cloned().collect(), state.pauses.clone());
        let mut registry = Registry { streams, moved, views, sinks: Vec::new(), alerts: Vec::new(), parameters, records, pauses, values };
        for record in state.live(DefinitionKind::Sink) {
            let definition = Arc::new(parse::parse_sink(&record.sql).map_err(|error| stored(record, &error))?);
            let sink = registry.sink_of(definition, record.version, functions).await;
            let paused_since = state.paused_since(DefinitionKind::Sink, &record.name);
            registry.sinks.push(LiveSink { paused_since, ..sink });
        }
        for record in state.live(DefinitionKind::Alert) {
            let definition = Arc::new(parse::parse_alert(&record.sql).map_err(|error| stored(record, &error))?);
            let plan = registry.plan_alert(&definition, functions).await;
            let paused_since = state.paused_since(DefinitionKind::Alert, &record.name);
            registry.alerts.push(LiveAlert { name: record.name.clone(), version: record.version, definition, plan, paused_since });
        }
        Ok(registry)
    }

    /// Plans a definition of a sink over what is served.
    pub async fn sink_of(&self, definition: Arc<SinkDefinition>, version: u32, functions: &Functions) -> LiveSink {
        let plan = self.plan_sink(&definition, functions).await;
        let reads = stream_of(&definition.select).map(Arc::from);
        LiveSink { name: definition.name.clone(), version, definition, reads, plan, paused_since: None }
    }

    /// Plans an alert over the served versions of the views.
    async fn plan_alert(&self, alert: &AlertDefinition, functions: &Functions) -> Result<Arc<AlertPlan>, Arc<str>> {
        let Readable { streams, views, staging } = self.readable();
        let sources = Sources { streams: &streams, views: &views, staging: &staging, parameters: &self.parameters, is_strict: false };
        let planned = AlertPlan::new(alert, functions, sources).await;
        planned.map(Arc::new).map_err(|found| found.to_string().into())
    }

    fn readable(&self) -> Readable {
        let kept: BTreeSet<&str> = self.views.iter().map(|view| &*view.name).collect();
        let views = self.records.iter().filter(|record| record.kind == DefinitionKind::View);
        let staging = views.filter(|record| !kept.contains(&*record.name)).map(|record| record.name.clone()).collect();
        let views = kept.into_iter().filter_map(|name| Some(self.served(name)?.plan.clone())).collect();
        Readable { streams: self.streams.values().map(|stream| stream.definition.clone()).collect(), views, staging }
    }

    /// Plans a sink over the streams and the served versions of the views.
    async fn plan_sink(&self, sink: &SinkDefinition, functions: &Functions) -> Result<Arc<SinkPlan>, Arc<str>> {
        let Readable { streams, views, staging } = self.readable();
        let sources = Sources { streams: &streams, views: &views, staging: &staging, parameters: &self.parameters, is_strict: false };
        let planned = SinkPlan::new(sink, functions, sources).await;
        planned.map(Arc::new).map_err(|found| found.to_string().into())
    }

    /// Returns the sinks and alerts that could not be planned when this registry was made.
    pub fn broken_outputs(&self) -> impl Iterator<Item = BrokenOutput> {
        let broken = |kind, name: &Arc<str>, found: &Arc<str>| BrokenOutput { kind, name: name.clone(), found: found.clone() };
        let sinks = self.sinks.iter().filter_map(move |sink| Some(broken(DefinitionKind::Sink, &sink.name, sink.plan.as_ref().err()?)));
        let alerts =
            self.alerts.iter().filter_map(move |alert| Some(broken(DefinitionKind::Alert, &alert.name, alert.plan.as_ref().err()?)));
        sinks.chain(alerts)
    }

    /// Returns a sink that cannot be planned over what is served here, or an alert if there is no such sink.
    pub async fn broken_output(&self, functions: &Functions) -> Option<BrokenOutput> {
        for sink in &self.sinks {
            if let Err(found) = self.plan_sink(&sink.definition, functions).await {
                return Some(BrokenOutput { kind: DefinitionKind::Sink, name: sink.name.clone(), found });
            }
        }
        for alert in &self.alerts {
            if let Err(found) = self.plan_alert(&alert.definition, functions).await {
                return Some(BrokenOutput { kind: DefinitionKind::Alert, name: alert.name.clone(), found });
            }
        }
        None
    }

    /// Returns the registry of a catalog state that comes after the one of this registry. Where only parameters were
    /// set, what does not use them stays as it is planned.
    pub async fn following(&self, state: &CatalogState, functions: &Functions) -> Result<Registry> {
        if self.has_other_definitions(state) {
            return Registry::load(state, functions).await;
        }
        let following = self.with_parameters(parameters_of(state)?, functions).await;
        Ok(Registry { values: state.parameters.clone(), ..following })
    }

    /// Returns the same definitions with other values of parameters.
    pub async fn with_parameters(&self, parameters: Parameters, functions: &Functions) -> Registry {
        let mut registry = Registry { parameters, ..self.clone() };
        for at in 0..registry.sinks.len() {
            // One that cannot be planned may use a parameter.
            if registry.sinks[at].plan.as_ref().is_ok_and(|plan| plan.parameters.is_empty()) {
                continue;
            }
            let definition = registry.sinks[at].definition.clone();
            registry.sinks[at].plan = registry.plan_sink(&definition, functions).await;
        }
        for at in 0..registry.alerts.len() {
            if registry.alerts[at].plan.as_ref().is_ok_and(|plan| plan.parameters.is_empty()) {
                continue;
            }
            let definition = registry.alerts[at].definition.clone();
            registry.alerts[at].plan = registry.plan_alert(&definition, functions).await;
        }
        registry
    }

    /// True if a catalog state has other live definitions than this registry, or other values of parameters.
    pub fn is_stale(&self, state: &CatalogState) -> bool {
        self.has_other_definitions(state) || self.values != state.parameters
    }

    /// True if a catalog state has other live definitions of streams, views, sinks and alerts: other versions, or
    /// another text of one, whose options changed in place, or if another one of them is paused. What is defined of a
    /// parameter is in its value.
    pub fn has_other_definitions(&self, state: &CatalogState) -> bool {
        !live(state).eq(&self.records) || state.pauses != self.pauses
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

    /// Returns the error for a name that no view with states has.
    pub fn no_view(&self, name: &str) -> Error {
        let views = self.views.iter().map(|view| (DefinitionKind::View, &*view.name));
        no_view(name, views.chain(self.other_names()))
    }

    /// Returns the names of the definitions that are no views.
    pub fn other_names(&self) -> impl Iterator<Item = DefinedName<'_>> {
        let records = self.records.iter().filter(|record| record.kind != DefinitionKind::View);
        let parameters = self.parameters.iter().map(|parameter| (DefinitionKind::Parameter, &*parameter.name));
        records.map(|record| (record.kind, &*record.name)).chain(parameters)
    }

    /// Returns the registry as it would be if these views were served, which are not applied: they have the version 0.
    /// They may name one another and the `others`. The sinks and alerts of the registry stay as they are planned.
    ///
    /// Errors: `Input` with the mistakes of all views.
    pub async fn with_unapplied(&self, views: &[ViewDefinition], others: &[ViewDefinition], functions: &Functions) -> Result<Registry> {
        let project = Definitions {
            streams: self.streams.values().map(|stream| (*stream.definition).clone()).collect(),
            views: others.iter().chain(views).cloned().collect(),
            ..Definitions::default()
        };
        let planner = Planner::new(&project, functions.clone()).strict();
        let mut registry = self.clone();
        registry.views.retain(|live| views.iter().all(|view| view.name != live.name));
        let mut mistakes = Diagnostics::new();
        for view in views {
            let plan = match planner.plan(view).await {
                Ok(Planned::Stateful(plan)) => plan,
                Ok(Planned::Staging) => continue,
                Err(found) => {
                    mistakes.extend(found);
                    continue;
                }
            };
            let codec = Arc::new(KeyCodec::for_plan(&plan)?);
            let (name, status, definition) = (view.name.clone(), DefinitionStatus::Active, Arc::new(view.clone()));
            registry.views.push(LiveView { name, version: UNAPPLIED, status, definition, plan, codec });
        }
        mistakes.into_result()?;
        Ok(registry)
    }

    /// Returns a live version of a view.
    pub fn view(&self, name: &str, version: u32) -> Option<&LiveView> {
        self.views.iter().find(|view| &*view.name == name && view.version == version)
    }

    /// Returns plans and codecs by view version.
    pub fn plans(&self) -> BTreeMap<ViewVersion, (Arc<ViewPlan>, Arc<KeyCodec>)> {
        self.views.iter().map(|view| (view.view_version(), (view.plan.clone(), view.codec.clone()))).collect()
    }
}

fn live_streams(state: &CatalogState) -> Result<BTreeMap<Arc<str>, LiveStream>> {
    let stream = |record: &DefinitionRecord| {
        let definition = Arc::new(parse::parse_stream(&record.sql).map_err(|error| stored(record, &error))?);
        Ok((record.name.clone(), LiveStream { version: record.version, definition }))
    };
    state.live(DefinitionKind::Stream).map(stream).collect()
}

/// Returns the streams of which an earlier version, by which nothing is committed any more, had another topic. A column
/// that is added marks the versions before it as well: its records are in the same topic.
fn moved_streams(state: &CatalogState, streams: &BTreeMap<Arc<str>, LiveStream>) -> BTreeSet<Arc<str>> {
    let has_moved = |name: &str, stream: &LiveStream| {
        let versions = state.definitions.versions(DefinitionKind::Stream, name);
        let mut redecoded = versions.filter(|version| version.status == DefinitionStatus::Redecoded);
        redecoded.any(|version| parse::parse_stream(&version.sql).is_ok_and(|before| before.topic != stream.definition.topic))
    };
    streams.iter().filter(|(name, stream)| has_moved(name, stream)).map(|(name, _)| name.clone()).collect()
}

/// Plans the live versions of views that keep states.
async fn live_views(state: &CatalogState, streams: &BTreeMap<Arc<str>, LiveStream>, functions: &Functions) -> Result<Vec<LiveView>> {
    let records: Vec<&DefinitionRecord> = state.live(DefinitionKind::View).collect();
    let definitions = records.iter().map(|r| parse::parse_view(&r.sql).map_err(|error| stored(r, &error))).collect::<Result<Vec<_>>>()?;
    let mut views = Vec::new();
    for (record, definition) in records.iter().zip(&definitions) {
        // The views that this view can use: the newest live version of each.
        let others = records.iter().zip(&definitions).filter(|(r, _)| r.name != record.name).map(|(_, d)| d.clone());
        let project = Definitions {
            streams: streams.values().map(|stream| (*stream.definition).clone()).collect(),
            views: others.chain([definition.clone()]).collect(),
            ..Definitions::default()
        };
        let planned = Planner::new(&project, functions.clone()).plan(definition).await;
        let planned = planned.map_err(|found| {
            Error::input(format!("a stored definition no longer plans: {found}")).with("view", &record.name).with("version", record.version)
        })?;
        let Planned::Stateful(plan) = planned else { continue };
        let codec = Arc::new(KeyCodec::for_plan(&plan)?);
        let (name, version, status) = (record.name.clone(), record.version, record.status);
        views.push(LiveView { name, version, status, definition: Arc::new(definition.clone()), plan, codec });
    }
    Ok(views)
}

fn live(state: &CatalogState) -> impl Iterator<Item = &DefinitionRecord> {
    let kinds = DefinitionKind::ALL.into_iter().filter(|kind| *kind != DefinitionKind::Parameter);
    kinds.flat_map(|kind| state.live(kind))
}

/// The values that are in effect in a catalog state, by the types of their definitions.
fn parameters_of<'s>(state: &'s CatalogState) -> Result<Parameters> {
    let value = |(of, definition): (&ParameterRecord, &DefinitionRecord)| {
        let value_type = parse::parse_parameter(&definition.sql).map_err(|error| stored(definition, &error))?.value_type;
        let parameter = Parameter { name: of.parameter.clone(), version: of.version, value_type, value: of.value.clone() };
        match parameter.checked(&of.value) {
            Ok(_) => Ok(parameter),
            Err(error) => Err(Error::corrupt(format!("the catalog's value of a parameter is not of its type: {}", error.message()))),
        }
    };
    let live = |of: &'s ParameterRecord| Some((of, state.served_or_building(DefinitionKind::Parameter, &of.parameter)?));
    state.parameters.iter().filter_map(live).map(value).collect()
}

fn stored(record: &DefinitionRecord, error: &Error) -> Error {
    Error::corrupt(format!("the catalog's definition does not parse: {}", error.message()))
        .with("name", &record.name)
        .with("version", record.version)
}
