//! What users write: streams, views, sinks, alerts and parameters in SQL, and settings in `basestream.toml`
//! ([`settings`]). [`syntax`] walks parsed SQL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use types::Strategy;
use types::sql_types::timestamp_type;
use types::tiles::Level;

mod alert;
pub mod depth;
mod diagnostics;
pub mod durations;
mod origin;
mod parameter;
pub mod parse;
mod schedule;
pub mod settings;
mod sink;
pub mod syntax;

pub use alert::AlertDefinition;
pub use diagnostics::{Diagnostic, Diagnostics, Severity};
pub use origin::Origin;
pub use parameter::{ParameterDefinition, ParameterType};
pub use schedule::Schedule;
pub use sink::{Features, SinkDefinition};

/// `CREATE STREAM`: the facts of one topic, typed.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamDefinition {
    pub name: Arc<str>,
    pub columns: Vec<Column>,
    pub topic: Arc<str>,
    /// The column that holds the event time: TIMESTAMPTZ or DATE, NOT NULL.
    pub event_time: String,
    /// The column that identifies an event, for deduplication.
    pub id: Option<String>,
    pub dedup_within: Option<Duration>,
    /// The column by which our producers partition.
    pub key: Option<String>,
    pub retention: Option<Duration>,
    /// Whether the archive keeps the raw key, value and headers.
    pub keep_raw: bool,
    /// The columns by which a compacted archive file is sorted within a day, before partition and offset.
    pub cluster_by: Vec<String>,
    /// The statement's text.
    pub sql: String,
    pub origin: Origin,
}

/// One column of a stream: where it is in a JSON record, and its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    pub column_type: ColumnType,
    pub nullable: bool,
    /// The members to follow from the record's root: `$.a.b` is `["a", "b"]`. Default: the column's name.
    pub path: Vec<String>,
    /// For TIMESTAMPTZ given as a number.
    pub unit: Option<TimeUnit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeUnit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

/// The SQL types of stream columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnType {
    Text,
    Boolean,
    Int,
    BigInt,
    Double,
    Decimal {
        precision: u8,
        scale: i8,
    },
    Date,
    /// Microseconds, UTC.
    TimestampTz,
    /// Stored as lower-case text with hyphens.
    Uuid,
    Bytea,
    /// Stored as text.
    Json,
    Array(Box<ColumnType>),
}

impl ColumnType {
    /// Returns the Arrow type that holds it.
    pub fn arrow(&self) -> DataType {
        match self {
            ColumnType::Text | ColumnType::Uuid | ColumnType::Json => DataType::Utf8,
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::Int => DataType::Int32,
            ColumnType::BigInt => DataType::Int64,
            ColumnType::Double => DataType::Float64,
            ColumnType::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale),
            ColumnType::Date => DataType::Date32,
            ColumnType::TimestampTz => timestamp_type(),
            ColumnType::Bytea => DataType::Binary,
            ColumnType::Array(item) => DataType::List(Arc::new(Field::new("item", item.arrow(), true))),
        }
    }
}

/// As it is written in `CREATE STREAM`.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Text => f.write_str("TEXT"),
            ColumnType::Boolean => f.write_str("BOOLEAN"),
            ColumnType::Int => f.write_str("INT"),
            ColumnType::BigInt => f.write_str("BIGINT"),
            ColumnType::Double => f.write_str("DOUBLE"),
            ColumnType::Decimal { precision, scale } => write!(f, "DECIMAL({precision},{scale})"),
            ColumnType::Date => f.write_str("DATE"),
            ColumnType::TimestampTz => f.write_str("TIMESTAMPTZ"),
            ColumnType::Uuid => f.write_str("UUID"),
            ColumnType::Bytea => f.write_str("BYTEA"),
            ColumnType::Json => f.write_str("JSON"),
            ColumnType::Array(item) => write!(f, "{item}[]"),
        }
    }
}

impl Column {
    pub fn field(&self) -> Field {
        Field::new(&self.name, self.column_type.arrow(), self.nullable)
    }
}

