//! Sinks that feed themselves: one whose topic is that of its own stream, or leads back to it through other sinks, would put
//! out records for ever.

use std::collections::BTreeSet;

use definitions::{Definitions, Diagnostic, SinkDefinition, StreamDefinition, parse};

/// Returns the mistake of a sink whose records lead back to the stream that it reads.
pub(super) fn mistake(sink: &SinkDefinition, reads: &StreamDefinition, definitions: &Definitions) -> Option<Diagnostic> {
    let (streams, sinks) = (definitions.streams.iter().collect::<Vec<_>>(), definitions.sinks.iter().collect::<Vec<_>>());
    leads_back(sink, reads, (&streams, &sinks)).then(|| {
        let message = format!("sink \"{}\": its records would lead back to the stream \"{}\", which it reads", sink.name, reads.name);
        let help = format!("choose a topic that is not read to make records for '{}'", reads.topic);
        Diagnostic::error(sink.origin.line, 1, message).help(help).in_file(sink.origin.file.as_deref())
    })
}

/// Whether a sink's records lead back to the stream that it reads, through these streams and sinks.
pub(crate) fn leads_back(
    sink: &SinkDefinition,
    reads: &StreamDefinition,
    (streams, sinks): (&[&StreamDefinition], &[&SinkDefinition]),
) -> bool {
    let mut reached = BTreeSet::from([sink.topic.clone()]);
    loop {
        let before = reached.len();
        for other in sinks {
            let feeds = |stream: &&&StreamDefinition| reached.contains(&stream.topic) && reads_from(other, stream);
            if streams.iter().any(|stream| feeds(&stream)) {
                reached.insert(other.topic.clone());
            }
        }
        if reached.len() == before {
            return reached.contains(&reads.topic);
        }
    }
}

/// Whether a sink may read a stream: its text names it.
fn reads_from(sink: &SinkDefinition, stream: &StreamDefinition) -> bool {
    parse::names_in(&sink.select).contains(&*stream.name)
}
