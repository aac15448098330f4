use std::sync::atomic::{AtomicBool, Ordering};

use access::{Authenticator, Keyring, NewToken, new_token};
use catalog::Role;
use engine::fresh::{Claim, Complete};
use futures::future::{BoxFuture, join_all, pending, ready};
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::task::JoinHandle;
use types::vector::{Offset, PartitionId, Vector};

use super::*;
use crate::deciding::{DecisionSubscription, WorkerDecisions};
use crate::message::{DecisionRequest, EventDecision};
use crate::server::{Offer, listen, serve};

/// A worker's process: what it serves, and until when.
struct Process {
    fresh: Fresh,
    address: String,
    stop: CancellationToken,
    serving: JoinHandle<Result<()>>,
    overtaken: Arc<Notify>,
}

impl Process {
    async fn start(fresh: &Fresh, at: &str) -> Process {
        Process::start_with(fresh, at, None, None).await
    }

    async fn start_with(fresh: &Fresh, at: &str, decisions: Option<Arc<dyn WorkerDecisions>>, keyring: Option<Keyring>) -> Process {
        let bound = listen(at.parse().unwrap()).await.unwrap();
        let (address, stop) = (bound.address.to_string(), CancellationToken::new());
        let overtaken = Arc::new(Notify::new());
        let clock: Clock = Arc::new(|| 0);
        let authenticator = match keyring {
            Some(keyring) => Authenticator { is_required: true, keyring, issuer: None, clock: clock.clone() },
            None => Authenticator::open(clock.clone()).unwrap(),
        };
        let offer = Offer { fresh: fresh.clone(), decisions, authenticator, tls: None, clock, overtaken: overtaken.clone() };
        let serving = serve(offer, bound, stop.clone());
        Process { fresh: fresh.clone(), address, stop, serving, overtaken }
    }

    async fn end(self) -> String {
        self.stop.cancel();
        self.serving.await.unwrap().unwrap();
        self.address
    }
}

/// A node that follows one process.
struct Node {
    fresh: Fresh,
    links: Links,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// Its views; without this it would stop.
    _plans: watch::Sender<Arc<Plans>>,
}

impl Node {
    fn follow(address: &str) -> Node {
        Node::follow_with(address, Credentials::default(), Arc::new(|| 0))
    }

    /// By this clock, which it reads with each layer that comes.
    fn follow_by(address: &str, clock: Clock) -> Node {
        Node::follow_with(address, Credentials::default(), clock)
    }

    fn follow_as(address: &str, credentials: Credentials) -> Node {
        Node::follow_with(address, credentials, Arc::new(|| 0))
    }

    fn follow_with(address: &str, credentials: Credentials, clock: Clock) -> Node {
        let (plans, wanted) = watch::channel(Arc::default());
        let (fresh, links, stop) = (Fresh::default(), Links::default(), CancellationToken::new());
        let following =
            Following { fresh: fresh.clone(), credentials, plans: wanted, memory_bytes: usize::MAX, clock, links: links.clone() };
        let (address, stopping) = (format!("http://{address}"), stop.clone());
        let task = tokio::spawn(async move { following.follow("w", &address, stopping).await });
        Node { fresh, links, stop, task, _plans: plans }
    }

    async fn reads(&self, vector: &str) {
        eventually(|| self.fresh.after(&Vector::new()).end.to_string() == vector, || self.fresh.after(&Vector::new()).end.to_string())
            .await;
    }

    async fn is_followed(&self, expected: bool) {
        eventually(|| self.links.is_followed("w") == expected, || format!("{:?}", self.links.all())).await;
    }
}

async fn eventually(is_so: impl Fn() -> bool, found: impl Fn() -> String) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(60), waiting).await.is_err() {
        panic!("timed out: found {}", found());
    }
}

fn id() -> PartitionId {
    PartitionId::new("s", 0)
}

/// Without states, which need a view.
fn layer(from: i64, to: i64) -> FreshLayer {
    let at = |offset| Vector::from_iter([(id(), Offset(offset))]);
    let (states, failures, max_event_time) = Default::default();
    FreshLayer { start: at(from), end: at(to), states, failures, max_event_time }
}

