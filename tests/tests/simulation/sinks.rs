//! A sink: the product's claims, takeovers and switches, beside outputs that take each record once. Each version of it
//! leaves other events out, and a user applies new versions, pauses it and resumes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::{Add, CatalogState, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, PauseRecord, Remove, SinkClaim, SinkSwitch};
use committed::registry::LiveSink;
use definitions::parse::parse_sink;
use event_sinks::{OutputState, check_position, claim_commit, first_due, switch_commit};
use types::vector::{Offset, PartitionId, Vector};
use types::{Error, Result};

use crate::actor::Ctx;
use crate::log::STREAMS;
use crate::outputs::SimulatedOutput;
use crate::sabotage::Sabotage;
use crate::world::{Fault, Position, Sim};

const SINK: &str = "scores";
const STREAM: &str = "a";
/// A worker's steps in which others take its partitions over and put their records out.
const HELD_UP_STEPS: usize = 60;

/// A version of the sink: that which made a record.
pub type Version = u32;

/// What a worker accepted of a partition in one micro-batch.
pub struct Accepted {
    partition: PartitionId,
    identity: String,
    /// The offset at which the micro-batch begins.
    start: Offset,
    /// The offsets of its events, which ascend.
    events: Vec<i64>,
}

impl Accepted {
    pub fn new(partition: &PartitionId, identity: &str, start: Offset, open: &[Position]) -> Accepted {
        let events = open.iter().filter(|position| position.partition == *partition).map(|position| position.offset).collect();
        Accepted { partition: partition.clone(), identity: identity.to_owned(), start, events }
    }
}

/// The sink as one worker has it, called as the product's [`speed::WorkerSinks`].
pub struct Sinks {
    ctx: Ctx,
    /// The definition that it works with.
    sink: Option<LiveSink>,
    taken: BTreeMap<PartitionId, OutputState>,
    /// Under which it appends to each output that it has taken over.
    owners: BTreeMap<PartitionId, u64>,
    made: Vec<(PartitionId, Vec<(Offset, Version)>)>,
    /// Begun to be appended.
    appending: Vec<(PartitionId, Vec<(Offset, Version)>)>,
}

impl Sinks {
    pub fn new(ctx: Ctx) -> Sinks {
        Sinks { ctx, sink: None, taken: BTreeMap::new(), owners: BTreeMap::new(), made: Vec::new(), appending: Vec::new() }
    }

    /// Begins with what a catalog state has.
    pub fn begin(&mut self, state: &CatalogState) {
        self.sink = live(state);
    }

    pub fn has_other(&self, state: &CatalogState) -> bool {
        definition_of(self.sink.as_ref()) != definition_of(live(state).as_ref())
    }

    /// What a catalog state has comes into effect. The records of everything before these positions are appended.
    pub async fn switch_definitions(&mut self, state: &CatalogState, positions: &Vector) -> Result<()> {
        let sink = live(state);
        if let Some(sink) = &sink {
            let switch = |(partition, taken): (&PartitionId, &OutputState)| taken.switch_at_once(sink, positions.get(partition));
            let switches = self.taken.iter().filter_map(switch).collect();
            self.record(switches).await?;
        }
        self.sink = sink;
        Ok(())
    }

    /// Makes the records of accepted events. Appends nothing.
    pub async fn make_records(&mut self, accepted: Vec<Accepted>) -> Result<()> {
        let Some(sink) = self.sink.clone() else { return Ok(()) };
        let parts: Vec<Accepted> =
            accepted.into_iter().filter(|part| &*part.partition.stream == STREAM && !part.events.is_empty()).collect();
        self.take_over(&sink, &parts).await?;
        let mut switches = Vec::new();
        for part in &parts {
            let Some(mut switch) = self.taken.get(&part.partition).and_then(|taken| taken.switch(&sink, part.start)) else { continue };
            if self.ctx.sim.is_sabotaged(Sabotage::SwitchBeforeWhatIsOut) {
                switch.from = part.start;
            }
            switches.push(switch);
        }
        self.record(switches).await?;
        for part in &parts {
            self.make_of_partition(&sink, part);
        }
        Ok(())
    }

    /// Claims the outputs of partitions that it does not have yet, takes them over, and reads the last switches.
    async fn take_over(&mut self, sink: &LiveSink, parts: &[Accepted]) -> Result<()> {
        let mut unclaimed: BTreeMap<PartitionId, OutputState> = BTreeMap::new();
        for part in parts.iter().filter(|part| !self.taken.contains_key(&part.partition)) {
            let (partition, claim) = (part.partition.clone(), self.ctx.sim.id());
            unclaimed.insert(partition.clone(), OutputState::unclaimed(partition, part.identity.clone(), claim));
        }
        if unclaimed.is_empty() {
            return Ok(());
        }
        let claims: Vec<SinkClaim> = unclaimed.values().map(|taken| taken.claimed(&sink.name)).collect();
        self.ctx.commit(claim_commit(self.ctx.sim.id(), claims.clone())).await?;
        for part in parts {
            if let Some(taken) = unclaimed.get_mut(&part.partition) {
                taken.next = self.take_over_output(part).await?;
            }
        }
        self.ctx.step("reads the last switches").await;
        let switches = self.ctx.sim.catalog.newest_sink_switches(&claims).await?;
        let state = self.ctx.state().await?;
        if self.has_other(&state) {
            return Err(Error::conflict("the sink was changed before its output was taken over"));
        }
        let committed = state.vector();
        for part in parts {
            check_position(&part.partition, committed.get(&part.partition), part.start)?;
        }
        for last in switches {
            if let Some(taken) = unclaimed.get_mut(&last.partition) {
                taken.note(last);
            }
        }
        self.taken.append(&mut unclaimed);
        Ok(())
    }

