//! The world that a schedule runs in: the time, the log, the store, the faults. Everything in it is a function of the
//! seed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use catalog::{AlertTransition, Catalog};
use engine::fresh::ViewVersion;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use types::files::FileRecord;
use types::files::ObjectName;
use types::files::StoredObject;
use types::tiles::Micros;
use types::vector::PartitionId;
use uuid::Uuid;

use crate::actor::Kind;
use crate::features::Features;
use crate::group::Group;
use crate::log::SimLog;
use crate::outputs::{Guard, SimulatedOutput};
use crate::sabotage::Sabotage;
use crate::sinks::Version;
use crate::views::VIEWS;

/// One event's position: the unit that a state counts here. States are the positions of the events they hold, so that
/// nothing can cancel out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub partition: PartitionId,
    pub offset: i64,
}

/// The states of one view version: the positions of its events, each as often as it is counted.
pub type Positions = Vec<Position>;

/// The content of a file in the store.
#[derive(Debug, Clone)]
pub enum Content {
    Archive(Vec<Archived>),
    DeadLetters,
    States(BTreeMap<ViewVersion, Positions>),
    Bucket(Positions),
    Manifest,
}

#[derive(Debug, Clone)]
pub struct Archived {
    pub position: Position,
    pub id: String,
    pub timestamp: Micros,
    /// The version of the stream's definition that decoded it.
    pub decoded_by: u32,
}

/// The faults that a schedule may have; each has to fire over many schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    WorkerCrashed,
    ProcessCrashed,
    RunCrashed,
    CollectorCrashed,
    ReaderCrashed,
    AlerterCrashed,
    TrimmerCrashed,
    ReplayCrashed,
    Frozen,
    RequestLost,
    ReplyLost,
    OutcomeUnknown,
    DeliveredTwice,
    ClockForward,
    ClockBack,
    PastOrphanAge,
    RebalancedInCheckpoint,
    OneOfTwoLost,
    StatesLost,
    StoreFailed,
    DiskFull,
    LeaseLost,
    CommitRefused,
    /// Checkpoints became one: no fault, and what others must not notice.
    Compacted,
    /// A file of the archive was decoded again while checkpoints were compacted: no fault either.
    DecodedAgain,
    /// Records of the log were trimmed, and all of the log was replayed: no faults either.
    Trimmed,
    Replayed,
    /// A kept version was served again, and one was kept long enough: no faults either.
    RolledBack,
    KeptVersionRetired,
    /// Two versions of a view are run at a time: no fault either.
    VersionsRunTogether,
    /// A run of a version published while another one recomputed it: no fault.
    RanBeside,
    /// Who took an alert over found transitions that were committed and not put out.
    TransitionsLeft,
    /// Who took the output of a sink over found records that no checkpoint has the events of.
    RecordsOut,
    /// A worker was held up for long before it put records of a sink out: its partitions may be another one's by then.
    HeldUpBeforeRecords,
    /// Another version of a sink made the records from there on, or none did: no fault.
    SinkSwitched,
}

pub const FAULTS: [Fault; 35] = [
    Fault::WorkerCrashed,
    Fault::ProcessCrashed,
    Fault::RunCrashed,
    Fault::CollectorCrashed,
    Fault::ReaderCrashed,
    Fault::AlerterCrashed,
    Fault::TrimmerCrashed,
    Fault::ReplayCrashed,
    Fault::Frozen,
    Fault::RequestLost,
    Fault::ReplyLost,
    Fault::OutcomeUnknown,
    Fault::DeliveredTwice,
    Fault::ClockForward,
    Fault::ClockBack,
    Fault::PastOrphanAge,
    Fault::RebalancedInCheckpoint,
    Fault::OneOfTwoLost,
    Fault::StatesLost,
    Fault::StoreFailed,
    Fault::DiskFull,
    Fault::LeaseLost,
    Fault::CommitRefused,
    Fault::Compacted,
    Fault::DecodedAgain,
    Fault::Trimmed,
    Fault::Replayed,
    Fault::RolledBack,
    Fault::KeptVersionRetired,
    Fault::VersionsRunTogether,
    Fault::RanBeside,
    Fault::TransitionsLeft,
    Fault::RecordsOut,
    Fault::HeldUpBeforeRecords,
    Fault::SinkSwitched,
];

