//! Implements `check`: reports every mistake of a project at once, and what its definitions result in. Needs no
//! service.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use definitions::durations::format_bytes;
use definitions::settings::SpeedSettings;
use definitions::{AlertDefinition, Definitions, Diagnostic, DiagnosticSeverity, Diagnostics, StreamDefinition, ViewDefinition, parse};
use engine::alerts::AlertPlan;
use engine::functions::Functions;
use engine::parameters::{Parameters, unknown_parameter};
use engine::plan::explain::{Explanation, explain};
use engine::plan::{Planned, Planner, ViewPlan};
use engine::sinks::{SinkPlan, Sources};
use event_log::kafka::positions_topic;
use types::Result;
use types::sql_errors::unknown_relation;
use types::tiles::Micros;

mod after;
pub(crate) mod loops;
mod report;
pub(crate) mod retention;
mod text;

pub use report::{AlertReport, ColumnReport, ParameterReport, SinkReport, StreamReport, ViewReport};

use loops::TopicWriter;
use report::UncheckedDefinition;

/// A project's definitions, and the mistakes found in them.
#[derive(Debug, Clone)]
pub struct Checked {
    pub definitions: Definitions,
    /// The plans of the views that keep states, ordered by name.
    pub plans: Vec<Arc<ViewPlan>>,
    /// The staging views: they are inlined where they are named.
    pub staging: BTreeSet<Arc<str>>,
    pub diagnostics: Diagnostics,
    pub streams: Vec<StreamReport>,
    pub views: Vec<ViewReport>,
    pub sinks: Vec<SinkReport>,
    pub alerts: Vec<AlertReport>,
    pub parameters: Vec<ParameterReport>,
}

/// Reads and checks the definitions in a project's folder. The next runs are counted from `now`.
///
/// Errors are those of reading; mistakes are in [`Checked::diagnostics`].
pub async fn check_project(project: &Path, functions: &Functions, now: Micros) -> Result<Checked> {
    let (definitions, found) = parse::load_project(project)?;
    let mut checked = check_known(definitions, |name| is_left_out(name, &found), functions, now).await;
    // A view is not at fault when the definition of its stream was left out because of a mistake, nor is a sink when
    // that of its parameter was.
    checked.diagnostics.0.retain(|planned| !missing_name(planned).is_some_and(|name| is_left_out(name, &found)));
    let mut diagnostics = found;
    diagnostics.extend(checked.diagnostics.0);
    diagnostics.sort();
    checked.diagnostics = diagnostics;
    Ok(checked)
}

/// Checks and plans definitions that are already parsed.
pub async fn check_definitions(definitions: Definitions, functions: &Functions, now: Micros) -> Checked {
    check_known(definitions, |_| false, functions, now).await
}

/// `is_left_out` says of a name whether its definition is missing because of a mistake that is reported already.
async fn check_known(definitions: Definitions, is_left_out: impl Fn(&str) -> bool, functions: &Functions, now: Micros) -> Checked {
    let mut checked = Checked {
        plans: Vec::new(),
        staging: BTreeSet::new(),
        diagnostics: Diagnostics::new(),
        streams: definitions.streams.iter().map(|stream| StreamReport::new(stream, SpeedSettings::default().dedup_memory)).collect(),
        views: Vec::new(),
        sinks: Vec::new(),
        alerts: Vec::new(),
        parameters: Vec::new(),
        definitions: Definitions::default(),
    };
    checked.plan_views(&definitions, functions, now).await;
    checked.plan_outputs(&definitions, functions).await;
    checked.parameters =
        definitions.parameters.iter().map(|parameter| ParameterReport::new(parameter, &checked.sinks, &checked.alerts)).collect();
    checked.diagnostics.extend(after::mistakes(&definitions, &checked.staging, is_left_out));
    checked.plans.sort_by(|a, b| a.view.cmp(&b.view));
    checked.diagnostics.sort();
    // Each view that names a staging view finds its mistake again.
    checked.diagnostics.0.dedup();
    checked.definitions = definitions;
    checked
}

impl Checked {
    async fn plan_views(&mut self, definitions: &Definitions, functions: &Functions, now: Micros) {
        let planner = Planner::new(definitions, functions.clone()).strict();
        for view in &definitions.views {
            match planner.plan(view).await {
                Ok(Planned::Stateful(plan)) => {
                    self.diagnostics.extend(retention::mistakes(view, &plan));
                    self.diagnostics.extend(idle_precision(view, &plan));
                    self.views.push(ViewReport::new(view, &plan, now));
                    self.plans.push(plan);
                }
                Ok(Planned::Staging) => {
                    self.views.push(ViewReport::staging(view));
                    self.staging.insert(view.name.clone());
                }
                Err(found) => self.diagnostics.extend(found),
            }
        }
    }

