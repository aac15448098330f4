//! The speed worker: the product's partitions, decisions and checkpoint commits, with positions instead of states.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use catalog::{CatalogState, DefinitionKind, Expect, checkpoint_commit};
use engine::fresh::{Fresh, FreshLayer, ViewVersion};
use speed::{Decider, Decision, DedupSettings, IdSpace, PartitionState, Start, checkpoint_record, files_since, start_of};
use types::files::ObjectName;
use types::vector::{PartitionId, Vector};
use types::{Error, ErrorKind, Result};

use crate::actor::Ctx;
use crate::group::Notice;
use crate::log::{DEDUP_WITHIN, MAX_FUTURE};
use crate::reader::archived;
use crate::sabotage::Sabotage;
use crate::sinks::{Accepted, Sinks};
use crate::views::streams_of;
use crate::world::{Archived, Content, Fault, Position, Positions};

pub struct Worker {
    ctx: Ctx,
    member: String,
    fresh: Fresh<Positions>,
    partitions: BTreeMap<PartitionId, PartitionState>,
    /// The view versions that it maintains.
    views: Vec<ViewVersion>,
    archived: BTreeMap<Arc<str>, Vec<Archived>>,
    open: Positions,
    dead_letters: BTreeMap<Arc<str>, usize>,
    layers: Vec<Arc<FreshLayer<Positions>>>,
    sinks: Sinks,
}

/// Works until it is killed: joins, follows, and starts again from the catalog after a failure.
pub async fn work(ctx: Ctx, fresh: Fresh<Positions>) {
    let mut life = 0;
    loop {
        life += 1;
        let member = format!("{}.{life}", ctx.name);
        ctx.sim.world.borrow_mut().group.join(&member);
        let mut worker = Worker::new(ctx.clone(), member, fresh.clone());
        let ended = worker.follow().await;
        let why = match ended {
            Ok(()) => "lost a partition".to_owned(),
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) => error.to_string(),
            Err(error) => return ctx.sim.violated(format!("the worker {} failed: {error}", ctx.name)),
        };
        ctx.sim.trace(&ctx.name, format!("begins again: {why}"));
        worker.withdraw().await;
        ctx.sim.world.borrow_mut().group.leave(&worker.member);
    }
}

impl Worker {
    fn new(ctx: Ctx, member: String, fresh: Fresh<Positions>) -> Self {
        Self {
            sinks: Sinks::new(ctx.clone()),
            ctx,
            member,
            fresh,
            partitions: BTreeMap::new(),
            views: Vec::new(),
            archived: BTreeMap::new(),
            open: Positions::new(),
            dead_letters: BTreeMap::new(),
            layers: Vec::new(),
        }
    }

    /// Follows the group's notices and the log until a partition is lost.
    async fn follow(&mut self) -> Result<()> {
        let state = self.ctx.state().await?;
        self.views = live_views(&state);
        self.sinks.begin(&state);
        loop {
            self.ctx.step("looks for what is next").await;
            let notice = self.ctx.sim.world.borrow_mut().group.next_notice(&self.member);
            match notice {
                Some(Notice::Assigned(partitions)) => self.assign(partitions).await?,
                Some(Notice::Revoked(partitions)) => {
                    self.checkpoint().await?;
                    self.partitions.retain(|id, _| !partitions.contains(id));
                    self.sinks.partitions_revoked(&partitions);
                    self.ctx.sim.world.borrow_mut().group.release(&self.member, &partitions);
                }
                Some(Notice::Lost(partitions)) => {
                    if self.ctx.sim.is_sabotaged(Sabotage::PartOfAnEpoch) {
                        self.partitions.retain(|id, _| !partitions.contains(id));
                        self.sinks.partitions_revoked(&partitions);
                        continue;
                    }
                    return Ok(());
                }
                None => self.go_on().await?,
            }
        }
    }

    async fn go_on(&mut self) -> Result<()> {
        let is_calm = self.ctx.sim.world.borrow().calm;
        match self.ctx.sim.pick(12) {
            _ if is_calm && self.is_at_end() => self.checkpoint().await,
            0 | 1 => self.checkpoint().await,
            2 | 3 => self.close_micro_batch().await,
            4 => self.poll_definitions().await,
            _ => self.fetch(),
        }
    }

    fn is_at_end(&self) -> bool {
        let end = self.ctx.sim.world.borrow().log.end();
        self.partitions.values().all(|partition| partition.position >= end.get(&partition.id))
    }

