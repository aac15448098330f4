//! The law: whatever workers die, hang and go on, each event has exactly one outcome, by the version that the switches
//! say.
//!
//! A model of one output. The log and the catalog are what they promise: an append by one that is not the owner fails,
//! a switch under another claim than the last fails, and so does a checkpoint from another position than the committed
//! one. Every step is one action, so that any worker may hang between any two.

use std::collections::BTreeMap;

use catalog::{Catalog, DefinitionKind, DefinitionRecord, DefinitionStatus};
use definitions::parse;
use proptest::prelude::*;
use types::ErrorKind;

use super::*;

/// The last event of a run.
const END: i64 = 40;

#[derive(Debug, Clone, Copy)]
enum Action {
    /// A user applies another version.
    Apply,
    Pause,
    Resume,
    /// A worker begins: the ones before it hang, and may go on.
    Begin,
    /// A worker takes its next step. The newest is 0.
    Step {
        worker: usize,
        events: i64,
    },
    /// A worker reads the definitions.
    Read {
        worker: usize,
    },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => Just(Action::Apply),
        1 => Just(Action::Pause),
        1 => Just(Action::Resume),
        1 => Just(Action::Begin),
        14 => (0..3usize, 1..4i64).prop_map(|(worker, events)| Action::Step { worker, events }),
        4 => (0..3usize).prop_map(|worker| Action::Read { worker }),
    ]
}

/// What the log and the catalog have of the output.
struct World {
    sink: LiveSink,
    /// Of the log: who may append, and the records, each with the version that made it.
    owner: usize,
    next: Option<Offset>,
    records: BTreeMap<i64, u32>,
    /// The claim that the catalog has.
    claim: Uuid,
    switches: Vec<SinkSwitch>,
    committed: i64,
}

/// What a worker does next.
enum Stage {
    Claim,
    Take(OutputState),
    ReadSwitches(OutputState),
    /// It has everything before its position.
    Runs(OutputState),
    /// The switch for what comes next is recorded.
    Appends(OutputState, i64),
    Commits(OutputState),
    Dead,
}

struct Worker {
    id: usize,
    sink: LiveSink,
    /// From where its uncommitted work is.
    start: i64,
    position: i64,
    stage: Stage,
}

/// The sink's WHERE leaves every third event out, another one in each version.
fn has_record(version: u32, event: i64) -> bool {
    (event + i64::from(version)) % 3 != 0
}

impl Worker {
    fn step(&mut self, world: &mut World, events: i64) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Dead) {
            Stage::Claim => {
                let claim = Uuid::from_u128(self.id as u128 + 1);
                world.claim = claim;
                Stage::Take(OutputState::unclaimed(PartitionId::new("s", 0), "log".into(), claim))
            }
            Stage::Take(taken) => {
                world.owner = self.id;
                Stage::ReadSwitches(OutputState { next: world.next, ..taken })
            }
            Stage::ReadSwitches(taken) if world.claim != taken.claim || world.committed > self.position => Stage::Dead,
            Stage::ReadSwitches(mut taken) => {
                world.switches.last().cloned().into_iter().for_each(|last| taken.note(last));
                Stage::Runs(taken)
            }
            Stage::Runs(mut taken) => match taken.switch(&self.sink, Offset(self.position)) {
                Some(_) if world.claim != taken.claim => Stage::Dead,
                Some(switch) => {
                    world.switches.push(switch.clone());
                    taken.last = Some(switch);
                    Stage::Appends(taken, events)
                }
                None => Stage::Appends(taken, events),
            },
            Stage::Appends(mut taken, events) => {
                let end = (self.position + events).min(END);
                let decided = taken.decided_before().map_or(0, |decided| decided.0);
                let version = self.sink.version;
                let due = (self.position.max(decided)..end).filter(|event| has_record(version, *event));
                let due: Vec<i64> = due.filter(|_| self.sink.paused_since.is_none()).collect();
                if !due.is_empty() && world.owner != self.id {
                    self.stage = Stage::Dead;
                    return;
                }
                for event in due {
                    assert!(world.records.insert(event, version).is_none(), "the event {event} has two records");
                    world.next = Some(Offset(event + 1));
                    taken.next = world.next;
                }
                self.position = end;
                Stage::Commits(taken)
            }
            Stage::Commits(taken) if world.committed != self.start || world.claim != taken.claim => Stage::Dead,
            Stage::Commits(taken) => {
                world.committed = self.position;
                self.start = self.position;
                Stage::Runs(taken)
            }
            Stage::Dead => Stage::Dead,
        };
    }

    /// As [`crate::worker::SinkWorker`] does between two micro-batches.
    fn read(&mut self, world: &World) {
        if matches!(self.stage, Stage::Claim | Stage::Runs(_)) {
            self.sink = world.sink.clone();
        }
    }
}

