//! Prepares a backtest before it reads an event: finds the definitions that score, and every mistake of the request.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use batch::{Backtest, BacktestClock, ChangedSink, plan_of_sink};
use catalog::{CatalogState, DefinitionKind};
use committed::registry::{LiveSink, Registry};
use definitions::settings::ClockKind;
use definitions::{Definitions, SinkDefinition, ViewDefinition, parse};
use engine::functions::Functions;
use engine::parameters::Parameters;
use engine::sinks::SinkPlan;
use types::suggest::expected;
use types::{Error, Result};

use super::BacktestRequest;
use super::difference::VerdictComparison;
use crate::apply::normalised;
use crate::input_file::read_input_text;
use crate::installation::Installation;
use crate::mistakes::Mistakes;
use crate::outputs::live_sink;
use crate::row_file::RowFileFormat;

/// A request without a mistake.
pub(super) struct PreparedBacktest {
    pub(super) definitions: ScoringDefinitions,
    /// Where there is an edited definition.
    pub(super) comparison: Option<VerdictComparison>,
    /// The columns of the rows.
    pub(super) output: SchemaRef,
    pub(super) format: RowFileFormat,
}

/// The definitions that score the events.
pub(super) struct ScoringDefinitions {
    pub(super) registry: Registry,
    pub(super) live: LiveSink,
    edited: Option<EditedDefinition>,
}

struct EditedDefinition {
    sink: LiveSink,
    /// The column in which both definitions decide.
    verdict: String,
}

impl ScoringDefinitions {
    pub(super) fn backtest(&self, request: &BacktestRequest, installation: &Installation) -> Backtest<'_> {
        let changed = self.edited.as_ref().map(|edited| ChangedSink { sink: &edited.sink, verdict: &edited.verdict });
        let BacktestRequest { from, to, known, .. } = *request;
        let clock = clock_of(installation);
        Backtest { registry: &self.registry, sink: &self.live, changed, from, to, known, clock }
    }
}

/// Errors: all mistakes of the request.
pub(super) async fn prepared(installation: &Installation, state: &CatalogState, request: &BacktestRequest) -> Result<PreparedBacktest> {
    let mut mistakes = Mistakes::default();
    let format = request.check(&mut mistakes);
    let definitions = checked_definitions(installation, state, request, &mut mistakes).await?;
    let output = match &definitions {
        Some((definitions, _)) => mistakes.noted(definitions.backtest(request, installation).output())?,
        None => None,
    };
    mistakes.into_result()?;
    match (definitions, output, format) {
        (Some((definitions, comparison)), Some(output), Some(format)) => Ok(PreparedBacktest { definitions, comparison, output, format }),
        _ => Err(Error::internal("a mistake of a backtest was not noted")),
    }
}

/// The definitions of a request, and how they are compared where there are two. `None` if one of them has a mistake.
async fn checked_definitions(
    installation: &Installation,
    state: &CatalogState,
    request: &BacktestRequest,
    mistakes: &mut Mistakes,
) -> Result<Option<(ScoringDefinitions, Option<VerdictComparison>)>> {
    let functions = &installation.functions;
    let registry = Registry::load(state, functions).await?;
    let registry = with_values(registry, &request.set, functions, mistakes).await?;
    let live = mistakes.noted(loaded_sink(state, &registry, &request.sink))?;
    let Some(change) = &request.changed else {
        let live = planned("live", live, mistakes)?;
        if let Some((_, plan)) = &live {
            note_unused(request, &[plan], &registry.parameters, mistakes);
        }
        return Ok(live.map(|(live, _)| (ScoringDefinitions { registry, live, edited: None }, None)));
    };
    let version = live.as_ref().map_or(0, |sink| sink.version);
    let edited = match mistakes.noted(edited_definition(&change.file, &request.sink))? {
        Some((definition, file)) => {
            note_unapplied(state, request, (&definition, &file), mistakes)?;
            Some(registry.sink_of(Arc::new(definition), version, functions).await)
        }
        None => None,
    };
    let (live, edited) = (planned("live", live, mistakes)?, planned("changed", edited, mistakes)?);
    let Some(((live, live_plan), (sink, plan))) = live.zip(edited) else { return Ok(None) };
    note_unused(request, &[&live_plan, &plan], &registry.parameters, mistakes);
    let Some(comparison) = mistakes.noted(VerdictComparison::new(change, &live_plan, &plan))? else { return Ok(None) };
    let edited = EditedDefinition { sink, verdict: comparison.verdict().to_owned() };
    Ok(Some((ScoringDefinitions { registry, live, edited: Some(edited) }, Some(comparison))))
}

/// A sink that was found, with its plan.
fn planned(which: &str, sink: Option<LiveSink>, mistakes: &mut Mistakes) -> Result<Option<(LiveSink, Arc<SinkPlan>)>> {
    let Some(sink) = sink else { return Ok(None) };
    let plan = mistakes.noted(plan_of_sink(which, &sink))?;
    Ok(plan.map(|plan| (sink, plan)))
}

