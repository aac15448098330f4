use access::tls::{ServerTls, TlsFiles};
use access::{Authenticator, Keyring, NewToken, new_token};
use catalog::Role;
use engine::fresh::Fresh;
use feed::{ClientTls, LinkState, Offer};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use types::vector::Vector;

use super::*;
use crate::harness::{Harness, NOW, event};
use crate::json::rows;
use crate::lookup::Keys;
use crate::node::Node;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a worker's process serves at an address, until it is dropped.
struct Served {
    address: String,
    stop: CancellationToken,
}

impl Served {
    async fn start(harness: &Harness, name: &str, change: impl FnOnce(Offer) -> Offer) -> Served {
        let bound = feed::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let authenticator = Authenticator::open(Arc::new(|| NOW)).unwrap();
        let (fresh, clock) = (Fresh::default(), Arc::new(|| NOW));
        let offer = Offer { fresh, decisions: None, authenticator, tls: None, clock, overtaken: Arc::default() };
        let offer = change(offer);
        let scheme = if offer.tls.is_some() { "https" } else { "http" };
        let address = format!("{scheme}://{}", bound.address);
        let offer = Offer { fresh: harness.register(name, &address).await, ..offer };
        let stop = CancellationToken::new();
        feed::serve(offer, bound, stop.clone());
        Served { address, stop }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A node in another process that follows the catalog and the workers in it.
struct RemoteNode {
    node: Node,
    fresh: Fresh,
    stop: CancellationToken,
}

impl RemoteNode {
    async fn start(harness: &Harness, credentials: Credentials) -> RemoteNode {
        RemoteNode::start_with(harness, FollowSettings { credentials, memory_bytes: usize::MAX, ..FollowSettings::default() }).await
    }

    async fn start_with(harness: &Harness, settings: FollowSettings) -> RemoteNode {
        let (fresh, stop) = (Fresh::default(), CancellationToken::new());
        let node = harness.node_apart(&fresh).await;
        let (following, token) = (node.clone(), stop.clone());
        tokio::spawn(async move { tokio::join!(following.follow_workers(settings, token.clone()), following.run(token)) });
        RemoteNode { node, fresh, stop }
    }

    async fn until(&self, what: &str, is_so: impl Fn(&RemoteNode) -> bool) {
        let waiting = async {
            while !is_so(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(outcome.is_ok(), "timed out: {what}: {:?} at {}", self.node.workers(), self.vector());
    }

    async fn follows(&self, workers: usize) {
        let followed = |remote: &RemoteNode| remote.node.workers().iter().filter(|link| link.state == LinkState::Followed).count();
        self.until("it follows", |remote| followed(remote) == workers).await;
    }

    fn vector(&self) -> Vector {
        self.node.read_view().unwrap().vector
    }
}

impl Drop for RemoteNode {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What a node answers, exactly.
async fn answers(node: &Node) -> Vec<Value> {
    let mut answers = Vec::new();
    for device in ["a", "b", "c<&", "none"] {
        let keys = Keys::Text(vec![[("device".to_owned(), device.to_owned())].into()]);
        let response = node.lookup("velocity", keys, None).await.unwrap();
        answers.push(serde_json::from_str(rows(&response.rows).unwrap()[0].get()).unwrap());
    }
    let totals = node.lookup("totals", Keys::Text(vec![Default::default()]), None).await.unwrap();
    answers.push(serde_json::from_str(rows(&totals.rows).unwrap()[0].get()).unwrap());
    answers
}

fn newest(id: &str) -> [String; 1] {
    [event(id, "2026-03-02T11:59:00Z", "a", "0.50", "ok")]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_process_answers_as_the_one_beside_the_worker() {
    let harness = Harness::filled().await;
    let served = Served::start(&harness, "w", |offer| offer).await;
    harness.fresh(1, &newest("7")).await;
    let remote = RemoteNode::start(&harness, Credentials::default()).await;
    harness.fresh(0, &newest("8")).await;
    harness.fresh(1, &newest("9")).await;
    harness.define_view("later", "CREATE VIEW later AS SELECT device, count(*) AS n FROM payments GROUP BY device").await;
    let (worker, at) = (answers(&harness.node).await, harness.node.read_view().unwrap().vector);
    remote.until("it counts all of it", |remote| remote.vector() == at).await;
    assert_eq!(answers(&remote.node).await, worker);
    assert_eq!(worker[0]["n_1h"], 5, "what is not checkpointed counts");
    // A view that came later is asked for as well.
    remote.until("it loads the view", |remote| remote.node.read_view().unwrap().live("later").is_ok()).await;
    remote.follows(1).await;

    drop(served);
    remote.follows(0).await;
    assert_eq!(remote.fresh.layers(), 0, "a lost worker's layers are dropped");
    assert_eq!((answers(&remote.node).await, remote.vector()), (worker, at), "and no answer goes back");
    let reopened = harness.node_apart(&Fresh::default()).await;
    assert_eq!(reopened.read_view().unwrap().vector, reopened.loaded().unwrap().vector);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_awaits_workers_counts_what_they_have_not_committed_once_it_awaits_none() {
    let harness = Harness::filled().await;
    let served = Served::start(&harness, "w", |offer| offer).await;
    harness.fresh(1, &newest("7")).await;
    let at = harness.node.read_view().unwrap().vector;
    let (fresh, stop) = (Fresh::default(), CancellationToken::new());
    let node = harness.node_apart(&fresh).await;
    assert!(!node.awaits_workers(), "nobody asked it to follow any");
    node.await_workers();
    assert!(node.awaits_workers(), "it has not begun to follow");
    let (following, token) = (node.clone(), stop.clone());
    let settings = FollowSettings { memory_bytes: usize::MAX, ..FollowSettings::default() };
    tokio::spawn(async move { following.follow_workers(settings, token).await });
    let remote = RemoteNode { node, fresh, stop };
    remote.follows(1).await;
    remote.until("it awaits nobody", |remote| !remote.node.awaits_workers()).await;
    assert_eq!(remote.vector(), at);
    drop(served);
}

/// Also where they are there already when it begins to follow.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_room_for_the_layers_of_a_worker_takes_none_of_them() {
    let harness = Harness::filled().await;
    let served = Served::start(&harness, "w", |offer| offer).await;
    harness.fresh(1, &newest("7")).await;
    let remote = RemoteNode::start_with(&harness, FollowSettings { memory_bytes: 1, ..FollowSettings::default() }).await;
    let has_no_room = |remote: &RemoteNode| {
        remote.node.workers().iter().any(|link| matches!(&link.state, LinkState::Lost { error } if error.contains("too much memory")))
    };
    remote.until("it gives them up", has_no_room).await;
    assert_eq!(remote.fresh.layers(), 0);
    assert_eq!(remote.vector(), remote.node.loaded().unwrap().vector, "it answers from what is committed");
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_its_token_where_one_is_required() {
    let harness = Harness::filled().await;
    let keyring = Keyring::new().unwrap();
    let new =
        |role| NewToken { name: "node".into(), role, views: Vec::new(), streams: Vec::new(), created_by: "me".into(), expires_at: None };
    let (writer, writers) = new_token(new(Role::Writer), 0).unwrap();
    keyring.set(vec![writers]);
    let required = Authenticator { is_required: true, keyring: keyring.clone(), issuer: None, clock: Arc::new(|| NOW) };
    let served = Served::start(&harness, "w", |offer| Offer { authenticator: required, ..offer }).await;
    let refused = async |token: Option<String>, word: &str| {
        let remote = RemoteNode::start(&harness, Credentials { token, tls: None }).await;
        let is_lost = |remote: &RemoteNode| {
            remote.node.workers().iter().any(|link| matches!(&link.state, LinkState::Lost { error } if error.contains(word)))
        };
        remote.until(word, is_lost).await;
        assert_eq!(remote.vector(), remote.node.loaded().unwrap().vector, "it answers from what is committed");
    };
    refused(None, "no token was sent").await;
    refused(Some("bst_unknown".into()), "unknown, revoked or expired").await;
    refused(Some(writer), "may not read").await;
    for role in [Role::Reader, Role::Operator] {
        let (token, record) = new_token(new(role), 0).unwrap();
        keyring.set(vec![record]);
        RemoteNode::start(&harness, Credentials { token: Some(token), tls: None }).await.follows(1).await;
    }
    drop(served);
}

/// The worker does nothing meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_token_is_revoked_follows_no_more() {
    let harness = Harness::filled().await;
    let (role, created_by) = (Role::Reader, "me".into());
    let new = NewToken { name: "node".into(), role, views: Vec::new(), streams: Vec::new(), created_by, expires_at: None };
    let (token, record) = new_token(new, 0).unwrap();
    let keyring = Keyring::new().unwrap();
    keyring.set(vec![record]);
    let required = Authenticator { is_required: true, keyring: keyring.clone(), issuer: None, clock: Arc::new(|| NOW) };
    let served = Served::start(&harness, "w", |offer| Offer { authenticator: required, ..offer }).await;
    let remote = RemoteNode::start(&harness, Credentials { token: Some(token), tls: None }).await;
    remote.follows(1).await;
    keyring.set(Vec::new());
    let is_refused = |remote: &RemoteNode| {
        remote.node.workers().iter().any(|link| matches!(&link.state, LinkState::Lost { error } if error.contains("revoked")))
    };
    remote.until("its stream ends", is_refused).await;
    assert_eq!(remote.fresh.layers(), 0);
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_encrypted_and_a_worker_of_another_authority_is_not_believed() {
    let harness = Harness::filled().await;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let (cert, key_file) = (folder.path().join(format!("{name}.pem")), folder.path().join(format!("{name}.key")));
        std::fs::write(&cert, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        (cert, key_file)
    };
    let ((cert, key), (other, _)) = (write("worker"), write("other"));
    let tls = ServerTls::load(TlsFiles { cert: cert.clone(), key, client_ca: None }, Offer::ALPN).unwrap();
    let served = Served::start(&harness, "w", |offer| Offer { tls: Some(tls), ..offer }).await;
    assert!(served.address.starts_with("https://"));
    let with = |ca| Credentials { token: None, tls: Some(ClientTls { ca, identity: None }) };
    let remote = RemoteNode::start(&harness, with(cert)).await;
    harness.fresh(0, &newest("8")).await;
    remote.follows(1).await;
    let at = harness.node.read_view().unwrap().vector;
    remote.until("it counts all of it", |remote| remote.vector() == at).await;
    for credentials in [with(other), Credentials::default()] {
        let remote = RemoteNode::start(&harness, credentials).await;
        let is_lost = |remote: &RemoteNode| remote.node.workers().iter().any(|link| matches!(link.state, LinkState::Lost { .. }));
        remote.until("it does not believe it", is_lost).await;
        assert_eq!(remote.fresh.layers(), 0);
    }
}
