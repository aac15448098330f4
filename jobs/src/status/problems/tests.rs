use catalog::{
    AlertRunner, CheckpointRange, CheckpointRecord, Checkpoints, Comparison, DamageRecord, DefinitionKind, DefinitionRecord,
    DefinitionStatus, GapRecord, LeaseRecord, PartitionRecord, RunRecord, RunStatus, SnapshotRecord, StateDifference,
};
use engine::functions::Functions;
use types::Strategy;
use types::files::{FileKind, FileRecord};
use types::vector::Offset;
use uuid::Uuid;

use super::*;
use crate::dead_letters::FrequentReason;

const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;
/// 2026-01-02T06:00:00Z.
const NOW: Micros = 1_767_333_600 * SECOND;

const STREAM: &str = "CREATE STREAM pay (k TEXT, ts TIMESTAMPTZ NOT NULL) WITH (topic = 'payments', format = 'json', event_time = 'ts')";
const VIEW: &str = "CREATE VIEW v WITH (every = '1d') AS SELECT k, count(*) AS n FROM pay GROUP BY k";

/// After everything that is counted of a partition.
fn open_transaction(partition: i32, since: Micros) -> (PartitionId, OpenTransaction) {
    (id(partition), OpenTransaction { partition, offset: Offset(100), held_back: 7, since })
}

/// Facts without a problem: two partitions, read to their ends a moment ago, and a snapshot that is an hour old.
async fn healthy() -> Facts {
    let definition = |kind, name: &str, sql: &str| DefinitionRecord {
        kind,
        name: name.into(),
        version: 1,
        sql: sql.into(),
        status: DefinitionStatus::Active,
        created_at: NOW - 3 * HOUR,
        since: NOW - 3 * HOUR,
        kept_until: None,
        rolled_back: false,
    };
    let partition = |number| PartitionRecord {
        id: id(number),
        next_offset: Offset(100),
        log_identity: "log-1".into(),
        clock: None,
        max_event_time: None,
        complete_to: Some(NOW - 5 * SECOND),
    };
    let state = CatalogState {
        definitions: [definition(DefinitionKind::Stream, "pay", STREAM), definition(DefinitionKind::View, "v", VIEW)].into_iter().collect(),
        partitions: [(id(0), partition(0)), (id(1), partition(1))].into(),
        checkpoints: [checkpoint("w1", NOW - 5 * SECOND, vec![range(0, 0, 100), range(1, 0, 100)])].into_iter().collect(),
        snapshots: vec![SnapshotRecord {
            view: "v".into(),
            version: 1,
            run: Uuid::nil(),
            cut: "pay/0:60,pay/1:70".parse().unwrap(),
            manifest: "m".into(),
            published_at: NOW - HOUR,
        }],
        runs: vec![run(RunStatus::Succeeded, 1)],
        ..CatalogState::default()
    };
    let registry = Registry::load(&state, &Functions::standard()).await.unwrap();
    let stamp = registry.views[0].plan.stamp.clone();
    Facts {
        now: NOW,
        state,
        registry: Some(Ok(registry)),
        ends: [("pay".into(), Ok(vec![ends(0, 0, 100), ends(1, 0, 100)]))].into(),
        identities: [("pay".into(), "log-1".to_owned())].into(),
        embedded_log: true,
        checkpoint_interval: Duration::from_secs(10),
        stamps: [(ViewVersion::new("v", 1), Ok(stamp))].into(),
        ..Facts::default()
    }
}

fn id(partition: i32) -> PartitionId {
    PartitionId::new("pay", partition)
}

fn ends(partition: i32, begin: i64, end: i64) -> PartitionBounds {
    PartitionBounds { partition, begin: Offset(begin), end: Offset(end) }
}

fn range(partition: i32, start: i64, end: i64) -> CheckpointRange {
    CheckpointRange::of_events(id(partition), start, end)
}

fn checkpoint(worker: &str, committed_at: Micros, ranges: Vec<CheckpointRange>) -> CheckpointRecord {
    CheckpointRecord { id: made_at(committed_at), worker: worker.into(), committed_at, revision: committed_at, ranges }
}

/// An id that was made then.
fn made_at(at: Micros) -> Uuid {
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, (at / SECOND) as u64, (at % SECOND) as u32 * 1_000))
}

fn run(status: RunStatus, attempt: u32) -> RunRecord {
    RunRecord {
        id: Uuid::nil(),
        view: "v".into(),
        version: 1,
        status,
        scheduled_for: None,
        attempt,
        started_at: Some(NOW - HOUR),
        ended_at: Some(NOW - HOUR),
        cut: None,
        strategy: None,
        events_read: 0,
        rows_written: 0,
        bytes_written: 0,
        peak_memory_bytes: 0,
        bytes_read: 0,
        tiers: 0,
        peak_resident_bytes: 0,
        comparison: None,
        draft: None,
        beside: false,
        error: (status == RunStatus::Failed).then(|| "the memory limit was reached".into()),
    }
}

/// An alert that w1 evaluated a moment ago.
fn alert(name: &str, run_by: Option<&str>, since: Micros) -> AlertFacts {
    let (alert, owner) = (std::sync::Arc::from(name), "w1".to_owned());
    let runner = AlertRunner { alert, version: 1, owner, evaluated_at: Some(NOW - 5 * SECOND), at: Some(NOW - 6 * SECOND), waits: None };
    let (run_by, refused) = (run_by.map(str::to_owned), None);
    AlertFacts { alert: name.into(), version: 1, since, open: 2, transitions: 7, run_by, runner: Some(runner), is_paused: false, refused }
}

fn differing() -> Comparison {
    let first = StateDifference {
        key: "k=a".into(),
        column: "n".into(),
        state: "count(*)".into(),
        level: "1h".into(),
        tile: "2026-01-01T00:00:00Z".into(),
        kept: "1".into(),
        recomputed: "2".into(),
    };
    Comparison { rows: 40, differences: 3, first: vec![first], ..Comparison::default() }
}

/// A version that is gone is no concern of anybody.
#[tokio::test]
async fn a_comparison_is_a_problem_until_another_one_finds_nothing_or_its_version_is_gone() {
    let mut facts = healthy().await;
    let compared = |minutes, comparison| RunRecord {
        ended_at: Some(NOW - minutes * MINUTE),
        comparison: Some(comparison),
        ..run(RunStatus::Succeeded, 1)
    };
    let differs = |facts: &Facts| problems(facts).iter().any(|problem| problem.fault == Fault::StatesDiffer);
    facts.state.runs.push(compared(30, differing()));
    assert!(differs(&facts));
    let mut healed = facts.clone();
    healed.state.runs.push(compared(20, Comparison { rows: 40, ..Comparison::default() }));
    assert!(!differs(&healed));
    facts.state.runs.last_mut().unwrap().version = 7;
    assert!(!differs(&facts));
}

fn lease(name: &str, expires_at: Micros, pin: &str) -> LeaseRecord {
    LeaseRecord { name: name.into(), owner: "p-1".into(), epoch: 1, expires_at, pin: Some(pin.parse().unwrap()) }
}