/// A live sink as the registry has it.
fn loaded_sink(state: &CatalogState, registry: &Registry, name: &str) -> Result<LiveSink> {
    let name = live_sink(state, name)?.name;
    let sink = registry.sinks.iter().find(|sink| sink.name == name).cloned();
    sink.ok_or_else(|| Error::internal("a live sink is not loaded"))
}

/// The same sinks, planned with other values. A version of a value that was never set is 0.
async fn with_values(registry: Registry, values: &[(String, String)], functions: &Functions, mistakes: &mut Mistakes) -> Result<Registry> {
    if values.is_empty() {
        return Ok(registry);
    }
    let mut parameters = registry.parameters.clone();
    for (name, value) in values {
        mistakes.noted(parameters.set(name, value, 0))?;
    }
    Ok(registry.with_parameters(parameters, functions).await)
}

/// Notes each parameter that was given a value and that no definition uses: the value would change nothing.
fn note_unused(request: &BacktestRequest, plans: &[&SinkPlan], known: &Parameters, mistakes: &mut Mistakes) {
    let used: BTreeSet<&str> = plans.iter().flat_map(|plan| plan.parameters.keys()).map(|name| &**name).collect();
    let set: BTreeSet<&str> = request.set.iter().map(|(name, _)| name.as_str()).collect();
    let used_names: Vec<&str> = used.iter().copied().collect();
    for name in set.difference(&used).filter(|name| known.get(name).is_ok()) {
        let expected = expected(name, &used_names, "it uses none");
        mistakes.add(Error::input(format!("the sink \"{}\" does not use the parameter \"{name}\": {expected}", request.sink)));
    }
}

/// Notes each view and parameter that the edited sink names and that its file has otherwise than it is applied: events
/// are scored with what is applied, so it would change nothing. Views that read other views are not compared: they are
/// applied with those in their text.
fn note_unapplied(
    state: &CatalogState,
    request: &BacktestRequest,
    (sink, file): (&SinkDefinition, &Definitions),
    mistakes: &mut Mistakes,
) -> Result<()> {
    let names = parse::names_in(&sink.select);
    let reads_views = |view: &ViewDefinition| {
        let read = parse::names_in(&view.select);
        file.views.iter().any(|other| read.contains(&*other.name))
    };
    for view in file.views.iter().filter(|view| names.contains(&*view.name) && !reads_views(view)) {
        let Some(applied) = state.served_or_building(DefinitionKind::View, &view.name) else { continue };
        if !parse::parse_view(&applied.sql)?.means_the_same(&parse::parse_view(&normalised(&view.sql))?) {
            let message = format!("the file of the edited sink has the view \"{}\" otherwise than it is applied", view.name);
            mistakes.add(Error::input(message).with("expected", "a view that is applied: `apply` the edited one under another name first"));
        }
    }
    for parameter in &file.parameters {
        let is_used = sink.select.contains(&format!("'{}'", parameter.name));
        let is_set = request.set.iter().any(|(name, _)| *name == *parameter.name);
        let Some(applied) = state.served_or_building(DefinitionKind::Parameter, &parameter.name).filter(|_| is_used && !is_set) else {
            continue;
        };
        if parse::parse_parameter(&applied.sql)?.value != parameter.value {
            let message = format!("the file of the edited sink has another value of the parameter \"{}\" than is applied", parameter.name);
            mistakes.add(Error::input(message).with("expected", format!("--set {}={}", parameter.name, parameter.value)));
        }
    }
    Ok(())
}

/// Reads the edited definition of a sink. Returns all definitions of its file too.
fn edited_definition(file: &Path, name: &str) -> Result<(SinkDefinition, Definitions)> {
    let text = read_input_text(file)?;
    let (definitions, diagnostics) = parse::parse_definitions(&[(Some(file.to_path_buf()), text)]);
    diagnostics.into_result()?;
    let Some(definition) = definitions.sinks.iter().find(|sink| *sink.name == *name).cloned() else {
        let found: Vec<&str> = definitions.sinks.iter().map(|sink| &*sink.name).collect();
        let found = if found.is_empty() { "no CREATE SINK".to_owned() } else { format!("CREATE SINK {}", found.join(", ")) };
        return Err(Error::input(format!("{} does not define the sink \"{name}\"", file.display()))
            .with("found", found)
            .with("expected", format!("CREATE SINK {name} ..")));
    };
    Ok((definition, definitions))
}

/// The clock that the installation's answers have.
fn clock_of(installation: &Installation) -> BacktestClock {
    match installation.settings.serving.clock {
        ClockKind::Wall => BacktestClock::Wall,
        ClockKind::Event => BacktestClock::Event,
    }
}