fn begin(workers: &mut Vec<Worker>, world: &World) {
    let (id, start) = (workers.len(), world.committed);
    workers.insert(0, Worker { id, sink: world.sink.clone(), start, position: start, stage: Stage::Claim });
}

/// The sink would never decide those events again by the later one.
#[tokio::test]
async fn a_switch_is_refused_once_a_later_version_of_the_stream_decides_its_records() {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let version = |version, status| {
        Add::Definition(DefinitionRecord {
            kind: DefinitionKind::Stream,
            name: "pay".into(),
            version,
            sql: String::new(),
            status,
            created_at: 0,
            since: 0,
            kept_until: None,
            rolled_back: false,
        })
    };
    let add = vec![version(1, DefinitionStatus::Redecoded), version(2, DefinitionStatus::Active)];
    catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    let switch = SinkSwitch {
        sink: "alarms".into(),
        partition: PartitionId::new("pay", 0),
        log_identity: "log".into(),
        from: Offset(0),
        version: 1,
        paused: false,
        at: 0,
    };
    let decided_by = |version| switch_commit(Uuid::now_v7(), Vec::new(), vec![switch.clone()], move |_| Some(version));
    assert_eq!(catalog.commit(decided_by(1)).await.unwrap_err().kind(), ErrorKind::Conflict);
    catalog.commit(decided_by(2)).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn each_event_is_decided_once_by_the_version_that_the_switches_say(actions in prop::collection::vec(action(), 0..160)) {
        let text = "CREATE SINK a WITH (topic = 'out') AS SELECT e.id FROM s e";
        let definition = parse::parse_sink(text).unwrap().into();
        let sink = LiveSink { name: "a".into(), version: 1, definition, reads: None, plan: Err("it is not planned".into()), paused_since: None };
        let (records, claim, switches) = (BTreeMap::new(), Uuid::nil(), Vec::new());
        let mut world = World { sink, owner: usize::MAX, next: None, records, claim, switches, committed: 0 };
        let mut workers = Vec::new();
        begin(&mut workers, &world);
        for action in actions {
            match action {
                Action::Apply => world.sink.version += 1,
                Action::Pause => world.sink.paused_since = Some(1),
                Action::Resume => world.sink.paused_since = None,
                Action::Begin => begin(&mut workers, &world),
                Action::Step { worker, events } => {
                    let worker = worker.min(workers.len() - 1);
                    workers[worker].step(&mut world, events);
                }
                Action::Read { worker } => {
                    let worker = worker.min(workers.len() - 1);
                    workers[worker].read(&world);
                }
            }
        }
        while world.committed < END {
            begin(&mut workers, &world);
            (0..200).for_each(|_| workers[0].step(&mut world, 3));
        }
        let switches = &world.switches;
        prop_assert!(switches.iter().zip(&switches[1..]).all(|(one, next)| one.from <= next.from));
        for event in 0..END {
            let by = switches.iter().rfind(|switch| switch.from.0 <= event).expect("the first switch is before the first event");
            let expected = (!by.paused && has_record(by.version, event)).then_some(by.version);
            prop_assert_eq!(world.records.get(&event).copied(), expected, "event {} of {:?}", event, switches);
        }
    }
}
