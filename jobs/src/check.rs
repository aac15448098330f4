//! Implements `check`: reports every mistake of a project at once, and what its definitions result in. Needs no
//! service.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use chrono::{DateTime, SecondsFormat, Utc};
use definitions::durations::{format_bytes, format_duration_parts};
use definitions::settings::SpeedSettings;
use definitions::{
    AlertDefinition, Definitions, Diagnostic, DiagnosticSeverity, Diagnostics, ParameterDefinition, SinkDefinition, StreamDefinition,
    ViewDefinition, parse,
};
use engine::alerts::AlertPlan;
use engine::functions::Functions;
use engine::parameters::Parameters;
use engine::plan::explain::links::LinksExplanation;
use engine::plan::explain::{Explanation, RangeExplanation, StateExplanation, explain};
use engine::plan::{ColumnKind, Planned, Planner, ViewPlan};
use engine::sinks::{SinkPlan, Sources};
use event_log::kafka::positions_topic;
use serde::Serialize;
use speed::DedupCost;
use types::Result;
use types::sql_errors::unknown_relation;
use types::sql_types::sql_name;
use types::tiles::Micros;

mod after;
pub(crate) mod loops;
pub(crate) mod retention;
mod text;

use loops::TopicWriter;

/// How many upcoming run times are shown.
const RUNS_AHEAD: usize = 3;
/// The event rate for which the cost of remembered ids is reported.
const EVENTS_PER_SECOND: u64 = 1_000;

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

/// What `check` reports about a stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamReport {
    pub stream: Arc<str>,
    pub topic: Arc<str>,
    pub columns: Vec<ColumnReport>,
    pub event_time: String,
    pub id: Option<String>,
    pub dedup_within: Option<String>,
    /// Memory for remembered ids at 1,000 events per second, over all partitions of one worker.
    pub dedup_memory_bytes_at_1k_per_s: Option<u64>,
    /// Local disk for the same.
    pub dedup_disk_bytes_at_1k_per_s: Option<u64>,
    /// The `speed.dedup_memory` that this rate needs, if it exceeds the setting.
    pub dedup_memory_wanted_bytes_at_1k_per_s: Option<u64>,
    pub retention: Option<String>,
}

/// What `check` reports about a view.
#[derive(Debug, Clone, Serialize)]
pub struct ViewReport {
    pub view: Arc<str>,
    /// False for a staging view.
    pub keeps_states: bool,
    pub reads: Vec<Arc<str>>,
    pub keys: Vec<String>,
    pub columns: Vec<ColumnReport>,
    pub windows: Vec<RangeExplanation>,
    pub levels: Vec<String>,
    pub states: Vec<StateExplanation>,
    /// Columns whose values are estimates.
    pub approximate: Vec<String>,
    /// For a view over a JOIN: what is kept of its edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<LinksExplanation>,
    pub schedule: Option<String>,
    /// A run begins at most this much later than it is due.
    pub jitter: Option<String>,
    pub memory_limit_bytes: Option<u64>,
    pub timeout: Option<String>,
    /// When the next runs begin: jitter is in it. Empty for runs on request, and after those of another view.
    pub next_runs: Vec<String>,
}

/// What `check` reports about a sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SinkReport {
    pub sink: Arc<str>,
    pub topic: Arc<str>,
    /// The stream whose events it puts out.
    pub reads: Arc<str>,
    /// The views that it joins.
    pub joins: Vec<Arc<str>>,
    /// The column that is the record's key. Absent: the key of the event's record.
    pub key: Option<String>,
    pub columns: Vec<ColumnReport>,
    /// The parameters that it uses.
    pub parameters: Vec<Arc<str>>,
}

/// What `check` reports about an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AlertReport {
    pub alert: Arc<str>,
    pub topic: Arc<str>,
    /// The view whose rows it watches.
    pub watches: Arc<str>,
    pub repeat: Option<String>,
    pub resolve: bool,
    pub columns: Vec<ColumnReport>,
    /// The parameters that it uses.
    pub parameters: Vec<Arc<str>>,
}

/// What `check` reports about a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParameterReport {
    pub parameter: Arc<str>,
    #[serde(rename = "type")]
    pub value_type: String,
    /// The initial value.
    pub value: String,
    pub description: Option<String>,
    /// The sinks and alerts that use it.
    pub used_by: Vec<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnReport {
    pub name: String,
    #[serde(rename = "type")]
    pub column_type: String,
    pub nullable: bool,
    pub approximate: bool,
}

