//! Sets parameters: the new value is committed to the catalog, and every process that runs sinks and alerts takes it
//! from there. Lists parameters with their values.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::{Add, Catalog, CatalogState, Commit, DefinitionKind, Expect, ParameterRecord};
use definitions::{ParameterDefinition, parse};
use engine::functions::Functions;
use engine::parameters::names_in;
use types::tiles::Micros;
use types::{Error, Result};
use uuid::Uuid;

use crate::registry::Registry;

/// How often setting is tried while other processes set the parameter or change definitions.
const ATTEMPTS: usize = 10;

/// A value that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    pub parameter: &'a str,
    /// As text: `30`, `0.5`, `true`, `30 minutes`.
    pub value: &'a str,
    pub set_by: &'a str,
    pub now: Micros,
}

/// What setting did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterChange {
    pub before: ParameterRecord,
    /// The value in effect. The same if it had that value.
    pub after: ParameterRecord,
}

/// Gives a parameter a value. A value that it has is not set again.
///
/// Errors: `NotFound` for an unknown name, with the nearest; `Input` for a value of another type, and for one with
/// which a sink or an alert could not be planned. Nothing is changed then.
pub async fn set(catalog: &Catalog, functions: &Functions, setting: Setting<'_>) -> Result<ParameterChange> {
    let decide = |state: Arc<CatalogState>| async move { decide(&state, functions, setting).await };
    catalog.decide_and_commit(ATTEMPTS, decide).await
}

/// What setting does on one catalog state. It is committed with the definitions that the value was checked with, and
/// after the value that it replaces: if an apply or another process changes one of them meanwhile, it is a conflict.
async fn decide(state: &CatalogState, functions: &Functions, setting: Setting<'_>) -> Result<(ParameterChange, Option<Commit>)> {
    let registry = Registry::load(state, functions).await?;
    let known = registry.parameters.get(setting.parameter)?;
    let value = known.checked(setting.value)?;
    let before = state.parameters.iter().find(|record| record.parameter == known.name);
    let before = before.ok_or_else(|| Error::internal("a parameter without a value"))?.clone();
    if value == before.value {
        return Ok((ParameterChange { after: before.clone(), before }, None));
    }
    let after = ParameterRecord {
        version: before.version + 1,
        value_type: known.value_type.to_string(),
        value,
        set_at: setting.now,
        set_by: setting.set_by.to_owned(),
        ..before.clone()
    };
    let mut parameters = registry.parameters.clone();
    parameters.set(&after.parameter, &after.value, after.version)?;
    refuse_broken(&registry, &registry.with_parameters(parameters, functions).await)?;
    let expect = vec![Expect::Live(state.live_versions())];
    let commit = Commit { id: Uuid::now_v7(), expect, add: vec![Add::Parameter(after.clone())], ..Commit::default() };
    Ok((ParameterChange { before, after }, Some(commit)))
}

/// Refuses a value with which something cannot be planned that could be before.
fn refuse_broken(before: &Registry, after: &Registry) -> Result<()> {
    let sinks = before.sinks.iter().zip(&after.sinks).filter(|(before, _)| before.plan.is_ok());
    let alerts = before.alerts.iter().zip(&after.alerts).filter(|(before, _)| before.plan.is_ok());
    let sinks = sinks.filter_map(|(_, sink)| Some(("sink", &sink.name, sink.plan.as_ref().err()?)));
    let alerts = alerts.filter_map(|(_, alert)| Some(("alert", &alert.name, alert.plan.as_ref().err()?)));
    match sinks.chain(alerts).next() {
        Some((kind, name, found)) => Err(Error::input(format!("the {kind} \"{name}\" cannot be planned with this value: {found}"))),
        None => Ok(()),
    }
}

/// A live parameter: what is defined of it, its value, and what uses it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedParameter {
    pub definition: ParameterDefinition,
    pub in_effect: ParameterRecord,
    /// Sinks and alerts.
    pub used_by: BTreeSet<Arc<str>>,
}

/// Returns the live parameters of a catalog state, ordered by name.
pub fn listed(state: &CatalogState) -> Result<Vec<ListedParameter>> {
    let sinks = state.live(DefinitionKind::Sink).map(|sink| Ok((&sink.name, parse::parse_sink(&sink.sql)?.select)));
    let alerts = state.live(DefinitionKind::Alert).map(|alert| Ok((&alert.name, parse::parse_alert(&alert.sql)?.select)));
    let used = sinks.chain(alerts).map(|of| of.map(|(name, select): (&Arc<str>, String)| (name, names_in(&select))));
    let used = used.collect::<Result<Vec<_>>>()?;
    let mut listed = Vec::new();
    for in_effect in &state.parameters {
        let Some(live) = state.served_or_building(DefinitionKind::Parameter, &in_effect.parameter) else { continue };
        let uses = used.iter().filter(|(_, names)| names.contains(&*in_effect.parameter));
        listed.push(ListedParameter {
            definition: parse::parse_parameter(&live.sql)?,
            in_effect: in_effect.clone(),
            used_by: uses.map(|(name, _)| (*name).clone()).collect(),
        });
    }
    Ok(listed)
}

#[cfg(test)]
mod tests;
