//! Recomputations that read the archive in slices and end before they are done: the next one goes on where they were.

use std::collections::HashSet;
use std::time::Duration;

use basestream_tests::gate::{Gate, Way};
use basestream_tests::{now, until};
use batch::{Batch, RunMode, RunRequest, RunTime};
use catalog::{RunRecord, RunStatus};
use storage::ObjectStorage;
use tokio_util::sync::CancellationToken;
use types::tiles::Micros;
use types::{ErrorKind, Result, Strategy};

use crate::site::{DAY, Site, clock};
use crate::{rows, table};

const COUNTS: &str =
    "CREATE VIEW v WITH (windows = '30d') AS SELECT k, count(*) AS n, array_agg(id ORDER BY ts, id) AS ids FROM s GROUP BY k";
const LINKS: &str = "CREATE VIEW v WITH (windows = '9d') AS
    SELECT a.k, count(DISTINCT b.id) AS n FROM s a JOIN s b ON a.k = b.k WHERE a.id <> b.id GROUP BY a.k";
/// Each checkpoint has a slice of its own.
const CHECKPOINTS: usize = 6;
const EVENTS: usize = 10;
const HOUR: Micros = DAY / 24;

async fn site(view: &str) -> Site {
    let site = Site::with(&[("v", view)]).await;
    for checkpoint in 0..CHECKPOINTS {
        site.append(&(checkpoint * EVENTS..(checkpoint + 1) * EVENTS).collect::<Vec<_>>()).await;
    }
    site
}

fn layer(site: &Site) -> Batch {
    site.layer_in_slices(EVENTS)
}

fn recompute() -> RunRequest {
    RunRequest { mode: RunMode::Full, ..RunRequest::new("v", RunTime::At(now())) }
}

/// A run whose storage ends at this slice in some way.
struct Ending {
    request: RunRequest,
    batch: Batch,
}

impl Ending {
    fn at(site: &Site, slice: u32, way: Way) -> Ending {
        let run = RunRecord::requested("v".into(), 1);
        let folder = format!("snapshots/v/1/{}/slices/{slice:05}", run.id).leak();
        let mut batch = layer(site);
        batch.storage = ObjectStorage::over(Gate::before(site.harness.storage.object_store(), folder, way)).unwrap();
        Ending { request: RunRequest { requested: Some(run), ..recompute() }, batch }
    }

    async fn fail(self) -> RunRecord {
        let (id, catalog) = (self.request.requested.as_ref().unwrap().id, self.batch.catalog.clone());
        self.batch.run(self.request, clock(0), &|_| {}).await.unwrap_err();
        let state = catalog.state().await.unwrap();
        state.runs.iter().find(|run| run.id == id).unwrap().clone()
    }
}

/// Runs to the end, and returns the record and how many bytes of the archive were read.
async fn finish(site: &Site, ahead: Micros) -> Result<(RunRecord, u64)> {
    let gate = Gate::before(site.harness.storage.object_store(), "archive/", Way::Fine);
    let mut batch = layer(site);
    batch.storage = ObjectStorage::over(gate.clone()).unwrap();
    let run = batch.run(recompute(), clock(ahead), &|_| {}).await?;
    Ok((run, gate.take_read_bytes()))
}

async fn slices_left(site: &Site) -> Vec<String> {
    let listed = site.harness.storage.list("snapshots").await.unwrap();
    listed.into_iter().map(|object| object.path).filter(|path| path.contains("/slices/")).collect()
}

/// A file of states that a run saved.
async fn file_of(site: &Site, run: &RunRecord) -> String {
    let is_of_run = |path: &String| path.contains(&run.id.to_string()) && path.ends_with(".parquet");
    slices_left(site).await.into_iter().find(is_of_run).unwrap()
}

