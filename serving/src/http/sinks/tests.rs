use std::future::ready;
use std::sync::Mutex;
use std::thread;

use catalog::DefinitionKind;
use engine::parameters::UsedParameters;
use feed::DecisionListener;
use futures::future::BoxFuture;
use types::vector::{Offset, PartitionId};

use super::*;
use crate::harness::{Harness, event};
use crate::http::tests::Client;
use crate::scoring::Scored;

/// Leaves every event out, and notes on which threads it is asked to append.
#[derive(Default)]
struct ThreadNotingScorer {
    threads: Mutex<Vec<String>>,
}

impl Scorer for ThreadNotingScorer {
    fn score<'a>(&'a self, _: &'a ReadView, _: &'a LiveSink, _: &'a NewRecord) -> BoxFuture<'a, Result<Scored>> {
        Box::pin(ready(Err(Error::internal("only stored events are scored here"))))
    }

    fn listen<'a>(&'a self, _: &'a LiveSink) -> BoxFuture<'a, Result<Vec<DecisionListener>>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    fn append<'a>(&'a self, _: &'a LiveSink, _: NewRecord, _: Vec<DecisionListener>, _: Duration) -> BoxFuture<'a, Result<StoredEvent>> {
        self.threads.lock().unwrap().push(thread::current().name().unwrap_or_default().to_owned());
        Box::pin(ready(Ok(StoredEvent {
            partition: PartitionId::new("payments", 0),
            offset: Offset(0),
            version: 1,
            parameters: UsedParameters::new(),
            outcome: Some(EventOutcome::Filtered),
            first: None,
        })))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_event_that_is_stored_does_not_wait_for_the_threads_for_longer_queries() {
    let harness = Harness::filled().await;
    harness.define(DefinitionKind::Sink, "scored", "CREATE SINK scored WITH (topic = 'scored') AS SELECT p.id FROM payments p").await;
    let node = harness.node.clone();
    let scorer = Arc::new(ThreadNotingScorer::default());
    node.attach_scorer(scorer.clone());
    let client = Client::of_node(harness, node).await;
    let long = "ok".repeat(SHORT_EVENT_BYTES);
    for status in ["ok", &long] {
        let reply = client.post("/v1/sinks/scored?store=true", &event("e1", "2026-03-01T00:00:00Z", "d", "1", status)).await;
        assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("filtered")), "{}", reply.head);
    }
    let threads = scorer.threads.lock().unwrap();
    assert_eq!(threads.iter().map(|thread| thread == "queries").collect::<Vec<_>>(), [false, true]);
}