    /// Plans the sinks and alerts over the views that are planned.
    async fn plan_outputs(&mut self, definitions: &Definitions, functions: &Functions) {
        let mut writers = Vec::new();
        let streams: Vec<Arc<StreamDefinition>> = definitions.streams.iter().cloned().map(Arc::new).collect();
        let parameters = Parameters::initial(&definitions.parameters);
        for sink in &definitions.sinks {
            let sources =
                Sources { streams: &streams, views: &self.plans, staging: &self.staging, parameters: &parameters, is_strict: true };
            match SinkPlan::new(sink, functions, sources).await {
                Ok(plan) => {
                    writers.push(TopicWriter::from_sink(sink, &plan));
                    self.sinks.push(SinkReport::new(sink, &plan));
                }
                Err(found) => self.add_mistakes(found, definitions),
            }
        }
        for alert in &definitions.alerts {
            let sources =
                Sources { streams: &streams, views: &self.plans, staging: &self.staging, parameters: &parameters, is_strict: true };
            match AlertPlan::new(alert, functions, sources).await {
                Ok(plan) => {
                    writers.push(TopicWriter::from_alert(alert, &plan));
                    self.diagnostics.extend(never_begins(alert, &plan));
                    self.alerts.push(AlertReport::new(alert, &plan));
                }
                Err(found) => self.add_mistakes(found, definitions),
            }
        }
        self.diagnostics.extend(loops::mistakes(&writers));
    }

    /// Adds the mistakes of a sink or an alert. It is not at fault when a view that it reads has mistakes of its own.
    fn add_mistakes(&mut self, found: Diagnostics, definitions: &Definitions) {
        let is_defined = |name: &str| definitions.views.iter().any(|view| &*view.name == name);
        let is_own = |mistake: &Diagnostic| !unknown_relation(&mistake.message).is_some_and(is_defined);
        self.diagnostics.extend(found.into_iter().filter(is_own));
    }
}

impl Checked {
    /// Reports the cost of remembered ids for this `speed.dedup_memory`.
    pub(crate) fn with_dedup_memory(mut self, bytes: u64) -> Self {
        self.streams = self.definitions.streams.iter().map(|stream| StreamReport::new(stream, bytes)).collect();
        self
    }

    /// Refuses views whose runs would need more memory than `batch.memory_limit`.
    pub(crate) fn with_batch_memory(mut self, bytes: u64) -> Self {
        let views = self.definitions.views.iter();
        let too_much = views.filter_map(|view| Some((view, view.memory_limit.filter(|limit| *limit > bytes)?)));
        let mistakes = too_much.map(|(view, limit)| {
            let (limit, bytes) = (format_bytes(limit), format_bytes(bytes));
            let message = format!("view \"{}\": memory_limit = '{limit}' is more than a run may have, which is {bytes}", view.name);
            let help = format!("at most '{bytes}', or a greater `memory_limit` in [batch]");
            Diagnostic::error(view.origin.line, 1, message).help(help).in_file(view.origin.file.as_deref())
        });
        let mistakes: Vec<Diagnostic> = mistakes.collect();
        self.diagnostics.extend(mistakes);
        self.diagnostics.sort();
        self
    }

    /// Refuses sinks and alerts that would write to the topic in which this consumer group notes how far its outputs
    /// are.
    pub(crate) fn with_group(mut self, group: &str) -> Self {
        let positions = positions_topic(group);
        let sinks = self.definitions.sinks.iter().map(|sink| ("sink", &sink.name, &sink.topic, &sink.origin));
        let alerts = self.definitions.alerts.iter().map(|alert| ("alert", &alert.name, &alert.topic, &alert.origin));
        let mistakes = sinks.chain(alerts).filter(|(_, _, topic, _)| ***topic == *positions).map(|(kind, name, _, origin)| {
            let message = format!("{kind} \"{name}\": the topic '{positions}' holds the positions of the outputs of group '{group}'");
            Diagnostic::error(origin.line, 1, message).help("choose another topic").in_file(origin.file.as_deref())
        });
        let mistakes: Vec<Diagnostic> = mistakes.collect();
        self.diagnostics.extend(mistakes);
        self.diagnostics.sort();
        self
    }

