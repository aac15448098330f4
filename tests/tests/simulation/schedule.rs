//! A schedule: which actor continues, is frozen or dies, and what the clocks do. The seed determines all of it.

use catalog::{
    Add, Commit, DefinitionStatus, RedecodedFile, RedecodedStream, add_redecoded, ledger_difference, serve_version, version_before,
    versions_commit,
};
use engine::fresh::Fresh;
use rand::Rng;
use types::files::{FileKind, FileRecord, ObjectName};
use types::tiles::Micros;
use types::vector::Vector;

use crate::actor::{Actor, Kind};
use crate::alerter;
use crate::collector::collect;
use crate::links::plan_links;
use crate::reader::serve;
use crate::replayer::replay;
use crate::runner::run_views;
use crate::sabotage::Sabotage;
use crate::sinks;
use crate::trimmer;
use crate::views::{define, keep_old};
use crate::worker::work;
use crate::world::{Archived, Content, Fault, Fired, Position, Positions, Sim};

/// Most schedules are short; some faults need a long one.
const STEPS: [u64; 8] = [120, 120, 200, 200, 200, 320, 320, 900];
/// Steps of a schedule in which checkpoints become old enough to be compacted.
const LONG: u64 = 900;
/// With a sink, one step in this many is a user who changes it.
const SINK_CHANGES: usize = 50;
/// While files are read to be compacted, one step in this many is a user who has one decoded again.
const DECODINGS: usize = 40;
/// How many steps everything may take to come to rest once there are no more faults.
const STEPS_TO_REST: u64 = 4_000;

/// The result of a schedule.
pub struct Outcome {
    pub violation: Option<String>,
    pub trace: Vec<String>,
    pub fired: Fired,
}

struct Schedule {
    sim: Sim,
    actors: Vec<Actor>,
    /// Two processes, each with a worker and a node that sees its fresh layers.
    fresh: [Fresh<Positions>; 2],
    step: u64,
    lives: u32,
    versions: u32,
}

/// Runs the schedule of a seed.
pub async fn play(seed: u64, sabotage: Option<Sabotage>) -> Outcome {
    plan_links().await;
    let sim = Sim::new(seed, sabotage).await;
    let views = sim.world.borrow().defined.clone();
    for view in views {
        sim.catalog.commit(define(sim.id(), view, 1, sim.now())).await.unwrap();
    }
    let has_trimmer = sim.world.borrow().has_trimmer;
    if has_trimmer {
        sim.catalog.commit(trimmer::streams(&sim)).await.unwrap();
    }
    let has_sink = sim.world.borrow().has_sink;
    if has_sink {
        sim.catalog.commit(sinks::first(&sim)).await.unwrap();
    }
    let mut schedule =
        Schedule { sim: sim.clone(), actors: Vec::new(), fresh: [Fresh::default(), Fresh::default()], step: 0, lives: 0, versions: 1 };
    schedule.fill();
    let compacts = sim.world.borrow().compacts;
    let steps = if compacts { LONG } else { STEPS[sim.pick(STEPS.len())] };
    while schedule.step < steps && !schedule.is_violated() {
        schedule.happen().await;
    }
    if !schedule.is_violated() {
        schedule.rest().await;
    }
    if !schedule.is_violated() {
        schedule.check_catalog().await;
        alerter::check(&sim).await;
    }
    if has_sink && !schedule.is_violated() {
        sinks::check(&sim).await;
    }
    schedule.actors.clear();
    let mut world = sim.world.borrow_mut();
    Outcome { violation: world.violation.take(), trace: std::mem::take(&mut world.trace), fired: std::mem::take(&mut world.fired) }
}

