use std::collections::BTreeMap;

use access::{Authenticator, Keyring, NewToken, new_token};
use catalog::{Add, AlertTransition, Catalog, Commit, DefinitionKind, Remove, Revision, Role};
use serde_json::{Value, json};
use types::TransitionKind;

use super::*;
use crate::harness::{Harness, NOW};
use crate::http::Protection;
use crate::http::tests::{Client, Reply};

pub(super) const BUSY: &str =
    "CREATE ALERT busy WITH (topic = 'busy', resolve = true) AS SELECT device, n_1h FROM velocity WHERE n_1h >= 2";
pub(super) const MANY: &str = "CREATE ALERT many WITH (topic = 'many') AS SELECT n FROM totals WHERE n >= 3";

/// With an alert over each of two views.
pub(super) async fn harness() -> Harness {
    let harness = Harness::new().await;
    for (name, sql) in [("busy", BUSY), ("many", MANY)] {
        harness.define(DefinitionKind::Alert, name, sql).await;
    }
    harness
}

/// What runs alerts, in a word: each key that is named begins, or if it is open ceases.
#[derive(Default)]
pub(super) struct Runner {
    next: BTreeMap<String, i64>,
}

impl Runner {
    pub(super) async fn begin(&mut self, catalog: &Catalog, alert: &str, version: u32, keys: &[&str]) -> Revision {
        self.commit(catalog, (alert, version), TransitionKind::Began, keys).await
    }

    pub(super) async fn commit(&mut self, catalog: &Catalog, of: (&str, u32), kind: TransitionKind, keys: &[&str]) -> Revision {
        let (alert, version) = of;
        let next = self.next.entry(format!("{alert}@{version}")).or_default();
        let made = keys.iter().map(|key| {
            *next += 1;
            let record = format!("{{\"device\":\"{key}\",\"n_1h\":{next},\"_state\":\"{}\"}}", kind.word());
            Add::AlertTransition(Box::new(AlertTransition {
                alert: alert.into(),
                version,
                seq: *next - 1,
                id: format!("{alert}@{version}:{key}"),
                kind,
                keys: format!("{{\"device\":\"{key}\"}}"),
                since: NOW,
                at: NOW + *next,
                record: (kind != TransitionKind::Resolved).then_some(record),
                record_key: Some((*key).to_owned()),
            }))
        });
        catalog.commit(Commit { add: made.collect(), ..Commit::default() }).await.unwrap()
    }
}

/// Removes all there is of a version, and the version itself.
pub(super) async fn remove(catalog: &Catalog, alert: &str, version: u32) -> Revision {
    let mut revision = 0;
    for _ in 0..2 {
        let remove = vec![Remove::Alert { alert: alert.into(), version, most: 1_000 }];
        revision = catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
    }
    revision
}

async fn client(harness: Harness) -> Client {
    let node = harness.node.clone();
    Client::of_node(harness, node).await
}

