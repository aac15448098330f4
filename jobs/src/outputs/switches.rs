//! Lists the switches of a sink: from which event on which version makes the records, and which events have none
//! because the sink was paused.

use std::sync::Arc;

use catalog::SinkRange;
use engine::events::format_timestamp;
use serde::Serialize;

/// The events of one partition that one version of a sink decides, or that lie in a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SwitchReport {
    pub sink: Arc<str>,
    pub stream: Arc<str>,
    pub partition: i32,
    pub from: i64,
    /// The offset after the last one; null while it lasts.
    pub to: Option<i64>,
    /// The version that makes the records; of a pause, the one that was current then.
    pub version: u32,
    /// True: no event of it has a record.
    pub paused: bool,
    /// When it was recorded.
    pub at: String,
    /// The log that its offsets belong to.
    pub log_identity: String,
}

impl From<&SinkRange> for SwitchReport {
    fn from(SinkRange { switch, to }: &SinkRange) -> Self {
        SwitchReport {
            sink: switch.sink.clone(),
            stream: switch.partition.stream.clone(),
            partition: switch.partition.partition,
            from: switch.from.0,
            to: to.map(|to| to.0),
            version: switch.version,
            paused: switch.paused,
            at: format_timestamp(switch.at),
            log_identity: switch.log_identity.clone(),
        }
    }
}
