//! `view list`, `versions`, `diff`, `switch`, `rollback` and `drop`.

use std::fmt::Write;

use clap::{Args, Subcommand};
use indicatif::HumanCount;
use types::{Result, Strategy};

use super::{AuditedChange, Context, Done, progress};
use crate::apply::DiffLine;
use crate::output::{count_of, noun_of, size, table};
use crate::versions::diff::{ValueExample, ValuesDiff, VersionsDiff};
use crate::versions::{Dropped, ListedView, Switched, VersionName, Versions};

#[derive(Debug, Args)]
pub(super) struct ViewArgs {
    #[command(subcommand)]
    command: ViewCommand,
}

#[derive(Debug, Subcommand)]
enum ViewCommand {
    /// List the views of the catalog: which version is served or built, what it reads, and how its batch runs
    List,
    /// List a view's versions: which is served, built or kept, and what each changed
    #[command(after_help = "Example:\n  basestream view versions device_velocity")]
    Versions {
        /// A view in the catalog
        view: String,
    },
    /// Compare two versions: their texts and, row by row, their values; exit 1 on any difference
    #[command(after_help = "Examples:\n  basestream view diff device_velocity@1 device_velocity@2\n  \
        basestream view diff device_velocity@1 device_velocity            # with the served one\n  \
        basestream view diff device_velocity@1 device_velocity@2 --definitions\n\n\
        Values are compared at one position of the log and one time, in the columns that both have. A version that was \
        dropped has only its text.")]
    Diff {
        /// A version of a view; without @N, the one that is served
        #[arg(value_name = "VIEW[@N]")]
        one: VersionName,
        /// The version of the same view to compare it with; without @N, the one that is served
        #[arg(value_name = "VIEW[@N]")]
        other: VersionName,
        /// Compare the texts alone
        #[arg(long)]
        definitions: bool,
    },
    /// Serve another version now: the one that is being built if it can answer, or a kept one
    #[command(after_help = "Examples:\n  basestream view switch device_velocity\n  basestream view switch device_velocity@1\n\n\
        A version that is being built is switched to by itself after its first run.")]
    Switch {
        /// A version that is kept or being built; without @N, the one that is being built
        #[arg(value_name = "VIEW[@N]")]
        view: VersionName,
    },
    /// Return to the version that was served before, at once
    #[command(after_help = "Example:\n  basestream view rollback device_velocity\n\n\
        A replaced version is kept for the `keep_old` of the new one, by default a day. The rollback stands until \
        the view's text in the files is changed.")]
    Rollback {
        /// A view in the catalog
        view: String,
    },
    /// Drop a version that is kept or being built, or the whole view
    #[command(after_help = "Examples:\n  basestream view drop device_velocity@1\n  basestream view drop device_velocity --yes\n\n\
        Files are deleted within minutes. What the files still define comes back with the next `basestream apply`.")]
    Drop {
        /// A version that is kept or being built; without @N, the whole view
        #[arg(value_name = "VIEW[@N]")]
        view: VersionName,
        /// Drop what is served too
        #[arg(long)]
        yes: bool,
    },
}

impl ViewArgs {
    pub(super) fn change(&self) -> Option<AuditedChange> {
        match &self.command {
            ViewCommand::Switch { view } => AuditedChange::new("switch", "view", &view.to_string()),
            ViewCommand::Rollback { view } => AuditedChange::new("roll back", "view", view),
            ViewCommand::Drop { view, .. } => AuditedChange::new("drop", "view", &view.to_string()),
            ViewCommand::List | ViewCommand::Versions { .. } | ViewCommand::Diff { .. } => None,
        }
    }
}

pub(super) async fn view(context: &Context, args: ViewArgs) -> Result<Done> {
    match args.command {
        ViewCommand::List => {
            let views = context.installation().await?.views().await?;
            context.output.print(&views, || views_text(&views))?;
            Ok(Done::Success)
        }
        ViewCommand::Versions { view } => {
            let versions = context.installation().await?.view_versions(&view).await?;
            context.output.print(&versions, || versions_text(&versions))?;
            Ok(Done::Success)
        }
        ViewCommand::Diff { one, other, definitions } => diff(context, (&one, &other), !definitions).await,
        ViewCommand::Switch { view } => {
            let switched = context.installation().await?.switch_view(&view.view, view.version).await?;
            context.output.print(&switched, || switched_text(&switched))?;
            Ok(Done::Success)
        }
        ViewCommand::Rollback { view } => {
            let switched = context.installation().await?.roll_back_view(&view).await?;
            context.output.print(&switched, || switched_text(&switched))?;
            Ok(Done::Success)
        }
        ViewCommand::Drop { view, yes } => {
            let dropped = context.installation().await?.drop_view(&view.view, view.version, yes).await?;
            context.output.print(&dropped, || dropped_text(&dropped))?;
            Ok(Done::Success)
        }
    }
}