fn worker() -> Fresh {
    let fresh = Fresh::unread();
    fresh.take_over(1, &Vector::new(), &[id()]);
    fresh
}

#[tokio::test]
async fn a_node_follows_every_change_of_a_worker_in_another_process() {
    let fresh = worker();
    fresh.publish(layer(0, 3), []);
    let process = Process::start(&fresh, "127.0.0.1:0").await;
    let node = Node::follow(&process.address);
    node.reads("s/0:3").await;
    fresh.publish(layer(3, 5), [Complete { partition: id(), position: Offset(5), time: 50 }]);
    node.reads("s/0:5").await;
    assert_eq!(*node.fresh.after(&Vector::new()).complete_to, BTreeMap::from([(id(), 50)]));
    fresh.compact(layer(0, 5));
    eventually(|| node.fresh.layers() == 1, || node.fresh.layers().to_string()).await;
    fresh.complete([Complete { partition: id(), position: Offset(5), time: 60 }]);
    eventually(|| node.fresh.after(&Vector::new()).complete_to.get(&id()) == Some(&60), || format!("{:?}", node.fresh)).await;
    fresh.withdraw(&Vector::new(), &[id()]);
    node.reads("").await;
    fresh.take_over(7, &Vector::new(), &[id()]);
    eventually(|| node.fresh.epochs().get(&id()) == Some(&7), || format!("{:?}", node.fresh.epochs())).await;
    node.stop.cancel();
    node.task.await.unwrap();
    assert_eq!(node.links.all().len(), 0);
    process.end().await;
}

#[tokio::test]
async fn a_worker_that_is_not_reached_counts_no_more_until_it_is_reached_again() {
    let fresh = worker();
    fresh.publish(layer(0, 3), []);
    let process = Process::start(&fresh, "127.0.0.1:0").await;
    let node = Node::follow(&process.address);
    node.reads("s/0:3").await;
    let address = process.end().await;
    node.is_followed(false).await;
    node.reads("").await;
    let lost = node.links.all();
    assert!(matches!(&lost[0].state, LinkState::Lost { error } if !error.is_empty()), "{lost:?}");
    fresh.publish(layer(3, 4), []);
    let process = Process::start(&fresh, &address).await;
    node.reads("s/0:4").await;
    node.is_followed(true).await;
    process.end().await;
}

#[tokio::test]
async fn a_node_that_panicked_over_a_layer_follows_its_worker_again() {
    let fresh = worker();
    let process = Process::start(&fresh, "127.0.0.1:0").await;
    let is_sound = Arc::new(AtomicBool::new(false));
    let clock: Clock = Arc::new({
        let is_sound = is_sound.clone();
        move || {
            assert!(is_sound.swap(true, Ordering::SeqCst), "a clock that panics once");
            0
        }
    });
    let node = Node::follow_by(&process.address, clock);
    node.is_followed(true).await;
    fresh.publish(layer(0, 3), []);
    eventually(|| is_sound.load(Ordering::SeqCst), || "no panic".to_owned()).await;
    fresh.publish(layer(3, 5), []);
    node.reads("s/0:5").await;
    node.is_followed(true).await;
    process.end().await;
}

#[tokio::test]
async fn a_node_that_does_not_keep_up_is_cut_off_and_no_worker_waits_for_it() {
    let process = Process::start(&worker(), "127.0.0.1:0").await;
    let wanted = LayerRequest { format: FORMAT, views: Vec::new(), seen: Vec::new() };
    let address = format!("http://{}", process.address);
    let connection = WorkerConnection::open(&address, &Credentials::default()).await.unwrap();
    let mut stream = connection.follow(&wanted).await.unwrap();
    let good = Node::follow(&process.address);
    good.is_followed(true).await;
    let layers = 4_000;
    for at in 0..layers {
        let mut layer = layer(at, at + 1);
        // So large that the connection cannot hold all of it.
        layer.max_event_time =
            (0..100).map(|number| (format!("a stream with a long name, the one of number {number}").into(), at)).collect();
        process.fresh.publish(layer, []);
        if at % 32 == 0 {
            // The other one keeps up.
            good.reads(&format!("s/0:{}", at + 1)).await;
        }
    }
    good.reads(&format!("s/0:{layers}")).await;
    let mut received = 0;
    let receiving = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => received += 1,
                Ok(None) => panic!("the stream ended without a word"),
                Err(status) => return error_of(&status),
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(60), receiving).await.expect("timed out: the stream goes on");
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert!(received < layers, "{received}");
    process.end().await;
}

