//! Formats `status` and `batch history` as text.

use catalog::{Comparison, DefinitionKind, DefinitionStatus, RunStatus};

use super::problems::{Problem, Severity, difference_text};
use super::{AlertStatus, DefinitionReport, PartitionStatus, QueuedRun, RunReport, SinkStatus, Status, ViewStatus};
use crate::output::{count_of, one_line, size, table};
use crate::readers::SpeedProcess;
use types::Strategy;

pub(super) fn status(status: &Status) -> String {
    let mut parts = Vec::new();
    let streams: Vec<&str> = status.definitions.iter().filter(|d| d.kind == DefinitionKind::Stream).map(|d| &*d.name).collect();
    if !status.is_known() {
        parts.push("the catalog does not answer: what is committed and served is not known".to_owned());
    } else if status.definitions.is_empty() {
        parts.push("nothing is defined yet: `basestream apply` puts the files' definitions into the catalog".to_owned());
    } else if status.partitions.is_empty() {
        parts.push(format!("streams {}: nothing is in the log yet", streams.join(", ")));
    }
    if !status.partitions.is_empty() {
        parts.push(partitions(&status.partitions));
    }
    if status.readers.len() > 1 {
        parts.push(readers(&status.readers));
    }
    if !status.views.is_empty() {
        let header = ["view", "version", "status", "snapshot at", "after the cut", "last run"];
        parts.push(table(&header, status.views.iter().map(view)));
    }
    if !status.runs.is_empty() {
        parts.push(runs(&status.runs));
    }
    if !status.queued.is_empty() {
        let header = ["queued", "version", "due since", "attempt", "events", "why"];
        parts.push(table(&header, status.queued.iter().map(queued)));
    }
    if !status.sinks.is_empty() {
        let header = ["sink", "version", "status", "stream", "lag", "topic", "error"];
        parts.push(table(&header, status.sinks.iter().map(sink)));
    }
    if !status.alerts.is_empty() {
        let header = ["alert", "version", "open", "transitions", "run by", "looked at", "as of"];
        parts.push(table(&header, status.alerts.iter().map(alert)));
    }
    parts.extend(paused(&status.definitions));
    parts.extend(status.problems.iter().map(problem));
    if !status.has_problems() {
        parts.push(match status.problems.len() {
            0 => "no problems found".to_owned(),
            notices => format!("no problems; {} above", count_of(notices, "notice")),
        });
    }
    parts.join("\n\n")
}

fn problem(problem: &Problem) -> String {
    let word = match problem.severity {
        Severity::Error => "PROBLEM",
        Severity::Warning => "warning",
        Severity::Notice => "notice",
    };
    let Problem { what, cause, effect, next_step, .. } = problem;
    format!("{word}: {what}\n  cause:  {cause}\n  effect: {effect}\n  next:   {next_step}")
}

fn partitions(partitions: &[PartitionStatus]) -> String {
    let header = ["stream", "partition", "committed", "end", "lag", "archived", "duplicate", "dead", "absent", "complete to"];
    let number = |number: Option<i64>| number.map_or("?".to_owned(), |number| number.to_string());
    let rows = partitions.iter().map(|p| {
        vec![
            p.stream.to_string(),
            p.partition.to_string(),
            p.next_offset.to_string(),
            number(p.end_offset),
            number(p.lag),
            p.archived.to_string(),
            p.duplicate.to_string(),
            p.dead_lettered.to_string(),
            p.absent.to_string(),
            p.complete_to.clone().unwrap_or_else(|| "-".into()),
        ]
    });
    let mut text = table(&header, rows);
    let mut listed: Vec<String> = Vec::new();
    for partition in partitions {
        let Some(error) = &partition.log_error else { continue };
        let line = format!("\nthe end of {} is not known: {error}", partition.stream);
        if !listed.contains(&line) {
            text.push_str(&line);
            listed.push(line);
        }
    }
    let absent: i64 = partitions.iter().map(|partition| partition.absent).sum();
    if absent > 0 {
        let offsets = count_of(absent, "offset");
        text.push_str(&format!("\n{offsets} delivered no record (control records or compaction; on the embedded log a defect)"));
    }
    text
}

/// Formats the readers; called only if there are several.
fn readers(readers: &[SpeedProcess]) -> String {
    let what_it_reads = |reader: &SpeedProcess| {
        let (workers, partitions) = (count_of(reader.workers, "worker"), count_of(reader.partitions, "partition"));
        format!("{} {partitions} by {workers}", reader.process)
    };
    format!(
        "{} processes read: {}; for partitions that others read, each answers up to speed.checkpoint_interval behind unless it follows them",
        readers.len(),
        readers.iter().map(what_it_reads).collect::<Vec<_>>().join(", ")
    )
}

fn sink(sink: &SinkStatus) -> Vec<String> {
    vec![
        sink.sink.to_string(),
        sink.version.to_string(),
        sink.state().to_owned(),
        sink.stream.as_deref().unwrap_or("?").to_owned(),
        sink.lag.map_or("?".to_owned(), |lag| lag.to_string()),
        sink.topic.to_string(),
        one_line(sink.error().unwrap_or("-")),
    ]
}