/// What happened in schedules, and how often.
#[derive(Debug, Clone, Default)]
pub struct Fired {
    pub faults: BTreeMap<Fault, u64>,
    /// For every step that an actor of a kind reached: how many were killed there.
    pub crashes: BTreeMap<(Kind, &'static str), u64>,
}

impl Fired {
    pub fn add(&mut self, other: &Fired) {
        for (fault, times) in &other.faults {
            *self.faults.entry(*fault).or_default() += times;
        }
        for (at, times) in &other.crashes {
            *self.crashes.entry(*at).or_default() += times;
        }
    }
}

pub struct World {
    pub rng: StdRng,
    pub now: Micros,
    pub log: SimLog,
    pub store: BTreeMap<String, Content>,
    pub group: Group,
    pub trace: Vec<String>,
    pub fired: Fired,
    pub sabotage: Option<Sabotage>,
    /// The views that are run: few, so that runs of one view meet; only one where a defect shows only in a rare
    /// meeting.
    pub run: [&'static str; 2],
    pub defined: Vec<&'static str>,
    /// It is long, and only one view is defined, which runs often: checkpoints become old enough to be compacted.
    pub compacts: bool,
    /// The checkpoints that are being compacted: by which process, and until when it has the lease for it.
    pub compacting: BTreeMap<Uuid, (Rc<str>, Micros)>,
    /// The events that were decoded again, each with the version that did it last.
    pub decoded: BTreeMap<Position, u32>,
    pub has_alert: bool,
    /// The output of the alert, and whether what ceases is put out too.
    pub alert: SimulatedOutput<AlertTransition>,
    pub resolves: bool,
    pub has_sink: bool,
    /// The outputs of the sink, and what keeps a record from being in one twice: who lost it is always refused, as it
    /// may make records that are not there yet, by another version.
    pub sinks: BTreeMap<PartitionId, SimulatedOutput<Version>>,
    pub sink_guard: Guard,
    /// The log is trimmed, and replayed.
    pub has_trimmer: bool,
    /// By how much the clock was set back: nobody has set it right yet.
    pub set_back: Micros,
    /// No more faults: everything should come to rest.
    pub calm: bool,
    /// Its disk runs full at times.
    pub small_disk: bool,
    /// Nothing is written until this many more attempts were in vain.
    pub full_for: usize,
    /// The first violation.
    pub violation: Option<String>,
    /// Paths that were deleted, for the messages.
    pub deleted: BTreeSet<String>,
}

/// A handle on the world.
#[derive(Clone)]
pub struct Sim {
    pub world: Rc<RefCell<World>>,
    pub catalog: Catalog,
}

impl Sim {
    pub async fn new(seed: u64, sabotage: Option<Sabotage>) -> Sim {
        let mut rng = StdRng::seed_from_u64(seed);
        let log = SimLog::new();
        let group = Group::new(log.partitions().cloned().collect());
        // Some day in 2024, in microseconds.
        let now = 1_710_000_000_000_000 + rng.random_range(0..86_400_000_000i64);
        let mut run = VIEWS;
        run.shuffle(&mut rng);
        let Features { small_disk, compacts, has_alert, alert_guard, resolves, has_sink, sink_guard, trims } = Features::from_seed(seed);
        let run = if compacts || sabotage.is_some_and(Sabotage::leaves_orphans) { [run[0]; 2] } else { [run[0], run[1]] };
        let defined = if compacts { vec![run[0]] } else { VIEWS.to_vec() };
        let world = World {
            rng,
            now,
            log,
            store: BTreeMap::new(),
            group,
            trace: Vec::new(),
            fired: Fired::default(),
            sabotage,
            run,
            defined,
            compacts,
            compacting: BTreeMap::new(),
            decoded: BTreeMap::new(),
            has_alert,
            alert: SimulatedOutput::new(alert_guard),
            resolves,
            has_sink: has_sink || sabotage.is_some_and(Sabotage::is_of_sinks),
            sinks: BTreeMap::new(),
            sink_guard,
            has_trimmer: trims || sabotage == Some(Sabotage::PinsAreTrimmed),
            set_back: 0,
            calm: false,
            small_disk,
            full_for: 0,
            violation: None,
            deleted: BTreeSet::new(),
        };
        Sim { world: Rc::new(RefCell::new(world)), catalog: Catalog::open("sqlite::memory:").await.unwrap() }
    }

