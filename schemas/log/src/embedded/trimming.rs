//! Trimming: the oldest batches of a partition are deleted, whole batches only.

use sqlx::Executor;

use super::store::{Store, failed};
use crate::TopicPartition;
use types::tiles::Micros;
use types::{Result, failpoint};

/// One transaction deletes at most this many batches, so that appends do not wait long.
const TRIMMED_AT_ONCE: i64 = 64;
/// Gives free pages back to the system, 32 MiB at once.
const FREE_PAGES: &str = "PRAGMA incremental_vacuum(4096)";

/// The offset after the first batches of a partition that may go. Offsets and timestamps never decrease, so what may go
/// is a beginning.
const TRIMMABLE: &str = "
    SELECT max(base_offset + records), sum(records), count(*) FROM (
        SELECT base_offset, records, timestamp FROM batch WHERE topic_id = ?1 AND number = ?2 ORDER BY base_offset LIMIT ?3)
    WHERE base_offset + records <= ?4 AND timestamp < ?5";

/// The last batch of a partition that begins at an offset or before it.
const BATCH_AT: &str = "
    SELECT base_offset, base_offset + records, timestamp FROM batch WHERE topic_id = ?1 AND number = ?2 AND base_offset <= ?3
    ORDER BY base_offset DESC LIMIT 1";

impl Store {
    /// Deletes the batches of a partition that are wholly before `before` and were appended before `appended_before`,
    /// unless another group has read the topic; returns how many records went.
    pub(super) async fn trim(
        &self,
        topic_id: i64,
        source: &TopicPartition,
        group: &str,
        before: i64,
        appended_before: Micros,
    ) -> Result<u64> {
        if self.is_read_by_others(source, group).await? {
            return Ok(0);
        }
        let mut trimmed = 0;
        loop {
            let mut write = self.write().await?;
            let (end, records, batches): (Option<i64>, Option<i64>, i64) = sqlx::query_as(TRIMMABLE)
                .bind(topic_id)
                .bind(source.partition)
                .bind(TRIMMED_AT_ONCE)
                .bind(before)
                .bind(appended_before)
                .fetch_one(&mut *write)
                .await
                .map_err(failed)?;
            let Some(end) = end else { break };
            failpoint::hit("trim.before_delete")?;
            for sql in [
                "DELETE FROM batch WHERE topic_id = ?1 AND number = ?2 AND base_offset < ?3",
                "UPDATE topic_partition SET begin_offset = ?3 WHERE topic_id = ?1 AND number = ?2",
            ] {
                sqlx::query(sql).bind(topic_id).bind(source.partition).bind(end).execute(&mut *write).await.map_err(failed)?;
            }
            write.commit().await.map_err(failed)?;
            trimmed += records.unwrap_or_default() as u64;
            if batches < TRIMMED_AT_ONCE {
                break;
            }
        }
        if trimmed > 0 {
            // A file of an earlier release keeps its size, and uses the room again.
            let mut write = self.write().await?;
            write.execute(FREE_PAGES).await.map_err(failed)?;
            write.commit().await.map_err(failed)?;
        }
        Ok(trimmed)
    }

    async fn is_read_by_others(&self, source: &TopicPartition, group: &str) -> Result<bool> {
        let (others,): (i64,) = sqlx::query_as("SELECT count(*) FROM lease WHERE topic = ?1 AND group_name <> ?2")
            .bind(&*source.topic)
            .bind(group)
            .fetch_one(self.readers())
            .await
            .map_err(failed)?;
        Ok(others > 0)
    }

    /// Returns how many records [`Store::trim`] would delete. What may go is a beginning: its end is found by halving.
    pub(super) async fn trimmable(
        &self,
        topic_id: i64,
        source: &TopicPartition,
        group: &str,
        before: i64,
        appended_before: Micros,
    ) -> Result<u64> {
        let bounds = self.bounds(topic_id).await?.into_iter().find(|bounds| bounds.partition == source.partition);
        let Some(bounds) = bounds else { return Ok(0) };
        if self.is_read_by_others(source, group).await? {
            return Ok(0);
        }
        // Everything before `goes` may go, and nothing from `stays` on.
        let (mut goes, mut stays) = (bounds.begin.0, before.min(bounds.end.0));
        while goes < stays {
            let middle = goes + (stays - goes) / 2;
            let batch: Option<(i64, i64, Micros)> = sqlx::query_as(BATCH_AT)
                .bind(topic_id)
                .bind(source.partition)
                .bind(middle)
                .fetch_optional(self.readers())
                .await
                .map_err(failed)?;
            // It may have been trimmed meanwhile.
            let Some((base_offset, end, timestamp)) = batch.filter(|(_, end, _)| *end > middle) else { break };
            if end <= before && timestamp < appended_before {
                goes = end;
            } else {
                stays = base_offset;
            }
        }
        Ok((goes - bounds.begin.0) as u64)
    }
}