#[tokio::test]
async fn an_owner_that_is_refused_for_long_is_asked_to_claim_its_partitions_again() {
    let fresh = worker();
    fresh.publish(layer(0, 3), []);
    let process = Process::start(&fresh, "127.0.0.1:0").await;
    let node = Node::follow(&process.address);
    node.reads("s/0:3").await;
    let mut late = Mirror::new(&node.fresh);
    late.apply(1, LayerChange::TakenOver(vec![Claim { partition: id(), epoch: 4, from: Offset(0) }]));
    drop(late);
    node.reads("").await;
    fresh.publish(layer(3, 4), []);
    // As the process's registration does.
    tokio::time::timeout(Duration::from_secs(60), process.overtaken.notified()).await.expect("timed out: nobody is asked");
    fresh.claim_again(5);
    node.reads("s/0:4").await;
    process.end().await;
}

#[tokio::test]
async fn an_owner_that_gave_a_partition_up_is_not_asked_to_claim_it_again() {
    let fresh = worker();
    fresh.give_up(&[id()]);
    let process = Process::start(&fresh, "127.0.0.1:0").await;
    let node = Node::follow(&process.address);
    node.is_followed(true).await;
    let mut next = Mirror::new(&node.fresh);
    next.apply(1, LayerChange::TakenOver(vec![Claim { partition: id(), epoch: 9, from: Offset(0) }]));
    // The node begins again, and what is published from here on reaches it only then.
    fresh.claim_again(5);
    let at = |offset| Vector::from_iter([(PartitionId::new("s", 1), Offset(offset))]);
    fresh.take_over(6, &Vector::new(), &[PartitionId::new("s", 1)]);
    fresh.publish(FreshLayer { start: at(0), end: at(3), ..layer(0, 3) }, []);
    node.reads("s/1:3").await;
    assert!(process.overtaken.notified().now_or_never().is_none());
    process.end().await;
}

/// Whoever asks for no partitions has them all with the first answer.
static NO_PARTITIONS: BTreeSet<i32> = BTreeSet::new();

/// What the workers of a process decide: events of the partition 3 of any topic.
#[derive(Clone)]
struct FakeDecisions(broadcast::Sender<Offset>);

impl WorkerDecisions for FakeDecisions {
    fn listen(&self, _topic: &str) -> DecisionSubscription {
        let mut decided = self.0.subscribe();
        let decision = move |event: DecisionRequest| -> BoxFuture<'static, Option<EventDecision>> {
            Box::pin(async move {
                while decided.recv().await.ok()? != event.offset {}
                Some(decision(event.offset))
            })
        };
        DecisionSubscription { partitions: [3].into(), decision: Box::new(decision) }
    }
}

fn decision(offset: Offset) -> EventDecision {
    EventDecision { identity: "log".into(), is_dead_letter: true, timestamp: None, ids_since: Some(offset.0), by: None }
}

fn request(offset: i64) -> DecisionRequest {
    DecisionRequest { sink: "scored".into(), topic: "t".into(), partition: 3, offset: Offset(offset) }
}

/// The first event is decided before the worker's process is asked, the second one after that.
#[tokio::test]
async fn a_node_that_had_a_worker_listen_misses_no_decision() {
    let decisions = FakeDecisions(broadcast::Sender::new(16));
    let process = Process::start_with(&worker(), "127.0.0.1:0", Some(Arc::new(decisions.clone())), None).await;
    let node = Node::follow(&process.address);
    node.is_followed(true).await;
    let topic = "t".into();
    let mut listeners = node.links.listen(&topic, &NO_PARTITIONS).await;
    let first = listeners.pop().unwrap().unwrap();
    assert_eq!((listeners.len(), &first.partitions), (0, &BTreeSet::from([3])));
    let second = node.links.listen(&topic, &NO_PARTITIONS).await.pop().unwrap().unwrap();
    for offset in [7, 8] {
        decisions.0.send(Offset(offset)).unwrap();
    }
    assert_eq!(first.decision(&request(8)).await.unwrap(), Some(decision(Offset(8))));
    let later = async {
        // The first one no longer listens once it is answered.
        eventually(|| decisions.0.receiver_count() == 1, || decisions.0.receiver_count().to_string()).await;
        decisions.0.send(Offset(9)).unwrap();
    };
    let request = request(9);
    let (answer, ()) = tokio::join!(second.decision(&request), later);
    assert_eq!(answer.unwrap(), Some(decision(Offset(9))));
    process.end().await;
    eventually(|| decisions.0.receiver_count() == 0, || decisions.0.receiver_count().to_string()).await;
}