/// Reads and checks the definitions in a project's folder. The next runs are counted from `now`.
///
/// Errors are those of reading; mistakes are in [`Checked::diagnostics`].
pub async fn check_project(project: &Path, functions: &Functions, now: Micros) -> Result<Checked> {
    let (definitions, found) = parse::load_project(project)?;
    let mut checked = check_known(definitions, |name| is_left_out(name, &found), functions, now).await;
    // A view is not at fault when the definition of its stream was left out because of a mistake.
    checked.diagnostics.0.retain(|planned| !unknown_relation(&planned.message).is_some_and(|name| is_left_out(name, &found)));
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
        streams: definitions.streams.iter().map(|stream| report_stream(stream, SpeedSettings::default().dedup_memory)).collect(),
        views: Vec::new(),
        sinks: Vec::new(),
        alerts: Vec::new(),
        parameters: Vec::new(),
        definitions: Definitions::default(),
    };
    checked.plan_views(&definitions, functions, now).await;
    checked.plan_outputs(&definitions, functions).await;
    checked.parameters = definitions.parameters.iter().map(|parameter| report_parameter(parameter, &checked)).collect();
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
                    self.views.push(report_view(view, &plan, now));
                    self.plans.push(plan);
                }
                Ok(Planned::Staging) => {
                    self.views.push(report_staging(view));
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
                    self.sinks.push(report_sink(sink, &plan));
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
                    self.alerts.push(report_alert(alert, &plan));
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
        self.streams = self.definitions.streams.iter().map(|stream| report_stream(stream, bytes)).collect();
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

    /// Returns what `explain` shows for one view; `None` for a view that keeps nothing or does not exist.
    pub fn explain(&self, view: &str) -> Option<Explanation> {
        self.plans.iter().find(|plan| &*plan.view == view).map(|plan| explain(plan))
    }

    /// Returns the report as text.
    pub fn text(&self) -> String {
        text::checked(self)
    }
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

fn report_stream(stream: &StreamDefinition, dedup_memory: u64) -> StreamReport {
    let window = stream.dedup_within.filter(|_| stream.id.is_some());
    let cost = window.map(|window| DedupCost::estimate(window.as_secs().max(1).saturating_mul(EVENTS_PER_SECOND), dedup_memory));
    let wanted = cost.filter(|cost| !cost.is_full_speed(dedup_memory)).map(|cost| cost.full_speed_memory_bytes);
    let column = |column: &definitions::Column| ColumnReport {
        name: column.name.clone(),
        column_type: column.column_type.to_string(),
        nullable: column.nullable,
        approximate: false,
    };
    StreamReport {
        stream: stream.name.clone(),
        topic: stream.topic.clone(),
        columns: stream.columns.iter().map(column).collect(),
        event_time: stream.event_time.clone(),
        id: stream.id.clone(),
        dedup_within: stream.dedup_within.map(format_duration_parts),
        dedup_memory_bytes_at_1k_per_s: cost.map(|cost| cost.memory_bytes),
        dedup_disk_bytes_at_1k_per_s: cost.map(|cost| cost.disk_bytes),
        dedup_memory_wanted_bytes_at_1k_per_s: wanted,
        retention: stream.retention.map(format_duration_parts),
    }
}

fn report_staging(view: &ViewDefinition) -> ViewReport {
    ViewReport {
        view: view.name.clone(),
        keeps_states: false,
        reads: Vec::new(),
        keys: Vec::new(),
        columns: Vec::new(),
        windows: Vec::new(),
        levels: Vec::new(),
        states: Vec::new(),
        approximate: Vec::new(),
        links: None,
        schedule: None,
        jitter: None,
        memory_limit_bytes: None,
        timeout: None,
        next_runs: Vec::new(),
    }
}

fn report_view(view: &ViewDefinition, plan: &ViewPlan, now: Micros) -> ViewReport {
    let explained = explain(plan);
    let after = DateTime::from_timestamp_micros(now).unwrap_or_default();
    let time = |time: &DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
    let columns = plan.columns.iter().map(|column| ColumnReport {
        name: column.field.name().clone(),
        column_type: sql_name(column.field.data_type()),
        nullable: column.field.is_nullable(),
        approximate: matches!(&column.kind, ColumnKind::Value(value) if value.approximate),
    });
    ViewReport {
        view: view.name.clone(),
        keeps_states: true,
        reads: plan.streams.iter().map(|stream| stream.name.clone()).collect(),
        keys: plan.answer_keys().iter().map(|key| key.name().clone()).collect(),
        columns: columns.collect(),
        windows: explained.ranges,
        levels: explained.levels,
        states: explained.states,
        approximate: explained.approximate,
        links: explained.links,
        schedule: view.schedule.as_ref().map(ToString::to_string),
        jitter: view.jitter.map(format_duration_parts),
        memory_limit_bytes: view.memory_limit,
        timeout: view.timeout.map(format_duration_parts),
        next_runs: view.upcoming(after, RUNS_AHEAD).iter().map(time).collect(),
    }
}

fn report_sink(sink: &SinkDefinition, plan: &SinkPlan) -> SinkReport {
    SinkReport {
        sink: sink.name.clone(),
        topic: sink.topic.clone(),
        reads: plan.stream.name.clone(),
        joins: plan.joins.iter().map(|join| join.plan.view.clone()).collect(),
        key: sink.key.clone(),
        columns: columns_of(&plan.output),
        parameters: plan.parameters.keys().cloned().collect(),
    }
}

fn report_parameter(parameter: &ParameterDefinition, checked: &Checked) -> ParameterReport {
    let sinks = checked.sinks.iter().map(|sink| (&sink.sink, &sink.parameters));
    let alerts = checked.alerts.iter().map(|alert| (&alert.alert, &alert.parameters));
    let used_by = sinks.chain(alerts).filter(|(_, used)| used.contains(&parameter.name));
    ParameterReport {
        parameter: parameter.name.clone(),
        value_type: parameter.value_type.to_string(),
        value: parameter.value.clone(),
        description: parameter.description.clone(),
        used_by: used_by.map(|(name, _)| name.clone()).collect(),
    }
}

fn report_alert(alert: &AlertDefinition, plan: &AlertPlan) -> AlertReport {
    AlertReport {
        alert: alert.name.clone(),
        topic: alert.topic.clone(),
        watches: plan.view.view.clone(),
        repeat: alert.repeat.map(format_duration_parts),
        resolve: alert.resolve,
        columns: columns_of(&plan.output),
        parameters: plan.parameters.keys().cloned().collect(),
    }
}

fn columns_of(output: &Schema) -> Vec<ColumnReport> {
    let column = |field: &Arc<Field>| ColumnReport {
        name: field.name().clone(),
        column_type: sql_name(field.data_type()),
        nullable: field.is_nullable(),
        approximate: false,
    };
    output.fields().iter().map(column).collect()
}

#[cfg(test)]
mod tests;