async fn get(client: &Client, query: &str) -> Reply {
    client.send("GET", &format!("/v1/alerts{query}"), "", b"").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_alert_is_shown_as_it_was_committed() {
    let client = client(harness().await).await;
    let catalog = &client.harness().catalog;
    assert_eq!(get(&client, "").await.json()["alerts"], json!([]));
    let mut runner = Runner::default();
    runner.begin(catalog, "busy", 1, &["a", "b"]).await;
    runner.commit(catalog, ("busy", 1), TransitionKind::Repeated, &["a"]).await;
    let revision = runner.commit(catalog, ("busy", 1), TransitionKind::Resolved, &["b"]).await;
    let reply = get(&client, "").await;
    let expected = "{\"alerts\":[{\"alert\":\"busy\",\"version\":1,\"seq\":2,\"key\":{\"device\":\"a\"},\
        \"since\":\"2026-03-02T12:00:00Z\",\"at\":\"2026-03-02T12:00:00.000003Z\",\
        \"record\":{\"device\":\"a\",\"n_1h\":3,\"_state\":\"repeated\"}}],";
    assert!(String::from_utf8_lossy(&reply.body).starts_with(expected), "{}", String::from_utf8_lossy(&reply.body));
    assert_eq!((&reply.json()["next"], &reply.json()["event_id"]), (&Value::Null, &json!(revision.to_string())));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_any_length_have_each_open_alert_once() {
    let client = client(harness().await).await;
    let catalog = &client.harness().catalog;
    let mut runner = Runner::default();
    let keys: Vec<String> = (0..230).map(|key| format!("k{key:03}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    runner.begin(catalog, "busy", 1, &keys).await;
    runner.begin(catalog, "many", 1, &["x", "y"]).await;
    // What is left of another version, and of an alert that was dropped.
    runner.begin(catalog, "busy", 2, &["old"]).await;
    runner.begin(catalog, "gone", 1, &["old"]).await;
    let mut expected: Vec<(String, String)> = keys.iter().map(|key| ("busy".to_owned(), (*key).to_owned())).collect();
    expected.extend(["x", "y"].map(|key| ("many".to_owned(), key.to_owned())));
    for (limit, alert) in [(1, "many"), (2, "many"), (3, "many"), (7, ""), (99, ""), (100, ""), (116, ""), (231, ""), (232, ""), (1000, "")]
    {
        let filter = if alert.is_empty() { String::new() } else { format!("&alert={alert}") };
        let (mut found, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let page = get(&client, &format!("?limit={limit}{filter}{cursor}")).await.json();
            let open = page["alerts"].as_array().unwrap();
            assert!(open.len() <= limit && (pages == 0 || !open.is_empty()), "{limit}: {}", open.len());
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            found.extend(open.iter().map(|open| (text(&open["alert"]), text(&open["key"]["device"]))));
            pages += 1;
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let expected: Vec<_> = expected.iter().filter(|(of, _)| alert.is_empty() || of == alert).cloned().collect();
        assert_eq!((found.len(), pages), (expected.len(), expected.len().div_ceil(limit)), "{limit}");
        assert_eq!(found, expected, "{limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_refused_by_name() {
    let client = client(harness().await).await;
    let of = async |query: &str, headers: &str| client.send("GET", &format!("/v1/alerts{query}"), headers, b"").await.problem();
    let events = "accept: text/event-stream\r\n";
    for (query, headers, status, expected) in [
        ("?limit=0", "", 400, "limit is '0': expected 1 to 10000"),
        ("?limit=10001", "", 400, "limit is '10001': expected 1 to 10000"),
        ("?cursor=nonsense", "", 400, "'nonsense' is not a cursor: expected the `next` of a page"),
        ("?open=true", "", 400, "there is no parameter 'open': expected alert, limit, cursor or after"),
        ("?after=5", "", 400, "after needs Accept: text/event-stream; for the next page use cursor"),
        ("?alert=busi", "", 404, "there is no alert \"busi\": did you mean \"busy\"? expected one of busy, many"),
        ("?alert=no_such", events, 404, "there is no alert \"no_such\": expected one of busy, many"),
        ("?limit=5", events, 400, "limit and cursor need JSON: found Accept: text/event-stream, which takes alert and after"),
        ("?after=x", events, 400, "'x' is not the id of an alert event: expected one like 571.12 or 571"),
        (
            "",
            "accept: text/event-stream\r\nlast-event-id: -5\r\n",
            400,
            "'-5' is not the id of an alert event: expected one like 571.12 or 571",
        ),
    ] {
        assert_eq!(of(query, headers).await, (status, expected.to_owned()), "{query} {headers}");
    }
}

/// A server that asks for a token, and what makes this the one token there is.
pub(super) async fn protected(harness: Harness) -> (Client, impl Fn(&[&str]) -> String) {
    let keyring = Keyring::new().unwrap();
    let authenticator = Authenticator { is_required: true, keyring: keyring.clone(), issuer: None, clock: Arc::new(|| NOW) };
    let node = harness.node.clone();
    let protection = Protection { authenticator, public: Arc::default(), tls: None, hosts: Arc::default() };
    let client = Client::protected(harness, node, protection).await;
    let token = move |views: &[&str]| {
        let views = views.iter().map(|view| (*view).to_owned()).collect();
        let (role, created_by) = (Role::Reader, "me".to_owned());
        let (text, record) =
            new_token(NewToken { name: "ann".into(), role, views, streams: Vec::new(), created_by, expires_at: None }, 0).unwrap();
        keyring.set(vec![record]);
        format!("authorization: Bearer {text}\r\n")
    };
    (client, token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_sees_the_alerts_over_views_that_it_may_read() {
    let (client, token) = protected(harness().await).await;
    let mut runner = Runner::default();
    for alert in ["busy", "many"] {
        runner.begin(&client.harness().catalog, alert, 1, &["a"]).await;
    }
    let of_totals = token(&["totals"]);
    let page = client.send("GET", "/v1/alerts", &of_totals, b"").await.json();
    assert_eq!(page["alerts"].as_array().unwrap().iter().map(|open| &open["alert"]).collect::<Vec<_>>(), ["many"]);
    // A name says nothing to who may not read it.
    for (name, kind) in [("busy", ""), ("no_such", ""), ("busy", "accept: text/event-stream\r\n")] {
        let (status, detail) = client.send("GET", &format!("/v1/alerts?alert={name}"), &format!("{of_totals}{kind}"), b"").await.problem();
        let expected = format!("\"ann\" may not read the alert \"{name}\": expected a role that reads the view that it watches");
        assert_eq!((status, detail), (403, expected));
    }
    // A cursor gives no rights.
    let open = client.harness().catalog.open_alerts(None, None, 1).await.unwrap();
    let cursor = cursor_text(&OpenAlertName::new(&open[0]));
    let page = client.send("GET", &format!("/v1/alerts?cursor={cursor}"), &of_totals, b"").await.json();
    assert_eq!(page["alerts"][0]["alert"], "many");
    let of_all = token(&[]);
    assert_eq!(client.send("GET", "/v1/alerts", &of_all, b"").await.json()["alerts"].as_array().unwrap().len(), 2);
}
