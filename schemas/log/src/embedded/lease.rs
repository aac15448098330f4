//! Leases, in the log's own file, that say which worker holds which partition. They only divide the work: the catalog's
//! compare-and-advance is what keeps a zombie from doing harm.
//!
//! Each worker reads the same facts and computes its own fair share; a worker that holds more releases some, and one
//! that holds less takes free ones. A lease lives [`LEASE`] and is renewed every [`RENEW_EVERY`]. Its epoch grows with
//! every change of owner, so that a worker that slept through its lease notices. The leases of a worker whose process
//! is gone ([`LiveInstance`]) are free at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sqlx::SqliteConnection;

use super::alive;
use super::store::{Store, failed};
use crate::TopicPartition;
use types::Result;
use types::liveness::LiveInstance;
use types::tiles::Micros;

pub(super) const LEASE: Duration = Duration::from_secs(5);
pub(super) const RENEW_EVERY: Duration = Duration::from_secs(1);

/// All facts that a worker decides by, read at one point in time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LeaseFacts {
    pub(super) now: Micros,
    /// How many partitions each subscribed topic has.
    pub(super) topics: BTreeMap<Arc<str>, i32>,
    /// The live workers of each topic.
    pub(super) members: BTreeMap<Arc<str>, BTreeSet<String>>,
    pub(super) leases: BTreeMap<TopicPartition, Lease>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    /// `None` if it was given back.
    pub(super) owner: Option<String>,
    pub(super) epoch: i64,
    pub(super) expires_at: Micros,
}

/// What a worker must do next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plan {
    /// Already held by another worker.
    pub(super) lost: Vec<TopicPartition>,
    /// Free, with the epoch with which to take it.
    pub(super) take: Vec<(TopicPartition, i64)>,
    /// Above the fair share.
    pub(super) give_up: Vec<TopicPartition>,
}

/// Decides what `worker`, which believes it holds `held` (partition and epoch), must do.
pub(super) fn plan(worker: &str, held: &BTreeMap<TopicPartition, i64>, facts: &LeaseFacts) -> Plan {
    let mut plan = Plan::default();
    for (topic, partitions) in &facts.topics {
        let target = fair_share(worker, topic, *partitions, facts.members.get(topic));
        let mut kept = Vec::new();
        let mut free = Vec::new();
        for partition in 0..*partitions {
            let source = TopicPartition { topic: topic.clone(), partition };
            let lease = facts.leases.get(&source);
            let epoch = lease.map_or(0, |lease| lease.epoch);
            match held.get(&source) {
                Some(held) if is_own(worker, *held, lease) => kept.push(source),
                Some(_) => plan.lost.push(source),
                None if is_free(worker, facts.now, lease) => free.push((source, epoch + 1)),
                None => {}
            }
        }
        plan.take.extend(free.into_iter().take(target.saturating_sub(kept.len())));
        plan.give_up.extend(kept.into_iter().skip(target));
    }
    plan
}

fn is_own(worker: &str, epoch: i64, lease: Option<&Lease>) -> bool {
    lease.is_some_and(|lease| lease.owner.as_deref() == Some(worker) && lease.epoch == epoch)
}

/// A worker's own lease that it does not hold is from before its restart.
fn is_free(worker: &str, now: Micros, lease: Option<&Lease>) -> bool {
    match lease {
        Some(lease) => lease.expires_at <= now || lease.owner.as_deref().is_none_or(|owner| owner == worker),
        None => true,
    }
}

/// Divides the partitions among the live workers. The remainder goes one each to the first workers, counted from a
/// position that differs by topic, so that many small topics spread.
fn fair_share(worker: &str, topic: &str, partitions: i32, members: Option<&BTreeSet<String>>) -> usize {
    let Some(members) = members else { return 0 };
    let Some(rank) = members.iter().position(|member| member == worker) else { return 0 };
    let partitions = usize::try_from(partitions).unwrap_or(0);
    let shift = xxhash_rust::xxh3::xxh3_64(topic.as_bytes()) as usize % members.len();
    let turn = (rank + shift) % members.len();
    partitions / members.len() + usize::from(turn < partitions % members.len())
}

