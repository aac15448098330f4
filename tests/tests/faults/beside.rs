//! Recomputations beside other runs of their version.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use basestream_tests::gate::{Gate, Way};
use basestream_tests::{now, until};
use batch::{Batch, RunMode, RunRequest, RunTime};
use catalog::{
    Add, Commit, DamageRecord, GapRecord, RunRecord, RunStatus, SnapshotRecord, drop_versions, recompute_lease, run_lease, versions_commit,
    waiting_lease,
};
use storage::{Manifest, ObjectStorage, write_manifest};
use tokio::task::JoinHandle;
use types::tiles::{Clock, Micros};
use types::vector::Offset;
use types::{Error, ErrorKind, Result, Strategy};
use uuid::Uuid;

use crate::site::{DAY, Site, clock};

const COUNTS: &str = "CREATE VIEW v WITH (windows = '30d', full_every = '1d') AS \
    SELECT k, count(*) AS n, array_agg(id ORDER BY ts, id) AS ids FROM s GROUP BY k";
const LINKS: &str = "CREATE VIEW v WITH (windows = '9d', full_every = '1d') AS
    SELECT a.k, count(DISTINCT b.id) AS n FROM s a JOIN s b ON a.k = b.k WHERE a.id <> b.id GROUP BY a.k";
/// Each checkpoint has a slice of its own.
const CHECKPOINTS: usize = 5;
const EVENTS: usize = 10;

/// An installation whose view has a snapshot.
async fn site(view: &str) -> Site {
    let site = Site::with(&[("v", view)]).await;
    for checkpoint in 0..CHECKPOINTS {
        append(&site, checkpoint * EVENTS).await;
    }
    let run = site.harness.batch("v", RunTime::At(now())).await.unwrap();
    assert_eq!((run.status, run.beside), (RunStatus::Succeeded, false));
    site
}

async fn append(site: &Site, from: usize) {
    site.append(&(from..from + EVENTS).collect::<Vec<_>>()).await;
}

async fn runs(site: &Site) -> Vec<RunRecord> {
    site.state().await.runs.clone()
}

async fn is_held(site: &Site, lease: &str) -> bool {
    site.state().await.leases.iter().any(|held| held.name == lease)
}

/// The states objects that are stored.
async fn states(site: &Site) -> BTreeSet<String> {
    site.harness.storage.list("states").await.unwrap().into_iter().map(|object| object.path).collect()
}

/// The files of snapshots that are stored and that the catalog does not name.
async fn unnamed(site: &Site) -> BTreeSet<String> {
    let state = site.state().await;
    let listed = site.harness.storage.list("snapshots").await.unwrap().into_iter().map(|object| object.path);
    listed.filter(|path| state.files.get(path).is_none()).collect()
}

fn full(requested: RunRecord) -> RunRequest {
    RunRequest { mode: RunMode::Full, requested: Some(requested), ..RunRequest::new("v", RunTime::At(now())) }
}

/// A recomputation that waits before it writes to a folder.
struct Recomputing {
    id: Uuid,
    gate: Arc<Gate>,
    run: JoinHandle<Result<RunRecord>>,
}

impl Recomputing {
    fn begin(site: &Site, before: &str) -> Recomputing {
        Self::begin_at(site, before, 0)
    }

    /// By a clock that is ahead.
    fn begin_at(site: &Site, before: &str, ahead: Micros) -> Recomputing {
        let requested = RunRecord::requested("v".into(), 1);
        let id = requested.id;
        let gate = Gate::before(site.harness.storage.object_store(), format!("snapshots/v/1/{id}/{before}").leak(), Way::Held);
        Self::begin_behind(site, gate, full(requested), ahead)
    }

    /// Behind a gate of its own.
    fn begin_behind(site: &Site, gate: Arc<Gate>, request: RunRequest, ahead: Micros) -> Recomputing {
        let id = request.requested.as_ref().unwrap().id;
        let mut batch = layer(site);
        batch.storage = ObjectStorage::over(gate.clone()).unwrap();
        let run = tokio::spawn(async move { batch.run(request, clock(ahead), &|_| {}).await });
        Recomputing { id, gate, run }
    }