fn damage(path: &str) -> DamageRecord {
    DamageRecord { path: path.into(), error: "found 3 bytes, expected 900".into(), found_by: "p-1".into(), found_at: NOW }
}

fn end(facts: &mut Facts, partition: i32, begin: i64, end: i64) {
    let Some(Ok(all)) = facts.ends.get_mut("pay") else { panic!("the log reported its ends") };
    all[partition as usize] = ends(partition, begin, end);
}

fn first_range(facts: &mut Facts, change: impl FnOnce(&mut CheckpointRange)) {
    facts.state.checkpoints.rewrite(|checkpoints| change(&mut checkpoints[0].ranges[0]));
}

/// Commits a last checkpoint of partition 0 at this time.
fn moved_at(facts: &mut Facts, at: Micros) {
    let moved = [checkpoint("w1", at, vec![range(0, 0, 100)]), checkpoint("w2", NOW - 5 * SECOND, vec![range(1, 0, 100)])];
    facts.state.checkpoints = moved.into_iter().collect();
    let partition = facts.state.partitions.get_mut(&id(0)).unwrap();
    partition.complete_to = Some(at);
}

/// Takes the schedule of the view away. In each minute of these hours a checkpoint was committed, which no snapshot
/// holds.
fn unscheduled(facts: &mut Facts, hours: i64) {
    let Some(Ok(registry)) = &mut facts.registry else { panic!("planned") };
    Arc::make_mut(&mut registry.views[0].definition).schedule = None;
    facts.state.definitions.rewrite(|all| all.iter_mut().for_each(|record| record.created_at = NOW - 100 * HOUR));
    let count = 60 * hours;
    let one = |nth: i64| checkpoint("w1", NOW - 5 * SECOND - (count - 1 - nth) * MINUTE, vec![range(0, 60 + nth, 61 + nth)]);
    facts.state.checkpoints = (0..count).map(one).collect();
    moved_to(facts, 60 + count);
}

/// What a node says that cannot evaluate the alert "silent".
fn silent_fails(why: &str) -> Failing {
    let errors = BTreeMap::from([("silent".to_owned(), why.to_owned())]);
    Failing { what: event_alerts::ALERT_STALLED.into(), seconds: 240, error: format!("the alert \"silent\": {why}"), errors }
}

/// Partition 0 is read up to this offset, its end.
fn moved_to(facts: &mut Facts, offset: i64) {
    facts.state.partitions.get_mut(&id(0)).unwrap().next_offset = Offset(offset);
    end(facts, 0, 0, offset);
}