    async fn take_over_output(&mut self, part: &Accepted) -> Result<Option<Offset>> {
        self.ctx.step("takes the output of the sink over").await;
        if self.ctx.sim.fault(Fault::RequestLost, 10) {
            return Err(Error::unavailable("the log did not answer"));
        }
        let (owner, next) = with_output(&self.ctx.sim, &part.partition, SimulatedOutput::take);
        self.owners.insert(part.partition.clone(), owner);
        if next.is_some_and(|next| next > part.start) {
            self.ctx.sim.fired(Fault::RecordsOut);
        }
        Ok(next.filter(|_| !self.ctx.sim.is_sabotaged(Sabotage::OutputIsNotAsked)))
    }

    /// Commits switches under the claims of their outputs, and keeps them as the last ones.
    async fn record(&mut self, switches: Vec<SinkSwitch>) -> Result<()> {
        if switches.is_empty() {
            return Ok(());
        }
        let claims = switches.iter().filter_map(|switch| Some(self.taken.get(&switch.partition)?.claimed(&switch.sink)));
        let commit = switch_commit(self.ctx.sim.id(), claims.collect(), switches.clone(), |_| None);
        self.ctx.commit(commit).await?;
        for switch in switches {
            let SinkSwitch { partition, from, version, paused, .. } = &switch;
            self.ctx.sim.trace(&self.ctx.name, format!("{SINK} of {partition} from {from} on: version {version}, paused: {paused}"));
            let Some(taken) = self.taken.get_mut(partition) else { continue };
            if taken.last.is_some() {
                self.ctx.sim.fired(Fault::SinkSwitched);
            }
            taken.last = Some(switch);
        }
        Ok(())
    }

    fn make_of_partition(&mut self, sink: &LiveSink, part: &Accepted) {
        let Some(taken) = self.taken.get(&part.partition).filter(|taken| taken.is_switched_to(sink)) else { return };
        if sink.paused_since.is_some() {
            return;
        }
        let due = &part.events[first_due(taken.decided_before(), &part.events)..];
        let records = due.iter().filter(|offset| has_record(sink.version, **offset)).map(|offset| (Offset(*offset), sink.version));
        self.made.push((part.partition.clone(), records.collect()));
    }

    /// Begins to append what was made, after what was begun before.
    pub async fn begin_append(&mut self) -> Result<()> {
        self.appended().await?;
        self.appending = std::mem::take(&mut self.made);
        Ok(())
    }

    /// Appends what was begun. An error ends the worker: what is out has to be found out anew.
    pub async fn appended(&mut self) -> Result<()> {
        for (partition, records) in std::mem::take(&mut self.appending) {
            let Some((last, _)) = records.last() else { continue };
            let next = last.next();
            let held_up = if self.ctx.sim.fault(Fault::HeldUpBeforeRecords, 300) { HELD_UP_STEPS } else { 0 };
            for _ in 0..=held_up {
                self.ctx.step("puts records of the sink out").await;
            }
            let unavailable = || Error::unavailable("the log did not answer");
            if self.ctx.sim.fault(Fault::RequestLost, 20) || self.ctx.sim.is_disk_full() {
                return Err(unavailable());
            }
            let has_no_owner = self.ctx.sim.is_sabotaged(Sabotage::OutputHasNoOwner);
            let own = self.owners.get(&partition).copied().unwrap_or_default();
            with_output(&self.ctx.sim, &partition, |output| {
                let owner = if has_no_owner { output.owner() } else { own };
                output.append(owner, &records)
            })?;
            self.ctx.sim.trace(&self.ctx.name, format!("put {} records of {partition} out, up to {next}", records.len()));
            if self.ctx.sim.fault(Fault::ReplyLost, 20) {
                return Err(unavailable());
            }
            self.ctx.step("has put records of the sink out").await;
            self.taken.get_mut(&partition).into_iter().for_each(|taken| taken.next = Some(next));
        }
        Ok(())
    }

    /// Under which claims it decided the events of its partitions.
    pub fn output_claims(&self) -> Vec<SinkClaim> {
        let name: Arc<str> = SINK.into();
        self.taken.values().map(|taken| taken.claimed(&name)).collect()
    }

    /// Forgets partitions that another worker has now.
    pub fn partitions_revoked(&mut self, partitions: &[PartitionId]) {
        self.taken.retain(|partition, _| !partitions.contains(partition));
        self.owners.retain(|partition, _| !partitions.contains(partition));
    }
}

