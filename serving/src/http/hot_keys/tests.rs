use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::tests::Client;
use crate::harness::{Harness, event};
use crate::lookup::Keys;

/// A client that watches the hot keys.
struct Watcher {
    connection: TcpStream,
    read: String,
}

impl Watcher {
    async fn begin(client: &Client) -> Watcher {
        let mut connection = TcpStream::connect(client.address()).await.unwrap();
        let head =
            "GET /v1/hot-keys HTTP/1.0\r\nhost: localhost\r\naccept: text/html, Text/Event-Stream; q=0.9\r\naccept-encoding: gzip\r\n\r\n";
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut watcher = Watcher { connection, read: String::new() };
        let head = watcher.until("\r\n\r\n").await.to_lowercase();
        assert!(head.starts_with("http/1.") && head.contains(" 200 ") && head.contains("content-type: text/event-stream"), "{head}");
        assert!(!head.contains("content-encoding"), "{head}");
        watcher
    }

    async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.read.find(end) {
                let rest = self.read.split_off(at + end.len());
                return std::mem::replace(&mut self.read, rest);
            }
            let mut bytes = [0; 4096];
            let read = tokio::time::timeout(Duration::from_secs(60), self.connection.read(&mut bytes))
                .await
                .expect("timed out: nothing came")
                .unwrap();
            assert!(read > 0, "it ended after {:?}", self.read);
            self.read.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
    }

    /// The next event: its name and data.
    async fn next(&mut self) -> (String, Value) {
        loop {
            let text = self.until("\n\n").await;
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if let Some(name) = field("event:") {
                return (name.to_owned(), serde_json::from_str(field("data:").unwrap()).unwrap());
            }
        }
    }
}

async fn ask(client: &Client, device: &str) {
    for _ in 0..100 {
        let key = Keys::Text(vec![vec![("device".into(), device.into())]]);
        client.harness().node.lookup("velocity", key, None).await.unwrap();
    }
}

async fn client() -> Client {
    let harness = Harness::filled().await;
    let node = harness.node.clone();
    Client::of_node(harness, node).await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_learns_which_keys_are_hot_and_which_become_hot() {
    let client = client().await;
    ask(&client, "a").await;
    let mut watcher = Watcher::begin(&client).await;
    for window in ["1s", "10s"] {
        let (name, data) = watcher.next().await;
        assert_eq!(
            (name.as_str(), &data["key"], &data["window"], &data["seen_in"]),
            ("hot", &json!({"device": "a"}), &json!(window), &json!("lookups"))
        );
    }
    let events: Vec<String> = (0..50).map(|at| event(&format!("new {at}"), "2026-03-02T11:59:00Z", "b", "1.00", "ok")).collect();
    client.harness().fresh(0, &events).await;
    let (name, data) = watcher.next().await;
    assert_eq!((name.as_str(), &data["seen_in"], &data["view"], &data["share"]), ("hot", &json!("events"), &json!("pairs"), &json!(1.0)));
}

/// The harness's clock stands still: keys cease as others are asked more.
#[tokio::test(flavor = "multi_thread")]
async fn who_watches_learns_which_keys_cease() {
    let client = client().await;
    ask(&client, "a").await;
    let mut watcher = Watcher::begin(&client).await;
    watcher.next().await;
    watcher.next().await;
    for _ in 0..20 {
        ask(&client, "b").await;
    }
    let mut heard = Vec::new();
    for _ in 0..4 {
        let (name, data) = watcher.next().await;
        heard.push((name, data["key"]["device"].as_str().unwrap().to_owned(), data["window"].as_str().unwrap().to_owned()));
    }
    heard.sort();
    let of = |name: &str, device: &str, window: &str| (name.to_owned(), device.to_owned(), window.to_owned());
    assert_eq!(heard, [of("ceased", "a", "10s"), of("ceased", "a", "1s"), of("hot", "b", "10s"), of("hot", "b", "1s")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_have_so_many_places_and_leave_them_when_they_go() {
    let client = client().await;
    let mut watchers = Vec::new();
    for _ in 0..super::super::MAX_WATCHERS {
        watchers.push(Watcher::begin(&client).await);
    }
    let refused = client.send("GET", "/v1/hot-keys", "accept: text/event-stream\r\n", b"").await;
    assert_eq!(refused.problem().0, 429);
    assert_eq!(client.send("GET", "/v1/hot-keys", "", b"").await.status, 200);
    watchers.pop();
    for _ in 0..3_000 {
        // A place is free as soon as the server finds that the client has gone.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut connection = TcpStream::connect(client.address()).await.unwrap();
        connection.write_all(b"GET /v1/hot-keys HTTP/1.0\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n").await.unwrap();
        let mut status = [0; 12];
        connection.read_exact(&mut status).await.unwrap();
        if status.ends_with(b"200") {
            return;
        }
    }
    panic!("the place stays taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_is_let_go_when_the_server_stops() {
    let client = client().await;
    ask(&client, "a").await;
    let mut watcher = Watcher::begin(&client).await;
    watcher.next().await;
    // Less than the time between two heartbeats.
    tokio::time::timeout(Duration::from_secs(8), client.stop()).await.expect("timed out: the server waits for who watches");
    let mut rest = Vec::new();
    watcher.connection.read_to_end(&mut rest).await.unwrap();
}