    /// Reports one view alone; `None` for a view that does not exist or could not be planned. The mistakes are still
    /// those of all definitions.
    pub(crate) fn only_view(mut self, view: &str) -> Option<Self> {
        self.streams.clear();
        self.sinks.clear();
        self.alerts.clear();
        self.parameters.clear();
        self.views.retain(|report| &*report.view == view);
        (!self.views.is_empty()).then_some(self)
    }

    /// Reports one sink or alert alone, with the parameters that it uses; `None` for one that does not exist or could
    /// not be planned.
    pub(crate) fn only_output(&self, name: &str) -> Option<Self> {
        let mut alone = self.clone();
        alone.streams.clear();
        alone.views.clear();
        alone.sinks.retain(|report| &*report.sink == name);
        alone.alerts.retain(|report| &*report.alert == name);
        alone.parameters.retain(|report| report.used_by.iter().any(|user| &**user == name));
        (!alone.sinks.is_empty() || !alone.alerts.is_empty()).then_some(alone)
    }

    /// Returns what has no mistake of its own and was not checked, because what it reads has one.
    pub(crate) fn unchecked(&self) -> Vec<UncheckedDefinition> {
        if !self.diagnostics.has_errors() {
            return Vec::new();
        }
        let Definitions { views, sinks, alerts, .. } = &self.definitions;
        let views = views.iter().map(|view| ("view", &view.name, self.views.iter().any(|report| report.view == view.name)));
        let sinks = sinks.iter().map(|sink| ("sink", &sink.name, self.sinks.iter().any(|report| report.sink == sink.name)));
        let alerts = alerts.iter().map(|alert| ("alert", &alert.name, self.alerts.iter().any(|report| report.alert == alert.name)));
        let has_mistake = |kind: &str, name: &str| {
            let own = format!("{kind} \"{name}\": ");
            self.diagnostics.iter().any(|mistake| mistake.message.starts_with(&own))
        };
        let unreported = views.chain(sinks).chain(alerts).filter(|(_, _, is_reported)| !is_reported);
        let unchecked = unreported.filter(|(kind, name, _)| !has_mistake(kind, name));
        unchecked.map(|(kind, name, _)| UncheckedDefinition { kind, name: name.clone() }).collect()
    }

    /// Returns what `explain` shows for one view; `None` for a view that keeps nothing or does not exist.
    pub fn explain(&self, view: &str) -> Option<Explanation> {
        self.plans.iter().find(|plan| &*plan.view == view).map(|plan| explain(plan))
    }

    /// Returns the report as text.
    pub fn text(&self) -> String {
        text::checked(self)
    }
}

/// Returns the name of the stream, view or parameter that is missing by what a mistake says.
fn missing_name(mistake: &Diagnostic) -> Option<&str> {
    unknown_relation(&mistake.message).or_else(|| unknown_parameter(&mistake.message))
}

/// Returns whether a definition of this name was left out because of a mistake of its own. Also true if that is
/// possible because the name could not be read.
fn is_left_out(name: &str, found: &Diagnostics) -> bool {
    let errors = found.iter().filter(|found| found.severity == DiagnosticSeverity::Error);
    errors.map(|error| error.left_out.as_deref()).any(|left_out| left_out.is_none_or(|left_out| left_out == name))
}

/// Warns of an option that changes nothing.
fn idle_precision(view: &ViewDefinition, plan: &ViewPlan) -> Option<Diagnostic> {
    let precision = view.precision.filter(|_| !plan.has_windows())?;
    let message = format!("view \"{}\": precision = '{precision}' has no effect: the view counts over all time", view.name);
    let warning = Diagnostic::warning(view.origin.line, 1, message).help("leave precision out, or give the view windows");
    Some(warning.in_file(view.origin.file.as_deref()))
}

/// Warns of a condition that no row satisfies. One with parameters may be meant for other values than the initial ones.
fn never_begins(alert: &AlertDefinition, plan: &AlertPlan) -> Option<Diagnostic> {
    let why = plan.why_never.as_ref().filter(|_| plan.parameters.is_empty())?;
    let message = format!("alert \"{}\": it never begins: {why}", alert.name);
    let help = "a column of all time in the view, max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen, and here \
        as_of() - last_seen > INTERVAL '1 hour'";
    let warning = Diagnostic::warning(alert.select_line, alert.select_column, message).help(help);
    Some(warning.in_file(alert.origin.file.as_deref()))
}

#[cfg(test)]
mod tests;
