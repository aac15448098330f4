use std::path::Path;

use catalog::SinkClaim;
use engine::plan::planning_session;
use event_log::TopicPartition;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use types::vector::Offset;

use super::*;
use crate::harness::speed_layer;
use crate::sinks::Accepted;

/// Sinks whose log refuses the records that it was given.
struct RefusedSinks;

impl WorkerSinks for RefusedSinks {
    fn partitions_assigned(&mut self, _: &[TopicPartition]) {}

    fn make_records<'a>(&'a mut self, _: &'a Registry, _: Vec<Accepted>) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn begin_append(&mut self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn is_appending(&self) -> bool {
        true
    }

    fn appended(&mut self) -> BoxFuture<'_, Result<()>> {
        async { Err(Error::unavailable("refused")) }.boxed()
    }

    fn output_claims(&self) -> Vec<SinkClaim> {
        Vec::new()
    }

    fn switch_definitions<'a>(&'a mut self, _: &'a Registry, _: &'a [(TopicPartition, Offset)]) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn partitions_revoked(&mut self, _: &[TopicPartition]) {}

    fn take_stalls(&mut self) -> Vec<Stall> {
        Vec::new()
    }
}

struct Harness {
    speed: Speed,
    session: SessionContext,
}

impl Harness {
    async fn new(folder: &Path) -> Harness {
        let speed = speed_layer(folder).await;
        let session = planning_session(&speed.functions).unwrap();
        Harness { speed, session }
    }

    async fn worker(&self) -> Worker<'_> {
        let state = self.speed.catalog.state().await.unwrap();
        let registry = Registry::load(&state, &self.speed.functions).await.unwrap();
        let stop = CancellationToken::new();
        Worker::new(&self.speed, &self.session, (registry, state.revision), BTreeSet::new(), stop).await.unwrap()
    }
}

#[tokio::test]
async fn what_wakes_a_worker_does_not_put_off_its_look_at_definitions() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::new(folder.path()).await;
    let mut worker = harness.worker().await;
    worker.polled_at = Instant::now() - POLL_INTERVAL + Duration::from_millis(100);
    assert!(worker.next_wake() <= Duration::from_millis(100));
}

#[tokio::test]
async fn a_checkpoint_waits_for_the_records_that_the_log_is_appending() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::new(folder.path()).await;
    let mut worker = harness.worker().await;
    worker.sinks = Some(Box::new(RefusedSinks));
    assert_eq!(worker.checkpoint().await.unwrap_err().message(), "refused");
}

#[tokio::test]
async fn a_worker_ends_once_an_append_has_failed_though_no_event_comes() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::new(folder.path()).await;
    let mut worker = harness.worker().await;
    worker.sinks = Some(Box::new(RefusedSinks));
    let (_silent, events) = mpsc::channel(1);
    let ended = worker.run(Consumer { events, stop: CancellationToken::new() });
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
    assert_eq!(ended.unwrap_err().message(), "refused");
}
