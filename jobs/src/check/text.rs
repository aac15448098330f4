//! Formats the report of `check`.

use std::fmt::Write;
use std::sync::Arc;

use definitions::DiagnosticSeverity;
use definitions::durations::format_bytes;

use super::{AlertReport, Checked, ParameterReport, SinkReport, StreamReport, UncheckedDefinition, ViewReport};
use crate::output::{count_of, size, table};

pub(super) fn checked(checked: &Checked) -> String {
    let found = &checked.diagnostics;
    let errors = found.iter().filter(|found| found.severity == DiagnosticSeverity::Error).count();
    if errors > 0 {
        // The reports of correct definitions would hide the mistakes.
        return format!("{found}\n\n{}{}", unchecked(&checked.unchecked()), count_of(errors, "error"));
    }
    let mut text = String::new();
    for stream in &checked.streams {
        write_stream(&mut text, stream);
    }
    for view in &checked.views {
        write_view(&mut text, view);
    }
    for sink in &checked.sinks {
        write_sink(&mut text, sink);
    }
    for alert in &checked.alerts {
        write_alert(&mut text, alert);
    }
    for parameter in &checked.parameters {
        write_parameter(&mut text, parameter);
    }
    if !found.is_empty() {
        let _ = writeln!(text, "{found}\n");
    }
    let definitions = &checked.definitions;
    let (streams, views) = (count_of(definitions.streams.len(), "stream"), count_of(definitions.views.len(), "view"));
    let others = [(definitions.sinks.len(), "sink"), (definitions.alerts.len(), "alert"), (definitions.parameters.len(), "parameter")];
    let others: Vec<String> = others.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| count_of(n, what)).collect();
    let _ = match others.split_last() {
        None => write!(text, "{streams} and {views}: no errors"),
        Some((last, [])) => write!(text, "{streams}, {views} and {last}: no errors"),
        Some((last, first)) => write!(text, "{streams}, {views}, {} and {last}: no errors", first.join(", ")),
    };
    text
}

/// One line for all that reads what is wrong, with an empty line after it.
fn unchecked(definitions: &[UncheckedDefinition]) -> String {
    let of_kind = |kind: &str| {
        let names: Vec<&str> = definitions.iter().filter(|of| of.kind == kind).map(|of| &*of.name).collect();
        (!names.is_empty()).then(|| format!("{} ({})", count_of(names.len(), kind), names.join(", ")))
    };
    let kinds: Vec<String> = ["view", "sink", "alert"].into_iter().filter_map(of_kind).collect();
    if kinds.is_empty() { String::new() } else { format!("not checked because of these errors: {}\n\n", kinds.join(", ")) }
}

fn write_stream(text: &mut String, stream: &StreamReport) {
    let _ = writeln!(text, "stream {}", stream.stream);
    let _ = writeln!(text, "  topic        {}", stream.topic);
    let columns: Vec<String> = stream.columns.iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
    let _ = writeln!(text, "  columns      {}", columns.join(", "));
    let _ = writeln!(text, "  event time   {}", stream.event_time);
    write_duplicates(text, stream);
    let _ = writeln!(text, "  retention    {}\n", stream.retention.as_deref().unwrap_or("for ever"));
}

fn write_duplicates(text: &mut String, stream: &StreamReport) {
    let (Some(id), Some(within), Some(memory)) = (&stream.id, &stream.dedup_within, stream.dedup_memory_bytes_at_1k_per_s) else {
        let _ = writeln!(text, "  duplicates   kept: the stream names no id with dedup_within");
        return;
    };
    let disk = stream.dedup_disk_bytes_at_1k_per_s.filter(|bytes| *bytes > 0);
    let disk = disk.map(|bytes| format!(" and {} of local disk", size(bytes))).unwrap_or_default();
    let _ = writeln!(text, "  duplicates   by {id} within {within}: about {} of memory{disk} at 1,000 events/s", size(memory));
    if let Some(wanted) = stream.dedup_memory_wanted_bytes_at_1k_per_s {
        let wanted = mebibytes(wanted);
        let _ = writeln!(
            text,
            "               warning: at that rate [speed] dedup_memory = \"{wanted}\" is needed to find duplicates without reading the disk"
        );
    }
}

/// Formats bytes as a setting, rounded up to whole MiB.
fn mebibytes(bytes: u64) -> String {
    format_bytes(bytes.div_ceil(1 << 20) << 20)
}

