//! Finds streams that are kept for less long than views count their events: the collector would delete events that
//! still count.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use committed::registry::{LiveView, Registry};
use definitions::durations::format_duration_parts;
use definitions::{Diagnostic, StreamDefinition, ViewDefinition};
use engine::plan::ViewPlan;
use types::{Error, Result};

/// A stream whose `retention` is shorter than a view over it needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShortRetention {
    stream: Arc<StreamDefinition>,
    kept: Duration,
    /// How long the view counts an event; `None`: for ever.
    counted: Option<Duration>,
}

/// Returns the streams of a view that are kept for less long than the view counts their events.
///
/// An archive file is deleted once its newest event, and its commit, are older than the stream's `retention`. So an
/// event is there for `retention` from its event time on, and longer where it came late.
fn short_retentions(plan: &ViewPlan) -> Vec<ShortRetention> {
    let is_short = |stream: &Arc<StreamDefinition>| {
        let (kept, counted) = (stream.retention?, plan.counts_for(&stream.name));
        let is_short = counted.is_none_or(|counted| kept < counted);
        is_short.then(|| ShortRetention { stream: stream.clone(), kept, counted })
    };
    plan.streams.iter().filter_map(is_short).collect()
}

/// Returns the mistakes of a view in the project's files.
pub(super) fn mistakes(view: &ViewDefinition, plan: &ViewPlan) -> Vec<Diagnostic> {
    let mistake = |short: &ShortRetention| {
        Diagnostic::error(view.select_line, view.select_column, format!("view \"{}\": {}", view.name, short.found()))
            .help(short.expected())
            .in_file(view.origin.file.as_deref())
    };
    short_retentions(plan).iter().map(mistake).collect()
}

/// Returns the newest version of each view with what is too short for it. For the ones before it, while they live, the
/// collector keeps events longer ([`crate::collect`]).
pub(crate) fn short_retentions_of(registry: &Registry) -> impl Iterator<Item = (&LiveView, ShortRetention)> {
    let current = |name: &str| registry.building(name).or_else(|| registry.served(name)).map(|view| view.version);
    let is_newest = move |view: &&LiveView| current(&view.name) == Some(view.version);
    registry.views.iter().filter(is_newest).flat_map(|view| short_retentions(&view.plan).into_iter().map(move |short| (view, short)))
}

/// Refuses definitions of which one is too short for another, whether they are in the files or in the catalog alone.
pub(crate) fn refuse_short_retentions(registry: &Registry) -> Result<()> {
    let lines: Vec<String> = short_retentions_of(registry)
        .map(|(view, short)| format!("view \"{}\" (version {}): {}\n  help: {}", view.name, view.version, short.found(), short.expected()))
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(Error::input(lines.join("\n"))) }
}

impl ShortRetention {
    /// What was found.
    pub(crate) fn found(&self) -> String {
        let (stream, kept) = (&self.stream.name, format_duration_parts(self.kept));
        let counted = match self.counted {
            Some(counted) => format!("for {} (its longest window and the hop that the window begins at)", format_duration_parts(counted)),
            None => "for ever (all time)".to_owned(),
        };
        format!("the stream \"{stream}\" keeps events for {kept}, and the view counts them {counted}: events that count would be deleted")
    }

    /// What would do.
    pub(crate) fn expected(&self) -> String {
        let place = match &self.stream.origin.file {
            Some(file) => format!(" ({})", place(file, self.stream.origin.line)),
            None => String::new(),
        };
        let name = &self.stream.name;
        match self.counted {
            Some(counted) => {
                format!("retention = '{}' or longer for \"{name}\"{place}, or shorter windows", format_duration_parts(counted))
            }
            None => format!("no retention for \"{name}\"{place}, or a window for every aggregate"),
        }
    }
}

fn place(file: &Path, line: usize) -> String {
    format!("{}:{line}", file.display())
}

#[cfg(test)]
mod tests;
