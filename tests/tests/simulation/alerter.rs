//! An alert: the product's watch over keys and its commits, beside an output that takes each record once. A device is
//! watched while it has an odd number of events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use catalog::{AlertProgress, AlertTransition, AlertVersion, Catalog, Expect, LeaseRecord};
use engine::alerts::{KeyWatch, OpenState};
use event_alerts::{alert_lease, first_left, published_commit, transitions_commit};
use types::tiles::Micros;
use types::vector::{Offset, Vector};
use types::{Error, ErrorKind, Result, TransitionKind};

use crate::actor::Ctx;
use crate::sabotage::Sabotage;
use crate::world::{Fault, Sim};

const ALERT: &str = "odd";
const VERSION: u32 = 1;
const STREAM: &str = "a";
const LEASE: Duration = Duration::from_secs(60);
/// A runner gives its lease up after this many rounds.
const ROUNDS: usize = 6;
/// Transitions that are read together.
const PAGE: u32 = 3;
/// A limit that no schedule reaches.
const ALL: u32 = 1_000_000;

/// Runs the alert whenever it holds the lease, until it is killed.
pub async fn watch(ctx: Ctx) {
    loop {
        ctx.step("looks whether the alert is free").await;
        match hold(&ctx).await {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) => {
                ctx.sim.trace(&ctx.name, format!("the alert begins again: {error}"));
            }
            Err(error) => return ctx.sim.violated(format!("the alert failed: {error}")),
        }
    }
}

async fn hold(ctx: &Ctx) -> Result<()> {
    let name = alert_lease(ALERT);
    let Some(lease) = ctx.sim.catalog.acquire_lease(&name, &ctx.name, LEASE, ctx.sim.now(), None).await? else { return Ok(()) };
    ctx.step("has the lease of the alert").await;
    let progress = progress(&ctx.sim.catalog).await?;
    ctx.step("takes the output over").await;
    let (owner, taken) = ctx.sim.world.borrow_mut().alert.take();
    let next_seq = progress.next_seq;
    let mut runner = Runner { ctx, lease, owner, next_seq, from: progress.position.clone(), at: progress.at, last: None };
    runner.put_out_what_is_left(progress.published, taken).await?;
    let ceased = ceased(&ctx.sim.catalog, &progress).await?;
    let mut watch = KeyWatch::new(None, open(&ctx.sim.catalog).await?).after(progress.at, ceased);
    for _ in 0..ROUNDS {
        runner.keep().await?;
        runner.round(&mut watch).await?;
    }
    ctx.step("releases the lease of the alert").await;
    ctx.sim.catalog.release_lease(&runner.lease).await
}

struct Runner<'c> {
    ctx: &'c Ctx,
    lease: LeaseRecord,
    /// Under which it appends to the output.
    owner: u64,
    next_seq: i64,
    /// What was put out was made from here: it evaluates at no position before.
    from: Vector,
    at: Micros,
    last: Option<Vector>,
}

impl Runner<'_> {
    async fn put_out_what_is_left(&mut self, published: i64, taken: Option<Offset>) -> Result<()> {
        let taken = taken.filter(|_| !self.ctx.sim.is_sabotaged(Sabotage::LogIsNotAsked));
        let mut from = first_left(published, taken);
        while from < self.next_seq {
            self.ctx.step("reads what is left").await;
            let left = self.ctx.sim.catalog.alert_transitions(ALERT, VERSION, from, PAGE).await?;
            let Some(last) = left.last() else { break };
            from = last.seq + 1;
            self.ctx.sim.fired(Fault::TransitionsLeft);
            self.put_out(&left).await?;
        }
        match published < self.next_seq {
            true => self.note_published().await,
            false => Ok(()),
        }
    }

    async fn round(&mut self, watch: &mut KeyWatch<Arc<str>>) -> Result<()> {
        let position = self.position().await?;
        let needed = match &self.last {
            Some(last) => Some(last),
            None => Some(&self.from).filter(|_| !self.ctx.sim.is_sabotaged(Sabotage::AlertGoesBack)),
        };
        let at = self.ctx.sim.now();
        // By a clock that was set back it waits, as the product does.
        if at < self.at || needed.is_some_and(|needed| !position.covers(needed)) {
            return Ok(());
        }
        let made = self.evaluate(watch, &position, at);
        (self.last, self.at) = (Some(position.clone()), at);
        if made.is_empty() {
            return Ok(());
        }
        let commit = transitions_commit(self.ctx.sim.id(), self.expect(), alert(), &made, position, at);
        self.ctx.commit(commit).await?;
        self.next_seq += made.len() as i64;
        let is_noted_first = self.ctx.sim.is_sabotaged(Sabotage::NotedBeforePutOut);
        if is_noted_first {
            self.note_published().await?;
        }
        self.put_out(&made).await?;
        if is_noted_first { Ok(()) } else { self.note_published().await }
    }

    /// Evaluates all devices at a time.
    fn evaluate(&self, watch: &mut KeyWatch<Arc<str>>, position: &Vector, at: Micros) -> Vec<AlertTransition> {
        let resolves = self.ctx.sim.world.borrow().resolves;
        let mut made = Vec::new();
        for (device, count) in counts(&self.ctx.sim, position) {
            let Some(transition) = watch.observe(&device, at, is_watched(count), None) else { continue };
            let is_put_out = transition.kind != TransitionKind::Resolved || resolves;
            made.push(AlertTransition {
                alert: ALERT.into(),
                version: VERSION,
                seq: self.next_seq + made.len() as i64,
                id: format!("{device}:{}", transition.since),
                kind: transition.kind,
                keys: device.to_string(),
                since: transition.since,
                at: transition.at,
                record: is_put_out.then(|| count.to_string()),
                record_key: None,
            });
        }
        made
    }

    /// What is committed, or somewhat further, as fresh layers are: their worker may die before it commits them.
    async fn position(&self) -> Result<Vector> {
        let mut position = self.ctx.state().await?.vector();
        let (end, is_calm) = (self.ctx.sim.world.borrow().log.end(), self.ctx.sim.world.borrow().calm);
        if !is_calm && self.ctx.sim.chance(50) {
            for (partition, end) in end.iter() {
                let committed = position.get(partition);
                let further = self.ctx.sim.pick((end.0 - committed.0).max(0) as usize + 1) as i64;
                position.set(partition.clone(), Offset(committed.0 + further));
            }
        }
        Ok(position)
    }

    async fn put_out(&self, transitions: &[AlertTransition]) -> Result<()> {
        self.ctx.step("puts records out").await;
        let unavailable = || Error::unavailable("the log did not answer");
        if self.ctx.sim.fault(Fault::RequestLost, 30) || self.ctx.sim.is_disk_full() {
            return Err(unavailable());
        }
        let records = transitions.iter().filter(|transition| transition.record.is_some());
        let records: Vec<(Offset, AlertTransition)> = records.map(|transition| (Offset(transition.seq), transition.clone())).collect();
        self.ctx.sim.world.borrow_mut().alert.append(self.owner, &records)?;
        if self.ctx.sim.fault(Fault::ReplyLost, 30) {
            return Err(unavailable());
        }
        self.ctx.step("has put records out").await;
        Ok(())
    }

    async fn note_published(&self) -> Result<()> {
        let commit = published_commit(self.ctx.sim.id(), self.expect(), alert(), self.next_seq);
        self.ctx.commit(commit).await.map(drop)
    }

    async fn keep(&mut self) -> Result<()> {
        let now = self.ctx.sim.now();
        if self.lease.expires_at - now <= LEASE.as_micros() as Micros * 2 / 3 {
            self.lease = self.ctx.sim.catalog.renew_lease(&self.lease, LEASE, now).await?;
        }
        Ok(())
    }

    fn expect(&self) -> Expect {
        let LeaseRecord { name, owner, epoch, .. } = self.lease.clone();
        Expect::Lease { name, owner, epoch, now: self.ctx.sim.now() }
    }
}

