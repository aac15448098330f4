use std::time::{Duration, Instant};

use access::{Authenticator, Keyring, NewToken, new_token};
use catalog::Role;
use serde_json::{Value, json};

use super::{MAX_OPEN, has_room};
use crate::harness::{Harness, NOW, event};
use crate::http::Protection;
use crate::http::tests::{Client, Reply};
use crate::limits::ServingLimits;

/// Ten rows that are a column each of the same number.
const TEN: &str = "SELECT value AS n FROM range(0, 10) ORDER BY n";

async fn first(client: &Client, query: &str, page_rows: usize) -> Reply {
    client.post("/v1/sql", &json!({ "query": query, "page_rows": page_rows }).to_string()).await
}

async fn next(client: &Client, cursor: &str) -> Reply {
    client.post(&format!("/v1/sql/cursors/{cursor}"), "").await
}

fn cursor_of(page: &Reply) -> Option<String> {
    page.json()["next"].as_str().map(str::to_owned)
}

fn numbers(page: &Reply) -> Vec<i64> {
    assert_eq!(page.status, 200, "{}", String::from_utf8_lossy(&page.body));
    page.json()["rows"].as_array().unwrap().iter().map(|row| row["n"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_all_rows_once_and_in_order() {
    let client = Client::limited(ServingLimits::default()).await;
    for page_rows in [1, 3, 5, 9, 10, 11] {
        let mut page = first(&client, TEN, page_rows).await;
        let mut found = Vec::new();
        loop {
            let of_page = numbers(&page);
            assert!(of_page.len() <= page_rows);
            found.extend(of_page);
            let Some(cursor) = cursor_of(&page) else { break };
            page = next(&client, &cursor).await;
        }
        assert_eq!(found, Vec::from_iter(0..10), "{page_rows}");
        assert_eq!(page.json()["next"], Value::Null);
    }
    let none = first(&client, "SELECT 1 AS n WHERE false", 3).await;
    assert_eq!((numbers(&none), cursor_of(&none)), (vec![], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_stand_where_the_first_one_does() {
    let harness = Harness::new().await;
    harness
        .checkpoint(0, &[event("1", "2026-03-01T10:00:00Z", "a", "1.00", "ok"), event("2", "2026-03-01T10:00:00Z", "b", "1.00", "ok")])
        .await;
    harness.node.refresh().await.unwrap();
    let node = harness.node.clone();
    let client = Client::of_node(harness, node).await;
    let page = first(&client, "SELECT device, n_7d AS n FROM velocity ORDER BY device", 1).await;
    let cursor = cursor_of(&page).unwrap();
    client.harness().checkpoint(1, &[event("3", "2026-03-01T10:00:00Z", "b", "1.00", "ok")]).await;
    client.harness().node.refresh().await.unwrap();
    let later = next(&client, &cursor).await;
    assert_eq!((numbers(&later), &later.json()["rows"][0]["device"]), (vec![1], &json!("b")));
    assert_eq!(later.json()["meta"]["cut"], page.json()["meta"]["cut"]);
    let now = first(&client, "SELECT n_7d AS n FROM velocity WHERE device = 'b'", 1).await;
    assert_eq!(numbers(&now), [2], "a new query counts what came since");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_for_one_page_and_ends_with_a_reason() {
    let client = Client::limited(ServingLimits::default()).await;
    let second = cursor_of(&first(&client, TEN, 4).await).unwrap();
    let third = cursor_of(&next(&client, &second).await).unwrap();
    // A client that repeats a request must not miss rows.
    let (status, detail) = next(&client, &second).await.problem();
    assert_eq!(status, 410, "{detail}");
    assert!(detail.contains("the `next` of that page"), "{detail}");
    assert_eq!(numbers(&next(&client, &third).await), [8, 9]);
    let (status, detail) = next(&client, &third).await.problem();
    assert!(status == 410 && detail.contains("all of its pages were sent"), "{status} {detail}");

    let cursor = cursor_of(&first(&client, TEN, 4).await).unwrap();
    let path = format!("/v1/sql/cursors/{cursor}");
    assert_eq!(client.send("DELETE", &path, "", b"").await.status, 204);
    let (status, detail) = next(&client, &cursor).await.problem();
    assert!(status == 410 && detail.contains("DELETE"), "{status} {detail}");
    for unknown in ["x", "0.1", &format!("{}.1", uuid::Uuid::new_v4().simple())] {
        assert_eq!(next(&client, unknown).await.problem().0, 404, "{unknown}");
        assert_eq!(client.send("DELETE", &format!("/v1/sql/cursors/{unknown}"), "", b"").await.problem().0, 404, "{unknown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_asks_for_ends() {
    let client = Client::limited(ServingLimits { cursor_idle: Duration::from_millis(50), ..ServingLimits::default() }).await;
    let began = Instant::now();
    let problem = loop {
        // One that was asked for in time, because this machine is slow to end it, has another cursor.
        let cursor = cursor_of(&first(&client, TEN, 4).await).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let reply = next(&client, &cursor).await;
        if reply.status != 200 {
            break reply.problem();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "timed out: the answer does not end");
    };
    assert!(problem.0 == 410 && problem.1.contains("in time"), "{problem:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_principal_no_more_answers_are_open_than_may_be() {
    let client = Client::limited(ServingLimits { cursors_per_principal: 2, ..ServingLimits::default() }).await;
    let open = cursor_of(&first(&client, TEN, 4).await).unwrap();
    first(&client, TEN, 4).await;
    let refused = first(&client, TEN, 4).await;
    assert!(refused.status == 429 && refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(first(&client, TEN, 10).await.status, 429, "how many rows it has is not known before");
    client.send("DELETE", &format!("/v1/sql/cursors/{open}"), "", b"").await;
    assert_eq!(first(&client, TEN, 4).await.status, 200);
}

#[test]
fn a_refusal_names_the_setting_only_if_that_was_reached() {
    let refused = |of_principal, open| has_room(of_principal, 16, open).err().map(|error| error.fact("limit").map(str::to_owned));
    assert_eq!(refused(15, MAX_OPEN - 1), None);
    assert_eq!(refused(16, MAX_OPEN), Some(Some("serving.limits.cursors_per_principal".to_owned())));
    assert_eq!(refused(15, MAX_OPEN), Some(None), "no setting allows more of all principals");
}

/// One place for queries: an answer that waits for its reader must not take it.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_answer_takes_no_place_among_the_queries_that_run() {
    let one = ServingLimits { concurrent_queries: 1, queued_queries: 1, queue_wait: Duration::from_secs(10), ..ServingLimits::default() };
    let client = Client::limited(one).await;
    let mut open = first(&client, TEN, 4).await;
    assert_eq!(first(&client, TEN, 20).await.status, 200);
    let mut pages = 1;
    while let Some(cursor) = cursor_of(&open) {
        open = next(&client, &cursor).await;
        assert_eq!(open.status, 200);
        pages += 1;
    }
    assert_eq!(pages, 3, "ten rows, four at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_for_the_principal_that_asked() {
    let harness = Harness::filled().await;
    let keyring = Keyring::new().unwrap();
    let tokens = ["ann", "bob"].map(|name| {
        let list = Vec::new;
        let new = NewToken {
            name: name.to_owned(),
            role: Role::Reader,
            views: list(),
            streams: list(),
            created_by: "me".into(),
            expires_at: None,
        };
        new_token(new, 0).unwrap()
    });
    keyring.set(tokens.iter().map(|(_, record)| record.clone()).collect());
    let authenticator = Authenticator { is_required: true, keyring, issuer: None, clock: std::sync::Arc::new(|| NOW) };
    let node = harness.node.clone();
    let protection = Protection { authenticator, ..Protection::none(std::sync::Arc::new(|| NOW)).unwrap() };
    let client = Client::protected(harness, node, protection).await;
    let [ann, bob] = tokens.map(|(text, _)| format!("authorization: Bearer {text}\r\n"));
    let body = json!({ "query": TEN, "page_rows": 4 }).to_string();
    let cursor = cursor_of(&client.send("POST", "/v1/sql", &ann, body.as_bytes()).await).unwrap();
    let path = format!("/v1/sql/cursors/{cursor}");
    assert_eq!(client.send("POST", &path, &bob, b"").await.status, 404);
    assert_eq!(client.send("DELETE", &path, &bob, b"").await.status, 404);
    assert_eq!(client.send("POST", &path, "", b"").await.status, 401);
    assert_eq!(numbers(&client.send("POST", &path, &ann, b"").await), [4, 5, 6, 7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_of_json_and_of_a_size_that_can_be() {
    let client = Client::limited(ServingLimits::default()).await;
    for page_rows in [0, 100_001] {
        assert_eq!(first(&client, TEN, page_rows).await.problem().0, 400);
    }
    let body = json!({ "query": TEN, "page_rows": 4 }).to_string();
    let refused = client.send("POST", "/v1/sql", "accept: text/csv\r\n", body.as_bytes()).await;
    assert!(refused.problem().1.contains("page_rows needs JSON"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_rows_holds_for_all_pages_together() {
    let client = Client::limited(ServingLimits { result_rows: Some(9), ..ServingLimits::default() }).await;
    let reply = client.post("/v1/sql", &json!({ "query": TEN }).to_string()).await;
    let (status, detail) = reply.problem();
    assert!(status == 413 && detail.contains("more than 9 rows"), "{status} {detail}");
    assert_eq!(first(&client, TEN, 4).await.status, 413);
}