/// `CREATE VIEW`: one plain SELECT, and how its states are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewDefinition {
    pub name: Arc<str>,
    /// The SELECT's text, and where it begins in the file (line and column, counted from 1).
    pub select: String,
    pub select_line: usize,
    pub select_column: usize,
    /// In the order written; empty means all time.
    pub windows: Vec<NamedWindow>,
    pub schedule: Option<Schedule>,
    /// A run begins at most this much later than it is due, so that many views do not begin at once.
    pub jitter: Option<Duration>,
    /// The most memory of one run (bytes), at most `batch.memory_limit`.
    pub memory_limit: Option<u64>,
    /// A run that takes longer fails.
    pub timeout: Option<Duration>,
    /// Overrides the hop of every window.
    pub precision: Option<Level>,
    /// How its batch runs make snapshots, if the definition says so.
    pub strategy: Option<Strategy>,
    /// An incremental view is recomputed from the archive this often.
    pub full_every: Option<Duration>,
    /// For a view over a JOIN: a walk samples the neighbours of a node that has more than this many.
    pub max_degree: Option<u32>,
    /// The most that a state of one key and column may hold, if it collects values. Absent: [`MAX_STATE_BYTES`].
    pub max_state_bytes: Option<u64>,
    pub on_error: OnError,
    /// How long the version that this one replaces is kept; zero: not at all.
    pub keep_old: Duration,
    /// The statement's text.
    pub sql: String,
    pub origin: Origin,
}

impl ViewDefinition {
    /// Whether this definition and another one mean the same: the same states, and the same answers from them. They may
    /// differ in when and how runs make snapshots, which changes neither.
    pub fn means_the_same(&self, other: &ViewDefinition) -> bool {
        // Every field is named, so that a new one has to be thought of here.
        let ViewDefinition {
            name,
            select,
            windows,
            precision,
            max_degree,
            max_state_bytes,
            on_error,
            schedule: _,
            jitter: _,
            memory_limit: _,
            timeout: _,
            strategy: _,
            full_every: _,
            keep_old: _,
            select_line: _,
            select_column: _,
            sql: _,
            origin: _,
        } = self;
        *name == other.name
            && *select == other.select
            && *windows == other.windows
            && *precision == other.precision
            && *max_degree == other.max_degree
            && *max_state_bytes == other.max_state_bytes
            && *on_error == other.on_error
    }

    /// Returns the newest due time in `(since, now]` whose run may begin at `now`: one run makes up for all missed
    /// ones. `None` without a schedule of due times.
    pub fn latest_due(&self, since: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let schedule = self.schedule.as_ref()?;
        let mut due = schedule.latest_due(since, now)?;
        while self.begins_at(due) > now {
            due = schedule.latest_due(since, due - TimeDelta::microseconds(1))?;
        }
        Some(due)
    }

    /// Returns when the run of a due time begins: `jitter` later at most, by a fixed function of the view's name and
    /// the due time.
    pub fn begins_at(&self, due: DateTime<Utc>) -> DateTime<Utc> {
        let later = self.jitter.map_or(Duration::ZERO, |longest| schedule::jitter(&self.name, due, longest));
        TimeDelta::from_std(later).ok().and_then(|later| due.checked_add_signed(later)).unwrap_or(due)
    }

    /// Returns when the next `count` runs after `after` begin, for display.
    pub fn upcoming(&self, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Utc>> {
        let Some(schedule) = &self.schedule else { return Vec::new() };
        let jitter = self.jitter.and_then(|jitter| TimeDelta::from_std(jitter).ok()).unwrap_or_default();
        let since = after.checked_sub_signed(jitter).unwrap_or(after);
        schedule.due_after(since).map(|due| self.begins_at(due)).filter(|begins| *begins > after).take(count).collect()
    }
}

/// The default of `keep_old`: a day.
pub const KEEP_OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// The default of `max_state_bytes`: 1 MiB.
pub const MAX_STATE_BYTES: u64 = 1 << 20;

/// What a view does with an event on which one of its expressions fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The event is left out of the view, recorded and counted.
    #[default]
    Skip,
    /// The view is not answered until its definition is changed.
    Refuse,
}

/// A window with the text its user wrote, which names the columns: `7d` gives `txns_7d`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedWindow {
    pub text: String,
    pub length: Duration,
}

/// All definitions in a project's `streams/`, `views/`, `sinks/`, `alerts/` and `parameters/`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Definitions {
    pub streams: Vec<StreamDefinition>,
    pub views: Vec<ViewDefinition>,
    pub sinks: Vec<SinkDefinition>,
    pub alerts: Vec<AlertDefinition>,
    pub parameters: Vec<ParameterDefinition>,
}
