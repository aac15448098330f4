//! What users write: streams, views, sinks, alerts and parameters in SQL, and settings in `basestream.toml`
//! ([`settings`]). [`syntax`] walks parsed SQL.

mod alert;
pub mod depth;
mod diagnostics;
pub mod durations;
pub mod keywords;
mod origin;
mod parameter;
pub mod parse;
mod schedule;
pub mod settings;
mod sink;
mod stream;
pub mod syntax;
pub mod time_zones;
mod view;

pub use alert::AlertDefinition;
pub use diagnostics::{Diagnostic, DiagnosticSeverity, Diagnostics};
pub use origin::Origin;
pub use parameter::{ParameterDefinition, ParameterType};
pub use schedule::Schedule;
pub use sink::{Features, SinkDefinition};
pub use stream::{Column, ColumnType, StreamDefinition, TimeUnit};
pub use view::{KEEP_OLD, MAX_STATE_BYTES, NamedWindow, OnError, ViewDefinition};

/// All definitions in a project's `streams/`, `views/`, `sinks/`, `alerts/` and `parameters/`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Definitions {
    pub streams: Vec<StreamDefinition>,
    pub views: Vec<ViewDefinition>,
    pub sinks: Vec<SinkDefinition>,
    pub alerts: Vec<AlertDefinition>,
    pub parameters: Vec<ParameterDefinition>,
}
