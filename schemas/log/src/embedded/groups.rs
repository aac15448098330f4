//! Consumer groups that have read the log. What one of them has read is not trimmed for another, whose commits say
//! nothing of it: one that never reads again has to be forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use sqlx::SqliteConnection;

use super::alive;
use super::store::{Store, failed};
use crate::ReaderGroup;
use types::tiles::Micros;
use types::{Error, Result};

impl Store {
    /// Returns all groups that have read a topic.
    pub(super) async fn reader_groups(&self, log_folder: &Path, now: Micros) -> Result<Vec<ReaderGroup>> {
        let mut read = self.readers().begin().await.map_err(failed)?;
        let leases: Vec<(String, String)> = sqlx::query_as("SELECT DISTINCT group_name, topic FROM lease ORDER BY group_name, topic")
            .fetch_all(&mut *read)
            .await
            .map_err(failed)?;
        let active = active_groups(&mut read, log_folder, now).await?;
        let mut topics: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        for (group, topic) in leases {
            topics.entry(group).or_default().push(topic.into());
        }
        Ok(topics.into_iter().map(|(name, topics)| ReaderGroup { is_active: active.contains(&name), name, topics }).collect())
    }

    /// Forgets what a group has read. How far its outputs are is kept.
    pub(super) async fn forget_group(&self, group: &str, log_folder: &Path, now: Micros) -> Result<()> {
        let mut write = self.write().await?;
        if active_groups(&mut write, log_folder, now).await?.contains(group) {
            return Err(Error::conflict("a worker of the consumer group is running").with("group", group));
        }
        let mut forgotten = 0;
        for sql in ["DELETE FROM lease WHERE group_name = ?1", "DELETE FROM member WHERE group_name = ?1"] {
            forgotten += sqlx::query(sql).bind(group).execute(&mut *write).await.map_err(failed)?.rows_affected();
        }
        if forgotten == 0 {
            return Err(Error::not_found("no such consumer group has read the log").with("group", group));
        }
        write.commit().await.map_err(failed)
    }
}

/// Returns the groups that have a worker which is alive.
async fn active_groups(connection: &mut SqliteConnection, log_folder: &Path, now: Micros) -> Result<BTreeSet<String>> {
    let members: Vec<(String, String)> = sqlx::query_as("SELECT group_name, instance FROM member WHERE expires_at > ?1")
        .bind(now)
        .fetch_all(connection)
        .await
        .map_err(failed)?;
    Ok(members.into_iter().filter(|(_, instance)| !alive::is_dead(log_folder, instance)).map(|(group, _)| group).collect())
}