impl Schedule {
    /// Starts missing actors: a dead process is started again under another name.
    fn fill(&mut self) {
        let alerters = if self.sim.world.borrow().has_alert { 2 } else { 0 };
        let trimmers = usize::from(self.sim.world.borrow().has_trimmer);
        let wanted = [
            (Kind::Worker, 2),
            (Kind::Reader, 3),
            (Kind::Runner, 2),
            (Kind::Collector, 1),
            (Kind::Alerter, alerters),
            (Kind::Trimmer, trimmers),
            (Kind::Replayer, trimmers),
        ];
        for (kind, count) in wanted {
            for place in 0..count {
                let prefix = format!("{}{place}", name_of(kind));
                if self.actors.iter().any(|actor| actor.name.split('-').next() == Some(&prefix)) {
                    continue;
                }
                self.lives += 1;
                let name = format!("{prefix}-{}", self.lives);
                let fresh = self.fresh.get(place).cloned();
                let actor = match kind {
                    Kind::Worker => Actor::new(&self.sim, &name, kind, |ctx| work(ctx, fresh.unwrap_or_default())),
                    Kind::Reader => Actor::new(&self.sim, &name, kind, |ctx| serve(ctx, fresh)),
                    Kind::Runner => Actor::new(&self.sim, &name, kind, run_views),
                    Kind::Collector => Actor::new(&self.sim, &name, kind, collect),
                    Kind::Alerter => Actor::new(&self.sim, &name, kind, alerter::watch),
                    Kind::Trimmer => Actor::new(&self.sim, &name, kind, trimmer::trim),
                    Kind::Replayer => Actor::new(&self.sim, &name, kind, replay),
                };
                self.actors.push(actor);
            }
        }
    }

    fn is_violated(&self) -> bool {
        self.sim.world.borrow().violation.is_some()
    }

    /// Performs one action.
    async fn happen(&mut self) {
        self.step += 1;
        let has_sink = self.sim.world.borrow().has_sink;
        if has_sink && self.sim.pick(SINK_CHANGES) == 0 {
            return sinks::change(&self.sim).await;
        }
        let is_compacted = self.actors.iter().any(|actor| actor.step() == "reads a file to compact");
        if is_compacted && self.sim.pick(DECODINGS) == 0 {
            return self.decode_again().await;
        }
        let what = self.sim.pick(1_000);
        match what {
            0..780 => self.advance_one().await,
            780..870 => self.append(),
            870..905 => self.tick(),
            905..910 => self.jump(),
            910..930 => self.crash(),
            930..955 => self.freeze(),
            955..985 => self.rebalance(),
            985..992 => self.lose_states().await,
            992..997 => self.new_version().await,
            _ => self.roll_back().await,
        }
    }

    async fn advance_one(&mut self) {
        self.fill();
        let step = self.step;
        let awake: Vec<usize> = (0..self.actors.len()).filter(|at| self.actors[*at].frozen_until <= step).collect();
        if awake.is_empty() {
            return;
        }
        // Workers run most often, and nearly always once only their work is left.
        let (is_calm, compacts) = (self.sim.world.borrow().calm, self.sim.world.borrow().compacts);
        let weight = |actor: &Actor| match actor.kind {
            Kind::Worker if is_calm => 24,
            Kind::Worker => 3,
            // Its lease lasts as long as at any other time.
            Kind::Alerter if is_calm => 12,
            Kind::Alerter => 3,
            Kind::Collector if compacts => 5,
            Kind::Runner if compacts => 2,
            Kind::Trimmer | Kind::Replayer if !is_calm => 2,
            _ => 1,
        };
        let total: usize = awake.iter().map(|at| weight(&self.actors[*at])).sum();
        let mut chosen = self.sim.pick(total);
        let at = awake.into_iter().find(|at| {
            let weight = weight(&self.actors[*at]);
            let found = chosen < weight;
            chosen = chosen.saturating_sub(weight);
            found
        });
        let at = at.unwrap_or_default();
        if self.actors[at].advance().await {
            self.actors.remove(at);
        }
    }

    fn append(&self) {
        let mut world = self.sim.world.borrow_mut();
        let world = &mut *world;
        let appended = world.log.append(&mut world.rng, world.now);
        world.trace.push(format!("{:>14} log: {appended}", world.now / 1_000));
    }

    fn tick(&self) {
        let mut world = self.sim.world.borrow_mut();
        let seconds = world.rng.random_range(1..40);
        world.now += seconds * 1_000_000;
    }

    /// Moves the clock: hours forward, minutes back, or past the age at which files are given up.
    fn jump(&self) {
        let (fault, seconds) = match self.sim.pick(4) {
            0 => (Fault::ClockBack, -900),
            1 | 2 => (Fault::PastOrphanAge, 25 * 3_600),
            _ => (Fault::ClockForward, 3_700),
        };
        self.sim.fired(fault);
        self.step_clock(seconds * 1_000_000);
        self.sim.trace("clock", format!("stepped by {seconds} s"));
    }