fn with_output<T>(sim: &Sim, partition: &PartitionId, of: impl FnOnce(&mut SimulatedOutput<Version>) -> T) -> T {
    let mut world = sim.world.borrow_mut();
    let guard = world.sink_guard;
    of(world.sinks.entry(partition.clone()).or_insert_with(|| SimulatedOutput::new(guard)))
}

/// The WHERE of a version.
fn has_record(version: Version, offset: i64) -> bool {
    (offset + i64::from(version)) % 3 != 0
}

fn live(state: &CatalogState) -> Option<LiveSink> {
    let record = newest(state)?;
    Some(LiveSink {
        name: record.name.clone(),
        version: record.version,
        definition: parse_sink(&record.sql).unwrap().into(),
        reads: Some(STREAM.into()),
        plan: Err("the simulation plans no sink".into()),
        paused_since: state.paused_since(DefinitionKind::Sink, SINK),
    })
}

fn newest(state: &CatalogState) -> Option<&DefinitionRecord> {
    state.live(DefinitionKind::Sink).find(|record| &*record.name == SINK)
}

/// The version, and whether it is paused.
fn definition_of(sink: Option<&LiveSink>) -> Option<(Version, bool)> {
    sink.map(|sink| (sink.version, sink.paused_since.is_some()))
}

/// The sink's first version.
pub fn first(sim: &Sim) -> Commit {
    Commit { id: sim.id(), add: vec![Add::Definition(active(1, sim))], ..Commit::default() }
}

/// A user applies another version, pauses the sink or resumes it, in one transaction.
pub async fn change(sim: &Sim) {
    let state = sim.catalog.state().await.unwrap();
    let Some(record) = newest(&state) else { return };
    let mut commit = Commit { id: sim.id(), ..Commit::default() };
    let is_paused = state.paused_since(DefinitionKind::Sink, SINK).is_some();
    if sim.chance(50) {
        let version = record.version + 1;
        sim.trace("user", format!("defines version {version} of {SINK}"));
        commit.add.push(Add::Definition(DefinitionRecord { status: DefinitionStatus::Retired, since: sim.now(), ..record.clone() }));
        commit.add.push(Add::Definition(active(version, sim)));
    } else if is_paused {
        sim.trace("user", format!("resumes {SINK}"));
        commit.remove.push(Remove::Pause { kind: DefinitionKind::Sink, name: SINK.into() });
    } else {
        sim.trace("user", format!("pauses {SINK}"));
        commit.add.push(Add::Pause(PauseRecord { kind: DefinitionKind::Sink, name: SINK.into(), since: sim.now() }));
    }
    sim.catalog.commit(commit).await.unwrap();
}

fn active(version: Version, sim: &Sim) -> DefinitionRecord {
    DefinitionRecord {
        kind: DefinitionKind::Sink,
        name: SINK.into(),
        version,
        sql: format!("CREATE SINK {SINK} WITH (topic = 'out') AS SELECT e.id FROM {STREAM} e"),
        status: DefinitionStatus::Active,
        created_at: sim.now(),
        since: sim.now(),
        kept_until: None,
        rolled_back: false,
    }
}

/// Each output has one record for each accepted event, in the order of the partition, by the version that the recorded
/// switches say; or none, where that version leaves the event out or the sink was paused.
pub async fn check(sim: &Sim) {
    let ranges = sim.catalog.sink_ranges(Some(SINK), u32::MAX).await.unwrap();
    if let Some(back) = ranges.iter().find(|range| range.to.is_some_and(|to| to <= range.switch.from)) {
        return sim.violated(format!("the sink switched back: {back:?}"));
    }
    let events: Vec<Position> = {
        let world = sim.world.borrow();
        world.log.events_before(&[STREAM.into()], &world.log.end())
    };
    let partitions = STREAMS.iter().filter(|(stream, _)| *stream == STREAM).flat_map(|(_, count)| 0..*count);
    for partition in partitions.map(|number| PartitionId::new(STREAM, number)) {
        let mut switches: Vec<&SinkSwitch> = ranges.iter().map(|range| &range.switch).filter(|of| of.partition == partition).collect();
        switches.sort_by_key(|switch| switch.from);
        let mut expected = Vec::new();
        for event in events.iter().filter(|event| event.partition == partition) {
            let Some(by) = switches.iter().rfind(|switch| switch.from.0 <= event.offset) else {
                return sim.violated(format!("no version of the sink decided the event {} of {partition}", event.offset));
            };
            if !by.paused && has_record(by.version, event.offset) {
                expected.push((Offset(event.offset), by.version));
            }
        }
        let found = with_output(sim, &partition, |output| output.records().to_vec());
        if found != expected {
            let at = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            let at = at.unwrap_or(found.len().min(expected.len()));
            let (found, expected) = (found.get(at), expected.get(at));
            let what = format!("the record {at} of the sink in {partition} is {found:?}, expected {expected:?}");
            return sim.violated(format!("{what} by {switches:?}"));
        }
    }
}
