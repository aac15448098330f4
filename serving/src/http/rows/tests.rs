use serde_json::{Value, json};

use crate::harness::{Harness, event};
use crate::http::tests::Client;

const ALIKE: &str = "CREATE VIEW alike AS SELECT mine.device, count(DISTINCT theirs.device) AS devices FROM payments mine \
    JOIN payments theirs ON mine.status = theirs.status WHERE mine.device <> theirs.device GROUP BY mine.device";

/// Of each view, keys that are there and one that is not.
const KEYS: [(&str, &str); 4] = [
    ("velocity", r#"[{"device": "nobody"}, {"device": null}, {"device": "a"}]"#),
    ("alike", r#"[{"device": "c<&"}, {"device": "b"}]"#),
    ("totals", "[{}]"),
    ("pairs", r#"[{"status": "ok", "device": "a"}]"#),
];

/// Views over a snapshot, checkpoints and a fresh layer; one of them links keys.
async fn client() -> Client {
    let harness = Harness::filled().await;
    harness.define_view("alike", ALIKE).await;
    harness.fresh(1, &[event("7", "2026-03-02T11:59:00Z", "a", "0.50", "ok")]).await;
    let node = harness.node.clone();
    Client::of_node(harness, node).await
}

/// A body that asks for these keys of views, with other members.
fn body(more: &str) -> String {
    let views = KEYS.map(|(view, keys)| format!("\"{view}\": {keys}"));
    format!("{{\"views\": {{{}}}{more}}}", views.join(", "))
}

/// The same by one request for each view. All have the same cut and time.
async fn one_by_one(client: &Client, more: &str) -> Vec<(&'static str, Value)> {
    let mut answers = Vec::new();
    for (view, keys) in KEYS {
        let answer = client.post(&format!("/v1/views/{view}/rows"), &format!("{{\"keys\": {keys}{more}}}")).await;
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        answers.push((view, answer.json()));
    }
    answers
}

fn assert_same_rows(together: &Value, one_by_one: &[(&str, Value)]) {
    assert_eq!(together["views"].as_object().unwrap().len(), one_by_one.len());
    for (view, alone) in one_by_one {
        let of_view = &together["views"][view];
        assert_eq!((&of_view["rows"], &of_view["found"]), (&alone["rows"], &alone["found"]), "{view}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_several_views_are_those_of_each_alone_at_one_cut() {
    let client = client().await;
    let reply = client.post("/v1/rows", &body("")).await;
    let (together, alone) = (reply.json(), one_by_one(&client, "").await);
    assert_same_rows(&together, &alone);
    assert_eq!(together["views"]["velocity"]["rows"][2]["n_1h"], 3, "the fresh layer counts");
    assert_eq!(together["views"]["alike"]["found"], json!([true, false]));
    let meta = &together["meta"];
    for (view, alone) in &alone {
        assert_eq!((&meta["cut"], &meta["as_of"]), (&alone["meta"]["cut"], &alone["meta"]["as_of"]), "{view}");
    }
    assert_eq!(meta["versions"], json!({"alike": 1, "pairs": 1, "totals": 1, "velocity": 1}));
    assert_eq!((&meta["approximate"], &meta["from_archive"]), (&json!(["ids"]), &json!(false)));
    let text = String::from_utf8(reply.body).unwrap();
    let places = KEYS.map(|(view, _)| text.find(&format!("\"{view}\":{{\"rows\":")).unwrap());
    assert!(places.is_sorted(), "views keep the order of the request: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_several_views_are_answered_as_of_another_time() {
    let client = client().await;
    let more = r#", "as_of": "2026-03-02T11:40:00Z""#;
    let (together, alone) = (client.post("/v1/rows", &body(more)).await.json(), one_by_one(&client, more).await);
    assert_same_rows(&together, &alone);
    let (meta, of_velocity) = (&together["meta"], &alone[0].1["meta"]);
    assert_eq!((&meta["as_of"], &meta["from_archive"]), (&json!("2026-03-02T11:40:00Z"), &json!(true)));
    assert_eq!(meta["cut"], of_velocity["cut"], "what is committed, which the archive has");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_cannot_be_computed_are_listed_with_their_view() {
    let harness = Harness::filled().await;
    let few = "CREATE VIEW few WITH (max_state_bytes = '1B') AS SELECT device, count(DISTINCT status) AS kinds \
        FROM payments GROUP BY device";
    harness.define_view("few", few).await;
    let node = harness.node.clone();
    let client = Client::of_node(harness, node).await;
    let answer = client.post("/v1/rows", r#"{"views": {"velocity": [{"device": "a"}], "few": [{"device": "a"}]}}"#).await.json();
    let errors = answer["meta"]["errors"].as_array().unwrap();
    assert_eq!((errors.len(), &errors[0]["view"], &errors[0]["key"]), (1, &json!("few"), &json!({"device": "a"})));
    assert_eq!((&answer["views"]["few"]["rows"][0]["kinds"], &answer["views"]["velocity"]["found"]), (&Value::Null, &json!([true])));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_view_is_answered_with_no_rows_and_a_view_without_keys_with_none_of_its_own() {
    let client = client().await;
    let none = client.post("/v1/rows", r#"{"views": {}}"#).await.json();
    assert_eq!((&none["views"], &none["meta"]["versions"]), (&json!({}), &json!({})));
    let empty = client.post("/v1/rows", r#"{"views": {"velocity": []}}"#).await.json();
    assert_eq!(empty["views"], json!({"velocity": {"rows": [], "found": []}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_answered_with_what_is_wrong_and_in_which_view() {
    let client = client().await;
    let of = |view: &str, count: usize| format!("\"{view}\": [{}]", vec!["{\"device\": \"a\", \"status\": \"ok\"}"; count].join(", "));
    let too_many = format!("{{\"views\": {{{}, {}}}}}", of("pairs", 5_000), of("velocity", 5_001));
    let cases = [
        ("", 400, "expected {\"views\": {\"<view>\": "),
        (r#"{"keys": []}"#, 400, "expected {\"views\": "),
        (r#"{"views": [{"device": "a"}]}"#, 400, "expected an object that has an array of keys for each view"),
        (r#"{"views": {"velocity": {"device": "a"}}}"#, 400, "expected {\"views\": "),
        (r#"{"views": {}, "limit": 7}"#, 400, "unknown field `limit`"),
        (r#"{"views": {}, "as_of": "2026-03-01"}"#, 400, "2026-03-01"),
        (r#"{"views": {}, "after": "then"}"#, 400, "expected the `position` of an append"),
        (r#"{"views": {}, "after": "nowhere/0:1"}"#, 404, "\"nowhere\""),
        (r#"{"views": {"totals": [{}], "velocty": []}}"#, 404, "there is no view \"velocty\": "),
        (r#"{"views": {"payments": []}}"#, 404, "\"payments\" is a stream"),
        (r#"{"views": {"velocity": [], "totals": [{}], "velocity": []}}"#, 400, "the view \"velocity\" is named twice"),
        (too_many.as_str(), 413, "10001 keys in one lookup: expected at most 10000"),
    ];
    for (body, status, expected) in cases {
        let (found, detail) = client.post("/v1/rows", body).await.problem();
        assert!(found == status && detail.contains(expected), "{}: {found} {detail}", &body[..body.len().min(80)]);
    }
    let unknown = client.post("/v1/rows", r#"{"views": {"totals": [{}], "velocity": [{"device": "a"}, {"devise": "a"}]}}"#).await;
    assert_eq!(unknown.problem(), (400, "\"devise\" is not a key column of the view: expected device TEXT".to_owned()));
    assert_eq!((&unknown.json()["view"], &unknown.json()["key"]), (&json!("velocity"), &json!("1")));
    assert!(client.post("/v1/rows", r#"{"views": {"velocty": []}}"#).await.problem().1.contains("velocity"), "what may be meant");
    assert_eq!(client.send("GET", "/v1/rows", "", b"").await.status, 405);
}