    async fn assign(&mut self, partitions: Vec<PartitionId>) -> Result<()> {
        let state = self.ctx.state().await?;
        for id in partitions {
            // Its uncommitted layers are those of a dead worker of this process.
            self.fresh.take_over(0, &state.vector(), std::slice::from_ref(&id));
            let (identity, bounds) = {
                let world = self.ctx.sim.world.borrow();
                (world.log.identity(), world.log.bounds(&id))
            };
            let known = state.partitions.get(&id);
            let Start::At(start) = start_of(known, &id, &identity, &bounds, false)? else {
                return Err(Error::internal("this log never expires"));
            };
            let (clock, newest) = known.map_or((None, None), |known| (known.clock, known.max_event_time));
            let ids = IdSpace::new(DedupSettings { memory_bytes: 64 << 20, folder: std::env::temp_dir().join("basestream-dedup") });
            let mut decider = Decider::new(clock, newest, MAX_FUTURE, Some(DEDUP_WITHIN), &ids);
            if let Some(clock) = clock {
                self.reread_ids(&state, &id, clock - DEDUP_WITHIN.as_micros() as i64, &mut decider).await?;
            }
            self.ctx.sim.trace(&self.ctx.name, format!("takes {id} over at {start}"));
            self.partitions.insert(id.clone(), PartitionState::new(id, identity, decider, start));
        }
        Ok(())
    }

    async fn reread_ids(&self, state: &CatalogState, id: &PartitionId, oldest: i64, decider: &mut Decider) -> Result<()> {
        for file in files_since(state, &id.stream, &BTreeMap::from([(id.clone(), oldest)])) {
            let events = archived(&self.ctx, file).await?;
            for event in events.iter().filter(|event| event.position.partition == *id && event.timestamp >= oldest) {
                decider.remember(&event.id, event.timestamp)?;
            }
        }
        Ok(())
    }

    /// Reads the next records of one of the partitions.
    fn fetch(&mut self) -> Result<()> {
        if self.partitions.is_empty() {
            return Ok(());
        }
        let at = self.ctx.sim.pick(self.partitions.len());
        let again = if self.ctx.sim.fault(Fault::DeliveredTwice, 60) { 3 } else { 0 };
        let limit = 1 + self.ctx.sim.pick(6);
        let Some((id, partition)) = self.partitions.iter_mut().nth(at) else { return Ok(()) };
        let (fetched, decoder) = {
            let world = self.ctx.sim.world.borrow();
            if world.log.bounds(id).begin > partition.position {
                return Err(Error::conflict("the log was trimmed: another worker has committed the partition"));
            }
            (world.log.fetch(id, partition.position, again, limit, world.now), world.log.decoder(&id.stream))
        };
        let (archived, open, dead_letters) = (&mut self.archived, &mut self.open, &mut self.dead_letters);
        partition.take(&decoder, &fetched, |record, decision| {
            match decision {
                Decision::Accept(event) => {
                    let position = Position { partition: id.clone(), offset: record.offset.0 };
                    let name = event.id().map(|name| name.to_string()).unwrap_or_default();
                    open.push(position.clone());
                    archived.entry(id.stream.clone()).or_default().push(Archived {
                        position,
                        id: name,
                        timestamp: record.timestamp,
                        decoded_by: 1,
                    });
                }
                Decision::Duplicate => {}
                Decision::DeadLetter(_) => *dead_letters.entry(id.stream.clone()).or_default() += 1,
            }
            Ok(())
        })?;
        self.ctx.sim.trace(&self.ctx.name, format!("read {id} up to {}", fetched.position));
        Ok(())
    }

