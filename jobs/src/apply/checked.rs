//! Checks the catalog state that changes would lead to. Changes after which something could no longer be read, planned
//! or kept are refused.

use std::sync::Arc;

use access::local_user;
use catalog::{CatalogState, DefinitionKind, DefinitionRecord, DefinitionStatus};
use committed::registry::{BrokenOutput, LiveView, Registry};
use definitions::{AlertDefinition, SinkDefinition, parse};
use engine::functions::Functions;
use engine::parameters::names_in;
use types::tiles::Micros;
use types::{Error, Result};

use super::changes::Changes;
use super::inline::{normalised, relations};
use super::records::{records_of, values_of, with_records, with_values};
use crate::check::loops::{TopicWriter, loops};
use crate::check::retention::refuse_short_retentions;

/// Checks the changes as a whole. Returns the definition records that they result in.
///
/// Errors: `Input` for a change that is refused, alone or beside what stays in the catalog.
pub(crate) async fn checked_records(
    state: &CatalogState,
    changes: &Changes,
    prune: bool,
    now: Micros,
    functions: &Functions,
) -> Result<Vec<DefinitionRecord>> {
    changes.refusals()?;
    let records = records_of(state, changes, prune, now);
    let after = with_values(&with_records(state, &records), &values_of(changes, local_user(), now));
    refuse_orphans(&after, &records)?;
    refuse_used_parameters(&after, &records)?;
    // Versions that stay in use (a served view whose successor is being built) must plan over the new streams too.
    let registry = Registry::load(&after, functions).await.map_err(|error| unplannable(&after, &error))?;
    refuse_short_retentions(&registry)?;
    let registry = with_places(registry, changes);
    refuse_broken_outputs(&registry, functions).await?;
    refuse_loops(&registry)?;
    Ok(records)
}

/// The error for definitions that could no longer be planned. It names the view's version that could not, if it is one.
fn unplannable(after: &CatalogState, error: &Error) -> Error {
    let is_it = |record: &&DefinitionRecord| {
        let version = error.fact("version").and_then(|version| version.parse::<u32>().ok());
        error.fact("view") == Some(&*record.name) && version == Some(record.version)
    };
    let general = "`basestream view versions VIEW` lists a view's versions; one that is kept can be dropped".to_owned();
    let (what, help) = match after.live(DefinitionKind::View).find(is_it) {
        None => ("the live definitions in the catalog".to_owned(), general),
        Some(DefinitionRecord { name, version, status, .. }) => {
            let (status, help) = match status {
                DefinitionStatus::Kept => ("kept", format!("`basestream view drop {name}@{version}` drops this version")),
                DefinitionStatus::Building => ("being built", format!("`basestream view drop {name}@{version}` drops this version")),
                _ => ("served", general),
            };
            (format!("version {version} of the view \"{name}\", which is {status},"), help)
        }
    };
    Error::input(format!("{what} could no longer be planned: {}", error.message()))
        .with("expected", "streams that keep the columns which live views read, until those views are replaced or dropped")
        .with("help", help)
}

/// Checks the sinks and alerts of a catalog state as it would be.
pub(crate) async fn checked_outputs(after: &CatalogState, functions: &Functions) -> Result<()> {
    let registry = Registry::load(after, functions).await?;
    refuse_broken_outputs(&registry, functions).await?;
    refuse_loops(&registry)
}

/// Refuses a change of views' versions after which a sink or an alert could not be planned that can be planned now.
///
/// Errors: `Input`. It names the sink or the alert.
pub(crate) async fn refuse_breaking(before: &Registry, after: &CatalogState, functions: &Functions) -> Result<()> {
    let broken_before: Vec<BrokenOutput> = before.broken_outputs().collect();
    let after = Registry::load(after, functions).await?;
    let is_known = |broken: &BrokenOutput| broken_before.iter().any(|known| (known.kind, &known.name) == (broken.kind, &broken.name));
    match after.broken_outputs().find(|broken| !is_known(broken)) {
        Some(broken) => Err(refused(&broken, "")),
        None => Ok(()),
    }
}

/// Refuses a change that would leave a live view without a stream it reads.
pub(super) fn refuse_orphans(after: &CatalogState, records: &[DefinitionRecord]) -> Result<()> {
    let dropped = records
        .iter()
        .filter(|record| record.kind == DefinitionKind::Stream && !after.live(DefinitionKind::Stream).any(|live| live.name == record.name));
    for stream in dropped {
        let reads = |view: &&DefinitionRecord| relations(&view.sql).contains(&*stream.name);
        if let Some(view) = after.live(DefinitionKind::View).find(reads) {
            return Err(Error::input(format!("the stream \"{}\" cannot be dropped: the view \"{}\" reads it", stream.name, view.name))
                .with("version of the view", view.version)
                .with("expected", "the view dropped too, or its new version published first (`basestream batch run`)")
                .with("help", format!("`basestream view versions {}` lists its versions; one that is kept can be dropped", view.name)));
        }
    }
    Ok(())
}

