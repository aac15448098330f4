use std::future::ready;
use std::sync::Mutex;
use std::thread;

use access::{Authenticator, Keyring, NewToken, new_token};
use catalog::{DefinitionKind, Role};
use feed::DecisionListener;
use futures::future::BoxFuture;
use types::vector::{Offset, PartitionId};

use super::*;
use crate::harness::{Harness, NOW, event};
use crate::http::Protection;
use crate::http::tests::{Client, Reply};
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

const SCORED: &str = "CREATE SINK scored WITH (topic = 'scored') AS SELECT p.id FROM payments p";

#[tokio::test(flavor = "multi_thread")]
async fn a_short_event_that_is_stored_does_not_wait_for_the_threads_for_longer_queries() {
    let harness = Harness::filled().await;
    harness.define(DefinitionKind::Sink, "scored", SCORED).await;
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

/// A node whose workers are in another process, and make the records by this version of the sink.
struct ScorerElsewhere {
    are_unreached: bool,
    version: u32,
    /// How long they take to listen.
    listening: Duration,
    /// How long it was asked to wait for a record.
    within: Mutex<Option<Duration>>,
}

impl ScorerElsewhere {
    fn new() -> ScorerElsewhere {
        ScorerElsewhere { are_unreached: false, version: 1, listening: Duration::ZERO, within: Mutex::default() }
    }
}

impl Scorer for ScorerElsewhere {
    fn score<'a>(&'a self, _: &'a ReadView, _: &'a LiveSink, _: &'a NewRecord) -> BoxFuture<'a, Result<Scored>> {
        Box::pin(ready(Err(Error::internal("only stored events are scored here"))))
    }

    fn listen<'a>(&'a self, _: &'a LiveSink) -> BoxFuture<'a, Result<Vec<DecisionListener>>> {
        let unreached = || {
            let refused = Error::forbidden("\"node\" may not read the process").with("worker", "w1");
            Error::unavailable("only 1 of the partitions").caused_by(refused).with("help", "send it elsewhere")
        };
        Box::pin(async move {
            tokio::time::sleep(self.listening).await;
            if self.are_unreached { Err(unreached()) } else { Ok(Vec::new()) }
        })
    }

    fn append<'a>(
        &'a self,
        _: &'a LiveSink,
        _: NewRecord,
        _: Vec<DecisionListener>,
        within: Duration,
    ) -> BoxFuture<'a, Result<StoredEvent>> {
        *self.within.lock().unwrap() = Some(within);
        Box::pin(ready(Ok(StoredEvent {
            partition: PartitionId::new("payments", 0),
            offset: Offset(0),
            version: self.version,
            parameters: UsedParameters::from([("most".into(), 1)]),
            outcome: Some(EventOutcome::Scored(Bytes::from_static(b"{\"id\":\"e1\"}"))),
            first: None,
        })))
    }
}

/// Requires a token.
struct SinkServer {
    client: Client,
    keyring: Keyring,
}

impl SinkServer {
    async fn new(scorer: Arc<dyn Scorer>) -> SinkServer {
        let harness = Harness::filled().await;
        harness.define(DefinitionKind::Sink, "scored", SCORED).await;
        let node = harness.node.clone();
        node.attach_scorer(scorer);
        let keyring = Keyring::new().unwrap();
        let authenticator = Authenticator { is_required: true, keyring: keyring.clone(), issuer: None, clock: Arc::new(|| NOW) };
        let protection = Protection { authenticator, public: Arc::default(), tls: None, hosts: Arc::default() };
        SinkServer { client: Client::protected(harness, node, protection).await, keyring }
    }

    /// Stores an event by a token of this role.
    async fn store(&self, role: Role) -> Reply {
        self.store_at("/v1/sinks/scored?store=true", role).await
    }

    async fn store_at(&self, path: &str, role: Role) -> Reply {
        let (views, streams, created_by) = (Vec::new(), Vec::new(), "tests".to_owned());
        let (text, record) = new_token(NewToken { name: "ann".to_owned(), role, views, streams, created_by, expires_at: None }, 0).unwrap();
        self.keyring.set(vec![record]);
        let (headers, body) = (format!("authorization: Bearer {text}\r\n"), event("e1", "2026-03-01T00:00:00Z", "d", "1", "ok"));
        self.client.send("POST", path, &headers, body.as_bytes()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn which_workers_are_not_reached_is_for_those_who_may_read_the_process() {
    let server = SinkServer::new(Arc::new(ScorerElsewhere { are_unreached: true, ..ScorerElsewhere::new() })).await;
    for (role, expected) in [
        (Role::Admin, "only 1 of the partitions: \"node\" may not read the process (worker: w1)"),
        (Role::Writer, "only 1 of the partitions"),
    ] {
        let reply = server.store(role).await;
        assert_eq!(reply.problem(), (503, expected.to_owned()), "{role}");
        assert_eq!(reply.json()["help"], "send it elsewhere");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_another_version_of_the_sink_is_for_those_who_may_read_everything() {
    for version in [1, 2] {
        let server = SinkServer::new(Arc::new(ScorerElsewhere { version, ..ScorerElsewhere::new() })).await;
        let meta = json!({ "sink": format!("scored@{version}"), "parameters": { "most": 1 } });
        let scored = json!({ "status": "scored", "row": { "id": "e1" }, "meta": meta });
        let unknown = json!({ "status": "unknown", "row": null, "meta": { "sink": "scored@2" } });
        for (role, expected) in [(Role::Admin, &scored), (Role::Writer, if version == 1 { &scored } else { &unknown })] {
            let mut answer = server.store(role).await.json();
            let position = answer.as_object_mut().unwrap().remove("position");
            assert!(position.is_some(), "{role}, version {version}: {answer}");
            assert_eq!(answer, *expected, "{role}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_waited_for_no_longer_than_is_left_once_the_workers_listen() {
    let listening = Duration::from_millis(20);
    let scorer = Arc::new(ScorerElsewhere { listening, ..ScorerElsewhere::new() });
    let server = SinkServer::new(scorer.clone()).await;
    for (milliseconds, most) in [(25_000, MOST_PATIENCE - listening), (100, Duration::from_millis(100))] {
        let reply = server.store_at(&format!("/v1/sinks/scored?store=true&timeout_ms={milliseconds}"), Role::Admin).await;
        assert_eq!(reply.status, 200, "{}", reply.head);
        let within = scorer.within.lock().unwrap().take().unwrap();
        assert!(within <= most, "{within:?} of {milliseconds} ms");
    }
}