#[tokio::test]
async fn a_worker_that_ends_before_it_decides_says_nothing() {
    let decisions = FakeDecisions(broadcast::Sender::new(16));
    let process = Process::start_with(&worker(), "127.0.0.1:0", Some(Arc::new(decisions.clone())), None).await;
    let node = Node::follow(&process.address);
    node.is_followed(true).await;
    let topic = "t".into();
    let listener = node.links.listen(&topic, &NO_PARTITIONS).await.pop().unwrap().unwrap();
    let request = request(1);
    let (answer, _) = tokio::join!(listener.decision(&request), process.end());
    assert!(!matches!(answer, Ok(Some(_))), "{answer:?}");
    node.is_followed(false).await;
    let unreached = node.links.listen(&topic, &NO_PARTITIONS).await.pop().unwrap().unwrap_err();
    assert_eq!(unreached.kind(), ErrorKind::Unavailable, "{unreached}");
}

/// A record shows columns of any view: a token that is limited to some does not suffice, nor does a process without
/// sinks answer.
#[tokio::test]
async fn decisions_are_for_those_who_may_read_everything() {
    let keyring = Keyring::new().unwrap();
    let token = |views: &[&str]| {
        let (name, views) = (format!("node{}", views.len()), views.iter().map(ToString::to_string).collect());
        let new = NewToken { name, role: Role::Reader, views, streams: Vec::new(), created_by: "tests".into(), expires_at: None };
        new_token(new, 0).unwrap()
    };
    let ((all, of_all), (limited, of_limited)) = (token(&[]), token(&["velocity"]));
    keyring.set(vec![of_all, of_limited]);
    let decisions: Arc<dyn WorkerDecisions> = Arc::new(FakeDecisions(broadcast::Sender::new(16)));
    let with_sinks = Process::start_with(&worker(), "127.0.0.1:0", Some(decisions), Some(keyring.clone())).await;
    let without = Process::start_with(&worker(), "127.0.0.1:0", None, Some(keyring)).await;
    for (process, token, expected) in
        [(&with_sinks, &all, None), (&with_sinks, &limited, Some(ErrorKind::Forbidden)), (&without, &all, Some(ErrorKind::Unavailable))]
    {
        let node = Node::follow_as(&process.address, Credentials { token: Some(token.clone()), tls: None });
        node.is_followed(true).await;
        let listener = node.links.listen(&"t".into(), &NO_PARTITIONS).await.pop().unwrap();
        assert_eq!(listener.err().map(|error| error.kind()), expected);
    }
}

/// With a token for every other purpose it could have the workers drop what nodes read of them, again and again.
#[tokio::test]
async fn who_may_read_no_view_follows_no_worker_and_makes_none_claim_again() {
    let (role, created_by) = (Role::Writer, "tests".to_owned());
    let new = NewToken { name: "shop".to_owned(), role, views: Vec::new(), streams: Vec::new(), created_by, expires_at: None };
    let (token, record) = new_token(new, 0).unwrap();
    let keyring = Keyring::new().unwrap();
    keyring.set(vec![record]);
    let process = Process::start_with(&worker(), "127.0.0.1:0", None, Some(keyring)).await;
    let credentials = Credentials { token: Some(token), tls: None };
    let connection = WorkerConnection::open(&format!("http://{}", process.address), &credentials).await.unwrap();
    let wanted = LayerRequest { format: FORMAT, views: Vec::new(), seen: vec![(id(), i64::MAX)] };
    assert_eq!(connection.follow(&wanted).await.err().map(|error| error.kind()), Some(ErrorKind::Forbidden));
    assert!(process.overtaken.notified().now_or_never().is_none());
    process.end().await;
}