    /// The records of sinks are made before the states can be read, and put out after that.
    async fn close_micro_batch(&mut self) -> Result<()> {
        let (mut start, mut end) = (Vector::new(), Vector::new());
        let mut accepted = Vec::new();
        for partition in self.partitions.values_mut() {
            let Some(Range { start: from, end: to }) = partition.close() else { continue };
            start.set(partition.id.clone(), from);
            end.set(partition.id.clone(), to);
            accepted.push(Accepted::new(&partition.id, &partition.identity, from, &self.open));
        }
        if start.is_empty() {
            return Ok(());
        }
        let open = std::mem::take(&mut self.open);
        self.sinks.make_records(accepted).await?;
        let of = |view: &ViewVersion| {
            open.iter().filter(|position| streams_of(&view.name).contains(&position.partition.stream)).cloned().collect()
        };
        let states = self.views.iter().map(|view| (view.clone(), Arc::new(of(view)))).collect();
        let layer = FreshLayer { start, end, states, failures: BTreeMap::new(), max_event_time: BTreeMap::new() };
        self.layers.push(Arc::new(layer.clone()));
        self.fresh.publish(layer, Vec::new());
        self.sinks.begin_append().await?;
        // An append may take until the next micro-batch.
        if self.ctx.sim.chance(50) && !self.ctx.sim.is_sabotaged(Sabotage::RecordsAfterTheCheckpoint) {
            self.sinks.appended().await?;
        }
        while let [.., older, newer] = self.layers.as_slice()
            && self.layers.len() > 2
        {
            let merged = FreshLayer::merge_by(&[older.clone(), newer.clone()], |_, states| {
                Some(states.iter().flat_map(|s| s.iter().cloned()).collect())
            });
            self.layers.truncate(self.layers.len() - 2);
            self.layers.push(Arc::new(merged.clone()));
            self.fresh.compact(merged);
        }
        Ok(())
    }

    /// Writes files first, under fresh names, then commits the one transaction.
    async fn checkpoint(&mut self) -> Result<()> {
        self.close_micro_batch().await?;
        if !self.ctx.sim.is_sabotaged(Sabotage::RecordsAfterTheCheckpoint) {
            self.sinks.appended().await?;
        }
        if !self.partitions.values().any(PartitionState::has_work) {
            return Ok(());
        }
        let id = self.ctx.sim.id();
        let (record, identities) = checkpoint_record(self.partitions.values(), id, &self.member, self.ctx.sim.now());
        let mut files = Vec::new();
        for (stream, events) in &self.archived {
            let name = ObjectName::Archive { stream: stream.clone(), checkpoint: id };
            files.push(self.ctx.put(name, Content::Archive(events.clone())).await?);
        }
        for stream in self.dead_letters.keys() {
            let name = ObjectName::DeadLetters { stream: stream.clone(), checkpoint: id };
            files.push(self.ctx.put(name, Content::DeadLetters).await?);
        }
        let read: Vec<Arc<str>> = record.ranges.iter().map(|range| range.partition.stream.clone()).collect();
        let kept = self.views.iter().filter(|view| streams_of(&view.name).iter().any(|stream| read.contains(stream)));
        let states: BTreeMap<ViewVersion, Positions> = kept.map(|view| (view.clone(), self.states_of(view))).collect();
        if !states.is_empty() {
            files.push(self.ctx.put(ObjectName::States { checkpoint: id }, Content::States(states)).await?);
        }
        let (mut commit, claims) = (checkpoint_commit(record, files, &identities), self.sinks.output_claims());
        commit.expect.extend((!claims.is_empty()).then_some(Expect::SinkClaims(claims)));
        self.ctx.commit(commit).await?;
        self.partitions.values_mut().for_each(PartitionState::begin_next_epoch);
        self.clear();
        if self.ctx.sim.is_sabotaged(Sabotage::RecordsAfterTheCheckpoint) {
            self.sinks.appended().await?;
        }
        Ok(())
    }

    fn states_of(&self, view: &ViewVersion) -> Positions {
        self.layers.iter().filter_map(|layer| layer.states.get(view)).flat_map(|states| states.iter().cloned()).collect()
    }

    /// New definitions begin with a new epoch.
    async fn poll_definitions(&mut self) -> Result<()> {
        let state = self.ctx.state().await?;
        let views = live_views(&state);
        if views != self.views || self.sinks.has_other(&state) {
            self.checkpoint().await?;
            let positions: Vector = self.partitions.values().map(|partition| (partition.id.clone(), partition.position)).collect();
            self.sinks.switch_definitions(&state, &positions).await?;
            self.views = views;
        }
        Ok(())
    }

    /// Withdraws from readers what was not committed.
    async fn withdraw(&mut self) {
        let partitions: Vec<PartitionId> = self.partitions.keys().cloned().collect();
        let committed = match self.ctx.state().await {
            Ok(state) => state.vector(),
            Err(_) => self.partitions.iter().map(|(id, partition)| (id.clone(), partition.start)).collect::<Vector>(),
        };
        self.fresh.withdraw(&committed, &partitions);
    }

    fn clear(&mut self) {
        self.archived.clear();
        self.dead_letters.clear();
        self.layers.clear();
    }
}

fn live_views(state: &CatalogState) -> Vec<ViewVersion> {
    state.live(DefinitionKind::View).map(|view| ViewVersion::new(view.name.clone(), view.version)).collect()
}
