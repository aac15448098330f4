//! Trimming: deletes the records of the log that the product's plan gives up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use catalog::{Add, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus};
use event_log::{Consumer, Fetched, Log, NewRecord, PartitionBounds, Subscription, TopicPartition};
use jobs::trim::Trimming;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, ErrorKind, Result};

use crate::actor::Ctx;
use crate::log::{STREAMS, SimLog, TrimDecision, stream_sql};
use crate::sabotage::Sabotage;
use crate::world::{Fault, Sim};

/// How long records stay after their commit.
const RETENTION: Duration = Duration::from_secs(20);

/// Trims the log up to what retention and pins allow, until it is killed.
pub async fn trim(ctx: Ctx) {
    loop {
        ctx.step("looks what may be trimmed").await;
        match round(&ctx).await {
            Err(error) if !matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) => {
                return ctx.sim.violated(format!("trimming failed: {error}"));
            }
            _ => {}
        }
    }
}

async fn round(ctx: &Ctx) -> Result<()> {
    let state = ctx.state().await?;
    let decision = TrimDecision { state: state.clone(), at: ctx.sim.now() };
    let old = match ctx.sim.is_sabotaged(Sabotage::PinsAreTrimmed) {
        true => all_committed(&state, decision.at),
        false => old_records(ctx, decision.at).await?,
    };
    for OldRecords { partition, before, appended_before } in old {
        ctx.step("deletes records of the log").await;
        let trimmed = ctx.sim.world.borrow_mut().log.trim(&partition, before, appended_before, &decision);
        if trimmed > 0 {
            ctx.sim.fired(Fault::Trimmed);
            ctx.sim.trace(&ctx.name, format!("deleted {trimmed} records of {partition}"));
        }
    }
    Ok(())
}

/// The records of a partition that may go.
#[derive(Debug)]
struct OldRecords {
    partition: PartitionId,
    before: Offset,
    appended_before: Micros,
}

/// Asks the product what may go. Nothing else happens meanwhile, so that it decides on the state that was just read.
async fn old_records(ctx: &Ctx, now: Micros) -> Result<Vec<OldRecords>> {
    let log = Arc::new(LogToTrim::new(&ctx.sim.world.borrow().log));
    let trimming = Trimming {
        catalog: ctx.sim.catalog.clone(),
        log: log.clone(),
        group: "group".into(),
        retention: RETENTION,
        clock: Arc::new(move || now),
    };
    trimming.trim().await?;
    Ok(std::mem::take(&mut *log.asked.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// What may go if nothing pinned it.
fn all_committed(state: &CatalogState, now: Micros) -> Vec<OldRecords> {
    let appended_before = now - RETENTION.as_micros() as Micros;
    let committed = state.vector();
    let old = committed.iter().map(|(id, end)| OldRecords { partition: id.clone(), before: Offset(end.0 - 1), appended_before });
    old.collect()
}

/// The definitions that trimming goes by.
pub fn streams(sim: &Sim) -> Commit {
    let add = STREAMS.iter().map(|(name, _)| {
        Add::Definition(DefinitionRecord {
            kind: DefinitionKind::Stream,
            name: (*name).into(),
            version: 1,
            sql: stream_sql(name),
            status: DefinitionStatus::Active,
            created_at: sim.now(),
            since: sim.now(),
            kept_until: None,
            rolled_back: false,
        })
    });
    Commit { id: sim.id(), add: add.collect(), ..Commit::default() }
}

/// The log as the product's trimming sees it: its bounds at one moment. It notes what it is asked to delete.
#[derive(Debug)]
struct LogToTrim {
    identity: String,
    bounds: BTreeMap<Arc<str>, Vec<PartitionBounds>>,
    asked: Mutex<Vec<OldRecords>>,
}

impl LogToTrim {
    fn new(log: &SimLog) -> LogToTrim {
        let mut bounds: BTreeMap<Arc<str>, Vec<PartitionBounds>> = BTreeMap::new();
        for id in log.partitions() {
            bounds.entry(id.stream.clone()).or_default().push(log.bounds(id));
        }
        LogToTrim { identity: log.identity(), bounds, asked: Mutex::default() }
    }
}

fn unused<T>() -> Result<T> {
    Err(Error::internal("trimming asks a log only for bounds, and to trim"))
}

#[async_trait]
impl Log for LogToTrim {
    async fn create_topic(&self, _: &str, _: u32) -> Result<u32> {
        unused()
    }

    async fn bounds(&self, topic: &str) -> Result<Vec<PartitionBounds>> {
        Ok(self.bounds.get(topic).cloned().unwrap_or_default())
    }

    async fn identity(&self, _: &str) -> Result<String> {
        Ok(self.identity.clone())
    }

    async fn append(&self, _: &str, _: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        unused()
    }

    async fn read(&self, _: &TopicPartition, _: Offset, _: usize) -> Result<Fetched> {
        unused()
    }

    async fn trim(&self, source: &TopicPartition, _: &str, before: Offset, appended_before: Micros) -> Result<u64> {
        let partition = PartitionId::new(source.topic.clone(), source.partition);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(OldRecords { partition, before, appended_before });
        Ok(0)
    }

    async fn subscribe(&self, _: Subscription) -> Result<Consumer> {
        unused()
    }
}
