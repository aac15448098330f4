//! Sinks in the catalog, and reading what they put out.

use std::collections::BTreeMap;
use std::time::Duration;

use catalog::{CatalogState, DefinitionKind};
use definitions::{SinkDefinition, parse};
use event_log::{Log, TopicPartition};
use event_sinks::sink_of;
use types::record::Record;
use types::suggest::nearest;
use types::vector::Offset;
use types::{Error, ErrorKind, Result};

/// Records that are read at once.
const AT_ONCE: usize = 4_096;
/// How often a reader that follows looks for new records.
const FOLLOW: Duration = Duration::from_millis(200);

/// Returns a live sink by its name.
pub fn live_sink(state: &CatalogState, name: &str) -> Result<SinkDefinition> {
    if let Some(record) = state.active(DefinitionKind::Sink, name) {
        return parse::parse_sink(&record.sql);
    }
    let known: Vec<&str> = state.live(DefinitionKind::Sink).map(|record| &*record.name).collect();
    let near = nearest(name, known.iter().copied()).map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default();
    let listed = match known.is_empty() {
        true => "no sink is defined yet".to_owned(),
        false => format!("expected one of {}", known.join(", ")),
    };
    Err(Error::not_found(format!("there is no sink \"{name}\" in the catalog: {near}{listed}")))
}

/// Reads the records of one sink, partition by partition, each in the order of its offsets.
pub struct SinkReader<'a> {
    log: &'a dyn Log,
    sink: &'a SinkDefinition,
    next: BTreeMap<i32, Offset>,
}

impl<'a> SinkReader<'a> {
    pub fn new(log: &'a dyn Log, sink: &'a SinkDefinition) -> Self {
        Self { log, sink, next: BTreeMap::new() }
    }

    /// Passes on the records that were appended since the last call. `take` returns whether it wants more.
    pub async fn read(&mut self, take: &mut dyn FnMut(&Record) -> Result<bool>) -> Result<bool> {
        for bounds in self.log.bounds(&self.sink.topic).await? {
            let next = self.next.entry(bounds.partition).or_insert(bounds.begin);
            // A retention of the topic may have deleted what was not read yet.
            *next = (*next).max(bounds.begin);
            let source = TopicPartition { topic: self.sink.topic.clone(), partition: bounds.partition };
            while *next < bounds.end {
                let fetched = match self.log.read(&source, *next, AT_ONCE).await {
                    Err(error) if error.kind() == ErrorKind::NotFound => break,
                    fetched => fetched?,
                };
                let of_sink = |record: &&Record| sink_of(&record.headers).is_some_and(|(name, _)| name == &*self.sink.name);
                for record in fetched.records.iter().filter(of_sink) {
                    if !take(record)? {
                        return Ok(false);
                    }
                }
                if fetched.position <= *next {
                    break;
                }
                *next = fetched.position;
            }
        }
        Ok(true)
    }

    /// The same, again and again until `take` wants no more.
    pub async fn follow(&mut self, take: &mut dyn FnMut(&Record) -> Result<bool>) -> Result<()> {
        while self.read(take).await? {
            tokio::time::sleep(FOLLOW).await;
        }
        Ok(())
    }
}