    fn step_clock(&self, by: Micros) {
        let mut world = self.sim.world.borrow_mut();
        world.now += by;
        world.set_back += (-by).max(0);
        if by < 0 {
            // Leases that had expired would look held again.
            world.compacting.clear();
        }
    }

    fn crash(&mut self) {
        if self.actors.is_empty() {
            return;
        }
        let at = self.sim.pick(self.actors.len());
        let (name, kind, step) = (self.actors[at].name.clone(), self.actors[at].kind, self.actors[at].step());
        let whole = kind == Kind::Worker && self.sim.chance(50);
        self.sim.trace("schedule", format!("kills {name}, which {step}{}", if whole { ", and its process" } else { "" }));
        self.sim.crashed(kind, step);
        self.sim.fired(match (kind, whole) {
            (Kind::Worker, false) => Fault::WorkerCrashed,
            (Kind::Worker, true) => Fault::ProcessCrashed,
            (Kind::Reader, _) => Fault::ReaderCrashed,
            (Kind::Runner, _) => Fault::RunCrashed,
            (Kind::Collector, _) => Fault::CollectorCrashed,
            (Kind::Alerter, _) => Fault::AlerterCrashed,
            (Kind::Trimmer, _) => Fault::TrimmerCrashed,
            (Kind::Replayer, _) => Fault::ReplayCrashed,
        });
        self.actors.remove(at);
        if whole {
            let place: usize = name["worker".len()..].split('-').next().and_then(|place| place.parse().ok()).unwrap_or_default();
            self.fresh[place] = Fresh::default();
            self.actors.retain(|actor| !actor.name.starts_with(&format!("node{place}-")));
        }
    }

    fn freeze(&mut self) {
        if self.actors.is_empty() {
            return;
        }
        let at = self.sim.pick(self.actors.len());
        let steps = 10 + self.sim.pick(120) as u64;
        self.actors[at].frozen_until = self.step + steps;
        self.sim.fired(Fault::Frozen);
        self.sim.trace("schedule", format!("holds {} up for {steps} steps: it {}", self.actors[at].name, self.actors[at].step()));
    }

    fn rebalance(&mut self) {
        let mut world = self.sim.world.borrow_mut();
        let world = &mut *world;
        if world.rng.random_ratio(1, 3) {
            world.group.lose_patience();
        }
        let politely = world.rng.random_ratio(1, 2);
        let Some((partition, from, keeps_others)) = world.group.rebalance(&mut world.rng, politely) else { return };
        world.trace.push(format!("{:>14} group: {} {partition} from {from}", world.now / 1_000, if politely { "asks" } else { "takes" }));
        if !politely && keeps_others {
            *world.fired.faults.entry(Fault::OneOfTwoLost).or_default() += 1;
        }
        let owner = self.actors.iter().find(|actor| from.starts_with(&format!("{}.", actor.name)));
        if owner.is_some_and(|owner| matches!(owner.step(), "writes a file" | "asks for a commit" | "has the commit's outcome")) {
            *world.fired.faults.entry(Fault::RebalancedInCheckpoint).or_default() += 1;
        }
    }

    /// A states object vanishes. Dead members also lose their membership, as after a session timeout.
    async fn lose_states(&mut self) {
        self.expire_members();
        let state = self.sim.catalog.state().await.unwrap();
        let states: Vec<&str> = state.files.iter().filter(|file| file.kind == FileKind::States).map(|file| file.path.as_str()).collect();
        if states.is_empty() {
            return;
        }
        let path = states[self.sim.pick(states.len())].to_owned();
        self.sim.fired(Fault::StatesLost);
        self.sim.trace("schedule", format!("loses {path}"));
        self.sim.world.borrow_mut().store.remove(&path);
    }

