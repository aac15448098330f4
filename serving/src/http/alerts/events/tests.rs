use std::pin::Pin;

use catalog::{Add, Catalog, Commit, DefinitionKind, Remove};
use futures::StreamExt;
use proptest::prelude::*;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use types::TransitionKind;

use super::super::recent::Room;
use super::super::subscriptions::Subscriptions;
use super::super::tests::{BUSY, Runner, harness, protected, remove};
use super::*;
use crate::harness::{Harness, NOW};
use crate::http::tests::Client;

const PATIENCE: Duration = Duration::from_secs(60);

/// One event as a client reads it.
#[derive(Debug, Default, Clone, PartialEq)]
struct Received {
    id: String,
    event: String,
    data: Option<Value>,
}

fn parsed(text: &str) -> Received {
    let mut received = Received::default();
    for line in text.lines() {
        match line.split_once(": ") {
            Some(("id", id)) => received.id = id.to_owned(),
            Some(("event", event)) => received.event = event.to_owned(),
            Some(("data", data)) => received.data = Some(serde_json::from_str(data).unwrap()),
            Some(("retry", _)) | None => {}
            Some(other) => panic!("{other:?}"),
        }
    }
    received
}

/// What follows the events of one subscriber.
struct Following {
    body: Pin<Box<dyn futures::Stream<Item = String> + Send>>,
    last: String,
}

