//! Prepares a backtest before it reads an event: finds the definitions that score, and every mistake of the request.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use batch::{Backtest, BacktestClock, ChangedSink, plan_of_sink};
use catalog::CatalogState;
use committed::registry::{LiveSink, Registry};
use definitions::settings::ClockKind;
use engine::parameters::{Parameter, Parameters};
use engine::sinks::SinkPlan;
use types::suggest::expected;
use types::{Error, Result};

use super::difference::VerdictComparison;
use super::edited::EditedFile;
use super::{BacktestRequest, UnappliedDefinitions};
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
    /// With the views and the values of its file.
    registry: Registry,
    sink: LiveSink,
    /// The column in which both definitions decide.
    verdict: String,
    unapplied: UnappliedDefinitions,
}

impl ScoringDefinitions {
    pub(super) fn unapplied(&self) -> UnappliedDefinitions {
        self.edited.as_ref().map(|edited| edited.unapplied.clone()).unwrap_or_default()
    }

    pub(super) fn backtest(&self, request: &BacktestRequest, installation: &Installation) -> Backtest<'_> {
        let changed = self.edited.as_ref().map(EditedDefinition::changed_sink);
        let BacktestRequest { from, to, known, .. } = *request;
        let clock = clock_of(installation);
        Backtest { registry: &self.registry, sink: &self.live, changed, from, to, known, clock }
    }
}

impl EditedDefinition {
    fn changed_sink(&self) -> ChangedSink<'_> {
        ChangedSink { registry: &self.registry, sink: &self.sink, verdict: &self.verdict }
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
    let applied = Registry::load(state, functions).await?;
    let file = match &request.changed {
        Some(change) => EditedFile::read(state, &change.file, &request.sink, mistakes)?,
        None => None,
    };
    let mut values = applied.parameters.clone();
    let mut changed_values = file.as_ref().map_or_else(|| values.clone(), |file| file.values(&values));
    set_values(&request.set, &mut values, &mut changed_values, mistakes)?;
    let registry = match request.set.is_empty() {
        true => applied,
        false => applied.with_parameters(values, functions).await,
    };
    let live = planned("live", mistakes.noted(loaded_sink(state, &registry, &request.sink))?, mistakes)?;
    let Some(change) = &request.changed else {
        if let Some((_, plan)) = &live {
            note_unused(request, &[plan], &registry.parameters, mistakes);
        }
        return Ok(live.map(|(live, _)| (ScoringDefinitions { registry, live, edited: None }, None)));
    };
    let Some(file) = file else { return Ok(None) };
    let unapplied = registry.with_unapplied(&file.views, &file.others, functions).await;
    let Some(mut changed) = mistakes.noted(unapplied)? else { return Ok(None) };
    changed.parameters = changed_values;
    let version = live.as_ref().map_or(0, |(sink, _)| sink.version);
    let edited = changed.sink_of(file.sink.clone(), version, functions).await;
    let edited = planned("changed", Some(edited), mistakes)?;
    let Some(((live, live_plan), (sink, plan))) = live.zip(edited) else { return Ok(None) };
    note_unused(request, &[&live_plan, &plan], &changed.parameters, mistakes);
    let Some(comparison) = VerdictComparison::new(change, &live_plan, &plan, mistakes)? else { return Ok(None) };
    let (verdict, unapplied) = (comparison.verdict().to_owned(), unapplied_definitions(&file, &changed, &plan));
    let edited = EditedDefinition { registry: changed, sink, verdict, unapplied };
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

/// Sets values among those of the live and of the changed definition. The latter has all parameters: those of the
/// edited file alone have no live value. A version of a value that was never set is 0.
fn set_values(values: &[(String, String)], live: &mut Parameters, changed: &mut Parameters, mistakes: &mut Mistakes) -> Result<()> {
    for (name, value) in values {
        if live.get(name).is_ok() && mistakes.noted(live.set(name, value, 0))?.is_none() {
            continue;
        }
        mistakes.noted(changed.set(name, value, 0))?;
    }
    Ok(())
}

/// What the changed sink reads that is not applied.
fn unapplied_definitions(file: &EditedFile, changed: &Registry, plan: &SinkPlan) -> UnappliedDefinitions {
    let is_unapplied = |view: &&Arc<str>| file.views.iter().any(|edited| edited.name == **view);
    let is_used = |parameter: &&Parameter| plan.parameters.contains_key(&parameter.name) && file.has_parameter(&parameter.name);
    UnappliedDefinitions {
        views: plan.joins.iter().map(|join| &join.plan.view).filter(is_unapplied).cloned().collect(),
        parameters: changed.parameters.iter().filter(is_used).map(|of| (of.name.clone(), of.value.clone())).collect(),
    }
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

/// The clock that the installation's answers have.
fn clock_of(installation: &Installation) -> BacktestClock {
    match installation.settings.serving.clock {
        ClockKind::Wall => BacktestClock::Wall,
        ClockKind::Event => BacktestClock::Event,
    }
}