/// What a renewal does with the free partitions of the worker's share.
#[derive(Debug, Clone, Copy)]
pub(super) enum FreePartitions {
    Take,
    Leave,
}

/// A worker's access to the leases of its group.
#[derive(Debug, Clone)]
pub(super) struct PartitionLeases {
    pub(super) store: Arc<Store>,
    pub(super) group: String,
    pub(super) worker: String,
    /// Distinguishes this consumer from an earlier one of the same worker, which may still be leaving.
    pub(super) instance: String,
    pub(super) topics: BTreeMap<Arc<str>, i32>,
    pub(super) alive: Arc<LiveInstance>,
}

impl PartitionLeases {
    /// Returns what this worker must do, without doing it.
    pub(super) async fn plan_now(&self, held: &BTreeMap<TopicPartition, i64>, now: Micros) -> Result<Plan> {
        let mut read = self.store.readers().begin().await.map_err(failed)?;
        let facts = self.facts(&mut read, now).await?;
        Ok(plan(&self.worker, held, &facts))
    }

    /// In one transaction: marks this worker as alive, renews the leases it holds and takes those it should take,
    /// unless it leaves them free. Returns the plan; the caller must still handle `lost` and `give_up`.
    pub(super) async fn renew(&self, held: &BTreeMap<TopicPartition, i64>, now: Micros, free: FreePartitions) -> Result<Plan> {
        let plan = self.renew_now(held, now, free).await;
        self.store.renewals.note(&plan);
        plan
    }

    async fn renew_now(&self, held: &BTreeMap<TopicPartition, i64>, now: Micros, free: FreePartitions) -> Result<Plan> {
        let until = now + LEASE.as_micros() as Micros;
        let mut write = self.store.write().await?;
        for topic in self.topics.keys() {
            sqlx::query(
                "INSERT INTO member VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (group_name, topic, worker)
                 DO UPDATE SET instance = excluded.instance, expires_at = excluded.expires_at",
            )
            .bind(&self.group)
            .bind(&**topic)
            .bind(&self.worker)
            .bind(&self.instance)
            .bind(until)
            .execute(&mut *write)
            .await
            .map_err(failed)?;
        }
        let dead = self.bury(&mut write, now).await?;
        let mut plan = plan(&self.worker, held, &self.facts(&mut write, now).await?);
        match free {
            FreePartitions::Take => {}
            FreePartitions::Leave => plan.take.clear(),
        }
        let kept = held.iter().filter(|(source, _)| !plan.lost.contains(source)).map(|(source, epoch)| (source.clone(), *epoch));
        for (source, epoch) in kept.chain(plan.take.iter().cloned()) {
            self.put(&mut write, &source, Lease { owner: Some(self.worker.clone()), epoch, expires_at: until }).await?;
        }
        write.commit().await.map_err(failed)?;
        dead.iter().for_each(|instance| alive::forget(&self.alive, instance));
        Ok(plan)
    }

    /// Ends the memberships that are dead or expired, and gives back the leases of the dead ones. Returns the dead
    /// instances.
    async fn bury(&self, write: &mut SqliteConnection, now: Micros) -> Result<BTreeSet<String>> {
        let members: Vec<(String, String, String, Micros)> =
            sqlx::query_as("SELECT group_name, worker, instance, expires_at FROM member").fetch_all(&mut *write).await.map_err(failed)?;
        let mut dead = BTreeSet::new();
        for (group, worker, instance, expires_at) in members {
            let is_dead = self.alive.is_dead(&instance);
            if !is_dead && expires_at > now {
                continue;
            }
            let member = sqlx::query("DELETE FROM member WHERE group_name = ?1 AND instance = ?2").bind(&group).bind(&instance);
            member.execute(&mut *write).await.map_err(failed)?;
            if is_dead {
                let leases = sqlx::query("UPDATE lease SET owner = NULL, expires_at = 0 WHERE group_name = ?1 AND owner = ?2");
                leases.bind(&group).bind(&worker).execute(&mut *write).await.map_err(failed)?;
                dead.insert(instance);
            }
        }
        Ok(dead)
    }

