//! Events that are scored and stored at nodes whose own workers do not have all partitions: the workers of other
//! processes say what became of them, whichever process dies meanwhile.

use access::Authenticator;
use basestream_tests::{Harness, until};
use bytes::Bytes;
use feed::{Credentials, DecisionListener, LinkState, Offer};
use serving::{EventOutcome, FollowSettings, Node, Scorer, StoredEvent};
use speed::Registration;
use tokio::task::JoinSet;
use types::ErrorKind;

use super::*;

const PATIENCE: Duration = Duration::from_secs(120);
/// For the record of an event.
const WITHIN: Duration = Duration::from_secs(10);

/// A process of a fleet: a node that follows the workers of the others, and maybe a worker of its own.
struct Member {
    node: Node,
    sinks: Sinks,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Member {
    /// With a worker, which offers what it has to the others.
    async fn with_worker(harness: &Harness, test_log: &TestLog, name: &str, log: Arc<dyn Log>) -> Member {
        let clock: Clock = Arc::new(now);
        let bound = feed::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = format!("http://{}", bound.address);
        let registration = Registration::begin(&harness.catalog, name, &address, clock.clone()).await.unwrap();
        let fresh = Fresh::default();
        let mut member = Member::start(harness, test_log, log.clone(), fresh.clone(), Some(name.to_owned())).await;
        let authenticator = Authenticator::open(clock.clone()).unwrap();
        let (decisions, overtaken) = (Arc::new(member.sinks.clone()), registration.overtaken());
        let offer = Offer { fresh: fresh.clone(), decisions: Some(decisions), authenticator, tls: None, clock, overtaken };
        let (feeding, stop) = (member.stop.clone(), member.stop.clone());
        let mut speed = harness.speed(name, Duration::from_millis(150), Some(fresh.clone()));
        (speed.log, speed.settings.group) = (log, test_log.group());
        speed.sinks = Some(Arc::new(member.sinks.clone()));
        speed.registration = Some(registration.clone());
        member.tasks.spawn(async move { feed::serve(offer, bound, feeding).await.unwrap().unwrap() });
        let renewing = stop.clone();
        member.tasks.spawn(async move { registration.keep(&fresh, renewing).await.unwrap() });
        member.tasks.spawn(async move { speed.run(stop).await.unwrap() });
        member
    }

    /// Without a worker.
    async fn apart(harness: &Harness, test_log: &TestLog) -> Member {
        Member::start(harness, test_log, test_log.log().await, Fresh::default(), None).await
    }

    async fn start(harness: &Harness, test_log: &TestLog, log: Arc<dyn Log>, fresh: Fresh, own: Option<String>) -> Member {
        let node = harness.node(ServingClock::Event, Some(fresh)).await.unwrap();
        let settings = SinkSettings { group: test_log.group(), partitions: PARTITIONS, max_future: Duration::from_secs(600) };
        let sinks = Sinks::new(open_node(node.clone()), log, harness.catalog.clone(), harness.functions.clone(), settings);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let (running, of_node) = (node.clone(), stop.clone());
        tasks.spawn(async move { running.run(of_node).await });
        let (following, of_workers) = (node.clone(), stop.clone());
        let follow = FollowSettings { own, credentials: Credentials::default(), memory_bytes: usize::MAX };
        tasks.spawn(async move { following.follow_workers(follow, of_workers).await });
        Member { node, sinks, stop, tasks }
    }

    fn sink(&self) -> committed::registry::LiveSink {
        self.node.loaded().unwrap().registry.sinks[0].clone()
    }

    async fn follows(&self, workers: usize) {
        let followed = || self.node.workers().iter().filter(|link| link.state == LinkState::Followed).count();
        until("the workers that are followed", async || followed() == workers).await;
    }

    /// The listeners, once all partitions are reached.
    async fn listen(&self) -> Vec<DecisionListener> {
        let began = Instant::now();
        loop {
            match self.sinks.listen(&self.sink()).await {
                Ok(listeners) => return listeners,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable), "{error}");
                    assert!(began.elapsed() < PATIENCE, "timed out: {error}");
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn store(&self, event: &NewRecord) -> StoredEvent {
        let listeners = self.listen().await;
        self.sinks.append(&self.sink(), event.clone(), listeners, WITHIN).await.unwrap()
    }

    /// As if the process had died. What it served is no longer reached.
    async fn kill(mut self) {
        self.tasks.shutdown().await;
        self.stop.cancel();
    }

    async fn finish(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

fn record(key: &str, id: &str) -> NewRecord {
    let value = json!({ "id": id, "ts": BEGIN, "k": key, "u": format!("{key}-u"), "x": 1 }).to_string();
    NewRecord { key: Some(Bytes::from(key.to_owned())), value: Some(value.into()), ..NewRecord::default() }
}

fn row(outcome: Option<&EventOutcome>) -> Value {
    let row = outcome.and_then(EventOutcome::row).unwrap_or_else(|| panic!("no record: {outcome:?}"));
    serde_json::from_slice(row).unwrap()
}

/// Until each of two workers has one of the two partitions.
async fn shared_out(first: &Member, second: &Member) {
    until("a partition for each", async || {
        let (of_first, of_second) = (first.sinks.listen(&first.sink()).await, second.sinks.listen(&second.sink()).await);
        let is_one = |listeners: &Result<Vec<DecisionListener>>| matches!(listeners.as_deref(), Ok([other]) if other.partitions.len() == 1);
        is_one(&of_first) && is_one(&of_second)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_stored_and_scored_at_every_node_whichever_process_has_their_partition() {
    show_logs();
    let (harness, test_log) = project_of(PARTITIONS, &AFTER).await;
    let first = Member::with_worker(&harness, &test_log, "first", test_log.log().await).await;
    let second = Member::with_worker(&harness, &test_log, "second", test_log.log().await).await;
    let apart = Member::apart(&harness, &test_log).await;
    first.follows(1).await;
    second.follows(1).await;
    apart.follows(2).await;
    shared_out(&first, &second).await;
    let (mut reported, mut scored_at, mut known_at) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    let (members, began) = ([&apart, &first, &second], Instant::now());
    // A worker that is slow to renew its lease loses its partitions for a while. What becomes of some events is then
    // not known.
    for number in 0.. {
        assert!(began.elapsed() < PATIENCE, "timed out: by member and partition: scored {scored_at:?}, known {known_at:?}");
        let (at, key, id) = (number % 3, format!("k{}", number % 16), format!("e{number}"));
        let event = record(&key, &id);
        let stored = members[at].store(&event).await;
        let (partition, outcome) = (stored.partition.partition, stored.outcome);
        let made = match &outcome {
            Some(EventOutcome::Scored(_)) => row(outcome.as_ref()),
            Some(EventOutcome::Unknown) | None => continue,
            other => panic!("{id}: {other:?}"),
        };
        assert_eq!((&made["id"], &made["n_1h"]), (&json!(id), &json!(number / 16 + 1)), "{made}");
        scored_at.insert((at, partition));
        // Whoever stored the event knows its record.
        let again = members[at].store(&event).await;
        assert!(matches!(again.outcome, Some(EventOutcome::Duplicate) | None), "{id}: {again:?}");
        if let Some(first) = &again.first {
            assert_eq!((first.offset, row(Some(&first.outcome))), (stored.offset, made.clone()), "{id}");
            known_at.insert((at, partition));
        }
        reported.insert((partition, stored.offset.0), made);
        if scored_at.len() == 6 && known_at.len() == 6 {
            break;
        }
    }
    let out = put_out(&harness, &test_log, INCLUSIVE).await;
    for (event, made) in &reported {
        assert_eq!(out.get(event), Some(made), "{event:?}");
    }
    for member in [apart, first, second] {
        member.finish().await;
    }
    // Without workers nothing is stored.
    let alone = Member::apart(&harness, &test_log).await;
    let refused = alone.sinks.listen(&alone.sink()).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Conflict && refused.to_string().contains("have only 0 of the partitions"), "{refused}");
    alone.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_owner_dies_before_it_is_decided_has_no_wrong_outcome_and_is_stored_once() {
    show_logs();
    let (harness, test_log) = project_of(PARTITIONS, &AFTER).await;
    // No record of the first owner reaches the log.
    let append = Arc::new(|_: &str| Append { is_lost: true, ..Append::default() });
    let failing = Arc::new(Flaky { log: test_log.log().await, append, failed: Arc::default() });
    let owner = Member::with_worker(&harness, &test_log, "owner", failing).await;
    let apart = Member::apart(&harness, &test_log).await;
    apart.follows(1).await;
    let event = record("k1", "e1");
    let listeners = apart.listen().await;
    assert_eq!(listeners.len(), 1);
    let (sinks, sink, asked) = (apart.sinks.clone(), apart.sink(), event.clone());
    let answer = tokio::spawn(async move { sinks.append(&sink, asked, listeners, WITHIN).await });
    let topic = test_log.topic("in");
    let stored = async || harness.log.bounds(&topic).await.unwrap().iter().map(|bounds| bounds.end.0).sum::<i64>();
    until("the event in the log", async || stored().await == 1).await;
    owner.kill().await;
    let answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.outcome, None, "nobody decided it");
    assert_eq!((&*answer.partition.stream, answer.offset, stored().await), ("s", Offset(0), 1));

    // The next owner makes the record, and the event that is sent again is a duplicate.
    let next = Member::with_worker(&harness, &test_log, "next", test_log.log().await).await;
    until("the duplicate", async || apart.store(&event).await.outcome == Some(EventOutcome::Duplicate)).await;
    let made = put_out(&harness, &test_log, INCLUSIVE).await;
    assert_eq!(made.keys().collect::<Vec<_>>(), [&(answer.partition.partition, 0)]);
    next.finish().await;
    apart.finish().await;
}
