use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use serde_json::json;

use super::*;
use crate::http::tests::Client;
use crate::limits::ServingLimits;
use crate::read_view::ReadView;
use crate::status_reporter::StatusReporter;

/// Counts the reports, and hands back what the node said.
#[derive(Default)]
struct CountingReporter {
    made: AtomicUsize,
}

impl StatusReporter for CountingReporter {
    fn report<'a>(&'a self, _: &'a ReadView, ready: Value) -> BoxFuture<'a, Result<Value>> {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        Box::pin(async move { Ok(json!({ "made": made, "ready": ready, "views": [{"view": "a"}, {"view": "ab"}, {"view": "c"}] })) })
    }
}

async fn client() -> Client {
    let client = Client::limited(ServingLimits::default()).await;
    client.harness().node.attach_status_reporter(Arc::new(CountingReporter::default()));
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_has_no_reporter_yet_says_so() {
    let client = Client::limited(ServingLimits::default()).await;
    let reply = client.send("GET", "/v1/status", "", b"").await;
    assert_eq!(reply.problem(), (503, "this process has no status to report yet: try again".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_ask_within_two_seconds_get_one_report_with_what_the_node_says_of_itself() {
    let client = client().await;
    let asked = Instant::now();
    let requests: Vec<_> = (0..20).map(|_| client.send("GET", "/v1/status", "", b"")).collect();
    let answers: Vec<Value> = futures::future::join_all(requests).await.iter().map(|reply| reply.json()).collect();
    // One that comes late, on a machine that is busy, may get the next one.
    let most = 1 + asked.elapsed().as_secs() / KEPT_FOR.as_secs();
    let made = answers.iter().map(|answer| answer["made"].as_u64().unwrap()).max().unwrap();
    assert!(made <= most, "{made} reports, {most} at most");
    assert_eq!(answers[0]["ready"], client.send("GET", "/readyz", "", b"").await.json());
}

#[test]
fn what_takes_long_is_made_more_rarely_and_yet_within_a_quarter_of_a_minute() {
    let kept = [0, 50, 100, 400, 5_000, u64::MAX].map(|millis| kept_for(Duration::from_millis(millis)).as_millis());
    assert_eq!(kept, [2_000, 2_000, 2_000, 8_000, 15_000, 15_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_a_list_are_chosen_by_name_and_number_and_all_are_counted() {
    let client = client().await;
    for (query, views, count) in
        [("", &["a", "ab", "c"][..], 3), ("?name=a", &["a", "ab"], 2), ("?limit=1&name=a", &["a"], 2), ("?name=x", &[], 0)]
    {
        let answer = client.send("GET", &format!("/v1/status{query}"), "", b"").await.json();
        let shown: Vec<&str> = answer["views"].as_array().unwrap().iter().map(|view| view["view"].as_str().unwrap()).collect();
        assert_eq!((&shown[..], &answer["counts"]), (views, &json!({ "views": count })), "{query}");
    }
    for (query, message) in [
        ("?limit=0", "limit is '0': expected 1 to 1000"),
        ("?limit=1001", "limit is '1001': expected 1 to 1000"),
        ("?views=a", "there is no parameter 'views': expected limit or name"),
    ] {
        assert_eq!(client.send("GET", &format!("/v1/status{query}"), "", b"").await.problem(), (400, message.to_owned()));
    }
}