/// Everything the collector does, a while after the last run ended.
async fn collect(site: &Site, ahead: Micros) {
    let (catalog, storage) = (&site.harness.catalog, &site.harness.storage);
    site.harness.collect().await.unwrap();
    jobs::collect::collect_left_by_runs(catalog, storage, &clock(ahead), &mut HashSet::new()).await.unwrap();
    jobs::collect::collect_orphans(catalog, storage, &clock(ahead)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_is_gone_on_with_and_no_event_is_read_twice() {
    for view in [COUNTS, LINKS] {
        let site = site(view).await;
        let (whole, all) = finish(&site, 0).await.unwrap();
        let expected = table(&site.node().await, "v");
        assert_eq!((whole.strategy, whole.events_read), (Some(Strategy::Full), (CHECKPOINTS * EVENTS) as i64));
        assert_eq!(slices_left(&site).await, [""; 0], "what was saved goes once the snapshot is published");

        let failed = Ending::at(&site, 4, Way::Refused).fail().await;
        let draft = failed.draft.expect("slices 0 to 3 were saved");
        assert_eq!((failed.status, failed.strategy), (RunStatus::Failed, Some(Strategy::Full)));
        assert_eq!((draft.events, draft.resumed), (4 * EVENTS as i64, 0));
        collect(&site, HOUR).await;

        let planned = layer(&site).plan("v", recompute().t, (RunMode::Full, true), now()).await.unwrap();
        assert_eq!((planned.events, planned.resumed), ((CHECKPOINTS * EVENTS) as i64, draft.events), "a dry run tells it");

        // It fails once more, further on.
        let failed = Ending::at(&site, 5, Way::Refused).fail().await;
        let draft = failed.draft.unwrap();
        assert_eq!((draft.events, draft.resumed), (5 * EVENTS as i64, 4 * EVENTS as i64));
        collect(&site, HOUR).await;
        // What came meanwhile, and what was compacted, changes nothing of that.
        site.append(&(0..EVENTS).map(|id| 900 + id).collect::<Vec<_>>()).await;

        let (run, read) = finish(&site, 0).await.unwrap();
        assert_eq!((run.status, run.events_read), (RunStatus::Succeeded, ((CHECKPOINTS + 1) * EVENTS) as i64));
        assert!(read < all * 3 / 4, "{read} bytes of the archive were read, of {all} six slices have");
        let comparison = run.comparison.expect("it is compared with what runs had kept");
        assert_eq!((comparison.differences, comparison.error), (0, None), "{:?}", comparison.first);
        assert_ne!(table(&site.node().await, "v"), expected);
        site.assert_proven("v").await;
        assert_eq!(slices_left(&site).await, [""; 0]);
    }
}

/// As when its process dies: nobody closes its record.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_killed_is_gone_on_with() {
    let site = site(COUNTS).await;
    let ending = Ending::at(&site, 3, Way::Held);
    let (id, catalog) = (ending.request.requested.as_ref().unwrap().id, ending.batch.catalog.clone());
    let running = tokio::spawn(async move { ending.batch.run(ending.request, clock(0), &|_| {}).await });
    until("three slices to be saved", async || {
        let state = catalog.state().await.unwrap();
        let draft = state.runs.iter().find(|run| run.id == id).and_then(|run| run.draft.clone());
        draft.is_some_and(|draft| draft.events == 3 * EVENTS as i64)
    })
    .await;
    running.abort();
    let _ = running.await;
    collect(&site, 0).await;
    let (_, read) = finish(&site, HOUR).await.unwrap();
    site.assert_proven("v").await;
    let (_, all) = finish(&site, HOUR).await.unwrap();
    assert!(read < all * 3 / 4, "{read} of {all} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_that_are_compacted_meanwhile_are_read_from_where_the_slices_ended() {
    let site = site(COUNTS).await;
    finish(&site, 0).await.unwrap();
    Ending::at(&site, 3, Way::Refused).fail().await;
    site.harness.collect().await.unwrap();
    let compacted = site.harness.compact().await.unwrap();
    assert!(compacted.checkpoints > 0, "{compacted:?}");
    let (run, _) = finish(&site, 0).await.unwrap();
    assert_eq!(run.comparison.map(|comparison| comparison.differences), Some(0));
    site.assert_proven("v").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_saved_and_is_lost_or_damaged_is_computed_again() {
    let site = site(COUNTS).await;
    let (_, all) = finish(&site, 0).await.unwrap();

    let failed = Ending::at(&site, 3, Way::Refused).fail().await;
    let lost = file_of(&site, &failed).await;
    site.harness.storage.delete(&lost).await.unwrap();
    let (_, read) = finish(&site, 0).await.unwrap();
    assert_eq!(read, all, "a file is gone: the run begins anew");

    let failed = Ending::at(&site, 3, Way::Refused).fail().await;
    let damaged = file_of(&site, &failed).await;
    let path = site.harness.path().join("storage").join(&damaged);
    let mut content = std::fs::read(&path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(&path, content).unwrap();
    let error = finish(&site, 0).await.unwrap_err();
    assert_eq!((error.kind(), error.fact("file")), (ErrorKind::Corrupt, Some(&*damaged)), "{error}");
    let (_, read) = finish(&site, 0).await.unwrap();
    assert_eq!(read, all, "the next one begins anew");
    site.assert_proven("v").await;
}

/// As when the storage does not answer for a while, or the process is stopped early.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_before_it_has_read_what_was_saved_leaves_it_to_the_next() {
    let site = site(COUNTS).await;
    let (_, all) = finish(&site, 0).await.unwrap();
    let failed = Ending::at(&site, 4, Way::Refused).fail().await;
    let folder = format!("snapshots/v/1/{}/slices", failed.id).leak();
    let mut batch = layer(&site);
    batch.storage = ObjectStorage::over(Gate::before(site.harness.storage.object_store(), folder, Way::Unread)).unwrap();
    let stop = CancellationToken::new();
    let decided = async {
        // Long enough to begin to read what was saved.
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.cancel();
    };
    let running = batch.run_until(recompute(), clock(0), &|_| {}, stop.cancelled());
    let (ended, ()) = tokio::join!(running, decided);
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let (_, read) = finish(&site, 0).await.unwrap();
    assert!(read < all * 3 / 4, "{read} of {all} bytes");
}

/// A run whose clock was ahead prunes more than one with a right clock would.
#[tokio::test(flavor = "multi_thread")]
async fn slices_that_were_pruned_as_of_a_later_time_are_not_taken_for_whole() {
    const MINUTE: Micros = 60_000_000;
    let site = Site::with(&[("v", "CREATE VIEW v WITH (windows = '10m') AS SELECT k, count(*) AS n FROM s GROUP BY k")]).await;
    let at = engine::events::format_timestamp(now() - 5 * MINUTE);
    for checkpoint in 0..CHECKPOINTS {
        let event = |event: usize| (None, format!(r#"{{"id":"e{checkpoint} {event}","ts":"{at}","k":"a"}}"#));
        site.harness.append("s", 2, (0..EVENTS).map(event).collect()).await.unwrap();
        site.harness.commit_at_once("one", &[("s", "s")]).await.unwrap();
    }
    let mut ending = Ending::at(&site, 4, Way::Refused);
    ending.request.t = RunTime::At(now() + 9 * MINUTE);
    assert!(ending.fail().await.draft.is_some());
    let run = finish(&site, 0).await.unwrap().0;
    assert_eq!(run.status, RunStatus::Succeeded);
    let found = rows(&site.node().await, "SELECT k, n_10m FROM v").await;
    assert_eq!(found, [format!("a {}", CHECKPOINTS * EVENTS)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_goes_on_with_is_deleted_after_a_day() {
    let site = site(COUNTS).await;
    Ending::at(&site, 3, Way::Refused).fail().await;
    collect(&site, 23 * HOUR).await;
    assert!(!slices_left(&site).await.is_empty());
    collect(&site, 25 * HOUR).await;
    assert_eq!(slices_left(&site).await, [""; 0]);
    let (run, _) = finish(&site, 0).await.unwrap();
    assert_eq!(run.status, RunStatus::Succeeded);
    site.assert_proven("v").await;
}