#[tokio::test]
async fn a_node_whose_token_was_revoked_meanwhile_learns_no_decision() {
    let keyring = Keyring::new().unwrap();
    let (role, created_by) = (Role::Reader, "tests".to_owned());
    let new = NewToken { name: "node".to_owned(), role, views: Vec::new(), streams: Vec::new(), created_by, expires_at: None };
    let (token, record) = new_token(new, 0).unwrap();
    keyring.set(vec![record]);
    let decisions = FakeDecisions(broadcast::Sender::new(16));
    let process = Process::start_with(&worker(), "127.0.0.1:0", Some(Arc::new(decisions.clone())), Some(keyring.clone())).await;
    let node = Node::follow_as(&process.address, Credentials { token: Some(token), tls: None });
    node.is_followed(true).await;
    let listener = node.links.listen(&"t".into(), &NO_PARTITIONS).await.pop().unwrap().unwrap();
    keyring.set(Vec::new());
    decisions.0.send(Offset(1)).unwrap();
    let refused = listener.decision(&request(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthenticated, "{refused}");
    process.end().await;
}

/// It is polled by hand: no clock decides.
#[test]
fn a_process_that_is_slow_is_heard_and_one_that_hangs_costs_the_limit_alone() {
    let ((answer_second, second), (answer_late, late)) = (oneshot::channel(), oneshot::channel());
    let (end_limit, limit) = oneshot::channel::<()>();
    let answer = |answered: oneshot::Receiver<i32>| async move { BTreeSet::from([answered.await.unwrap()]) }.boxed();
    let first = ready(BTreeSet::from([0])).boxed();
    let asked: FuturesUnordered<_> = [first, answer(second), answer(late), pending().boxed()].into_iter().collect();
    let (wanted, has_limit) = (BTreeSet::from([0, 1]), AtomicBool::new(false));
    let begin_limit = || {
        has_limit.store(true, Ordering::Relaxed);
        limit.map(|ended| ended.unwrap())
    };
    let mut answers = pin!(answers_in_time(asked, have_all(&wanted), begin_limit));
    assert_eq!(answers.as_mut().now_or_never(), None);
    assert!(!has_limit.load(Ordering::Relaxed), "a partition is lacking");
    answer_second.send(1).unwrap();
    assert_eq!(answers.as_mut().now_or_never(), None, "others may have one of the partitions by now");
    assert!(has_limit.load(Ordering::Relaxed));
    answer_late.send(2).unwrap();
    assert_eq!(answers.as_mut().now_or_never(), None);
    end_limit.send(()).unwrap();
    let answers = answers.now_or_never().expect("the one that hangs is waited for");
    assert_eq!(answers, [0, 1, 2].map(|partition| BTreeSet::from([partition])));
}

/// As when the worker's process is busy, and clients of the node hang up.
#[tokio::test]
async fn a_node_is_not_cut_off_when_it_gives_up_many_events_at_once() {
    let (fresh, decisions) = (worker(), FakeDecisions(broadcast::Sender::new(16)));
    let process = Process::start_with(&fresh, "127.0.0.1:0", Some(Arc::new(decisions)), None).await;
    let node = Node::follow(&process.address);
    node.is_followed(true).await;
    let since = node.links.all()[0].since;
    // These threads serve nodes.
    let busy = types::threads::keep_busy(&types::threads::QUERIES);
    let topic: Arc<str> = "t".into();
    let asked = (0..100).map(|_| tokio::time::timeout(Duration::from_millis(200), node.links.listen(&topic, &NO_PARTITIONS)));
    assert!(join_all(asked).await.iter().all(|asked| asked.is_err()));
    // That they were given up reaches the process as well before it goes on.
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(busy);
    fresh.publish(layer(0, 3), []);
    node.reads("s/0:3").await;
    node.links.listen(&topic, &NO_PARTITIONS).await.pop().unwrap().unwrap();
    assert_eq!(node.links.all()[0].since, since, "it began again");
    process.end().await;
}
