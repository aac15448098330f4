//! Which failures of a sink are reported, and in which words.

use std::sync::Arc;

use committed::registry::LiveSink;
use speed::Stall;
use types::{Error, ErrorKind};

/// How a failure is reported. A conflict is not: another worker has the output, and this one has lost the partition.
pub(super) fn stall(stream: &Arc<str>, sink: &LiveSink, error: &Error) -> Option<Stall> {
    let topic = &sink.definition.topic;
    let stall = || Stall { stream: stream.clone(), sink: sink.name.clone(), error: format!("{error} (its topic is \"{topic}\")") };
    (error.kind() != ErrorKind::Conflict).then(stall)
}