impl Following {
    async fn begin(subscriptions: &Subscriptions, after: Option<&str>, alert: Option<&str>) -> Following {
        let caller = Caller { authenticator: Authenticator::open(Arc::new(|| NOW)).unwrap(), principal: Principal::anonymous() };
        let after = after.map(|after| after.parse().unwrap());
        let subscriber = Subscriber::new(subscriptions.subscribe().unwrap(), caller, alert.map(Arc::from), after).await.unwrap();
        let body = Sse::new(subscriber.events()).into_response().into_body().into_data_stream();
        let mut body = Box::pin(body.map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap()));
        // The id comes first.
        let last = parsed(&body.next().await.unwrap()).id;
        Following { body, last }
    }

    /// The next event that a client passes on.
    async fn next(&mut self) -> Received {
        let next = async {
            loop {
                let received = parsed(&self.body.next().await.expect("the events end"));
                self.last = received.id.clone();
                if received.data.is_some() {
                    break received;
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("timed out: no event comes")
    }

    /// The next events up to the one of this alert and number.
    async fn until(&mut self, last: &(String, i64)) -> Vec<(String, i64)> {
        let mut found = Vec::new();
        while found.last() != Some(last) {
            let received = self.next().await;
            assert_ne!(received.event, "reset", "{received:?}");
            found.push(named(&received));
        }
        found
    }
}

/// The alert and the number of a transition.
fn named(received: &Received) -> (String, i64) {
    let data = received.data.as_ref().unwrap();
    (data["alert"].as_str().unwrap().to_owned(), data["seq"].as_i64().unwrap())
}

fn subscriptions(harness: &Harness, events: usize) -> Subscriptions {
    Subscriptions::with_room(harness.node.clone(), CancellationToken::new(), Room { events, bytes: 1 << 20 })
}

#[derive(Debug, Clone)]
enum Step {
    /// A commit for one of the alerts, and its number of transitions.
    Commit(bool, usize),
    /// A subscriber, and the number of events that it takes.
    Take(usize, usize),
    /// A subscriber comes back with its last id.
    ComeBack(usize),
    Wait(u64),
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (any::<bool>(), 1usize..90).prop_map(|(alert, count)| Step::Commit(alert, count)),
        3 => (0usize..3, 1usize..70).prop_map(|(who, count)| Step::Take(who, count)),
        1 => (0usize..3).prop_map(Step::ComeBack),
        2 => (0u64..150).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 10..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// However transitions come, whoever reads how slowly and comes back how often, and how little is kept at hand:
    /// each subscriber gets each transition once, in the order of the commits.
    #[test]
    fn a_subscriber_gets_each_transition_once_and_in_order(steps in any_steps(), events in 1usize..200) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async move {
            let harness = harness().await;
            let subscriptions = subscriptions(&harness, events);
            let mut runner = Runner::default();
            let mut all: Vec<(String, i64)> = Vec::new();
            let mut next = [0, 0];
            let mut following = Vec::new();
            for _ in 0..3 {
                following.push((Following::begin(&subscriptions, None, None).await, Vec::new()));
            }
            for step in steps.into_iter().chain([Step::Commit(true, 1)]) {
                match step {
                    Step::Commit(second, count) => {
                        let alert = ["busy", "many"][usize::from(second)];
                        let keys: Vec<String> = (0..count).map(|key| format!("k{key}")).collect();
                        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                        runner.begin(&harness.catalog, alert, 1, &keys).await;
                        for _ in 0..count {
                            all.push((alert.to_owned(), next[usize::from(second)]));
                            next[usize::from(second)] += 1;
                        }
                    }
                    Step::Take(who, count) => {
                        let (of, received) = &mut following[who];
                        for _ in 0..count.min(all.len() - received.len()) {
                            received.push(named(&of.next().await));
                        }
                    }
                    Step::ComeBack(who) => {
                        let last = following[who].0.last.clone();
                        following[who].0 = Following::begin(&subscriptions, Some(&last), None).await;
                    }
                    Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                }
            }
            for (mut of, mut received) in following {
                received.extend(of.until(all.last().unwrap()).await);
                assert_eq!(received, all);
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_says_what_happened_to_which_key() {
    let harness = harness().await;
    let subscriptions = subscriptions(&harness, 10);
    let mut following = Following::begin(&subscriptions, None, None).await;
    let mut runner = Runner::default();
    let began = runner.begin(&harness.catalog, "busy", 1, &["a"]).await;
    let resolved = runner.commit(&harness.catalog, ("busy", 1), TransitionKind::Resolved, &["a"]).await;
    let first = following.next().await;
    assert_eq!((&*first.id, &*first.event), (&*format!("{began}.0"), "began"));
    let expected = json!({"alert": "busy", "version": 1, "seq": 0, "state": "began", "key": {"device": "a"},
        "since": "2026-03-02T12:00:00Z", "at": "2026-03-02T12:00:00.000001Z", "record": {"device": "a", "n_1h": 1, "_state": "began"}});
    assert_eq!(first.data, Some(expected));
    let second = following.next().await;
    assert_eq!((&*second.id, &*second.event, &second.data.unwrap()["record"]), (&*format!("{resolved}.1"), "resolved", &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_for_one_alert_gets_no_other_and_its_id_moves_all_the_same() {
    let harness = harness().await;
    let subscriptions = subscriptions(&harness, 10);
    let mut following = Following::begin(&subscriptions, None, Some("many")).await;
    let mut runner = Runner::default();
    runner.begin(&harness.catalog, "busy", 1, &["a"]).await;
    runner.begin(&harness.catalog, "many", 1, &["b"]).await;
    assert_eq!(named(&following.next().await), ("many".to_owned(), 0));
    let last = runner.begin(&harness.catalog, "busy", 1, &["c"]).await;
    // What is sent when nothing else is.
    tokio::time::timeout(PATIENCE, async {
        while following.last != last.to_string() {
            following.last = parsed(&following.body.next().await.unwrap()).id;
        }
    })
    .await
    .expect("timed out: the id does not move");
}

/// Deletes the first transition of an alert.
async fn forget(catalog: &Catalog, alert: &str) {
    let published = Add::AlertPublished { alert: alert.into(), version: 1, before: 1 };
    catalog.commit(Commit { add: vec![published], ..Commit::default() }).await.unwrap();
    let remove = vec![Remove::AlertTransitions { alert: alert.into(), version: 1, before: i64::MAX, most: 1 }];
    catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_further_behind_than_what_is_kept_is_told_to_begin_again_and_nobody_else() {
    let harness = harness().await;
    let subscriptions = subscriptions(&harness, 1);
    let mut runner = Runner::default();
    let before = harness.catalog.revision().await.unwrap();
    let first = runner.begin(&harness.catalog, "busy", 1, &["a"]).await;
    let second = runner.begin(&harness.catalog, "busy", 1, &["b"]).await;
    forget(&harness.catalog, "busy").await;
    let reset = Following::begin(&subscriptions, Some(&before.to_string()), None).await.next().await;
    let present = harness.catalog.revision().await.unwrap();
    assert_eq!((&*reset.event, &*reset.id), ("reset", &*present.to_string()));
    let data = reset.data.unwrap();
    assert_eq!((&data["found"], &data["continues_after"]), (&json!(before.to_string()), &json!(present.to_string())));
    assert_eq!(data["reason"], format!("transitions up to {first} are not kept any more, or an alert was replaced or dropped"));
    let whole = Following::begin(&subscriptions, Some(&first.to_string()), None).await.next().await;
    assert_eq!(whole.id, format!("{second}.1"));
    // A place that the catalog has not reached is one of another catalog.
    let reset = Following::begin(&subscriptions, Some(&(present + 5).to_string()), None).await.next().await;
    assert_eq!((&*reset.event, &*reset.id), ("reset", &*present.to_string()));
    assert_eq!(reset.data.unwrap()["reason"], "the catalog is not there yet: it is another one, or an earlier copy");
}

/// Nothing else says that the keys of a dropped alert are open no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_goes_is_a_reset_for_those_who_follow() {
    let harness = harness().await;
    let subscriptions = subscriptions(&harness, 10);
    let mut following = Following::begin(&subscriptions, None, None).await;
    let mut runner = Runner::default();
    runner.begin(&harness.catalog, "busy", 1, &["a"]).await;
    assert_eq!(following.next().await.event, "began");
    let removed = remove(&harness.catalog, "busy", 1).await;
    let reset = following.next().await;
    assert_eq!((&*reset.event, &*reset.id), ("reset", &*removed.to_string()));
    runner.begin(&harness.catalog, "many", 1, &["b"]).await;
    assert_eq!(named(&following.next().await), ("many".to_owned(), 0));
}

/// Who sees it follows from the alert's view, which the node does not know yet.
#[tokio::test(flavor = "multi_thread")]
async fn an_alert_that_the_node_does_not_know_yet_is_waited_for() {
    let harness = harness().await;
    let subscriptions = subscriptions(&harness, 10);
    let mut following = Following::begin(&subscriptions, None, None).await;
    let mut runner = Runner::default();
    // Defined, and run by a process that knows it: this node has not looked yet.
    runner.begin(&harness.catalog, "later", 1, &["a"]).await;
    assert!(tokio::time::timeout(Duration::from_millis(500), following.next()).await.is_err());
    harness.define(DefinitionKind::Alert, "later", &BUSY.replace("busy", "later")).await;
    assert_eq!(named(&following.next().await), ("later".to_owned(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_subscribers_than_may_be_and_one_poller_while_there_are_any() {
    let harness = harness().await;
    let subscriptions = subscriptions(&harness, 10);
    let mut all: Vec<AlertSubscription> = (0..256).map(|_| subscriptions.subscribe().unwrap()).collect();
    let refused = subscriptions.subscribe().err().unwrap();
    assert_eq!((refused.kind(), refused.fact("most")), (types::ErrorKind::Busy, Some("256")));
    assert!(subscriptions.is_polling());
    all.pop();
    all.push(subscriptions.subscribe().unwrap());
    drop(all);
    assert!(!subscriptions.is_polling());
}

/// Begins a stream over a connection.
async fn connect(client: &Client, headers: &str) -> TcpStream {
    let mut connection = TcpStream::connect(client.address()).await.unwrap();
    let request = format!(
        "GET /v1/alerts HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\naccept-encoding: gzip\r\nconnection: close\r\n{headers}\r\n"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    connection
}

/// Reads until `expected` has come.
async fn read_until(connection: &mut TcpStream, expected: &str) -> String {
    let (mut all, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    tokio::time::timeout(PATIENCE, async {
        while !String::from_utf8_lossy(&all).contains(expected) {
            let read = connection.read(&mut piece).await.unwrap();
            assert!(read > 0, "it ends before {expected}: {}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&piece[..read]);
        }
    })
    .await
    .unwrap_or_else(|_| panic!("timed out: {expected} does not come: {}", String::from_utf8_lossy(&all)));
    String::from_utf8(all).unwrap()
}

async fn is_closed(connection: &mut TcpStream) {
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, connection.read_to_end(&mut rest)).await.expect("timed out: the stream goes on").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_what_a_token_may_read_and_ends_when_it_is_revoked() {
    let (client, token) = protected(harness().await).await;
    let of_totals = token(&["totals"]);
    let mut connection = connect(&client, &of_totals).await;
    let head = read_until(&mut connection, "id: ").await.to_lowercase();
    assert!(head.contains("content-type: text/event-stream") && head.contains("x-accel-buffering: no"), "{head}");
    assert!(!head.contains("content-encoding"), "{head}");
    let mut runner = Runner::default();
    runner.begin(&client.harness().catalog, "busy", 1, &["secret"]).await;
    runner.begin(&client.harness().catalog, "many", 1, &["shown"]).await;
    let events = read_until(&mut connection, "shown").await;
    assert!(!events.contains("secret"), "{events}");
    // Another token of this name: the one that came is revoked.
    token(&["totals"]);
    is_closed(&mut connection).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_the_process_stops_and_goes_on_with_the_last_id() {
    let harness = harness().await;
    let node = harness.node.clone();
    let client = Client::of_node(harness, node).await;
    let mut runner = Runner::default();
    let before = client.harness().catalog.revision().await.unwrap();
    runner.begin(&client.harness().catalog, "busy", 1, &["a", "b"]).await;
    let mut connection = connect(&client, &format!("last-event-id: {before}\r\n")).await;
    read_until(&mut connection, "\"b\"").await;
    client.stop().await;
    is_closed(&mut connection).await;
}
