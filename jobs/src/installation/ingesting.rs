//! Appends files to an installation's log, and keeps in its catalog how far each is appended.

use std::collections::HashMap;
use std::sync::Arc;

use catalog::{Catalog, CatalogState, DefinitionKind, DefinitionRecord};
use committed::log_check::{check_topic, moved_to};
use definitions::{StreamDefinition, parse};
use types::vector::Offset;
use types::{Error, Result};

use super::Installation;
use super::wall_clock::now;
use crate::ingest::{self, IngestProgress, Input, Summary};

impl Installation {
    /// Appends a file's records to a stream's log; a repeat continues where the last run ended.
    ///
    /// Errors: beside those of [`ingest::ingest`], `Unavailable` for a log that the speed layer would not read, and
    /// `Conflict` if the stream began anew in another topic meanwhile, and if a stream that was removed has appended
    /// the file to the same topic.
    pub async fn ingest(
        &self,
        stream: &str,
        input: &Input,
        options: &ingest::IngestOptions,
        on_progress: impl FnMut(IngestProgress) + Send,
    ) -> Result<Summary> {
        let definition = self.stream(stream).await?;
        self.check_log(&definition).await?;
        self.log.create_topic(&definition.topic, self.settings.log.partitions).await?;
        let remembered = CatalogProgress { catalog: self.catalog.clone() };
        let removed = removed_of_topic(&*self.catalog.state().await?, &definition.topic);
        let options = ingest::IngestOptions { removed, ..options.clone() };
        let summary = ingest::ingest(&*self.log, &remembered, definition.clone(), input, &options, on_progress).await?;
        match moved_to(&self.catalog, None, &definition).await? {
            Some(topic) => Err(Error::conflict("the stream was defined anew while the file was appended to the topic before")
                .with("stream", stream)
                .with("appended to", &definition.topic)
                .with("topic", topic)
                .with("help", "`basestream ingest --again` appends the file to the new topic")),
            None => Ok(summary),
        }
    }

    /// Refuses a log that has other records of a stream than the committed ones, or fewer.
    async fn check_log(&self, stream: &StreamDefinition) -> Result<()> {
        let state = self.catalog.state().await?;
        let ends: Vec<(i32, Offset)> = self.log.bounds(&stream.topic).await?.iter().map(|bounds| (bounds.partition, bounds.end)).collect();
        let identity = if ends.is_empty() { String::new() } else { self.log.identity(&stream.topic).await? };
        check_topic(&state, &stream.name, &identity, &ends)
    }
}

/// The streams that were removed and had this topic.
fn removed_of_topic(state: &CatalogState, topic: &str) -> Vec<Arc<str>> {
    let had_topic = |stream: &&DefinitionRecord| parse::parse_stream(&stream.sql).is_ok_and(|stream| *stream.topic == *topic);
    state.dropped(DefinitionKind::Stream).filter(had_topic).map(|stream| stream.name.clone()).collect()
}

/// Stores positions in files in the catalog.
struct CatalogProgress {
    catalog: Catalog,
}

#[async_trait::async_trait]
impl ingest::PositionStore for CatalogProgress {
    async fn load_all(&self, stream: &str, prefix: &str) -> Result<HashMap<String, i64>> {
        let found = self.catalog.ingest_progress_of(stream, prefix).await?;
        Ok(found.into_iter().map(|record| (record.fingerprint, record.records_done)).collect())
    }

    async fn save(&self, stream: &str, numbers: Vec<(String, i64)>) -> Result<()> {
        use catalog::{Add, Commit, IngestRecord};
        let (stream, updated_at): (Arc<str>, _) = (stream.into(), now());
        let record = |(fingerprint, records_done)| IngestRecord { stream: stream.clone(), fingerprint, records_done, updated_at };
        let add = numbers.into_iter().map(|number| Add::Ingest(record(number))).collect();
        let commit = Commit { id: uuid::Uuid::now_v7(), add, ..Commit::default() };
        self.catalog.commit_with_retry(commit).await.map(|_| ())
    }
}