type Case = (Fault, Severity, fn(&mut Facts), [&'static str; 4]);

/// A fault, its preparation, and the expected texts: what, cause, effect, next step.
const CASES: &[Case] = &[
    (
        Fault::CatalogUnreachable,
        Severity::Error,
        |facts| {
            *facts = Facts { now: NOW, ..Facts::default() };
            facts.unreachable.push(Unreachable { service: BackingService::Catalog, error: "no answer from db:5432".into() });
        },
        [
            "the catalog does not answer",
            "no answer from db:5432",
            "no checkpoint is committed and no run is published; running nodes serve what they have loaded; records wait in the log",
            "make the catalog's database available again, or correct catalog.url; every process recovers by itself",
        ],
    ),
    (
        Fault::CatalogUnreachable,
        Severity::Error,
        |facts| {
            *facts = Facts { now: NOW, ..Facts::default() };
            let error = "the catalog's file is damaged: error returned from database: (code: 26) file is not a database".into();
            facts.unreachable.push(Unreachable { service: BackingService::Catalog, error });
        },
        [
            "the catalog's file is damaged",
            "the catalog's file is damaged: error returned from database: (code: 26) file is not a database",
            "no checkpoint is committed and no run is published; running nodes serve what they have loaded; records wait in the log",
            "stop all processes and restore the file from a backup: what was committed since is read again, as far as the log has it",
        ],
    ),
    (
        Fault::StorageUnreachable,
        Severity::Error,
        |facts| facts.unreachable.push(Unreachable { service: BackingService::Storage, error: "403".into() }),
        [
            "the object storage does not answer",
            "403",
            "no checkpoint is committed and no run can read or write; lookups are answered from local copies; records wait in the log",
            "make the object storage available again, or correct storage.url and its credentials; every process recovers by itself",
        ],
    ),
    (
        Fault::StorageForeign,
        Severity::Error,
        |facts| facts.foreign_storage = Some("found 018f, expected 0190".into()),
        [
            "the object storage is not the one of this catalog",
            "found 018f, expected 0190",
            "no layer starts, and no files are deleted as orphans; what this catalog names may be missing",
            "correct catalog.url or storage.url; give a new catalog an empty folder or prefix",
        ],
    ),
    (
        Fault::LogUnreachable,
        Severity::Error,
        |facts| {
            facts.ends.insert("pay".into(), Err("brokers are down".into()));
            facts.ends.insert("other".into(), Err("brokers are down".into()));
        },
        [
            "the log does not answer",
            "brokers are down",
            "no record is read or accepted; answers stay at the committed vector; their lag is not known",
            "make the log available again, or correct log.url and log.properties; workers resume by themselves at the committed offsets",
        ],
    ),
    (
        Fault::DefinitionsUnplanned,
        Severity::Error,
        |facts| facts.registry = Some(Err("v: there is no column x".into())),
        [
            "the catalog's definitions cannot be planned",
            "v: there is no column x",
            "no layer can start; running nodes serve what they have loaded",
            "run `basestream check` with this binary, correct the definition it names, then `basestream apply`",
        ],
    ),
    (
        Fault::LogExpired,
        Severity::Error,
        |facts| end(facts, 0, 130, 200),
        [
            "pay/0: the log expired past the committed offset: 30 records, offsets 100..130, are gone",
            "the log's retention is shorter than the time during which no worker read it",
            "the speed layer refuses the partition and exits; its records are not counted, and answers stay at the committed vector",
            "if another system still has these records, keep them for `basestream ingest --again`; then `basestream speed --accept-gap` (or `basestream up --accept-gap`) records the loss and continues",
        ],
    ),
    (
        Fault::LogShortened,
        Severity::Error,
        |facts| end(facts, 0, 0, 40),
        [
            "pay/0: the log ends at 40, but offset 100 is committed: the log is shorter than the catalog expects",
            "the log lost records that were counted: the topic was recreated, an old backup was restored, or a broker lost its disk",
            "the speed layer refuses the partition and exits; its records are not counted, and answers stay at the committed vector",
            "restore the whole log; if that is not possible, define the stream under a new name on the topic: the archive still holds what was counted",
        ],
    ),
    (
        Fault::LogRecreated,
        Severity::Error,
        |facts| {
            facts.identities.insert("pay".into(), "log-2".into());
            facts.state.partitions.remove(&id(1));
        },
        [
            "pay/0: the log is not the one that the catalog knows: found log-2, expected log-1",
            "the topic was deleted and recreated, or log.url points to another log",
            "the speed layer refuses the partition and exits; its records are not counted, and answers stay at the committed vector (offset 100)",
            "correct log.url; if the old log is lost, define the stream under a new name on the topic; if all offsets of the new log are at or after the committed one, `basestream speed --accept-gap` (or `basestream up --accept-gap`) records the loss and continues",
        ],
    ),
    (
        Fault::LogRecreated,
        Severity::Error,
        |facts| {
            facts.ends.insert("pay".into(), Ok(Vec::new()));
            facts.identities.remove("pay");
            facts.state.partitions.remove(&id(1));
        },
        [
            "pay/0: the log has no such partition, but offset 100 is committed",
            "the topic or the log's folder was deleted, or log.url points to another log",
            "the speed layer refuses the partition and exits; its records are not counted, and answers stay at the committed vector",
            "correct log.url or restore the log; if it is lost, define the stream under a new name: the archive still holds what was counted",
        ],
    ),
    (
        Fault::OffsetsAbsent,
        Severity::Error,
        |facts| first_range(facts, |range| range.absent = 3),
        [
            "pay/0: 3 offsets of the embedded log delivered no record",
            "a defect, or the log file was modified by hand: the embedded log has a record at every offset",
            "records may be missing from every answer",
            "keep log.db unchanged; list what is missing with `basestream verify VIEW --log`, and report it",
        ],
    ),
    (
        Fault::FileDamaged,
        Severity::Error,
        |facts| facts.state.damages.push(damage("archive/pay/1.parquet")),
        [
            "the file archive/pay/1.parquet is damaged or missing",
            "found 3 bytes, expected 900 (found by p-1)",
            "its events are not merged: batch runs, verify and `as_of` in the past report an error where they need the file; earlier snapshots hold its events",
            "run `basestream repair`: it rebuilds the file from the log, as far back as the log goes",
        ],
    ),
    (
        Fault::FileDamaged,
        Severity::Error,
        |facts| facts.state.damages.push(damage("states/1.states")),
        [
            "the file states/1.states is damaged or missing",
            "found 3 bytes, expected 900 (found by p-1)",
            "answers are not affected: its states are computed from the archive",
            "none while a scheduler runs: it rebuilds the file from the archive; otherwise run `basestream repair`",
        ],
    ),
    (
        Fault::FileDamaged,
        Severity::Error,
        |facts| facts.state.damages.push(damage("snapshots/v/1/r/0.parquet")),
        [
            "the file snapshots/v/1/r/0.parquet is damaged or missing",
            "found 3 bytes, expected 900 (found by p-1)",
            "answers stay correct but become slower (`degraded`): they are computed from the previous snapshot or from all checkpoints",
            "none while a scheduler runs: it runs the view immediately; otherwise run `basestream repair`",
        ],
    ),
    (
        Fault::FileDamaged,
        Severity::Error,
        |facts| facts.state.damages.push(damage("snapshots/v/1/00000000-0000-0000-0000-00000000004d/joined/00000.parquet")),
        [
            "the file snapshots/v/1/00000000-0000-0000-0000-00000000004d/joined/00000.parquet is damaged or missing",
            "found 3 bytes, expected 900 (found by p-1)",
            "queries of its view's `__batch` fail; the view's own answers are computed from edges and are not affected",
            "none while a scheduler runs: it runs the view immediately; otherwise run `basestream repair`",
        ],
    ),
    (
        Fault::FileDamaged,
        Severity::Error,
        |facts| {
            facts.stamps.insert(ViewVersion::new("v", 1), Err("it is gone".into()));
        },
        [
            "v: the manifest of the published snapshot cannot be read",
            "it is gone",
            "answers stay correct but become slower (`degraded`): they are computed from the previous snapshot or from all checkpoints",
            "run `basestream batch run v`: it writes a snapshot in the format of this release",
        ],
    ),
    (
        Fault::PartitionStuck,
        Severity::Error,
        |facts| {
            moved_at(facts, NOW - 10 * MINUTE);
            end(facts, 0, 0, 140);
        },
        [
            "pay: 40 records are waiting, and nothing was committed for 10 min (partition 0 at 100)",
            "no worker owns them, or their worker hangs; other partitions of the stream advance (the last checkpoint was committed at 2026-01-02T05:50:00Z by worker w1)",
            "answers do not include these records and become older; meta.complete_to shows how old",
            "start `basestream speed` or `basestream up`; if w1 still runs, read its log and restart it: its partitions are taken over",
        ],
    ),
    (
        Fault::PartitionStuck,
        Severity::Error,
        |facts| {
            moved_at(facts, NOW - 3 * HOUR);
            // It took the place of several, of which the last may have been of another worker and partition.
            let compacted = CheckpointRecord { id: made_at(NOW - HOUR), ..facts.state.checkpoints.iter().next().unwrap().clone() };
            facts.state.checkpoints = [compacted, checkpoint("w2", NOW - 5 * SECOND, vec![range(1, 0, 100)])].into_iter().collect();
            end(facts, 0, 0, 140);
        },
        [
            "pay: 40 records are waiting, and nothing was committed for at least 3 h (partition 0 at 100)",
            "no worker owns them, or their worker hangs; other partitions of the stream advance (the last checkpoint was committed at 2026-01-02T03:00:00Z or earlier, and was compacted since)",
            "answers do not include these records and become older; meta.complete_to shows how old",
            "start `basestream speed` or `basestream up`; if one runs, read its log and restart it: its partitions are taken over",
        ],
    ),
    (
        Fault::PartitionStuck,
        Severity::Error,
        |facts| {
            facts.state.partitions.clear();
            facts.state.checkpoints = Checkpoints::default();
            facts.state.snapshots.clear();
        },
        [
            "pay: 200 records are waiting, and nothing was committed for 3 h (partition 0 at 0, 1 at 0)",
            "no speed worker runs, or it cannot commit (no worker has read it yet)",
            "answers do not include these records and become older; meta.complete_to shows how old",
            "start `basestream speed` or `basestream up`",
        ],
    ),
    (
        Fault::StreamUnread,
        Severity::Warning,
        |facts| {
            facts.state.partitions.clear();
            facts.state.checkpoints = Checkpoints::default();
            facts.state.snapshots.clear();
            facts.state.definitions.rewrite(|all| all[0].created_at = NOW - 5 * SECOND);
        },
        [
            "pay: 200 records are in the log, and no worker has committed any record of this stream yet",
            "no speed worker runs, or one has just started",
            "views of this stream have no row for any key; meta.unread of an answer names the stream",
            "start `basestream up` or `basestream speed`; if one runs, its first checkpoint comes within speed.checkpoint_interval",
        ],
    ),
    (
        Fault::PartitionBehind,
        Severity::Warning,
        |facts| {
            facts.state.partitions.get_mut(&id(0)).unwrap().complete_to = Some(NOW - 2 * HOUR);
            end(facts, 0, 0, 9_100);
        },
        [
            "pay/0: 9000 records are waiting; what is committed is complete to 2026-01-02T04:00:00Z",
            "records arrive faster than they are read, or a backlog of 2 h is being read",
            "answers are correct but old; meta.complete_to shows how old",
            "wait while the lag shrinks; if it grows, start more `basestream speed` workers, up to the number of partitions",
        ],
    ),
    (
        Fault::RunAbandoned,
        Severity::Warning,
        |facts| {
            facts.state.runs.push(run(RunStatus::Running, 1));
            facts.state.leases.push(lease("run/v@1", NOW - 1, "pay/0:1"));
        },
        [
            "v: the run 00000000-0000-0000-0000-000000000000 is marked as running, but no process holds its lease, started 60 min ago",
            "the process that ran it was killed or lost its connection to the catalog",
            "the view keeps its previous snapshot; the dead run's cut prevents files from being collected",
            "start `basestream scheduler` or `basestream up`: the scheduler marks the run as failed and tries again",
        ],
    ),
    (
        Fault::RunFailing,
        Severity::Error,
        |facts| facts.state.runs = vec![run(RunStatus::Failed, 3)],
        [
            "v (version 1): the batch run failed 3 times in a row",
            "the memory limit was reached",
            "answers stay correct but become slower: they merge every checkpoint since the snapshot of 2026-01-02T05:00:00Z",
            "fix the cause (raise batch.memory_limit, repair a damaged file, correct the view's SQL), then run `basestream batch run v`",
        ],
    ),
    (
        Fault::StatesDiffer,
        Severity::Error,
        |facts| {
            let clean = Comparison { rows: 40, ..Comparison::default() };
            let compared = |hours, comparison| RunRecord {
                ended_at: Some(NOW - hours * HOUR),
                comparison: Some(comparison),
                ..run(RunStatus::Succeeded, 1)
            };
            let not_compared = Comparison { error: Some("a file is damaged".into()), ..clean.clone() };
            facts.state.runs.extend([compared(2, differing()), compared(3, clean), compared(1, not_compared)]);
        },
        [
            "v (version 1): the recomputation of 2026-01-02T04:00:00Z differs from the states that incremental runs had kept, in 3 of 40 rows \
             compared; the first: k=a, column n (count(*)), 1h from 2026-01-01T00:00:00Z: kept 1, recomputed 2",
            "a defect of this or an earlier release, or events or files that were changed outside of basestream",
            "answers before that time may have been wrong; since then they come from the recomputed states",
            "check the answers with `basestream verify v` and report the difference; `basestream batch run v --full` compares again and ends \
             this once nothing differs",
        ],
    ),
    (
        Fault::RunOverdue,
        Severity::Warning,
        |facts| facts.state.runs[0].started_at = Some(NOW - 26 * HOUR),
        [
            "v: a run was due at 2026-01-02T00:00:00Z and has not started (its schedule)",
            "no scheduler runs",
            "answers stay correct but become slower: they merge every checkpoint since the last snapshot",
            "start `basestream scheduler` or `basestream up`, or run it now: `basestream batch run v`",
        ],
    ),
    (
        Fault::RunUnscheduled,
        Severity::Warning,
        |facts| unscheduled(facts, 73),
        [
            "v (version 1): no snapshot has the last 4380 checkpoints, which began 3 d ago",
            "the view has no schedule, and runs only when somebody asks for a run",
            "these checkpoints and their states are neither compacted nor deleted: the catalog, the storage and the memory of every process \
             grow without end; answers stay correct but become slower",
            "add a schedule to v, such as `every = '1h'`, and run `basestream apply`, which makes no new version; or run it from time to \
             time: `basestream batch run v`",
        ],
    ),
    (
        Fault::RunSlow,
        Severity::Notice,
        |facts| {
            let slow = RunRecord { strategy: Some(Strategy::Full), ended_at: None, ..run(RunStatus::Running, 1) };
            facts.state.runs.push(RunRecord { started_at: Some(NOW - 80 * HOUR), ..slow });
            facts.state.leases.push(lease("run/v@1", NOW + 1, "pay/0:1"));
        },
        [
            "v (version 1): a full run has been under way for 3 d, more than 3 periods of its schedule (every 1d)",
            "it reads all archived events that still count, and takes longer the more there are",
            "the view has no other run meanwhile: answers stay correct but become slower, as they merge every checkpoint since the snapshot \
             before",
            "wait: the runs after it add what is new",
        ],
    ),
    (
        Fault::VersionUnbuilt,
        Severity::Warning,
        |facts| {
            let Some(Ok(registry)) = &mut facts.registry else { panic!("planned") };
            registry.views.push(committed::registry::LiveView {
                version: 2,
                status: DefinitionStatus::Building,
                ..registry.views[0].clone()
            });
            let mut second = facts.state.definitions.get(DefinitionKind::View, "v", 1).unwrap().clone();
            (second.version, second.status) = (2, DefinitionStatus::Building);
            facts.state.definitions.extend([second]);
            facts.state.runs.push(RunRecord { version: 2, ..run(RunStatus::Failed, 1) });
        },
        [
            "v: version 2 was applied 3 h ago and has no snapshot",
            "its run failed: the memory limit was reached",
            "version 1 is served until then",
            "start `basestream scheduler` or `basestream up`, or build it now: `basestream batch run v`",
        ],
    ),
    (
        Fault::NodeNotReady,
        Severity::Error,
        |facts| {
            let (what, error) = ("the log takes no records".into(), "database or disk is full".into());
            facts.failing = vec![Failing { what, seconds: 240, error, errors: BTreeMap::new() }];
        },
        [
            "the node that answers HTTP is not ready: the log takes no records, for 4 min",
            "database or disk is full",
            "what cannot be written waits, or is refused with 503; nothing is lost, and no answer goes back",
            "free space if a disk is full, else make the service available again; the node continues by itself",
        ],
    ),
    (
        Fault::NodeNotReady,
        Severity::Error,
        |facts| {
            let (what, error) = (access::ISSUER_UNREAD.into(), "the issuer did not answer".into());
            facts.failing = vec![Failing { what, seconds: 240, error, errors: BTreeMap::new() }];
        },
        [
            "the node that answers HTTP accepts no JWT: the keys of the OIDC issuer cannot be read, for 4 min",
            "the issuer did not answer",
            "callers with a JWT are refused with 503; tokens of the catalog are accepted, and all other work goes on",
            "make the issuer answer the node, or correct serving.auth.issuer; the node asks it again every 30 s",
        ],
    ),
    (
        Fault::NodeUnasked,
        Severity::Notice,
        |facts| {
            facts.unasked = Some(UnaskedNode { address: "https://127.0.0.1:8080".into(), reason: "it asks for a token".into() });
        },
        [
            "the node at https://127.0.0.1:8080 did not tell what is wrong with it",
            "it asks for a token",
            "what only the node knows is not listed here: a full disk, stalled sinks, views it refuses, workers it does not follow",
            "give this command a token that may read the process (BASESTREAM_TOKEN) and the authorities of the node's certificate \
             (SSL_CERT_FILE), or make serving.http the address of a node",
        ],
    ),
    (
        Fault::ClockWrong,
        Severity::Error,
        |facts| {
            let error = "it is 61 s ahead".into();
            facts.failing = vec![Failing { what: types::clocks::CLOCK_DIFFERS.into(), seconds: 240, error, errors: BTreeMap::new() }];
        },
        [
            "the node that answers HTTP has a wrong clock, for 4 min",
            "the clock differs from that of the catalog's database: it is 61 s ahead",
            "leases and pins of this machine expire early or late for others; a collector whose clock is far ahead deletes nothing",
            "keep the clocks of all machines in time, with NTP; the node continues by itself",
        ],
    ),
    (
        Fault::ClockWrong,
        Severity::Error,
        |facts| {
            let error = "answers are for a time 3599 s ahead of it".into();
            facts.failing = vec![Failing { what: types::clocks::CLOCK_WENT_BACK.into(), seconds: 240, error, errors: BTreeMap::new() }];
        },
        [
            "the node that answers HTTP has a wrong clock, for 4 min",
            "the clock went back: answers are for a time 3599 s ahead of it",
            "answers, or the timestamps of records, stay at the latest time until the clock is there again",
            "keep the clocks of all machines in time, with NTP; the node continues by itself",
        ],
    ),
    (
        Fault::SinkStalled,
        Severity::Error,
        |facts| {
            let error = "the sink \"scored\" over the stream \"pay\", which is not read meanwhile: no such topic".into();
            facts.failing = vec![Failing { what: speed::SINK_STALLED.into(), seconds: 240, error, errors: BTreeMap::new() }];
        },
        [
            "records of a sink cannot be put out, for 4 min",
            "the sink \"scored\" over the stream \"pay\", which is not read meanwhile: no such topic",
            "the stream that the sink reads is not decided, and its answers get older; other streams go on, and nothing is lost",
            "remove the cause (a topic that is missing, a right, a definition), or drop the sink and run `basestream apply`; it is tried again at least every 30 s",
        ],
    ),
    (
        Fault::FileDamaged,
        Severity::Error,
        |facts| {
            let error = "the stream \"pay\": a stored file is missing (file: archive/pay/1.parquet)".into();
            facts.failing = vec![Failing { what: speed::ARCHIVE_DAMAGED.into(), seconds: 240, error, errors: BTreeMap::new() }];
        },
        [
            "a stream is not read because a file of its archive is damaged, for 4 min",
            "the stream \"pay\": a stored file is missing (file: archive/pay/1.parquet)",
            "the stream is not decided, as duplicates could not be recognised, and its answers get older; other streams go on",
            "run `basestream repair`; the worker then reads the stream by itself",
        ],
    ),
    (
        Fault::AlertUnrun,
        Severity::Error,
        |facts| {
            // One whose process has gone, and one that nobody has taken up in the seconds since.
            facts.alerts = vec![alert("silent", None, NOW - HOUR), alert("new", None, NOW - 3 * SECOND)];
        },
        [
            "no process runs the alert \"silent\"; 2 keys are open",
            "no `up` or `speed` runs, or none can run it; w1 did, and last looked at 2026-01-02T05:59:55Z",
            "no alerts are opened or resolved, and no records are put out; the next process to run it continues from there",
            "start `basestream up` or `basestream speed`; if one runs, its log and its /readyz say why it cannot",
        ],
    ),
    (
        Fault::AlertUnrun,
        Severity::Error,
        |facts| {
            let found = Some("there is no view \"v\"".into());
            facts.alerts = vec![AlertFacts { refused: found, open: 1, ..alert("silent", None, NOW - HOUR) }];
        },
        [
            "no process runs the alert \"silent\"; 1 key is open",
            "it cannot be planned any more: there is no view \"v\"",
            "no alerts are opened or resolved, and no records are put out; the next process to run it continues from there",
            "change the alert or the view that it watches, and run `basestream apply`",
        ],
    ),
    (
        Fault::AlertWaits,
        Severity::Error,
        |facts| {
            let mut waiting = alert("silent", Some("w1"), NOW - HOUR);
            waiting.runner.as_mut().unwrap().waits = Some("the log was replaced: ..".into());
            facts.alerts = vec![waiting];
            // The process says the same.
            facts.failing = vec![silent_fails("the log was replaced: ..")];
        },
        [
            "the alert \"silent\" is not evaluated; 2 keys are open",
            "the log was replaced: .. (w1)",
            "no alerts are opened or resolved, and no records are put out, because they could contradict earlier ones",
            "point log.url at the log that it was evaluated with; if that is lost, define the alert under a new name and run `basestream \
             apply`: it begins anew",
        ],
    ),
    (
        Fault::AlertWaits,
        Severity::Error,
        |facts| {
            let mut waiting = alert("ring", Some("w1"), NOW - HOUR);
            waiting.runner.as_mut().unwrap().waits = Some(format!("{} of the view \"links\": ..", event_alerts::NO_ROOM_FOR_INDEX));
            facts.alerts = vec![waiting];
        },
        [
            "the alert \"ring\" is not evaluated; 2 keys are open",
            "there is no room for the index of near edges of the view \"links\": .. (w1)",
            "no alerts are opened or resolved, and no records are put out; once there is room, it continues from there",
            "raise serving.memory_limit where alerts run, or leave edges out by the view's WHERE; it is tried again every 30 s",
        ],
    ),
    (
        Fault::AlertWaits,
        Severity::Error,
        |facts| {
            // Its process has left it to others, and evaluates another one.
            facts.alerts = vec![alert("silent", None, NOW - HOUR), alert("declines", Some("w1"), NOW - HOUR)];
            facts.failing = vec![silent_fails("the topic \"alerts\" takes no records")];
        },
        [
            "the alert \"silent\" is not evaluated; 2 keys are open",
            "the topic \"alerts\" takes no records",
            "no alerts are opened or resolved, and no records are put out; once the cause is gone, it continues from there",
            "remove the cause (a topic that is missing, a right); the node tries it again by itself",
        ],
    ),
    (
        Fault::AlertWaits,
        Severity::Error,
        |facts| {
            // Its process has just taken it again.
            let mut taken = alert("silent", Some("w1"), NOW - HOUR);
            taken.runner.as_mut().unwrap().evaluated_at = None;
            facts.alerts = vec![taken];
            facts.failing = vec![silent_fails("the topic \"alerts\" takes no records")];
        },
        [
            "the alert \"silent\" is not evaluated; 2 keys are open",
            "the topic \"alerts\" takes no records",
            "no alerts are opened or resolved, and no records are put out; once the cause is gone, it continues from there",
            "remove the cause (a topic that is missing, a right); the node tries it again by itself",
        ],
    ),
    (
        Fault::NodeNotReady,
        Severity::Error,
        |facts| {
            // The catalog did not list the alert.
            facts.failing = vec![silent_fails("the topic \"alerts\" takes no records")];
        },
        [
            "the node that answers HTTP is not ready: an alert is not evaluated, for 4 min",
            "the alert \"silent\": the topic \"alerts\" takes no records",
            "what cannot be written waits, or is refused with 503; nothing is lost, and no answer goes back",
            "free space if a disk is full, else make the service available again; the node continues by itself",
        ],
    ),
    (
        Fault::AlertWaits,
        Severity::Error,
        |facts| {
            // One process has taken it up since the clock went back. The other goes on with the later time.
            let (mut waiting, mut going_on) = (alert("silent", Some("w1"), NOW - HOUR), alert("declines", Some("w1"), NOW - HOUR));
            let runner = waiting.runner.as_mut().unwrap();
            (runner.evaluated_at, runner.at) = (None, Some(NOW + 3 * HOUR));
            going_on.runner.as_mut().unwrap().at = Some(NOW + 3 * HOUR);
            facts.alerts = vec![waiting, going_on];
        },
        [
            "the alert \"silent\" is not evaluated; 2 keys are open",
            "it was evaluated for a time 3 h ahead of the clock, which was wrong then, or is now",
            "until the clock is there again, no alerts are opened or resolved, and no records are put out, because they could contradict \
             earlier ones",
            "correct the clock if it is wrong; otherwise define the alert under a new name and run `basestream apply`: it begins anew",
        ],
    ),
    (
        Fault::AlertBehind,
        Severity::Warning,
        |facts| {
            let mut late = alert("silent", Some("w1"), NOW - HOUR);
            late.runner.as_mut().unwrap().evaluated_at = Some(NOW - 5 * MINUTE);
            facts.alerts = vec![late];
        },
        [
            "the alert \"silent\" is 5 min behind",
            "w1 looks at many keys, or cannot read the view: its log says which",
            "its records are late by as much; none is left out, and lag does not count as silence",
            "see the lag of the partitions above; more workers read more partitions at a time",
        ],
    ),
    (
        Fault::AlertBehind,
        Severity::Warning,
        |facts| {
            let mut late = alert("silent", Some("w1"), NOW - HOUR);
            late.runner.as_mut().unwrap().at = Some(NOW - 3 * HOUR);
            facts.alerts = vec![late];
        },
        [
            "the alert \"silent\" is 3 h behind",
            "the records of its view's streams after that are not counted yet: workers are behind, or a partition has none",
            "its records are late by as much; none is left out, and lag does not count as silence",
            "see the lag of the partitions above; more workers read more partitions at a time",
        ],
    ),
    (
        Fault::AlertBehind,
        Severity::Warning,
        |facts| {
            let mut waiting = alert("silent", Some("w1"), NOW - HOUR);
            let runner = waiting.runner.as_mut().unwrap();
            (runner.evaluated_at, runner.at) = (None, None);
            facts.alerts = vec![waiting];
        },
        [
            "the alert \"silent\" is 60 min behind",
            "the records of its view's streams after that are not counted yet: workers are behind, or a partition has none",
            "its records are late by as much; none is left out, and lag does not count as silence",
            "see the lag of the partitions above; more workers read more partitions at a time",
        ],
    ),
    (
        Fault::WorkerNotFollowed,
        Severity::Warning,
        |facts| {
            let link = |worker: &str, followed, seconds| WorkerLink {
                worker: worker.into(),
                address: format!("http://{worker}:7"),
                followed,
                seconds,
                error: Some("connection refused".into()).filter(|_| !followed),
            };
            facts.workers = vec![link("followed", true, 900), link("lost", false, 240), link("just-begun", false, 1)];
        },
        [
            "the node that answers HTTP does not follow the workers at http://lost:7, for 4 min",
            "connection refused",
            "its answers count what those workers read once it is committed; nothing is lost",
            "if the process ended, nothing: its address expires within 30 s; else make speed.flight_advertise an address that the node reaches, \
            and give the node the token (serving.fresh_token) and the authorities (serving.fresh_ca) that the workers ask for",
        ],
    ),
    (
        Fault::ViewRefused,
        Severity::Error,
        |facts| {
            let refused = |view: &str| RefusedView { view: view.into(), version: 1, error: "Divide by zero error".into() };
            // The node may serve another installation.
            facts.refused = vec![refused("v"), refused("of_others")];
        },
        [
            "the view v (version 1) cannot be queried",
            "Divide by zero error",
            "every query of it fails; other views are served, and its events are archived",
            "guard its expressions (`nullif`, `CASE`, `try_cast`) or leave `on_error = 'refuse'` out, and run `basestream apply`; \
             if a file is damaged, run `basestream repair`",
        ],
    ),
    (
        Fault::ViewErrors,
        Severity::Warning,
        |facts| {
            let left_out = |failed| LeftOutEvents { failed, first: "the event at offset 7 of pay/1 fails: Divide by zero error".into() };
            facts.left_out.insert(ViewVersion::new("v", 1), left_out(2));
            // A version that was replaced.
            facts.left_out.insert(ViewVersion::new("v", 0), left_out(3));
        },
        [
            "the view v (version 1) fails on 2 events",
            "the event at offset 7 of pay/1 fails: Divide by zero error",
            "they do not count in this view; they are archived, and count in the other views",
            "`basestream dead-letters list --view v` lists them; if they should count, guard the expressions (`nullif`, `CASE`, \
             `try_cast`) and run `basestream apply`",
        ],
    ),
    (
        Fault::RetentionShort,
        Severity::Error,
        |facts| {
            let Some(Ok(registry)) = &mut facts.registry else { panic!("planned") };
            let mut plan = (*registry.views[0].plan).clone();
            let stream = (*plan.streams[0]).clone();
            plan.streams = vec![definitions::StreamDefinition { retention: Some(Duration::from_secs(86_400)), ..stream }.into()];
            registry.views[0].plan = plan.into();
        },
        [
            "the view v (version 1) counts events that are deleted",
            "the stream \"pay\" keeps events for 1d, and the view counts them for ever (all time): events that count would be deleted",
            "each batch run recomputes the view without the events that were deleted: its values become too small, unnoticed",
            "no retention for \"pay\", or a window for every aggregate; then `basestream apply`",
        ],
    ),
    (
        Fault::StatesOfAnotherFormat,
        Severity::Warning,
        |facts| {
            let Some(Ok(registry)) = &mut facts.registry else { panic!("planned") };
            let mut plan = (*registry.views[0].plan).clone();
            plan.stamp = "count@2".into();
            registry.views[0].plan = plan.into();
            facts.stamps.insert(ViewVersion::new("v", 1), Ok("count@1".into()));
        },
        [
            "v: the published snapshot's states have another format than this release writes",
            "another release wrote it: found count@1, expected count@2",
            "the snapshot is not used: answers are computed from the archive, correct but slow, and are marked `degraded`",
            "run `basestream batch run v`: it writes a snapshot in the format of this release",
        ],
    ),
    (
        Fault::DeadLetters,
        Severity::Warning,
        |facts| {
            first_range(facts, |range| (range.archived, range.dead_lettered) = (95, 5));
            let example = "column ts ($.ts): found null, expected TIMESTAMPTZ NOT NULL".into();
            let reason = Some(Ok(FrequentReason { example, count: 3, of: 4 }));
            facts.dead_letters.insert("pay".into(), RecentDeadLetters { replayed: 0, reason });
        },
        [
            "pay: 5 of the 200 records of the last 60 min became dead letters (2.50 %)",
            "most frequent reason: column ts ($.ts): found null, expected TIMESTAMPTZ NOT NULL (3 of the newest 4 dead letters)",
            "no answer includes these records; they are kept unchanged",
            "`basestream dead-letters list pay`; correct the producer or the stream's definition, then `basestream dead-letters replay pay`",
        ],
    ),
    (
        Fault::ReplayUnfinished,
        Severity::Warning,
        |facts| facts.state.leases.push(lease("replay/pay", NOW - MINUTE, "pay/0:7")),
        [
            "pay: a replay of dead letters stopped before it finished",
            "its process was killed, or the log or the catalog did not answer",
            "some dead letters may be in the log again without being marked as replayed",
            "run `basestream dead-letters replay pay` again: it detects what was sent and sends nothing twice",
        ],
    ),
    (
        Fault::FilesUndeleted,
        Severity::Warning,
        |facts| facts.marked_for_deletion = Some((12, NOW - HOUR)),
        [
            "12 files are marked for deletion but not deleted, the oldest for 60 min",
            "no scheduler runs (the collector is part of it), or the object storage refuses to delete",
            "answers are not affected; the storage grows",
            "start `basestream scheduler` or `basestream up`; if one runs, look for \"collection failed\" in its log",
        ],
    ),
    (
        Fault::PinOld,
        Severity::Warning,
        |facts| facts.state.leases.push(lease("serve/p-1", NOW + MINUTE, "pay/0:10,pay/1:70")),
        [
            "the node p-1 uses snapshots that were replaced 60 min ago (pay/0: 10, published 60)",
            "it cannot load the newer snapshots, or it hangs",
            "its answers are correct but slower; files that only it needs are not deleted",
            "look for \"a view could not be loaded\" in its log, and restart it",
        ],
    ),
    (
        Fault::Gap,
        Severity::Notice,
        |facts| {
            let gap = |partition, end| GapRecord {
                partition: id(partition),
                start: Offset(0),
                end: Offset(end),
                reason: "the log no longer had its beginning".into(),
                accepted_at: NOW - HOUR,
            };
            facts.state.gaps = vec![gap(0, 5), gap(1, 7)];
        },
        [
            "pay: 12 offsets are recorded as lost (pay/0: 0..5, pay/1: 0..7)",
            "the log no longer had its beginning, at 2026-01-02T05:00:00Z",
            "answers do not include these records, and the ledger shows the gap",
            "none; if another system still has the records, send them again with `basestream ingest pay FILE --again`",
        ],
    ),
    (
        Fault::TransactionOpen,
        Severity::Warning,
        |facts| {
            // A client set the time of its record to yesterday's; what was there before is counted.
            facts.open_transactions = [open_transaction(0, NOW - 24 * HOUR), open_transaction(1, NOW - 90 * SECOND)].into();
            facts.state.partitions.values_mut().for_each(|known| known.complete_to = Some(NOW - 2 * MINUTE));
        },
        [
            "pay: an open transaction holds back 14 offsets for 2 min (partition and offset: 0 from 100, 1 from 100)",
            "a producer began a transaction, and neither committed nor aborted it; the log does not deliver what follows it",
            "these records are not counted, and complete_to stands still: alerts on silence in this stream wait",
            "end the producer, or abort its transaction: `kafka-transactions.sh --bootstrap-server BROKER find-hanging`, then `abort`",
        ],
    ),
    (
        Fault::LogHeld,
        Severity::Notice,
        |facts| {
            let topics = vec!["payments".into(), "refunds".into()];
            facts.idle_groups = vec![ReaderGroup { name: "before".into(), topics, is_active: false }];
        },
        [
            "the consumer group \"before\" has read payments, refunds and has no worker that runs",
            "`speed.group` had another name, or the workers of another installation over the same log are stopped",
            "no record of these topics is deleted from the embedded log, whatever log.retention says: it grows",
            "if its workers will run again, none; otherwise `basestream storage forget-group before`: what it has not read may be deleted then",
        ],
    ),
];

#[tokio::test]
async fn a_transaction_is_a_problem_once_it_has_been_open_for_a_minute() {
    let mut facts = healthy().await;
    facts.state.partitions.values_mut().for_each(|known| known.complete_to = Some(NOW - HOUR));
    facts.open_transactions = [open_transaction(0, NOW - 59 * SECOND)].into();
    assert_eq!(problems(&facts), []);
    facts.open_transactions = [open_transaction(0, NOW - 60 * SECOND)].into();
    assert_eq!(problems(&facts).iter().map(|problem| problem.fault).collect::<Vec<_>>(), [Fault::TransactionOpen]);
}

#[tokio::test]
async fn each_fault_is_reported_with_its_cause_its_effect_and_the_next_step() {
    for (fault, severity, come_about, said) in CASES {
        let mut facts = healthy().await;
        come_about(&mut facts);
        let found = problems(&facts);
        let texts: Vec<[&str; 4]> = found.iter().map(|p| [p.what.as_str(), &p.cause, &p.effect, &p.next_step]).collect();
        assert_eq!(texts, [*said], "{fault:?}");
        assert_eq!((found[0].fault, found[0].severity), (*fault, *severity));
    }
}

/// A file of a replaced snapshot, and one that is superseded, is read by nobody, and deleted ten minutes later.
#[tokio::test]
async fn damage_of_a_snapshot_is_reported_until_another_snapshot_replaces_it() {
    let path = "snapshots/v/1/r/0.parquet";
    let reported = async |kind: FileKind, run: Option<Uuid>| {
        let mut facts = healthy().await;
        facts.state.files.extend([FileRecord {
            path: path.into(),
            kind,
            checkpoint: None,
            run,
            subject: Some("v".into()),
            bytes: 900,
            rows: 1,
            checksum: 0,
            min_event_time: None,
            max_event_time: None,
            marked_for_deletion: false,
        }]);
        facts.state.damages.push(damage(path));
        problems(&facts).iter().map(|problem| problem.fault).collect::<Vec<_>>()
    };
    let (named, replaced) = (Some(Uuid::nil()), Some(Uuid::from_u128(7)));
    for kind in [FileKind::Snapshot, FileKind::Manifest] {
        assert_eq!(reported(kind, named).await, [Fault::FileDamaged], "{kind:?}");
        assert_eq!(reported(kind, replaced).await, [], "{kind:?}");
    }
    assert_eq!(reported(FileKind::Archive, None).await, [Fault::FileDamaged]);
    assert_eq!(reported(FileKind::Superseded, named).await, [], "its rows are in another file");
}

#[tokio::test]
async fn nothing_is_reported_about_an_installation_that_is_well() {
    assert_eq!(problems(&healthy().await), []);
}

#[tokio::test]
async fn a_full_run_that_takes_long_is_reported_after_its_end_if_it_will_come_again() {
    let next_steps = async |option: &str| {
        let mut facts = healthy().await;
        facts.state.definitions.rewrite(|all| all.iter_mut().for_each(|record| record.sql = record.sql.replace("every = '1d'", option)));
        facts.registry = Some(Ok(Registry::load(&facts.state, &Functions::standard()).await.unwrap()));
        let full = RunRecord { strategy: Some(Strategy::Full), ..run(RunStatus::Succeeded, 1) };
        facts.state.runs.push(RunRecord { started_at: Some(NOW - 80 * HOUR), ..full });
        let slow = problems(&facts).into_iter().filter(|problem| problem.fault == Fault::RunSlow);
        slow.map(|problem| (problem.what, problem.next_step)).collect::<Vec<_>>()
    };
    let what = "v (version 1): the last full run took 3 d, more than 3 periods of its schedule (every 1d)";
    let found = next_steps("every = '1d', strategy = 'full'").await;
    assert!(found.len() == 1 && found[0].0 == what && found[0].1.starts_with("leave `strategy = 'full'` out of v"), "{found:?}");
    assert!(next_steps("every = '7d', strategy = 'full'").await.is_empty());
    assert!(next_steps("every = '1d', full_every = '7d'").await.is_empty(), "it went on beside others");
}

/// A schedule is all that makes runs of a view due that is built, also of one whose runs read no archive.
#[tokio::test]
async fn a_view_without_a_schedule_is_reported_whatever_its_strategy_and_with_no_snapshot() {
    for strategy in [Strategy::Incremental, Strategy::Full, Strategy::Stream] {
        let mut facts = healthy().await;
        unscheduled(&mut facts, 73);
        let Some(Ok(registry)) = &mut facts.registry else { panic!("planned") };
        Arc::make_mut(&mut registry.views[0].definition).strategy = Some(strategy);
        assert_eq!(problems(&facts).iter().map(|problem| problem.fault).collect::<Vec<_>>(), [Fault::RunUnscheduled], "{strategy:?}");
    }
    let mut facts = healthy().await;
    unscheduled(&mut facts, 73);
    (facts.state.snapshots, facts.state.runs, facts.stamps) = Default::default();
    assert_eq!(problems(&facts).iter().map(|problem| problem.fault).collect::<Vec<_>>(), [Fault::RunUnscheduled]);
}

#[tokio::test]
async fn what_is_no_fault_is_not_reported() {
    type Change = fn(&mut Facts);
    let quiet: [(&str, Change); 20] = [
        ("a record that came a moment ago, after an hour without any", |facts| {
            moved_at(facts, NOW - HOUR);
            end(facts, 0, 0, 101);
            facts.waiting_since.insert(id(0), NOW - 3 * SECOND);
        }),
        ("a record that came after all were counted, a moment ago", |facts| {
            moved_at(facts, NOW - HOUR);
            end(facts, 0, 0, 101);
            facts.state.partitions.get_mut(&id(0)).unwrap().complete_to = Some(NOW - 5 * SECOND);
        }),
        ("a partition without traffic", |facts| moved_at(facts, NOW - 9 * HOUR)),
        ("control records on Kafka", |facts| {
            facts.embedded_log = false;
            first_range(facts, |range| range.absent = 3);
        }),
        ("dead letters of yesterday", |facts| {
            let yesterday = checkpoint("w1", NOW - 20 * HOUR, vec![CheckpointRange { dead_lettered: 9, ..range(0, 0, 9) }]);
            facts.state.checkpoints.rewrite(|checkpoints| checkpoints.insert(0, yesterday));
        }),
        ("dead letters that are all in the log again", |facts| {
            first_range(facts, |range| range.dead_lettered = 5);
            facts.dead_letters.insert("pay".into(), RecentDeadLetters { replayed: 5, reason: None });
        }),
        ("one failed run, which is tried again", |facts| {
            facts.state.runs = vec![RunRecord { ended_at: Some(NOW), ..run(RunStatus::Failed, 1) }];
        }),
        ("a run under way", |facts| {
            facts.state.runs.push(run(RunStatus::Running, 1));
            facts.state.leases.push(lease("run/v@1", NOW + 1, "pay/0:1"));
        }),
        ("a full run under way for two periods of its schedule", |facts| {
            let full = RunRecord { strategy: Some(Strategy::Full), ended_at: None, ..run(RunStatus::Running, 1) };
            facts.state.runs.push(RunRecord { started_at: Some(NOW - 50 * HOUR), ..full });
            facts.state.leases.push(lease("run/v@1", NOW + 1, "pay/0:1"));
        }),
        ("a full run that took long, and that nothing asks for again", |facts| {
            let full = RunRecord { strategy: Some(Strategy::Full), ..run(RunStatus::Succeeded, 1) };
            facts.state.runs.push(RunRecord { started_at: Some(NOW - 80 * HOUR), ..full });
        }),
        ("a view without a schedule that was run yesterday", |facts| unscheduled(facts, 47)),
        ("a view without a schedule that was defined yesterday", |facts| {
            unscheduled(facts, 73);
            facts.state.definitions.rewrite(|all| all.iter_mut().for_each(|record| record.created_at = NOW - 47 * HOUR));
        }),
        ("a view without a schedule over a stream with few checkpoints", |facts| {
            unscheduled(facts, 73);
            facts.state.checkpoints.rewrite(|all| all.truncate(1_000));
            moved_to(facts, 1_060);
        }),
        ("a view without a schedule whose run was requested", |facts| {
            unscheduled(facts, 73);
            facts.state.runs.push(RunRecord { started_at: None, ended_at: None, ..run(RunStatus::Requested, 1) });
        }),
        ("a view without a schedule whose run failed, and is tried again", |facts| {
            unscheduled(facts, 73);
            facts.state.runs = vec![RunRecord { ended_at: Some(NOW), ..run(RunStatus::Failed, 1) }];
        }),
        ("a version without a schedule that is kept for a rollback", |facts| {
            unscheduled(facts, 73);
            let Some(Ok(registry)) = &mut facts.registry else { panic!("planned") };
            registry.views[0].status = DefinitionStatus::Kept;
        }),
        ("files that the collector marked a minute ago", |facts| facts.marked_for_deletion = Some((12, NOW - MINUTE))),
        ("an alert that is run", |facts| facts.alerts = vec![alert("silent", Some("w1"), NOW - HOUR)]),
        ("an alert by the event clock, after an hour without events", |facts| {
            facts.event_clock = true;
            let mut running = alert("silent", Some("w1"), NOW - HOUR);
            running.runner.as_mut().unwrap().at = Some(NOW - HOUR);
            facts.alerts = vec![running];
        }),
        ("a node that answers from the published snapshot, and one that is gone", |facts| {
            facts.state.leases.push(lease("serve/p-1", NOW + MINUTE, "pay/0:60,pay/1:70"));
            facts.state.leases.push(lease("serve/p-2", NOW - MINUTE, "pay/0:0"));
        }),
    ];
    for (what, come_about) in quiet {
        let mut facts = healthy().await;
        come_about(&mut facts);
        assert_eq!(problems(&facts), [], "{what}");
    }
}

#[tokio::test]
async fn the_worst_is_reported_first() {
    let mut facts = healthy().await;
    facts.marked_for_deletion = Some((1, NOW - HOUR));
    facts.state.gaps = vec![GapRecord { partition: id(0), start: Offset(0), end: Offset(1), reason: "r".into(), accepted_at: 0 }];
    end(&mut facts, 0, 0, 40);
    let faults: Vec<Fault> = problems(&facts).iter().map(|problem| problem.fault).collect();
    assert_eq!(faults, [Fault::LogShortened, Fault::FilesUndeleted, Fault::Gap]);
}
