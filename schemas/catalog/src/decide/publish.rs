//! The commits that end a batch run: published, skipped, failed or dropped. The catalog checks what each of them
//! expects.

use uuid::Uuid;

use crate::{Add, CatalogState, Commit, Expect, LeaseRecord, Remove, RunRecord, RunStatus, SnapshotRecord};
use types::Error;
use types::files::FileRecord;
use types::tiles::Micros;
use types::vector::{Behind, Vector};

/// Combined with a run's id into its publication's commit id, so that a run is published once, however often it
/// retries.
const PUBLICATION: u128 = 0x7d0c_1f5a_94b3_4e62_a8d1_3b6f_02c5_e917;

/// What the names of runs' leases begin with.
const RUNS: &str = "run/";

/// What the names of the leases of dead letters' replays begin with. The stream follows.
pub const DEAD_LETTER_REPLAYS: &str = "replay/";

/// Returns the error for a cut that would move back in a partition.
pub(crate) fn cut_conflict(view: &str, version: u32, cut: &Behind) -> Error {
    Error::conflict("the cut is before the published snapshot's")
        .with("view", view)
        .with("version", version)
        .with("partition", &cut.partition)
        .with("cut", cut.found)
        .with("published", cut.expected)
}

/// The files of a snapshot that is published.
#[derive(Debug, Clone, Default)]
pub struct SnapshotFiles {
    /// Those that its run wrote.
    pub written: Vec<FileRecord>,
    /// The paths of those of the snapshot before that it names too. The run takes them over: a file belongs to the
    /// newest run whose snapshot names it, and is collected with that snapshot.
    pub carried_over: Vec<String>,
}

/// Returns the commit that publishes a snapshot and ends its run as succeeded, under the run's lease. The files are
/// already durable.
///
/// It changes no definition: the caller adds a version that becomes active by it.
pub fn publish_commit(run: RunRecord, snapshot: SnapshotRecord, files: SnapshotFiles, lease: &LeaseRecord, now: Micros) -> Commit {
    let SnapshotFiles { written, carried_over } = files;
    let held = Expect::Lease { name: lease.name.clone(), owner: lease.owner.clone(), epoch: lease.epoch, now };
    let ahead = Expect::CutNotBehind { view: snapshot.view.clone(), version: snapshot.version, cut: snapshot.cut.clone() };
    let not_marked_for_deletion = Expect::NotMarkedForDeletion { paths: written.iter().map(|file| file.path.clone()).collect() };
    let id = Uuid::from_u128(run.id.as_u128() ^ PUBLICATION);
    let ended = RunRecord { status: RunStatus::Succeeded, ended_at: Some(now), beside: false, error: None, ..run };
    let mut add: Vec<Add> = written.into_iter().map(Add::File).collect();
    if !carried_over.is_empty() {
        add.push(Add::TakeOver { run: run.id, paths: carried_over });
    }
    add.push(Add::Snapshot(snapshot));
    add.push(Add::Run(ended));
    Commit { id, expect: vec![held, ahead, not_marked_for_deletion], add, ..Commit::default() }
}

/// Returns the name of the lease under which a view version is run. Runs of one version exclude each other; those of
/// another version of the view go on beside them.
pub fn run_lease(view: &str, version: u32) -> String {
    format!("{RUNS}{view}@{version}")
}

/// Returns the name of the lease under which a view version is recomputed while its other runs go on. It holds none of
/// them up; who publishes needs the [`run_lease`].
pub fn recompute_lease(view: &str, version: u32) -> String {
    format!("recompute/{view}@{version}")
}

/// Returns the name of the lease of a recomputation that waits for the [`run_lease`]. Meanwhile no other run of the
/// version begins: where these follow each other closely, it would hardly ever find that lease free.
pub fn waiting_lease(view: &str, version: u32) -> String {
    format!("waiting/{view}@{version}")
}

/// Returns what the runs under way pin by their leases at `now`: what replays read.
pub fn pins_of_runs(state: &CatalogState, now: Micros) -> impl Iterator<Item = &Vector> {
    let leases = state.leases.iter().filter(move |lease| lease.name.starts_with(RUNS) && lease.expires_at > now);
    leases.filter_map(|lease| lease.pin.as_ref())
}

