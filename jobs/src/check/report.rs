//! What `check` reports about a definition.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use chrono::{DateTime, SecondsFormat, Utc};
use definitions::durations::format_duration_parts;
use definitions::{AlertDefinition, ParameterDefinition, SinkDefinition, StreamDefinition, ViewDefinition};
use engine::alerts::AlertPlan;
use engine::plan::explain::links::LinksExplanation;
use engine::plan::explain::{RangeExplanation, StateExplanation, explain};
use engine::plan::{ColumnKind, ViewPlan};
use engine::sinks::SinkPlan;
use serde::Serialize;
use speed::DedupCost;
use types::sql_types::sql_name;
use types::tiles::Micros;

/// How many upcoming run times are shown.
const RUNS_AHEAD: usize = 3;
/// The event rate for which the cost of remembered ids is reported.
const EVENTS_PER_SECOND: u64 = 1_000;

/// A view, a sink or an alert that was not checked, because of mistakes in what it reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct UncheckedDefinition {
    pub(crate) kind: &'static str,
    pub(crate) name: Arc<str>,
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

/// A column of a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnReport {
    pub name: String,
    #[serde(rename = "type")]
    pub column_type: String,
    pub nullable: bool,
    pub approximate: bool,
}

impl StreamReport {
    /// With the cost of remembered ids for this `speed.dedup_memory`.
    pub(super) fn new(stream: &StreamDefinition, dedup_memory: u64) -> StreamReport {
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
}

impl ViewReport {
    pub(super) fn new(view: &ViewDefinition, plan: &ViewPlan, now: Micros) -> ViewReport {
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

    pub(super) fn staging(view: &ViewDefinition) -> ViewReport {
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
}

impl SinkReport {
    pub(super) fn new(sink: &SinkDefinition, plan: &SinkPlan) -> SinkReport {
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
}

impl AlertReport {
    pub(super) fn new(alert: &AlertDefinition, plan: &AlertPlan) -> AlertReport {
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
}

impl ParameterReport {
    /// `sinks` and `alerts` are all of them, of which some use the parameter.
    pub(super) fn new(parameter: &ParameterDefinition, sinks: &[SinkReport], alerts: &[AlertReport]) -> ParameterReport {
        let sinks = sinks.iter().map(|sink| (&sink.sink, &sink.parameters));
        let alerts = alerts.iter().map(|alert| (&alert.alert, &alert.parameters));
        let used_by = sinks.chain(alerts).filter(|(_, used)| used.contains(&parameter.name));
        ParameterReport {
            parameter: parameter.name.clone(),
            value_type: parameter.value_type.to_string(),
            value: parameter.value.clone(),
            description: parameter.description.clone(),
            used_by: used_by.map(|(name, _)| name.clone()).collect(),
        }
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
