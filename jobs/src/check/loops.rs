//! Sinks and alerts that feed themselves: one whose topic is a stream that it is made from, or leads back to one
//! through other sinks and alerts, could put out records for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use definitions::{AlertDefinition, Diagnostic, Origin, SinkDefinition};
use engine::alerts::AlertPlan;
use engine::sinks::SinkPlan;

/// A sink or an alert: the topic that it writes to, and the streams that its records are made from, by their topics.
pub(crate) struct TopicWriter {
    kind: &'static str,
    name: Arc<str>,
    topic: Arc<str>,
    reads: BTreeMap<Arc<str>, Arc<str>>,
    origin: Origin,
}

impl TopicWriter {
    pub(crate) fn from_sink(sink: &SinkDefinition, plan: &SinkPlan) -> TopicWriter {
        // An event of a joined view's streams makes no record.
        let reads = BTreeMap::from([(plan.stream.topic.clone(), plan.stream.name.clone())]);
        TopicWriter { kind: "sink", name: sink.name.clone(), topic: sink.topic.clone(), reads, origin: sink.origin.clone() }
    }

    pub(crate) fn from_alert(alert: &AlertDefinition, plan: &AlertPlan) -> TopicWriter {
        let reads = plan.view.streams.iter().map(|stream| (stream.topic.clone(), stream.name.clone())).collect();
        TopicWriter { kind: "alert", name: alert.name.clone(), topic: alert.topic.clone(), reads, origin: alert.origin.clone() }
    }

    /// The stream that its records lead back to, through any of `others`.
    fn leads_back_to(&self, others: &[TopicWriter]) -> Option<&Arc<str>> {
        let mut reached = BTreeSet::from([&self.topic]);
        loop {
            let before = reached.len();
            let fed = others.iter().filter(|other| other.reads.keys().any(|topic| reached.contains(topic)));
            let topics: Vec<&Arc<str>> = fed.map(|other| &other.topic).collect();
            reached.extend(topics);
            if reached.len() == before {
                return self.reads.iter().find(|(topic, _)| reached.contains(topic)).map(|(_, stream)| stream);
            }
        }
    }
}

/// One mistake for each that leads back.
pub(super) fn mistakes(writers: &[TopicWriter]) -> Vec<Diagnostic> {
    let help = "choose a topic that does not lead back to these records";
    let mistake = |(writer, message): (&TopicWriter, String)| {
        Diagnostic::error(writer.origin.line, 1, message).help(help).in_file(writer.origin.file.as_deref())
    };
    loops(writers).map(mistake).collect()
}

/// What leads back, each with a sentence that says where to.
pub(crate) fn loops(writers: &[TopicWriter]) -> impl Iterator<Item = (&TopicWriter, String)> {
    writers.iter().filter_map(|writer| {
        let stream = writer.leads_back_to(writers)?;
        let TopicWriter { kind, name, .. } = writer;
        Some((writer, format!("{kind} \"{name}\": its records would lead back to the stream \"{stream}\", from which they are made")))
    })
}