    /// Waits until it has saved this many slices.
    async fn has_saved(&self, site: &Site, slices: usize) {
        until("slices to be saved", async || {
            let saved = runs(site).await.iter().find(|run| run.id == self.id).and_then(|run| run.draft.clone());
            saved.is_some_and(|draft| draft.events == (slices * EVENTS) as i64)
        })
        .await;
    }

    async fn end(self) -> RunRecord {
        self.gate.set(Way::Fine);
        self.run.await.unwrap().unwrap()
    }

    async fn fail(self) -> (Uuid, Error) {
        self.gate.set(Way::Fine);
        (self.id, self.run.await.unwrap().unwrap_err())
    }

    /// As when its process dies: nobody closes its record.
    async fn kill(self) {
        self.run.abort();
        let _ = self.run.await;
    }
}

fn layer(site: &Site) -> Batch {
    site.layer_in_slices(EVENTS)
}

async fn increment(site: &Site) -> RunRecord {
    site.harness.batch("v", RunTime::At(now())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn other_runs_go_on_while_one_recomputes() {
    for view in [COUNTS, LINKS] {
        let site = site(view).await;
        let recomputing = Recomputing::begin(&site, "slices/00003");
        recomputing.has_saved(&site, 3).await;
        for more in 1..3 {
            append(&site, 100 * more).await;
            let run = increment(&site).await;
            assert_eq!((run.status, run.strategy), (RunStatus::Succeeded, Some(Strategy::Incremental)));
            site.assert_proven("v").await;
            let of_full = runs(&site).await.into_iter().find(|run| run.id == recomputing.id).unwrap();
            assert_eq!((of_full.status, of_full.beside), (RunStatus::Running, true));
        }
        // What no run has read yet.
        append(&site, 300).await;
        let id = recomputing.id;
        let run = recomputing.end().await;
        assert_eq!((run.status, run.strategy, run.beside), (RunStatus::Succeeded, Some(Strategy::Full), false));
        assert_eq!(run.cut, Some(site.state().await.vector()), "it has all that was committed before it was published");
        let comparison = run.comparison.expect("it is compared with what the others kept");
        assert_eq!((comparison.differences, comparison.error), (0, None), "{:?}", comparison.first);
        assert!(comparison.rows > 0);
        assert_eq!(site.state().await.snapshot("v", 1).unwrap().run, id);
        site.assert_proven("v").await;
        assert_eq!(unnamed(&site).await, BTreeSet::new(), "it left nothing that its snapshot does not have");
        assert!(site.state().await.leases.iter().all(|lease| !lease.name.ends_with("v@1")), "{:?}", site.state().await.leases);

        // Others add to its snapshot.
        append(&site, 400).await;
        assert_eq!(increment(&site).await.strategy, Some(Strategy::Incremental));
        site.assert_proven("v").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time_recomputes_beside_others() {
    let site = site(COUNTS).await;
    let recomputing = Recomputing::begin_at(&site, "slices/00001", 2 * DAY);
    recomputing.has_saved(&site, 1).await;
    let request = RunRequest { mode: RunMode::Full, ..RunRequest::new("v", RunTime::At(now())) };
    let mut another = layer(&site);
    another.worker = "another".into();
    for refused in [&layer(&site), &another] {
        let error = refused.run(request.clone(), clock(2 * DAY), &|_| {}).await.unwrap_err();
        assert_eq!(error.to_string(), "version 1 of the view \"v\" is being recomputed already");
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }
    assert_eq!(runs(&site).await.len(), 2, "one that is refused has no record");
    assert!(!is_held(&site, &run_lease("v", 1)).await);
    // It is due by full_every, too, and adds to the snapshot instead.
    append(&site, 100).await;
    let later = RunRequest::new("v", RunTime::At(now()));
    let run = another.run(later, clock(2 * DAY), &|_| {}).await.unwrap();
    assert_eq!((run.status, run.strategy), (RunStatus::Succeeded, Some(Strategy::Incremental)));
    assert_eq!(recomputing.end().await.status, RunStatus::Succeeded);
    site.assert_proven("v").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_killed_is_gone_on_with_although_others_have_published() {
    for (view, at) in
        [(COUNTS, "slices/00003"), (LINKS, "slices/00003"), (COUNTS, "manifest.json"), (LINKS, "recomputed"), (LINKS, "manifest.json")]
    {
        let site = site(view).await;
        let recomputing = Recomputing::begin(&site, at);
        let slices = if at.starts_with("slices") { 3 } else { CHECKPOINTS };
        recomputing.has_saved(&site, slices).await;
        append(&site, 100).await;
        let id = recomputing.id;
        // Where it waits with the version's lease in hand, others wait for it.
        let is_alone = at == "manifest.json";
        if !is_alone {
            assert_eq!(increment(&site).await.strategy, Some(Strategy::Incremental));
        }
        tokio::time::sleep(Duration::from_millis(if is_alone { 500 } else { 0 })).await;
        recomputing.kill().await;
        // An hour later its leases have expired.
        let ahead = DAY / 24;
        let request = RunRequest { mode: RunMode::Full, ..RunRequest::new("v", RunTime::At(now())) };
        let run = layer(&site).run(request, clock(ahead), &|_| {}).await.unwrap();
        assert_eq!(run.draft.map(|draft| draft.resumed), Some((slices * EVENTS) as i64), "{at}");
        assert_eq!(run.comparison.map(|comparison| (comparison.differences, comparison.error)), Some((0, None)), "{at}");
        site.assert_proven("v").await;
        for (killed, commit) in catalog::abandoned(&*site.state().await, Uuid::now_v7, now() + ahead, |_| true) {
            assert_eq!(killed.id, id);
            site.harness.catalog.commit(commit).await.unwrap();
        }
        let (catalog, storage) = (&site.harness.catalog, &site.harness.storage);
        jobs::collect::collect_left_by_runs(catalog, storage, &clock(2 * ahead), &mut HashSet::new()).await.unwrap();
        assert_eq!(unnamed(&site).await, BTreeSet::new(), "{at}: what it left is deleted");
    }
}

/// Others have pruned tiles by then that it keeps.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_takes_hours_is_compared_as_of_its_end() {
    let hours = Arc::new(AtomicI64::new(0));
    let site = Site::with(&[("v", "CREATE VIEW v WITH (windows = '2h') AS SELECT k, count(*) AS n FROM s GROUP BY k")]).await;
    for checkpoint in 0..CHECKPOINTS {
        append(&site, checkpoint * EVENTS).await;
    }
    site.harness.batch("v", RunTime::At(now())).await.unwrap();
    let requested = RunRecord::requested("v".into(), 1);
    let folder = format!("snapshots/v/1/{}/slices/00003", requested.id).leak();
    let gate = Gate::before(site.harness.storage.object_store(), folder, Way::Held);
    let mut batch = layer(&site);
    batch.settings.lease = Duration::from_secs(48 * 3_600);
    batch.storage = ObjectStorage::over(gate.clone()).unwrap();
    let request = RunRequest { mode: RunMode::Full, requested: Some(requested.clone()), ..RunRequest::new("v", RunTime::At(now())) };
    let later = hours.clone();
    let passing: Clock = Arc::new(move || now() + later.load(Ordering::SeqCst) * (DAY / 24));
    let recomputing = Recomputing { id: requested.id, gate, run: tokio::spawn(async move { batch.run(request, passing, &|_| {}).await }) };
    recomputing.has_saved(&site, 3).await;
    hours.store(9, Ordering::SeqCst);
    append(&site, 100).await;
    let at = RunTime::At(now() + 9 * (DAY / 24));
    let run = layer(&site).run(RunRequest::new("v", at), clock(9 * (DAY / 24)), &|_| {}).await.unwrap();
    assert_eq!(run.status, RunStatus::Succeeded);
    let comparison = recomputing.end().await.comparison.expect("it is compared");
    assert_eq!((comparison.differences, comparison.error), (0, None), "{:?}", comparison.first);
}

/// Publishes the snapshot without what the last run added.
async fn leave_out_delta(site: &Site) {
    let before = site.state().await.snapshot("v", 1).unwrap().clone();
    let manifest = site.manifest("v").await;
    assert_eq!(manifest.deltas.len(), 1);
    let manifest = Manifest { run: Uuid::now_v7(), deltas: Vec::new(), ..manifest };
    let file = write_manifest(&site.harness.storage, &manifest).await.unwrap();
    let snapshot = SnapshotRecord { run: manifest.run, manifest: file.path.clone(), ..before };
    let commit = Commit { id: Uuid::now_v7(), add: vec![Add::File(file), Add::Snapshot(snapshot)], ..Commit::default() };
    site.harness.catalog.commit(commit).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_snapshot_is_found_although_others_added_to_it_meanwhile() {
    let site = site(COUNTS).await;
    site.append(&[102, 104]).await;
    increment(&site).await;
    leave_out_delta(&site).await;
    let recomputing = Recomputing::begin(&site, "slices/00003");
    recomputing.has_saved(&site, 3).await;
    append(&site, 200).await;
    assert_eq!(increment(&site).await.strategy, Some(Strategy::Incremental));
    append(&site, 300).await;
    let comparison = recomputing.end().await.comparison.unwrap();
    let keys: BTreeSet<&str> = comparison.first.iter().map(|difference| &*difference.key).collect();
    assert_eq!(keys, BTreeSet::from(["k=0"]), "{comparison:?}");
    site.assert_proven("v").await;
}

/// A recomputation that fails is not tried again at every due time: others add to the snapshot meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn after_one_that_failed_others_go_on_before_it_is_tried_again() {
    let site = site(COUNTS).await;
    let due = |ahead| (RunRequest::new("v", RunTime::At(now())), clock(ahead));
    let refusing = Gate::before(site.harness.storage.object_store(), "snapshots/v/1", Way::Refused);
    let mut batch = layer(&site);
    batch.storage = ObjectStorage::over(refusing).unwrap();
    let (request, late) = due(2 * DAY);
    batch.run(request, late, &|_| {}).await.unwrap_err();
    assert_eq!(runs(&site).await[0].strategy, Some(Strategy::Full), "full_every had passed");
    append(&site, 100).await;
    let (request, a_minute_later) = due(2 * DAY + 60_000_000);
    let run = layer(&site).run(request, a_minute_later, &|_| {}).await.unwrap();
    assert_eq!((run.status, run.strategy), (RunStatus::Succeeded, Some(Strategy::Incremental)));
    let (request, an_hour_later) = due(2 * DAY + DAY / 24);
    let run = layer(&site).run(request, an_hour_later, &|_| {}).await.unwrap();
    assert_eq!((run.status, run.strategy), (RunStatus::Succeeded, Some(Strategy::Full)));
    site.assert_proven("v").await;
}

/// Runs that others made meanwhile need nothing of the states since its cut any more.
#[tokio::test(flavor = "multi_thread")]
async fn the_states_that_the_last_step_reads_are_kept() {
    let site = site(COUNTS).await;
    let requested = RunRecord::requested("v".into(), 1);
    let reading = Gate::before(site.harness.storage.object_store(), "states", Way::Fine);
    let slices = format!("snapshots/v/1/{}/slices/00003", requested.id).leak();
    let gate = Gate::before(reading.clone(), slices, Way::Held);
    // A comparison would read them before.
    let recomputing = Recomputing::begin_behind(&site, gate, RunRequest { compare: false, ..full(requested) }, 0);
    recomputing.has_saved(&site, 3).await;
    let before = states(&site).await;
    append(&site, 100).await;
    let since: BTreeSet<String> = states(&site).await.difference(&before).cloned().collect();
    assert!(!since.is_empty());
    assert_eq!(increment(&site).await.status, RunStatus::Succeeded);
    reading.set(Way::Unread);
    recomputing.gate.set(Way::Fine);
    until("the last step to begin", async || runs(&site).await.iter().any(|run| run.id == recomputing.id && !run.beside)).await;
    // The first round marks, the second deletes.
    for _ in 0..2 {
        let (catalog, storage, functions) = (&site.harness.catalog, &site.harness.storage, &site.harness.functions);
        jobs::collect::collect(catalog, storage, functions, &clock(0), false).await.unwrap();
    }
    assert_eq!(states(&site).await, since, "those before its cut are of no use to anyone");
    reading.set(Way::Fine);
    assert_eq!(recomputing.end().await.status, RunStatus::Succeeded);
    assert!(site.state().await.damages.is_empty());
    site.assert_proven("v").await;
}

/// Where runs follow each other closely, it would hardly ever find their lease free.
#[tokio::test(flavor = "multi_thread")]
async fn no_run_begins_before_one_that_waits_to_add_the_rest() {
    let site = site(COUNTS).await;
    let recomputing = Recomputing::begin(&site, "slices/00003");
    recomputing.has_saved(&site, 3).await;
    append(&site, 100).await;
    let gate = Gate::before(site.harness.storage.object_store(), "snapshots/v/1", Way::Held);
    let mut batch = layer(&site);
    batch.storage = ObjectStorage::over(gate.clone()).unwrap();
    let other = tokio::spawn(async move { batch.run(RunRequest::new("v", RunTime::At(now())), clock(0), &|_| {}).await });
    until("another run to begin", async || is_held(&site, &run_lease("v", 1)).await).await;
    recomputing.gate.set(Way::Fine);
    until("the recomputation to wait for it", async || is_held(&site, &waiting_lease("v", 1)).await).await;
    gate.set(Way::Fine);
    assert_eq!(other.await.unwrap().unwrap().status, RunStatus::Succeeded);
    assert_eq!(recomputing.end().await.status, RunStatus::Succeeded);
    for lease in [run_lease("v", 1), recompute_lease("v", 1), waiting_lease("v", 1)] {
        assert!(!is_held(&site, &lease).await, "{lease}");
    }
    site.assert_proven("v").await;

    append(&site, 200).await;
    let (catalog, minute) = (&site.harness.catalog, Duration::from_secs(60));
    let waits = catalog.acquire_lease(&waiting_lease("v", 1), "another", minute, now(), None).await.unwrap().unwrap();
    let error = site.harness.batch("v", RunTime::At(now())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    // It died, and its lease has expired.
    let run = layer(&site).run(RunRequest::new("v", RunTime::At(now())), clock(DAY / 24), &|_| {}).await.unwrap();
    assert_eq!(run.status, RunStatus::Succeeded);
    catalog.release_lease(&waits).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_step_joins_the_keys_that_changed_meanwhile() {
    let site = site(LINKS).await;
    let recomputing = Recomputing::begin(&site, "slices/00003");
    recomputing.has_saved(&site, 3).await;
    site.append(&[102, 104]).await;
    let run = recomputing.end().await;
    assert_eq!(run.status, RunStatus::Succeeded);
    let manifest = site.manifest("v").await;
    let joined = manifest.joined.unwrap();
    assert_eq!((manifest.run, joined.rows, joined.carried), (run.id, 2, 1), "nothing of k = 1 is new");
    site.assert_proven("v").await;
    assert_eq!(unnamed(&site).await, BTreeSet::new());
}

/// Whether or not another run has recomputed for the same reason. No run of the view waits until all is recomputed.
#[tokio::test(flavor = "multi_thread")]
async fn one_whose_events_were_given_up_meanwhile_fails() {
    for by_another in [false, true] {
        let site = site(COUNTS).await;
        let recomputing = Recomputing::begin(&site, "slices/00003");
        recomputing.has_saved(&site, 3).await;
        let read = site.state().await.vector();
        let partition = read.iter().find(|(_, end)| *end > Offset::ZERO).unwrap().0.clone();
        let gap = GapRecord { partition, start: Offset(0), end: Offset(1), reason: "lost".into(), accepted_at: 0 };
        let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Gap(gap)], ..Commit::default() };
        site.harness.catalog.commit(commit).await.unwrap();
        if by_another {
            assert_eq!(increment(&site).await.strategy, Some(Strategy::Full));
        }
        append(&site, 100).await;
        let before = site.state().await.snapshot("v", 1).unwrap().run;
        let (id, error) = recomputing.fail().await;
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(
            error.to_string().starts_with("what was recomputed is out of date: events that the snapshot may hold were given up"),
            "{error}"
        );
        assert_eq!(site.state().await.snapshot("v", 1).unwrap().run, before);
        assert_eq!(runs(&site).await.iter().find(|run| run.id == id).unwrap().status, RunStatus::Failed);
        // The next run recomputes what the snapshot that is served may hold.
        let expected = if by_another { Strategy::Incremental } else { Strategy::Full };
        assert_eq!(increment(&site).await.strategy, Some(expected));
        append(&site, 200).await;
        assert_eq!(increment(&site).await.strategy, Some(Strategy::Incremental), "its snapshot knows of the gap");
    }
}

/// Other runs wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_step_has_as_much_time_as_the_views_timeout() {
    let timeout = COUNTS.replace("full_every", "timeout = '10s', full_every");
    let site = site(&timeout).await;
    let requested = RunRecord::requested("v".into(), 1);
    let in_folder = |name: &str| -> &'static str { format!("snapshots/v/1/{}/{name}", requested.id).leak() };
    // Of the buckets, only what is added has no folder of its own.
    let adding = Gate::before(site.harness.storage.object_store(), in_folder("0"), Way::Held);
    let gate = Gate::before(adding, in_folder("slices/00003"), Way::Held);
    let recomputing = Recomputing::begin_behind(&site, gate, RunRequest { compare: false, ..full(requested) }, 0);
    recomputing.has_saved(&site, 3).await;
    append(&site, 100).await;
    let (id, error) = tokio::time::timeout(Duration::from_secs(100), recomputing.fail()).await.expect("timed out: it goes on");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let failed = runs(&site).await.into_iter().find(|run| run.id == id).unwrap();
    assert_eq!(failed.status, RunStatus::Failed);
    assert!(failed.error.as_ref().unwrap().starts_with("timed out after 10s: "), "{failed:?}");
    assert!(!is_held(&site, &run_lease("v", 1)).await);
    assert_eq!(increment(&site).await.strategy, Some(Strategy::Incremental));
    site.assert_proven("v").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_has_saved_is_not_taken_from_it() {
    let site = site(COUNTS).await;
    let recomputing = Recomputing::begin(&site, "slices/00003");
    recomputing.has_saved(&site, 3).await;
    let path = site.manifest("v").await.state_files().next().unwrap().path.clone();
    let damage = DamageRecord { path, error: "damaged by a test".into(), found_by: "test".into(), found_at: now() };
    let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Damage(damage)], ..Commit::default() };
    site.harness.catalog.commit(commit).await.unwrap();
    // Nothing can be added to the snapshot: another run recomputes it as well.
    let another = layer(&site).run(RunRequest::new("v", RunTime::At(now())), clock(0), &|_| {}).await.unwrap();
    assert_eq!(another.strategy, Some(Strategy::Full));
    let comparison = recomputing.end().await.comparison.unwrap();
    assert_eq!((comparison.differences, comparison.error), (0, None), "{:?}", comparison.first);
    site.assert_proven("v").await;
    assert_eq!(unnamed(&site).await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_version_is_dropped_meanwhile_publishes_nothing() {
    let site = site(COUNTS).await;
    let recomputing = Recomputing::begin(&site, "slices/00003");
    recomputing.has_saved(&site, 3).await;
    let state = site.state().await;
    let before = state.snapshot("v", 1).unwrap().run;
    let dropped = versions_commit(&state, Uuid::now_v7(), drop_versions(&state, "v", None, now()));
    site.harness.catalog.commit(dropped).await.unwrap();
    recomputing.gate.set(Way::Fine);
    let error = recomputing.run.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(runs(&site).await.iter().find(|run| run.id == recomputing.id).unwrap().status, RunStatus::Dropped);
    assert_eq!(site.state().await.snapshot("v", 1).unwrap().run, before);
}