fn alert() -> AlertVersion {
    AlertVersion { name: ALERT.into(), version: VERSION }
}

async fn progress(catalog: &Catalog) -> Result<AlertProgress> {
    let none =
        || AlertProgress { alert: ALERT.into(), version: VERSION, next_seq: 0, published: 0, position: Vector::new(), at: Micros::MIN };
    Ok(catalog.alert_progress().await?.pop().unwrap_or_else(none))
}

async fn open(catalog: &Catalog) -> Result<HashMap<Arc<str>, OpenState>> {
    let open = catalog.open_alerts(Some(ALERT), None, ALL).await?;
    Ok(open.into_iter().map(|open| (open.keys.into(), OpenState { since: open.since, last: open.last_put_out })).collect())
}

/// The keys that ceased and had begun at the time of the last transitions or later, each with its `since`.
async fn ceased(catalog: &Catalog, progress: &AlertProgress) -> Result<HashMap<Arc<str>, Micros>> {
    let made = catalog.alert_transitions(ALERT, VERSION, 0, ALL).await?;
    let ceased = made.into_iter().filter(|made| made.kind == TransitionKind::Resolved && made.since >= progress.at);
    Ok(ceased.map(|made| (made.keys.into(), made.since)).collect())
}

fn counts(sim: &Sim, position: &Vector) -> BTreeMap<Arc<str>, u64> {
    let mut counts: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    for event in sim.world.borrow().log.said_before(STREAM, position) {
        *counts.entry(event.device.as_str().into()).or_default() += 1;
    }
    counts
}

fn is_watched(count: u64) -> bool {
    count % 2 == 1
}

/// Whether what is open follows from the log's end, and everything is put out.
pub async fn is_settled(sim: &Sim, end: &Vector) -> bool {
    let progress = progress(&sim.catalog).await.unwrap();
    let open = open(&sim.catalog).await.unwrap();
    let watched: BTreeSet<Arc<str>> =
        counts(sim, end).into_iter().filter_map(|(device, count)| is_watched(count).then_some(device)).collect();
    progress.published == progress.next_seq && open.into_keys().collect::<BTreeSet<_>>() == watched
}

/// The output has what was committed, in its order and once; and a device's counts, as they were put out, never go
/// back.
pub async fn check(sim: &Sim) {
    let committed = sim.catalog.alert_transitions(ALERT, VERSION, 0, ALL).await.unwrap();
    let (records, resolves): (Vec<AlertTransition>, bool) = {
        let world = sim.world.borrow();
        (world.alert.records().iter().map(|(_, record)| record.clone()).collect(), world.resolves)
    };
    let expected: Vec<i64> = committed.iter().filter(|transition| transition.record.is_some()).map(|transition| transition.seq).collect();
    let found: Vec<i64> = records.iter().map(|record| record.seq).collect();
    if found != expected {
        return sim.violated(format!("the alert's topic has the transitions {found:?}, committed are {expected:?}"));
    }
    let mut last: BTreeMap<&str, (u64, bool)> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for record in &records {
        let count: u64 = record.record.as_deref().and_then(|count| count.parse().ok()).unwrap_or_default();
        let (before, was_open) = last.get(record.keys.as_str()).copied().unwrap_or_default();
        let began = record.kind == TransitionKind::Began;
        let is_new = !began || ids.insert(&record.id);
        if count <= before || is_watched(count) != began || (resolves && began == was_open) || !is_new {
            return sim.violated(format!("the alert contradicts itself at {before}: {record:?}"));
        }
        last.insert(&record.keys, (count, began));
    }
}
