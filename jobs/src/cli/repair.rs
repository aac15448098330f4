//! `repair`: checks every file, and rebuilds damaged ones.

use std::fmt::Write;

use clap::Args;
use types::{ErrorKind, Result};

use super::{AuditedChange, Context, Done, progress};
use crate::output::{count_of, size, table};
use crate::repair::{CheckProgress, RepairAction, RepairOptions, RepairReport, StepOutcome, repair};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream repair --dry-run\n  basestream repair\n  basestream repair payments --accept-gap\n\n\
    Reads every byte. Layers may run meanwhile. The exit code is 1 if damage remains, but for a dry run.")]
pub(super) struct RepairArgs {
    /// Only the files of this stream, and of the views that read it
    stream: Option<String>,
    /// Report what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Record as lost what the log no longer has, and continue without it
    #[arg(long)]
    accept_gap: bool,
}

impl RepairArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        let object = self.stream.as_ref().map_or("the installation".to_owned(), |stream| format!("the stream \"{stream}\""));
        (!self.dry_run).then_some(AuditedChange { action: "repair", object, found: ErrorKind::Corrupt })
    }
}

pub(super) async fn run(context: &Context, args: RepairArgs) -> Result<Done> {
    let installation = context.installation().await?;
    let bar = progress::bytes("checking", Some(0), !context.output.json);
    let shown = bar.clone();
    let show = move |progress| match progress {
        CheckProgress::Total(bytes) => shown.set_length(bytes),
        CheckProgress::Read(bytes) => shown.inc(bytes),
    };
    let options = RepairOptions { stream: args.stream.map(Into::into), dry_run: args.dry_run, accept_gap: args.accept_gap };
    let report = repair(&installation, &options, &show).await;
    bar.finish_and_clear();
    let report = report?;
    context.output.print(&report, || text(&report))?;
    // A dry run has reported what it was asked for.
    Ok(if report.dry_run || report.is_whole() { Done::Success } else { Done::Found })
}

fn text(report: &RepairReport) -> String {
    let mut text = format!("{}, {}: ", count_of(report.files, "file"), size(report.bytes));
    match report.steps.len() {
        0 => text.push_str("no damage found"),
        1 => text.push_str("1 is damaged"),
        damaged => {
            let _ = write!(text, "{damaged} are damaged");
        }
    }
    if !report.steps.is_empty() {
        let rows =
            report.steps.iter().map(|outcome| vec![outcome.step.path.clone(), outcome.step.error.clone(), said(outcome, report.dry_run)]);
        let _ = write!(text, "\n\n{}", table(&["file", "damage", "repair"], rows));
    }
    if !report.gaps.is_empty() {
        let _ = write!(text, "\n\nrecorded as lost:\n  {}", report.gaps.join("\n  "));
    }
    text
}

fn said(outcome: &StepOutcome, dry_run: bool) -> String {
    match (&outcome.done, &outcome.failed) {
        (Some(done), _) => done.clone(),
        (None, Some(failed)) => format!("failed: {failed}"),
        (None, None) if dry_run => would(&outcome.step.action),
        (None, None) => "not repaired: the collector deletes it".into(),
    }
}

fn would(action: &RepairAction) -> String {
    match action {
        RepairAction::RebuildStates => "would be rebuilt from the archive".into(),
        RepairAction::RequestRun { view, .. } => format!("would be replaced by a run of {view}"),
        RepairAction::ReadAgain { .. } => "would be read again from the log".into(),
        RepairAction::GiveUp { why, .. } => format!("would be recorded as lost: {why}"),
        RepairAction::Leave => "not repaired: the collector deletes it".into(),
        RepairAction::Refuse { why, help } => format!("cannot be repaired: {why} ({help})"),
    }
}