    /// Gives leases back. A lease that another worker holds by now is left alone.
    pub(super) async fn release(&self, held: &BTreeMap<TopicPartition, i64>) -> Result<()> {
        let mut write = self.store.write().await?;
        for (source, epoch) in held {
            sqlx::query(
                "UPDATE lease SET owner = NULL, expires_at = 0
                 WHERE group_name = ?1 AND topic = ?2 AND number = ?3 AND owner = ?4 AND epoch = ?5",
            )
            .bind(&self.group)
            .bind(&*source.topic)
            .bind(source.partition)
            .bind(&self.worker)
            .bind(epoch)
            .execute(&mut *write)
            .await
            .map_err(failed)?;
        }
        write.commit().await.map_err(failed)
    }

    /// Ends this worker's membership, so that the others take over at once.
    pub(super) async fn leave(&self) -> Result<()> {
        let mut write = self.store.write().await?;
        let leave = sqlx::query("DELETE FROM member WHERE group_name = ?1 AND instance = ?2").bind(&self.group).bind(&self.instance);
        leave.execute(&mut *write).await.map_err(failed)?;
        write.commit().await.map_err(failed)?;
        alive::forget(&self.alive, &self.instance);
        Ok(())
    }

    async fn put(&self, write: &mut SqliteConnection, source: &TopicPartition, lease: Lease) -> Result<()> {
        sqlx::query(
            "INSERT INTO lease VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (group_name, topic, number)
             DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch, expires_at = excluded.expires_at",
        )
        .bind(&self.group)
        .bind(&*source.topic)
        .bind(source.partition)
        .bind(lease.owner)
        .bind(lease.epoch)
        .bind(lease.expires_at)
        .execute(write)
        .await
        .map_err(failed)?;
        Ok(())
    }

    async fn facts(&self, read: &mut SqliteConnection, now: Micros) -> Result<LeaseFacts> {
        let mut facts = LeaseFacts { now, topics: self.topics.clone(), ..LeaseFacts::default() };
        for topic in self.topics.keys() {
            let members: Vec<(String, String)> =
                sqlx::query_as("SELECT worker, instance FROM member WHERE group_name = ?1 AND topic = ?2 AND expires_at > ?3")
                    .bind(&self.group)
                    .bind(&**topic)
                    .bind(now)
                    .fetch_all(&mut *read)
                    .await
                    .map_err(failed)?;
            let (dead, living): (Vec<_>, Vec<_>) = members.into_iter().partition(|(_, instance)| self.alive.is_dead(instance));
            facts.members.insert(topic.clone(), living.into_iter().map(|(worker, _)| worker).collect());
            let is_dead = |owner: &Option<String>| dead.iter().any(|(worker, _)| owner.as_ref() == Some(worker));
            let leases: Vec<(i32, Option<String>, i64, Micros)> =
                sqlx::query_as("SELECT number, owner, epoch, expires_at FROM lease WHERE group_name = ?1 AND topic = ?2")
                    .bind(&self.group)
                    .bind(&**topic)
                    .fetch_all(&mut *read)
                    .await
                    .map_err(failed)?;
            for (partition, owner, epoch, expires_at) in leases {
                let expires_at = if is_dead(&owner) { Micros::MIN } else { expires_at };
                facts.leases.insert(TopicPartition { topic: topic.clone(), partition }, Lease { owner, epoch, expires_at });
            }
        }
        Ok(facts)
    }
}

#[cfg(test)]
mod tests;
