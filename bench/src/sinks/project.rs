//! Creates a project with the views and the sink, over a topic of payments.

use std::path::Path;

use types::Result;

use super::definitions::{Joined, SINK_TOPIC, files, joined};
use crate::payments::{PARTITIONS, Payments, Project, Source, Topic};

pub(super) enum Filled {
    Yes,
    No,
}

/// A project over a topic of its own, with the views and the sink.
pub(super) async fn project(views: usize, folder: &Path, payments: Payments, filled: Filled) -> Result<(Topic, Project)> {
    let log = folder.join("log");
    let topic = match filled {
        Filled::Yes => Source::Embedded.fill(&log, payments).await?,
        Filled::No => Source::Embedded.empty(&log, payments).await?,
    };
    let project = project_over(folder, &topic, SINK_TOPIC, &joined(views)).await?;
    Ok((topic, project))
}

pub(super) async fn project_over(folder: &Path, topic: &Topic, sink_topic: &str, joined: &[Joined]) -> Result<Project> {
    topic.open().await?.create_topic(sink_topic, PARTITIONS).await?;
    Project::with(folder, topic, &files(&topic.name, sink_topic, joined)).await
}