fn write_sink(text: &mut String, sink: &SinkReport) {
    let joins: Vec<&str> = sink.joins.iter().map(|view| &**view).collect();
    let columns: Vec<String> = sink.columns.iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
    let _ = writeln!(text, "sink {}", sink.sink);
    let _ = writeln!(text, "  reads        {}", sink.reads);
    let _ = writeln!(text, "  joins        {}", if joins.is_empty() { "no view".into() } else { joins.join(", ") });
    let _ = writeln!(text, "  topic        {}", sink.topic);
    let _ = writeln!(text, "  key          {}", sink.key.as_deref().unwrap_or("that of the event's record"));
    write_used(text, &sink.parameters);
    let _ = writeln!(text, "  columns      {}\n", columns.join(", "));
}

fn write_alert(text: &mut String, alert: &AlertReport) {
    let columns: Vec<String> = alert.columns.iter().map(|column| format!("{} {}", column.name, column.column_type)).collect();
    let _ = writeln!(text, "alert {}", alert.alert);
    let _ = writeln!(text, "  watches      {}", alert.watches);
    let _ = writeln!(text, "  topic        {}", alert.topic);
    let repeats =
        alert.repeat.as_deref().map_or("when it begins".to_owned(), |repeat| format!("when it begins, and every {repeat} while it holds"));
    let _ = writeln!(text, "  records      {repeats}{}", if alert.resolve { ", and when it ceases" } else { "" });
    write_used(text, &alert.parameters);
    let _ = writeln!(text, "  columns      {}\n", columns.join(", "));
}

fn write_used(text: &mut String, parameters: &[Arc<str>]) {
    if !parameters.is_empty() {
        let _ = writeln!(text, "  parameters   {}", parameters.join(", "));
    }
}

fn write_parameter(text: &mut String, parameter: &ParameterReport) {
    let _ = writeln!(text, "parameter {}", parameter.parameter);
    if let Some(description) = &parameter.description {
        let _ = writeln!(text, "  means        {description}");
    }
    let _ = writeln!(text, "  begins with  {} {}", parameter.value_type, parameter.value);
    let used_by = if parameter.used_by.is_empty() { "nothing".to_owned() } else { parameter.used_by.join(", ") };
    let _ = writeln!(text, "  used by      {used_by}\n");
}

fn write_view(text: &mut String, view: &ViewReport) {
    if !view.keeps_states {
        let _ = writeln!(text, "view {}\n  has no aggregate: it is inlined where it is used and keeps no state\n", view.view);
        return;
    }
    let reads: Vec<&str> = view.reads.iter().map(|stream| &**stream).collect();
    let _ = writeln!(text, "view {}", view.view);
    let _ = writeln!(text, "  reads        {}", reads.join(", "));
    let _ = writeln!(text, "  keys         {}", if view.keys.is_empty() { "none: one row".into() } else { view.keys.join(", ") });
    let _ = writeln!(text, "  runs         {}", runs(view));
    if let Some(limits) = limits(view) {
        let _ = writeln!(text, "  limits       {limits}");
    }
    if let Some(links) = &view.links {
        let _ = writeln!(text, "  links        {} edges; max_degree {}", links.kind, links.max_degree);
    }
    if !view.approximate.is_empty() {
        let _ = writeln!(text, "  approximate  {}", view.approximate.join(", "));
    }
    let columns = view.columns.iter().map(|column| {
        let note = if column.approximate { "approximate" } else { "" };
        vec![column.name.clone(), column.column_type.clone(), note.to_owned()]
    });
    indent(text, &table(&["column", "type", ""], columns));
    let windows = view.windows.iter().map(|window| vec![window.range.clone(), window.hop.clone(), window.tiles.to_string()]);
    indent(text, &table(&["window", "hop", "tiles at most"], windows));
    let states = view.states.iter().map(|state| vec![state.aggregate.clone(), state.kept_as()]);
    indent(text, &table(&["state kept", "as"], states));
    text.push('\n');
}

fn runs(view: &ViewReport) -> String {
    let next = view.next_runs.join(", ");
    match (&view.schedule, &view.jitter) {
        (Some(schedule), Some(jitter)) => format!("{schedule}, up to {jitter} later; next {next}"),
        (Some(schedule), None) if view.next_runs.is_empty() => format!("{schedule}: whenever a run of it has succeeded"),
        (Some(schedule), None) => format!("{schedule}; next {next}"),
        (None, _) => format!("on request: `basestream batch run {}`", view.view),
    }
}

/// What the definition allows one run.
fn limits(view: &ViewReport) -> Option<String> {
    let memory = view.memory_limit_bytes.map(|bytes| format!("{} of memory", format_bytes(bytes)));
    let time = view.timeout.as_ref().map(|timeout| timeout.to_string());
    let limits: Vec<String> = memory.into_iter().chain(time).collect();
    (!limits.is_empty()).then(|| format!("{} a run", limits.join(" and ")))
}

fn indent(text: &mut String, block: &str) {
    for line in block.lines() {
        let _ = writeln!(text, "  {line}");
    }
}