    /// A file of the archive is decoded again by a later version of its stream, in one transaction.
    async fn decode_again(&self) {
        let state = self.sim.catalog.state().await.unwrap();
        let files: Vec<&FileRecord> = state.readable(FileKind::Archive).collect();
        if files.is_empty() {
            return;
        }
        let old = files[self.sim.pick(files.len())];
        let (Some(stream), Some(checkpoint)) = (old.subject.clone(), old.checkpoint) else { return };
        let Some(Content::Archive(mut events)) = self.sim.get(&old.path) else { return };
        events.iter_mut().for_each(|event| event.decoded_by += 1);
        let decoded = events.iter().map(|event| (event.position.clone(), event.decoded_by));
        self.sim.world.borrow_mut().decoded.extend(decoded);
        let name = ObjectName::RebuiltArchive { stream: stream.clone(), checkpoint, rebuild: self.sim.id() };
        let new = self.sim.put(&name, Content::Archive(events));
        self.sim.fired(Fault::DecodedAgain);
        self.sim.trace("user", format!("has {} decoded again as {}", old.path, new.path));
        let mut commit = Commit { id: self.sim.id(), ..Commit::default() };
        let files = vec![RedecodedFile { old: old.clone(), new }];
        add_redecoded(&mut commit, &state, &RedecodedStream { stream, version: 1, files });
        self.sim.catalog.commit(commit).await.unwrap();
    }

    fn expire_members(&self) {
        let mut world = self.sim.world.borrow_mut();
        let alive: Vec<String> = self.actors.iter().map(|actor| format!("{}.", actor.name)).collect();
        world.group.expire(|member| alive.iter().any(|name| member.starts_with(name)));
        let world = &mut *world;
        world.group.give_free(&mut world.rng);
    }

    async fn new_version(&mut self) {
        self.expire_members();
        if !self.sim.chance(40) || self.versions > 3 || self.sim.world.borrow().compacts {
            return;
        }
        self.versions += 1;
        let views = self.sim.world.borrow().defined.clone();
        let view = views[self.sim.pick(views.len())];
        let commit = define(self.sim.id(), view, self.versions, self.sim.now());
        self.sim.trace("user", format!("defines version {} of {view}", self.versions));
        self.sim.catalog.commit(commit).await.unwrap();
    }

    /// A user returns to the version before, in one transaction; another commit may come in between.
    async fn roll_back(&mut self) {
        let state = self.sim.catalog.state().await.unwrap();
        let views = self.sim.world.borrow().defined.clone();
        let kept: Vec<_> = views.into_iter().filter_map(|view| version_before(&state, view)).collect();
        if kept.is_empty() {
            return self.new_version().await;
        }
        let before = kept[self.sim.pick(kept.len())];
        let records = serve_version(&state, &before.name, before.version, keep_old(before.version), self.sim.now()).unwrap();
        self.sim.fired(Fault::RolledBack);
        self.sim.trace("user", format!("returns to version {} of {}", before.version, before.name));
        let mut commit = versions_commit(&state, self.sim.id(), records);
        if self.sim.is_sabotaged(Sabotage::RollbackInTwoCommits) {
            let retiring: Vec<Add> = commit.add.extract_if(.., |add| !is_active(add)).collect();
            self.sim.catalog.commit(Commit { id: self.sim.id(), add: retiring, ..Commit::default() }).await.unwrap();
            for _ in 0..12 {
                self.advance_one().await;
            }
            commit.expect.clear();
        }
        self.sim.catalog.commit(commit).await.unwrap();
    }

    /// No more faults: everything reaches the log's end and is answered. The clock is set right too: else a lease that
    /// was taken before it was set back, by a process that died, would hold for so much longer.
    async fn rest(&mut self) {
        self.sim.trace("schedule", "no more faults");
        self.sim.world.borrow_mut().calm = true;
        let set_back = std::mem::take(&mut self.sim.world.borrow_mut().set_back);
        self.step_clock(set_back);
        self.actors.iter_mut().for_each(|actor| actor.frozen_until = 0);
        let end = self.sim.world.borrow().log.end();
        for step in 0..STEPS_TO_REST {
            if self.is_violated() {
                return;
            }
            if step % 16 == 0 {
                self.expire_members();
                self.sim.world.borrow_mut().group.lose_patience();
                if self.is_at(&end).await {
                    return self.answer_all(&end).await;
                }
            }
            self.tick_if(step % 20 == 0);
            self.advance_one().await;
        }
        let vector = self.sim.catalog.state().await.unwrap().vector();
        let alert = self.sim.catalog.alert_progress().await.unwrap();
        self.sim.violated(format!("did not come to rest: {vector} of {end}, alert {alert:?}"));
    }

