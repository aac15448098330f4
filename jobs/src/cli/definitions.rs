//! `init`, `check`, `plan`, `apply` and `explain`: a project's files, and the catalog's versions of them.

use std::fmt::Write;
use std::path::PathBuf;

use catalog::{DefinitionKind, DefinitionStatus};
use clap::Args;
use committed::names::not_among;
use engine::plan::explain::Explanation;
use indicatif::HumanCount;
use serde_json::json;
use types::{Error, Result};

use super::ingest::{FormatArg, delimiter, numbers};
use super::{AuditedChange, Context, Done, progress};
use crate::apply::{self, ApplyOptions, ChangeKind, Changes, DiffLine, ValueChange, Wanted, checked_records};
use crate::backfill::{DecodingProgress, Survey};
use crate::check::{Checked, check_project};
use crate::ingest::{NumberFormat, Shape};
use crate::installation::now;
use crate::output::{count_of, noun_of, size, table};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  basestream init shop\n  basestream init shop --from orders.csv      # guesses the columns, makes a first view"
)]
pub(super) struct InitArgs {
    /// The project's folder; created if it does not exist, nothing in it is overwritten
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// A file of events (JSON lines, CSV or Parquet) to which stream and view are fitted
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The format of that file [default: by its name]
    #[arg(long, value_enum, requires = "from")]
    format: Option<FormatArg>,
    /// The delimiter of CSV [default: guessed from the header]
    #[arg(long, value_name = "CHAR", value_parser = delimiter, requires = "from")]
    delimiter: Option<u8>,
    /// How a CSV file writes numbers: 1,234.56 or 1.234,56 or "1 234,56" or "1'234.56" [default: guessed]
    #[arg(long, value_name = "EXAMPLE", value_parser = numbers, requires = "from")]
    numbers: Option<NumberFormat>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  basestream check\n  basestream check device_velocity\n  basestream check --config shop/basestream.toml --json"
)]
pub(super) struct CheckArgs {
    /// Report this view alone; mistakes are listed wherever they are
    view: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  basestream plan")]
pub(super) struct PlanArgs {
    /// Show what `apply --prune` would change
    #[arg(long)]
    prune: bool,
    /// Show what `apply --no-backfill` would change
    #[arg(long)]
    no_backfill: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream apply\n  basestream apply --prune      # also retires what the files no longer define\n\n\
    A changed view is built next to the old version; `basestream batch run VIEW` (or the scheduler) switches over.\n\
    A stream's new or changed columns are read from the archived raw records before anything switches.")]
pub(super) struct ApplyArgs {
    /// Retire what is in the catalog and no longer in the files
    #[arg(long)]
    prune: bool,
    /// Leave added columns NULL in archived events; `basestream backfill` fills them later
    #[arg(long)]
    no_backfill: bool,
    /// Where an archived record does not fit a changed column that may be NULL, make it NULL
    #[arg(long, conflicts_with = "no_backfill")]
    null_misfits: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream backfill payments --dry-run\n  basestream backfill payments\n\n\
    For a stream that was changed with `apply --no-backfill`, or by an earlier release. Layers may run meanwhile.")]
pub(super) struct BackfillArgs {
    /// A stream in the catalog
    stream: String,
    /// List the records that do not fit, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Where a record does not fit a column that may be NULL, make it NULL
    #[arg(long)]
    null_misfits: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  basestream explain device_velocity\n  basestream explain scored_payments")]
pub(super) struct ExplainArgs {
    /// A view in the files; or a sink or an alert, of which it shows what it reads and uses
    #[arg(value_name = "NAME")]
    view: String,
}

impl BackfillArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        if self.dry_run { None } else { AuditedChange::new("backfill", "stream", &self.stream) }
    }
}

pub(super) fn init(context: &Context, args: InitArgs) -> Result<Done> {
    let shape = Shape { format: args.format.map(Into::into), delimiter: args.delimiter, numbers: args.numbers };
    let made = crate::init::init(&args.folder, args.from.as_deref(), shape)?;
    context.output.print(&made, || made.text())?;
    Ok(Done::Success)
}

pub(super) async fn check(context: &Context, args: CheckArgs) -> Result<Done> {
    let mut checked = checked(context).await?;
    let ok = !checked.diagnostics.has_errors();
    // A view with a mistake has no report.
    if let (Some(view), true) = (&args.view, ok) {
        let unknown = unknown_view(&checked, view);
        checked = checked.only_view(view).ok_or(unknown)?;
    }
    let (streams, views, sinks, alerts) = (&checked.streams, &checked.views, &checked.sinks, &checked.alerts);
    let diagnostics = &checked.diagnostics;
    let (parameters, unchecked) = (&checked.parameters, checked.unchecked());
    let value = json!({
        "ok": ok, "diagnostics": diagnostics, "unchecked": unchecked, "streams": streams, "views": views, "sinks": sinks, "alerts": alerts,
        "parameters": parameters,
    });
    context.output.print(&value, || checked.text())?;
    Ok(if ok { Done::Success } else { Done::Found })
}

pub(super) async fn plan(context: &Context, args: PlanArgs) -> Result<Done> {
    let checked = faultless(checked(context).await?)?;
    let installation = context.installation().await?;
    let state = installation.catalog.state().await?;
    let options = ApplyOptions { prune: args.prune, no_backfill: args.no_backfill, ..ApplyOptions::default() };
    let changes = installation.plan(wanted(&checked), options, &state).await?;
    context.output.print(&changes, || changes_text(&changes, args.prune, Tense::Would))?;
    if changes.refusals().is_err() {
        return Ok(Done::Found);
    }
    checked_records(&state, &changes, args.prune, now(), &context.functions).await?;
    Ok(Done::Success)
}

pub(super) async fn apply(context: &Context, args: ApplyArgs) -> Result<Done> {
    let checked = faultless(checked(context).await?)?;
    let options = ApplyOptions { prune: args.prune, no_backfill: args.no_backfill, null_misfits: args.null_misfits, dry_run: false };
    applied(context, wanted(&checked), options).await
}

pub(super) async fn backfill(context: &Context, args: BackfillArgs) -> Result<Done> {
    let options = ApplyOptions { null_misfits: args.null_misfits, dry_run: args.dry_run, ..ApplyOptions::default() };
    applied(context, Wanted::Archive { stream: &args.stream }, options).await
}

/// Applies what is wanted, with a bar while archives are decoded. Exits with 1 if records do not fit.
async fn applied(context: &Context, wanted: Wanted<'_>, options: ApplyOptions) -> Result<Done> {
    let installation = context.installation().await?;
    let bar = progress::bytes("decoding", Some(0), !context.output.json);
    let shown = bar.clone();
    let on_progress = move |progress| match progress {
        DecodingProgress::Total(bytes) => shown.inc_length(bytes),
        DecodingProgress::Read(bytes) => shown.inc(bytes),
    };
    let changes = installation.apply_with(wanted, options, &on_progress).await;
    bar.finish_and_clear();
    let changes = changes?;
    let fit = changes.misfits();
    let tense = if options.dry_run { Tense::DryRun } else { Tense::Did };
    if let (Err(error), false) = (&fit, context.output.json) {
        return Err(error.copied());
    }
    context.output.print(&changes, || changes_text(&changes, options.prune, tense))?;
    Ok(if fit.is_ok() { Done::Success } else { Done::Found })
}

fn wanted(checked: &Checked) -> Wanted<'_> {
    Wanted::Definitions { definitions: &checked.definitions, staging: &checked.staging }
}

pub(super) async fn explain(context: &Context, args: ExplainArgs) -> Result<Done> {
    let checked = checked(context).await?;
    if let Some(report) = checked.only_output(&args.view).filter(|_| !checked.diagnostics.has_errors()) {
        let (sinks, alerts, parameters) = (&report.sinks, &report.alerts, &report.parameters);
        context.output.print(&json!({ "sinks": sinks, "alerts": alerts, "parameters": parameters }), || report.text())?;
        return Ok(Done::Success);
    }
    let Some(explanation) = checked.explain(&args.view) else {
        return Err(no_explanation(&checked, &args.view));
    };
    context.output.print(&explanation, || explanation_text(&explanation))?;
    Ok(Done::Success)
}

async fn checked(context: &Context) -> Result<Checked> {
    let settings = context.settings()?;
    let checked = check_project(&settings.project, &context.functions, now()).await?;
    let checked = checked.with_dedup_memory(settings.speed.dedup_memory).with_batch_memory(settings.batch.memory_limit);
    Ok(checked.with_group(&settings.speed.group))
}

/// Returns definitions without errors; their warnings are printed to standard error.
fn faultless(checked: Checked) -> Result<Checked> {
    if checked.diagnostics.has_errors() {
        checked.diagnostics.clone().into_result()?;
    }
    for warning in &checked.diagnostics {
        tracing::warn!("{warning}");
    }
    Ok(checked)
}

fn no_explanation(checked: &Checked, view: &str) -> Error {
    if checked.staging.contains(view) {
        return Error::input(format!("the view \"{view}\" has no aggregate: it is inlined where it is used and keeps no state"));
    }
    if let Err(error) = checked.diagnostics.clone().into_result() {
        return error;
    }
    unknown_view(checked, view)
}

fn unknown_view(checked: &Checked, view: &str) -> Error {
    let streams = checked.definitions.streams.iter().map(|stream| (DefinitionKind::Stream, &*stream.name));
    let views = checked.plans.iter().map(|plan| (DefinitionKind::View, &*plan.view));
    not_among(DefinitionKind::View, view, streams.chain(views)).with("in", "the project's files")
}

#[derive(Clone, Copy, PartialEq)]
enum Tense {
    Would,
    /// It was tried, and nothing was changed.
    DryRun,
    Did,
}

fn changes_text(changes: &Changes, prune: bool, tense: Tense) -> String {
    let mut text = String::new();
    for change in &changes.changes {
        change_text(&mut text, change, prune);
        if change.kind == DefinitionKind::Stream && changes.restarted.contains_key(&change.name) {
            let _ = writeln!(text, "    no record of it is committed: it begins anew, at the beginning of the topic");
        }
    }
    for kept in changes.stale.iter().filter(|reader| reader.status == DefinitionStatus::Kept) {
        let _ = writeln!(text, "  view {} (version {}, kept: dropped, it reads {})", kept.view, kept.version, kept.columns.join(", "));
    }
    let unchanged = changes.changes.iter().filter(|change| matches!(change.change_kind, ChangeKind::Unchanged { .. })).count();
    if unchanged > 0 {
        let _ = writeln!(text, "  {unchanged} unchanged");
    }
    changes.backfills.iter().for_each(|survey| backfill_text(&mut text, survey, tense));
    let counts = counts_text(changes, prune);
    let refused = changes.changes.iter().filter(|change| matches!(change.change_kind, ChangeKind::Refused { .. })).count();
    let _ = match (counts.is_empty(), tense) {
        _ if refused > 0 => write!(text, "`basestream apply` changes nothing: {refused} of the changes cannot be made"),
        (true, _) => write!(text, "nothing to change"),
        (false, Tense::Did) => write!(text, "{counts}"),
        (false, Tense::DryRun) => write!(text, "every record fits; without `--dry-run`: {counts}"),
        (false, Tense::Would) => write!(text, "with `basestream apply`: {counts}"),
    };
    text
}

/// Writes one change. What is unchanged is counted only.
fn change_text(text: &mut String, change: &apply::Change, prune: bool) {
    let subject = format!("{} {}", change.kind.word(), change.name);
    let _ = match &change.change_kind {
        ChangeKind::Added { version } => writeln!(text, "+ {subject} (version {version})"),
        ChangeKind::Changed { from, version, built_beside, diff } => {
            let beside = if *built_beside { ", built next to the served version until its first batch run" } else { "" };
            let written = writeln!(text, "~ {subject} (version {from} -> {version}{beside})");
            diff_text(text, diff);
            written
        }
        ChangeKind::Rebuilt { from, version, built_beside, columns } => {
            let from_when = match built_beside {
                true => "built next to the served version until its first batch run",
                false => "which answers from the switch on",
            };
            writeln!(text, "~ {subject} (version {from} -> {version}, {from_when}: it reads {})", columns.join(", "))
        }
        ChangeKind::Adjusted { version, diff } => {
            let written =
                writeln!(text, "~ {subject} (version {version} stays, with other options for its runs: nothing is computed again)");
            diff_text(text, diff);
            written
        }
        ChangeKind::Reverted { version, dropped } => {
            writeln!(text, "~ {subject} (back to version {version}; version {dropped}, which was being built, is dropped)")
        }
        ChangeKind::Returned { from, version } => {
            writeln!(text, "~ {subject} (version {from} -> {version}, which was kept and answers at once)")
        }
        ChangeKind::RolledBack { version, from, is_kept } => {
            let help = match is_kept {
                true => format!("`basestream view switch {}@{from}` serves it again", change.name),
                false if change.kind == DefinitionKind::View => "change its text to build it again".to_owned(),
                false => format!("`basestream rollback {}` returns to its text, and a text that is changed is applied", change.name),
            };
            writeln!(text, "  {subject} (version {version}, to which it was rolled back; the files have version {from}: {help})")
        }
        ChangeKind::Unchanged { .. } => Ok(()),
        ChangeKind::Missing { version } if prune => writeln!(text, "- {subject} (version {version}, not in the files)"),
        ChangeKind::Missing { version } => {
            writeln!(text, "  {subject} (version {version}, not in the files: kept; `apply --prune` retires it)")
        }
        ChangeKind::Refused { reasons, help } => {
            let _ = writeln!(text, "! {subject} cannot be changed like this");
            let _ = reasons.iter().try_for_each(|reason| writeln!(text, "    {reason}"));
            writeln!(text, "    help: {help}")
        }
    };
    if let Some(value) = &change.value {
        value_text(text, change, value);
    }
}

/// Writes what becomes of a parameter's value, with its version as records name it: the definition has versions of its
/// own.
fn value_text(text: &mut String, change: &apply::Change, value: &ValueChange) {
    let ValueChange { initial, before, after, version: value_version, .. } = value;
    let in_records = format!("{}@{value_version}", change.name);
    let _ = match (&change.change_kind, before) {
        (ChangeKind::Refused { .. }, _) => Ok(()),
        (ChangeKind::Unchanged { .. }, _) if initial == after => Ok(()),
        (ChangeKind::Unchanged { version }, _) => {
            let name = &change.name;
            let set = format!("has the value {after} ({in_records}), which was set; the files begin with {initial}");
            writeln!(text, "  parameter {name} (version {version}) {set}")
        }
        (_, None) => writeln!(text, "    the value is {after} ({in_records})"),
        (_, Some(before)) if before == after => writeln!(text, "    the value stays {after} ({in_records})"),
        (_, Some(before)) => writeln!(text, "    the value {before} becomes {after} ({in_records})"),
    };
}

/// `1 added, 2 changed`: empty if nothing would change.
fn counts_text(changes: &Changes, prune: bool) -> String {
    let (mut added, mut changed, mut retired) = (0, 0, 0);
    for change in &changes.changes {
        match change.change_kind {
            ChangeKind::Added { .. } => added += 1,
            ChangeKind::Changed { .. }
            | ChangeKind::Rebuilt { .. }
            | ChangeKind::Adjusted { .. }
            | ChangeKind::Reverted { .. }
            | ChangeKind::Returned { .. } => changed += 1,
            ChangeKind::Missing { .. } if prune => retired += 1,
            ChangeKind::Missing { .. } | ChangeKind::RolledBack { .. } | ChangeKind::Unchanged { .. } | ChangeKind::Refused { .. } => {}
        }
    }
    let counts = [(added, "added"), (changed, "changed"), (retired, "retired"), (changes.backfills.len(), "decoded again")];
    let counts: Vec<String> = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    counts.join(", ")
}

fn diff_text(text: &mut String, diff: &[DiffLine]) {
    for line in diff {
        let _ = match line {
            DiffLine::Same(line) => writeln!(text, "      {line}"),
            DiffLine::Removed(line) => writeln!(text, "    - {line}"),
            DiffLine::Added(line) => writeln!(text, "    + {line}"),
        };
    }
}

/// Writes what is decoded again of a stream, and what it costs.
fn backfill_text(text: &mut String, survey: &Survey, tense: Tense) {
    let columns: Vec<String> = survey.columns.iter().map(|changed| format!("{} ({})", changed.column, changed.change)).collect();
    let (would, before) = match tense {
        Tense::Would | Tense::DryRun => ("would be ", " before anything switches"),
        Tense::Did => ("", ""),
    };
    let (files, bytes) = (count_of(survey.files, "file"), size(survey.bytes));
    let events = format!("{} {}", counted(survey.events), noun_of(survey.events, "event"));
    let _ =
        writeln!(text, "* archive of {} {would}decoded again by version {}{before}: {}", survey.stream, survey.version, columns.join(", "));
    let _ = writeln!(text, "    {files}, {events}, {bytes}; the files before stay until no reader needs them");
    if survey.without_raw > 0 {
        let (kept, one) = (counted(survey.without_raw), survey.without_raw == 1);
        let (events, them) = if one { ("event was", "it") } else { ("events were", "them") };
        let _ = writeln!(
            text,
            "    {kept} {events} archived without raw records (keep_raw = false): added columns stay NULL in {them}, \
             changed ones do not fit"
        );
    }
}

fn counted(events: i64) -> HumanCount {
    HumanCount(events.max(0) as u64)
}

fn explanation_text(explained: &Explanation) -> String {
    let indented = |sql: &str| sql.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n");
    let states = explained.states.iter().enumerate().map(|(i, state)| vec![format!("s{i}"), state.aggregate.clone(), state.kept_as()]);
    let ranges = explained.ranges.iter().map(|range| vec![range.range.clone(), range.hop.clone(), range.tiles.to_string()]);
    let mut parts = vec![
        format!(
            "batch and speed keep, for each key and tile ({} tiles and their merges: {}):",
            explained.levels.first().map_or("", String::as_str),
            explained.levels.join(", ")
        ),
        indented(&explained.states_sql),
        "serving answers:".to_owned(),
        indented(&explained.answer_sql),
        table(&["state", "of", "kept as"], states),
        table(&["window", "hop", "tiles merged at most"], ranges),
    ];
    if let Some(links) = &explained.links {
        parts.push(format!("edges ({}): {}; max_degree {}", links.kind, links.kept, links.max_degree));
    }
    if !explained.approximate.is_empty() {
        parts.push(format!("approximate: {}", explained.approximate.join(", ")));
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests;