/// Returns where a replay of the stream's dead letters began that is under way, or that died: its lease may have
/// expired. The next one reads the log from there.
pub fn pin_of_replay<'s>(state: &'s CatalogState, stream: &str) -> Option<&'s Vector> {
    let lease = state.leases.iter().find(|lease| lease.name.strip_prefix(DEAD_LETTER_REPLAYS) == Some(stream));
    lease.and_then(|lease| lease.pin.as_ref())
}

/// Returns the name of the lease that a run is made under.
fn lease_name(run: &RunRecord) -> String {
    let name = if run.beside { recompute_lease } else { run_lease };
    name(&run.view, run.version)
}

/// Returns the lease that a run is made under: its own, or the view's, as processes of 0.1 have it. The one that lives
/// longer counts, if both are there.
fn lease_of<'s>(state: &'s CatalogState, run: &RunRecord) -> Option<&'s LeaseRecord> {
    let names = [lease_name(run), format!("{RUNS}{}", run.view)];
    state.leases.iter().filter(|lease| names.contains(&lease.name)).max_by_key(|lease| lease.expires_at)
}

/// Returns the commit that closes a run as failed and takes its lease from `owner`, so that work in progress there can
/// no longer publish. It is refused if the run has ended otherwise.
pub fn failure_commit(id: Uuid, run: RunRecord, owner: &str, error: String, now: Micros) -> Commit {
    let lease = lease_name(&run);
    closing_commit(id, RunRecord { status: RunStatus::Failed, ended_at: Some(now), error: Some(error), ..run }, lease, owner)
}

/// The same for a run that could not publish because its version was dropped: it did not fail.
pub fn dropped_commit(id: Uuid, run: RunRecord, owner: &str, now: Micros) -> Commit {
    let lease = lease_name(&run);
    closing_commit(id, RunRecord { status: RunStatus::Dropped, ended_at: Some(now), error: None, ..run }, lease, owner)
}

/// Returns the commit that ends a run as skipped, under its lease: it found nothing new, so the `published` snapshot of
/// its view holds everything up to the run's cut.
///
/// The snapshot's cut advances to the run's. Otherwise the snapshot of a quiet stream would hold back, in the
/// partitions of all other streams, what may be collected.
pub fn skipped_commit(run: RunRecord, published: SnapshotRecord, lease: &LeaseRecord, now: Micros) -> Commit {
    let cut = run.cut.clone().unwrap_or_default();
    let held = Expect::Lease { name: lease.name.clone(), owner: lease.owner.clone(), epoch: lease.epoch, now };
    let ahead = Expect::CutNotBehind { view: published.view.clone(), version: published.version, cut: cut.clone() };
    let id = Uuid::from_u128(run.id.as_u128() ^ PUBLICATION);
    let expect = vec![held, ahead, Expect::Running { run: run.id }];
    let ended = RunRecord { status: RunStatus::Skipped, ended_at: Some(now), error: None, ..run };
    let add = vec![Add::Snapshot(SnapshotRecord { cut, ..published }), Add::Run(ended)];
    Commit { id, expect, add, ..Commit::default() }
}

fn closing_commit(id: Uuid, closed: RunRecord, lease: String, owner: &str) -> Commit {
    let expect = vec![Expect::Running { run: closed.id }];
    let remove = vec![Remove::Lease { name: lease, owner: owner.to_owned() }];
    Commit { id, expect, add: vec![Add::Run(closed)], remove, ..Commit::default() }
}

/// Returns the abandoned runs, each with the commit that closes it: those that are running without a lease, or under
/// one that expired or whose owner `is_dead`.
pub fn abandoned(
    state: &CatalogState,
    mut id: impl FnMut() -> Uuid,
    now: Micros,
    is_dead: impl Fn(&str) -> bool,
) -> Vec<(RunRecord, Commit)> {
    let running = state.runs.iter().filter(|run| run.status == RunStatus::Running);
    let closed = running.filter_map(|run| {
        let lease = lease_of(state, run);
        if lease.is_some_and(|lease| lease.expires_at > now && !is_dead(&lease.owner)) {
            return None;
        }
        let (name, owner) = lease.map_or((lease_name(run), ""), |lease| (lease.name.clone(), &*lease.owner));
        let error = Some("the process that ran it died before it was done".into());
        let failed = RunRecord { status: RunStatus::Failed, ended_at: Some(now), error, ..run.clone() };
        let mut commit = closing_commit(id(), failed, name, owner);
        // The owner may have woken up and renewed the lease since.
        commit.expect.push(Expect::Revision(state.revision));
        Some((run.clone(), commit))
    });
    closed.collect()
}
