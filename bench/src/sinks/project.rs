//! Creates a project with the views and the sink, over a topic of payments.

use std::path::Path;

use types::Result;

use super::definitions::{Joined, files};
use crate::payments::{PARTITIONS, Payments, Project, Source, Topic};

pub(super) enum Filled {
    Yes,
    No,
}

/// A project with the topics that its sink reads and writes.
pub(super) struct SinkProject {
    pub(super) topic: Topic,
    pub(super) records: Topic,
    pub(super) project: Project,
}

impl SinkProject {
    /// Over a topic of its own.
    pub(super) async fn create(
        source: &Source,
        folder: &Path,
        payments: Payments,
        filled: Filled,
        joined: &[Joined],
    ) -> Result<SinkProject> {
        let log = folder.join("log");
        let topic = match filled {
            Filled::Yes => source.fill(&log, payments).await?,
            Filled::No => source.empty(&log, payments).await?,
        };
        let records = records_of(&topic, "scored");
        SinkProject::over(folder, topic, records, joined).await
    }

    pub(super) async fn over(folder: &Path, topic: Topic, records: Topic, joined: &[Joined]) -> Result<SinkProject> {
        records.open().await?.create_topic(&records.name, PARTITIONS).await?;
        let project = Project::with(folder, &topic, &files(&topic.name, &records.name, joined)).await?;
        Ok(SinkProject { topic, records, project })
    }

    /// Deletes what is not in its folder.
    pub(super) async fn delete_topics(&self) -> Result<()> {
        self.records.delete().await?;
        self.topic.delete().await
    }
}

/// A topic of records beside that of the payments.
pub(super) fn records_of(topic: &Topic, whose: &str) -> Topic {
    Topic { name: format!("{}-{whose}", topic.name), ..topic.clone() }
}
