//! `pause`, `resume` and `rollback` of sinks and alerts.

use catalog::DefinitionKind;
use clap::Args;
use types::Result;

use super::{AuditedChange, Context, Done};
use crate::outputs::{Paused, RolledBack};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  basestream pause scored_payments\n  basestream sink switches scored_payments     # from which events on\n\n\
    Within about a second nothing is put out for it. Events are archived and counted in views as before.\n\
    A sink that is paused holds its stream up no longer, whatever it failed on."
)]
pub(super) struct PauseArgs {
    /// A sink or an alert
    name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  basestream resume scored_payments\n\n\
    The events of a sink's pause get no record: `basestream sink switches` lists them by their offsets. An alert \
    looks at all keys at once: what holds and was not open begins now.")]
pub(super) struct ResumeArgs {
    /// A sink or an alert
    name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  basestream rollback scored_payments\n\n\
    A new version gets the text that was live before. It stands until the text in the files is changed.")]
pub(super) struct RollbackArgs {
    /// A sink or an alert
    name: String,
}

impl PauseArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        AuditedChange::new("pause", "sink or alert", &self.name)
    }
}

impl ResumeArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        AuditedChange::new("resume", "sink or alert", &self.name)
    }
}

impl RollbackArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        AuditedChange::new("roll back", "sink or alert", &self.name)
    }
}

pub(super) async fn pause(context: &Context, args: PauseArgs) -> Result<Done> {
    let paused = context.installation().await?.pause(&args.name).await?;
    context.output.print(&paused, || paused_text(&paused))?;
    Ok(Done::Success)
}

pub(super) async fn resume(context: &Context, args: ResumeArgs) -> Result<Done> {
    let resumed = context.installation().await?.resume(&args.name).await?;
    context.output.print(&resumed, || resumed_text(&resumed))?;
    Ok(Done::Success)
}

pub(super) async fn rollback(context: &Context, args: RollbackArgs) -> Result<Done> {
    let rolled_back = context.installation().await?.roll_back(&args.name).await?;
    context.output.print(&rolled_back, || rolled_back_text(&rolled_back))?;
    Ok(Done::Success)
}

fn paused_text(paused: &Paused) -> String {
    let Paused { kind, name, paused_since, changed, .. } = paused;
    let since = paused_since.as_deref().unwrap_or_default();
    match (changed, kind) {
        (false, _) => format!("the {} {name} is paused already, since {since}", kind.word()),
        (true, DefinitionKind::Sink) => {
            format!("the sink {name} is paused: its events get no record until `basestream resume {name}`")
        }
        (true, _) => format!("the alert {name} is paused: nothing begins or is resolved until `basestream resume {name}`"),
    }
}

fn resumed_text(resumed: &Paused) -> String {
    let Paused { kind, name, version, was_paused_since, changed, .. } = resumed;
    let since = was_paused_since.as_deref().unwrap_or_default();
    match (changed, kind) {
        (false, _) => format!("the {} {name} is not paused", kind.word()),
        (true, DefinitionKind::Sink) => format!(
            "the sink {name} is resumed with version {version}; the events since {since} get no record: \
             `basestream sink switches {name}` lists them"
        ),
        (true, _) => format!("the alert {name} is resumed with version {version}; what holds and was not open begins now"),
    }
}

fn rolled_back_text(rolled_back: &RolledBack) -> String {
    let RolledBack { kind, name, from, version, text_of } = rolled_back;
    format!("the {} {name} is version {version} from now on, with the text of version {text_of}, instead of version {from}", kind.word())
}