async fn diff(context: &Context, versions: (&VersionName, &VersionName), with_values: bool) -> Result<Done> {
    let installation = context.installation().await?;
    let bar = progress::rows("comparing", with_values && !context.output.json);
    let shown = bar.clone();
    let compared = installation.diff_versions(versions, with_values, &move |rows| shown.set_position(rows)).await;
    bar.finish_and_clear();
    let diff = compared?;
    context.output.print(&diff, || diff_text(&diff))?;
    Ok(if diff.is_equal() { Done::Success } else { Done::Found })
}

fn views_text(views: &[ListedView]) -> String {
    if views.is_empty() {
        return "no view is defined yet: `basestream apply` puts the files' definitions into the catalog".to_owned();
    }
    let rows = views.iter().map(|view| {
        let strategy = view.strategy.map_or("-", Strategy::name);
        let schedule = match (view.keeps_states, &view.schedule) {
            (false, _) => "-",
            (true, None) => "on request",
            (true, Some(schedule)) => schedule.as_str(),
        };
        vec![
            view.view.to_string(),
            view.version.to_string(),
            view.state(),
            strategy.to_owned(),
            schedule.to_owned(),
            view.streams.join(", "),
        ]
    });
    table(&["view", "version", "state", "strategy", "schedule", "streams"], rows)
}

fn versions_text(versions: &Versions) -> String {
    let rows = versions.versions.iter().map(|version| {
        let bytes = match version.snapshot_bytes {
            0 => "-".to_owned(),
            bytes => size(bytes),
        };
        vec![version.version.to_string(), version.state(), version.since.clone(), bytes, version.differs.clone()]
    });
    table(&["version", "state", "since", "snapshots", "differs"], rows)
}

fn switched_text(switched: &Switched) -> String {
    let Switched { view, from, version, kept_until, changed } = switched;
    if !changed {
        return format!("version {version} of {view} is served already");
    }
    let before = match (from, kept_until) {
        (Some(from), Some(until)) => format!("; version {from} is kept until {until}"),
        (Some(from), None) => format!("; version {from} is dropped"),
        (None, _) => String::new(),
    };
    format!("{view} is answered by version {version} from now on{before}")
}

fn dropped_text(dropped: &Dropped) -> String {
    let numbers: Vec<String> = dropped.versions.iter().map(u32::to_string).collect();
    match (dropped.is_whole, numbers.as_slice()) {
        (true, _) => format!("{} is dropped, with its versions {}", dropped.view, numbers.join(", ")),
        (false, _) => format!("version {} of {} is dropped", numbers.join(", "), dropped.view),
    }
}

fn diff_text(diff: &VersionsDiff) -> String {
    let [one, other] = diff.versions;
    let mut text = String::new();
    let is_same = diff.definition.iter().all(|line| matches!(line, DiffLine::Same(_)));
    let _ = match is_same {
        true => writeln!(text, "{}: versions {one} and {other} have the same text", diff.view),
        false => writeln!(text, "{}: version {one} -> {other}", diff.view),
    };
    for line in diff.definition.iter().filter(|_| !is_same) {
        let _ = match line {
            DiffLine::Same(line) => writeln!(text, "    {line}"),
            DiffLine::Removed(line) => writeln!(text, "  - {line}"),
            DiffLine::Added(line) => writeln!(text, "  + {line}"),
        };
    }
    if let Some(values) = &diff.values {
        values_text(&mut text, values, diff.versions);
    }
    text.trim_end().to_owned()
}

fn values_text(text: &mut String, values: &ValuesDiff, versions: [u32; 2]) {
    let count = |rows: u64| HumanCount(rows).to_string();
    let [t, other_t] = &values.t;
    let at = if t == other_t { t.clone() } else { format!("{t} and {other_t}") };
    let [one, other] = values.rows;
    let rows = format!("{} and {} {} at {at}, in {:.1} s", count(one), count(other), noun_of(other, "row"), values.seconds);
    let _ = match values.is_equal() {
        true => writeln!(text, "equal in {}: {rows}", count_of(values.columns.len(), "common column")),
        false => writeln!(text, "different: {rows}"),
    };
    for (version, keys) in versions.iter().zip(values.keys_only).filter(|(_, keys)| *keys > 0) {
        let _ = writeln!(text, "  {} {} only in version {version}", count(keys), noun_of(keys, "key"));
    }
    for (column, rows) in values.columns.iter().filter(|(_, rows)| **rows > 0) {
        let _ = writeln!(text, "  {column}: differs in {} {}", count(*rows), noun_of(*rows, "row"));
    }
    for (version, columns) in versions.iter().zip(&values.columns_only).filter(|(_, columns)| !columns.is_empty()) {
        let _ = writeln!(text, "  only in version {version}: {}", columns.join(", "));
    }
    for example in &values.examples {
        let _ = writeln!(text, "  {}", example_text(example));
    }
}

fn example_text(example: &ValueExample) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "NULL".to_owned());
    let key: Vec<String> = example.key.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
    let key = if key.is_empty() { "the row".to_owned() } else { key.join(" ") };
    match example.only_in {
        Some(version) => format!("{key}: only in version {version}"),
        None => {
            let columns = example.columns.iter().map(|(name, [one, other])| format!("{name} {} -> {}", shown(one), shown(other)));
            format!("{key}: {}", columns.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