    fn tick_if(&self, is_due: bool) {
        if is_due {
            self.sim.world.borrow_mut().now += 5_000_000;
        }
    }

    async fn is_at(&self, end: &Vector) -> bool {
        let is_committed = self.sim.catalog.state().await.unwrap().vector().covers(end);
        let has_alert = self.sim.world.borrow().has_alert;
        is_committed && (!has_alert || alerter::is_settled(&self.sim, end).await)
    }

    /// A new node without fresh layers answers at the log's end.
    async fn answer_all(&mut self, end: &Vector) {
        let mut node = Actor::new(&self.sim, "last node", Kind::Reader, |ctx| serve(ctx, None));
        // A partition that never had a record is not in any catalog state.
        let reached: Vector = end.iter().filter(|(_, offset)| offset.0 > 0).map(|(id, offset)| (id.clone(), offset)).collect();
        let about = format!("at {reached} with ");
        for _ in 0..STEPS_TO_REST {
            if self.is_violated() {
                return;
            }
            node.advance().await;
            let world = self.sim.world.borrow();
            let answers =
                |view: &str| world.trace.iter().rev().take(400).any(|line| line.contains(&format!("last node: answers {view} {about}")));
            if world.defined.iter().all(|view| answers(view)) {
                return;
            }
        }
        self.sim.violated("a new node did not answer at the log's end");
    }

    /// Checks that the catalog's counts add up, and that every file it names exists.
    async fn check_catalog(&self) {
        let state = self.sim.catalog.state().await.unwrap();
        let mut ends = Vector::new();
        for checkpoint in state.checkpoints.iter() {
            if let Some((range, counted)) = ledger_difference(checkpoint) {
                self.sim.violated(format!("the ledger of {} {}..{} counts {counted}", range.partition, range.start, range.end));
            }
            for range in &checkpoint.ranges {
                if range.start != ends.get(&range.partition) {
                    self.sim.violated(format!("{} begins at {}, not at {}", range.partition, range.start, ends.get(&range.partition)));
                }
                ends.set(range.partition.clone(), range.end);
                self.check_archive(&state, checkpoint.id, range);
            }
        }
        for file in state.files.iter().filter(|file| !file.marked_for_deletion && file.kind != FileKind::States) {
            if self.sim.get(&file.path).is_none() {
                self.sim.violated(format!("{} is named by the catalog and gone", file.path));
            }
        }
    }

    fn check_archive(&self, state: &catalog::CatalogState, checkpoint: uuid::Uuid, range: &catalog::CheckpointRange) {
        let of_stream = state.files.iter().filter(|file| {
            file.checkpoint == Some(checkpoint) && file.kind == FileKind::Archive && file.subject.as_ref() == Some(&range.partition.stream)
        });
        let events = of_stream.filter_map(|file| match self.sim.get(&file.path) {
            Some(Content::Archive(events)) => Some(events),
            _ => None,
        });
        let archived: Vec<Archived> = events.flatten().filter(|event| event.position.partition == range.partition).collect();
        let count = archived.len() as i64;
        if count != range.archived {
            self.sim.violated(format!("{} {}..{}: {count} archived, {} recorded", range.partition, range.start, range.end, range.archived));
        }
        let last = |position: &Position| self.sim.world.borrow().decoded.get(position).copied().unwrap_or(1);
        if let Some(event) = archived.iter().find(|event| event.decoded_by != last(&event.position)) {
            let (Position { partition, offset }, found, expected) = (&event.position, event.decoded_by, last(&event.position));
            self.sim.violated(format!("{partition}:{offset} is archived as version {found} decoded it, not version {expected}"));
        }
    }
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Worker => "worker",
        Kind::Reader => "node",
        Kind::Runner => "runner",
        Kind::Collector => "collector",
        Kind::Alerter => "alert",
        Kind::Trimmer => "trimmer",
        Kind::Replayer => "replay",
    }
}

fn is_active(add: &Add) -> bool {
    matches!(add, Add::Definition(record) if record.status == DefinitionStatus::Active)
}