    pub fn now(&self) -> Micros {
        self.world.borrow().now
    }

    pub fn trace(&self, who: &str, what: impl Into<String>) {
        let mut world = self.world.borrow_mut();
        let line = format!("{:>14} {who}: {}", world.now / 1_000, what.into());
        world.trace.push(line);
    }

    pub fn chance(&self, percent: u32) -> bool {
        self.world.borrow_mut().rng.random_ratio(percent, 100)
    }

    pub fn pick(&self, below: usize) -> usize {
        self.world.borrow_mut().rng.random_range(0..below)
    }

    /// Whether a fault happens now; none does once it is calm.
    pub fn fault(&self, fault: Fault, per_mille: u32) -> bool {
        let mut world = self.world.borrow_mut();
        let happens = !world.calm && world.rng.random_ratio(per_mille, 1_000);
        if happens {
            *world.fired.faults.entry(fault).or_default() += 1;
        }
        happens
    }

    /// Whether there is no room for what is written now.
    pub fn is_disk_full(&self) -> bool {
        let (small_disk, full_for) = (self.world.borrow().small_disk, self.world.borrow().full_for);
        if !small_disk {
            return false;
        }
        if full_for == 0 && self.fault(Fault::DiskFull, 30) {
            let attempts = 1 + self.pick(30);
            self.world.borrow_mut().full_for = attempts;
        }
        let mut world = self.world.borrow_mut();
        let is_full = world.full_for > 0 && !world.calm;
        world.full_for = world.full_for.saturating_sub(1);
        is_full
    }

    pub fn fired(&self, fault: Fault) {
        *self.world.borrow_mut().fired.faults.entry(fault).or_default() += 1;
    }

    /// Records that an actor reached a step.
    pub fn reached(&self, kind: Kind, step: &'static str) {
        self.world.borrow_mut().fired.crashes.entry((kind, step)).or_default();
    }

    /// Records that an actor was killed at a step.
    pub fn crashed(&self, kind: Kind, step: &'static str) {
        *self.world.borrow_mut().fired.crashes.entry((kind, step)).or_default() += 1;
    }

    pub fn is_sabotaged(&self, sabotage: Sabotage) -> bool {
        self.world.borrow().sabotage == Some(sabotage)
    }

    /// Keeps only the first violation: later ones may follow from it.
    pub fn violated(&self, what: impl Into<String>) {
        let what = what.into();
        self.trace("VIOLATION", what.clone());
        self.world.borrow_mut().violation.get_or_insert(what);
    }

    /// A version 7 id, from the world's time and random numbers.
    pub fn id(&self) -> Uuid {
        let mut world = self.world.borrow_mut();
        let millis = (world.now / 1_000) as u64;
        let random: [u8; 10] = world.rng.random();
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    pub fn put(&self, name: &ObjectName, content: Content) -> FileRecord {
        let rows = match &content {
            Content::Archive(events) => events.len(),
            Content::Bucket(positions) => positions.len(),
            _ => 0,
        };
        self.world.borrow_mut().store.insert(name.to_string(), content);
        name.record(StoredObject { bytes: 1, checksum: 0 }, rows as i64, None)
    }

    pub fn get(&self, path: &str) -> Option<Content> {
        self.world.borrow().store.get(path).cloned()
    }

    pub fn delete(&self, path: &str) {
        let mut world = self.world.borrow_mut();
        world.store.remove(path);
        world.deleted.insert(path.to_owned());
    }
}