fn alert(alert: &AlertStatus) -> Vec<String> {
    let looked_at = match &alert.waits {
        Some(_) => Some("waits"),
        None => alert.looked_at.as_deref(),
    };
    vec![
        alert.alert.to_string(),
        alert.version.to_string(),
        alert.open.to_string(),
        alert.transitions.to_string(),
        alert.run_by.clone().unwrap_or_else(|| "none".into()),
        looked_at.unwrap_or("-").to_owned(),
        alert.at.clone().unwrap_or_else(|| "-".into()),
    ]
}

fn view(view: &ViewStatus) -> Vec<String> {
    let last = view.last_run.as_ref().map_or("none".to_owned(), |run| match &run.error {
        Some(error) => format!("{}: {error}", run_word(run.status)),
        None => format!("{} {}", run_word(run.status), run.ended_at.as_deref().unwrap_or_default()).trim_end().to_owned(),
    });
    vec![
        view.view.to_string(),
        view.version.to_string(),
        view_word(view),
        view.snapshot_at.clone().unwrap_or_else(|| "none yet".into()),
        view.after_cut.map_or("-".to_owned(), |records| records.to_string()),
        last,
    ]
}

/// What a user paused is no problem.
fn paused(definitions: &[DefinitionReport]) -> Option<String> {
    let line = |definition: &DefinitionReport| {
        let since = definition.paused_since.as_ref()?;
        Some(format!("the {} {} is paused since {since}", definition.kind.word(), definition.name))
    };
    let lines: Vec<String> = definitions.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn view_word(view: &ViewStatus) -> String {
    match (&view.refused, &view.building) {
        (Some(_), _) => "refused".to_owned(),
        (None, Some(building)) => format!("building, {}", building.text),
        (None, None) => status_word(DefinitionKind::View, view.status),
    }
}

/// Returns the displayed status of a definition: `served`, `building`.
fn status_word(kind: DefinitionKind, status: DefinitionStatus) -> String {
    match (kind, status) {
        (DefinitionKind::View, DefinitionStatus::Active) => "served".into(),
        (_, DefinitionStatus::Active) => "active".into(),
        (_, DefinitionStatus::Building) => "building".into(),
        (_, DefinitionStatus::Kept) => "kept".into(),
        (kind, DefinitionStatus::Retired | DefinitionStatus::Redecoded) => format!("retired {}", kind.word()),
    }
}

pub(super) fn runs(runs: &[RunReport]) -> String {
    let header = [
        "run",
        "view",
        "version",
        "status",
        "started",
        "seconds",
        "strategy",
        "events",
        "read",
        "state rows",
        "written",
        "tiers",
        "reserved",
        "memory",
        "compared",
        "error",
    ];
    let rows = runs.iter().map(|run| {
        vec![
            run.run.clone(),
            run.view.to_string(),
            run.version.to_string(),
            run.building
                .as_ref()
                .map_or(run_word(run.status).to_owned(), |building| format!("{}, {}", run_word(run.status), building.text)),
            run.started_at.clone().unwrap_or_else(|| "-".into()),
            run.seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.2}")),
            run.strategy.map_or("-", Strategy::name).to_owned(),
            run.events_read.to_string(),
            size(run.bytes_read),
            run.rows_written.to_string(),
            size(run.bytes_written),
            run.tiers.to_string(),
            size(run.peak_memory_bytes),
            size(run.peak_resident_bytes),
            run.comparison.as_ref().map_or("-".to_owned(), compared),
            run.error.as_deref().unwrap_or("-").to_owned(),
        ]
    });
    table(&header, rows)
}

fn queued(run: &QueuedRun) -> Vec<String> {
    let (version, attempt, events) = (run.version.to_string(), run.attempt.to_string(), run.events.to_string());
    vec![run.view.to_string(), version, run.due_at.clone(), attempt, events, run.reason.to_owned()]
}

fn compared(comparison: &Comparison) -> String {
    match (comparison.differences, &comparison.error) {
        (0, Some(_)) => "failed".to_owned(),
        (0, None) => "equal".to_owned(),
        (differences, _) => count_of(differences, "difference"),
    }
}

pub(super) fn comparison(comparison: &Comparison) -> String {
    let Comparison { rows, differences, first, seconds, error, .. } = comparison;
    let cost = format!("{} in {seconds:.2} s", count_of(*rows, "state row"));
    match (differences, error) {
        (0, Some(error)) => format!("not compared with the states that incremental runs had kept: {error}"),
        (0, None) => format!("equal to the states that incremental runs had kept: {cost}"),
        _ => {
            let lines = first.iter().map(|difference| format!("\n  {}", difference_text(difference)));
            let differences = count_of(*differences, "difference");
            format!("{differences} from the states that incremental runs had kept, of {cost}{}", lines.collect::<String>())
        }
    }
}

fn run_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Requested => "requested",
        RunStatus::Running => "running",
        RunStatus::Succeeded => "succeeded",
        RunStatus::Failed => "failed",
        RunStatus::Dropped => "dropped",
        RunStatus::Skipped => "skipped",
    }
}