/// Refuses a change that would leave a live sink or alert without a parameter that it uses.
fn refuse_used_parameters(after: &CatalogState, records: &[DefinitionRecord]) -> Result<()> {
    let dropped = records.iter().filter(|record| {
        record.kind == DefinitionKind::Parameter && after.served_or_building(DefinitionKind::Parameter, &record.name).is_none()
    });
    for parameter in dropped {
        for kind in [DefinitionKind::Sink, DefinitionKind::Alert] {
            let uses = |output: &&DefinitionRecord| {
                let select = match kind {
                    DefinitionKind::Sink => parse::parse_sink(&output.sql).map(|sink| sink.select),
                    _ => parse::parse_alert(&output.sql).map(|alert| alert.select),
                };
                select.is_ok_and(|select| names_in(&select).contains(&*parameter.name))
            };
            if let Some(output) = after.live(kind).find(uses) {
                let (name, kind) = (&parameter.name, kind.word());
                return Err(Error::input(format!("the parameter \"{name}\" cannot be dropped: the {kind} \"{}\" uses it", output.name))
                    .with("expected", format!("the {kind} dropped too, or changed so that it does not use the parameter")));
            }
        }
    }
    Ok(())
}

/// The registry with the sinks and alerts as the files have them, so that their mistakes name the files. One that has
/// another text there, or none, is of the catalog alone.
fn with_places(mut registry: Registry, changes: &Changes) -> Registry {
    for sink in &mut registry.sinks {
        let text = normalised(&sink.definition.sql);
        let is_it = |file: &&SinkDefinition| file.name == sink.name && normalised(&file.sql) == text;
        if let Some(in_file) = changes.sinks.iter().find(is_it) {
            sink.definition = Arc::new(in_file.clone());
        }
    }
    for alert in &mut registry.alerts {
        let text = normalised(&alert.definition.sql);
        let is_it = |file: &&AlertDefinition| file.name == alert.name && normalised(&file.sql) == text;
        if let Some(in_file) = changes.alerts.iter().find(is_it) {
            alert.definition = Arc::new(in_file.clone());
        }
    }
    registry
}

/// Refuses sinks and alerts whose records would lead back to what they are made from, also through those that are in
/// the catalog alone.
fn refuse_loops(registry: &Registry) -> Result<()> {
    let sinks = registry.sinks.iter().filter_map(|sink| Some(TopicWriter::from_sink(&sink.definition, sink.plan.as_ref().ok()?)));
    let alerts = registry.alerts.iter().filter_map(|alert| Some(TopicWriter::from_alert(&alert.definition, alert.plan.as_ref().ok()?)));
    let writers: Vec<TopicWriter> = sinks.chain(alerts).collect();
    match loops(&writers).next() {
        Some((_, message)) => Err(Error::input(message).with("expected", "another topic, or one of those between them dropped")),
        None => Ok(()),
    }
}

/// Refuses what a sink or an alert could not be planned over any more: now, or once a version that is being built is
/// served.
async fn refuse_broken_outputs(registry: &Registry, functions: &Functions) -> Result<()> {
    let now = registry.broken_output(functions).await;
    for view in registry.views.iter().filter(|view| view.status == DefinitionStatus::Building) {
        let later = registry.serving(&view.name, view.version).broken_output(functions).await;
        match (&now, later) {
            (Some(broken), None) => return Err(needs(broken, view)),
            (None, Some(broken)) => {
                return Err(refused(&broken, &format!(" over version {} of the view \"{}\"", view.version, view.name)));
            }
            _ => {}
        }
    }
    match now {
        Some(broken) => Err(refused(&broken, "")),
        None => Ok(()),
    }
}

fn refused(broken: &BrokenOutput, when: &str) -> Error {
    let (kind, name, found) = (broken.kind.word(), &broken.name, &broken.found);
    let expected = format!("views with the columns and keys that live {kind}s read, or the {kind} changed or dropped with them");
    Error::input(format!("the {kind} \"{name}\" could no longer be planned{when}: {found}")).with("expected", expected)
}

/// The error for one that fits a version of a view that is still to be built: it would take effect at once.
fn needs(broken: &BrokenOutput, view: &LiveView) -> Error {
    let (kind, name, found) = (broken.kind.word(), &broken.name, &broken.found);
    let LiveView { name: view, version, .. } = view;
    let help = format!(
        "apply a view with the columns of both versions first, and the {kind} once that is served (`basestream batch run {view}` \
         builds it); then remove the columns that are not read any more"
    );
    let message = format!("the {kind} \"{name}\" needs version {version} of the view \"{view}\", which is built first: {found}");
    Error::input(message).with("help", help)
}
