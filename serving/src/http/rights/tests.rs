use access::{Grant, GrantScope, Keyring, NewToken, new_token};
use catalog::Role;
use serde_json::json;
use types::ErrorKind;
use types::vector::Vector;

use super::*;
use crate::harness::{Harness, NOW};
use crate::http::tests::{Client, Reply};

/// Every path there is, with a view or stream where it names one.
const PATHS: [(&str, &str); 22] = [
    ("/", ""),
    ("/healthz", ""),
    ("/readyz", ""),
    ("/metrics", ""),
    ("/v1/views", ""),
    ("/v1/streams", ""),
    ("/v1/sql", ""),
    ("/v1/views/{view}", "velocity"),
    ("/v1/views/{view}/row", "velocity"),
    ("/v1/views/{view}/rows", "velocity"),
    ("/v1/views/{view}/runs", "velocity"),
    ("/v1/streams/{stream}/events", "payments"),
    ("/v1/openapi.json", ""),
    ("/v1/sql/cursors/{cursor}", "0"),
    ("/v1/hot-keys", ""),
    ("/v1/sinks", ""),
    ("/v1/sinks/{sink}", "scored"),
    ("/v1/parameters", ""),
    ("/v1/parameters/{parameter}", "most"),
    ("/v1/alerts", ""),
    ("/v1/rows", ""),
    ("/v1/status", ""),
];

fn principal(role: Role, only: Option<GrantScope>) -> Arc<Principal> {
    Arc::new(Principal::new("ann", vec![Grant { role, only }]))
}

fn only(view: &str, stream: &str) -> Option<GrantScope> {
    Some(GrantScope { views: [view.to_owned()].into(), streams: [stream.to_owned()].into() })
}

/// A mark for each path, in their order.
#[test]
fn the_table_of_paths() {
    let marks = |caller: &dyn Fn() -> Result<Arc<Principal>>, public: &[&'static str]| -> String {
        let public: PublicPaths = public.iter().copied().collect();
        let mark = |(path, name): (&str, &str)| match decide(Some(path), Some(name), &public, caller()) {
            Ok(_) => 'y',
            Err(error) if error.kind() == ErrorKind::Unauthenticated => '?',
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Forbidden);
                '.'
            }
        };
        PATHS.map(mark).iter().collect()
    };
    let of = |role, only: Option<GrantScope>| marks(&|| Ok(principal(role, only.clone())), &[]);
    let nobody = || Err(Error::unauthenticated("no token"));
    //                                        / hrm vs q  vrrr e hssppars
    assert_eq!(marks(&nobody, &[]), /*     */ "??????????????????????");
    assert_eq!(marks(&nobody, &["/", "/healthz", "/readyz"]), "yyy???????????????????");
    assert_eq!(of(Role::Reader, None), /*  */ "yyyyyyyyyy..yyyyyy.yyy");
    assert_eq!(of(Role::Writer, None), /*  */ "yy..yyy....yyyyyy..yy.");
    assert_eq!(of(Role::Operator, None), /**/ "yyyyyyyyyyy.yyyyyyyyyy");
    assert_eq!(of(Role::Admin, None), /*   */ "yyyyyyyyyyyyyyyyyyyyyy");
    assert_eq!(of(Role::Reader, only("velocity", "payments")), "yy..yyyyyy..yyyyy..yy.");
    assert_eq!(of(Role::Reader, only("totals", "other")), "yy..yyy.....yyyyy..yy.");
    assert_eq!(of(Role::Writer, only("", "payments")), "yy..yyy....yyyyyy..yy.");
    assert_eq!(of(Role::Writer, only("", "other")), "yy..yyy.....yyyyy..yy.");
    assert_eq!(of(Role::Operator, only("velocity", "")), "yy..yyyyyyy.yyyyy..yy.");
    assert_eq!(marks(&|| Ok(principal(Role::Writer, None)), &["/metrics"]), "yy.yyyy....yyyyyy..yy.");
}

#[test]
fn no_path_is_missing_here() {
    let paths: BTreeSet<&str> = crate::http::table().into_iter().map(|route| route.path).collect();
    assert_eq!(PATHS.map(|(path, _)| path).into_iter().collect::<BTreeSet<_>>(), paths);
}

#[test]
fn a_path_that_nobody_thought_of_needs_an_admin() {
    for (role, is_allowed) in [(Role::Reader, false), (Role::Writer, false), (Role::Operator, false), (Role::Admin, true)] {
        let decided = decide(Some("/v1/new"), None, &PublicPaths::new(), Ok(principal(role, None)));
        assert_eq!(decided.is_ok(), is_allowed, "{role}");
    }
}

struct Protected {
    client: Client,
    keyring: Keyring,
}

impl Protected {
    /// A server that requires a token and leaves these paths open.
    async fn new(public: &[&'static str]) -> Protected {
        let harness = Harness::filled().await;
        let keyring = Keyring::new().unwrap();
        let authenticator = Authenticator { is_required: true, keyring: keyring.clone(), issuer: None, clock: Arc::new(|| NOW) };
        let public = Arc::new(public.iter().copied().collect());
        let node = harness.node.clone();
        let client = Client::protected(harness, node, Protection { authenticator, public, tls: None, hosts: Arc::default() }).await;
        Protected { client, keyring }
    }

    /// Makes this the one token there is, and returns its header.
    fn token(&self, role: Role, views: &[&str], streams: &[&str], expires_at: Option<i64>) -> String {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (views, streams) = (list(views), list(streams));
        let new = NewToken { name: "ann".to_owned(), role, views, streams, created_by: "me".to_owned(), expires_at };
        let (text, record) = new_token(new, 0).unwrap();
        self.keyring.set(vec![record]);
        format!("authorization: Bearer {text}\r\n")
    }

    async fn get(&self, path: &str, headers: &str) -> Reply {
        self.client.send("GET", path, headers, b"").await
    }

    async fn post(&self, path: &str, headers: &str, body: &str) -> Reply {
        self.client.send("POST", path, headers, body.as_bytes()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_that_counts_there_is_401_and_how_to_send_one() {
    let server = Protected::new(&[]).await;
    let good = server.token(Role::Admin, &[], &[], None);
    assert_eq!(server.get("/v1/views", &good).await.status, 200);
    let token = good.trim_start_matches("authorization: Bearer ").trim().to_owned();
    let forged = token.replace(&token[10..12], if &token[10..12] == "AA" { "BB" } else { "AA" });
    let wrong = [
        String::new(),
        format!("authorization: Bearer {forged}\r\n"),
        format!("authorization: Bearer {token}x\r\n"),
        format!("authorization: Basic {token}\r\n"),
        format!("authorization: {token}\r\n"),
        format!("x-authorization: Bearer {token}\r\n"),
        format!("cookie: token={token}\r\n"),
        "authorization: Bearer \r\n".to_owned(),
        // No issuer is configured: whatever is no token of ours is unknown.
        "authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.\r\n".to_owned(),
    ];
    for header in &wrong {
        for path in ["/v1/views", "/v1/views/velocity/row?device=a", "/metrics", "/readyz", "/healthz", "/", "/v1/no_such_path"] {
            let reply = server.get(path, header).await;
            assert_eq!(reply.status, 401, "{path} {header}");
            assert!(reply.head.contains("www-authenticate: bearer realm=\"basestream\""), "{}", reply.head);
            assert_eq!(reply.json()["type"], "urn:basestream:problem:unauthenticated");
        }
    }
    for (path, body) in [("/v1/sql", r#"{"query": "SELECT 1"}"#), ("/v1/streams/payments/events", "{}"), ("/v1/views/velocity/runs", "")] {
        assert_eq!(server.post(path, "", body).await.status, 401, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_expired_or_was_revoked_counts_no_more() {
    let server = Protected::new(&[]).await;
    let expired = server.token(Role::Admin, &[], &[], Some(NOW));
    assert_eq!(server.get("/v1/views", &expired).await.status, 401);
    let valid = server.token(Role::Admin, &[], &[], Some(NOW + 1));
    assert_eq!(server.get("/v1/views", &valid).await.status, 200);
    server.keyring.set(Vec::new());
    assert_eq!(server.get("/v1/views", &valid).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_its_rights_a_principal_gets_403_and_lists_show_it_what_it_may_read() {
    let server = Protected::new(&[]).await;
    let reader = server.token(Role::Reader, &["velocity"], &[], None);
    assert_eq!(server.get("/v1/views/velocity/row?device=a", &reader).await.status, 200);
    let views = server.get("/v1/views", &reader).await.json();
    assert_eq!(views["views"].as_array().unwrap().iter().map(|view| &view["view"]).collect::<Vec<_>>(), ["velocity"]);
    assert_eq!(server.get("/v1/streams", &reader).await.json()["streams"], json!([]));
    // Also what is not there: a name says nothing to who may not read it.
    for path in ["/v1/views/totals", "/v1/views/totals/row", "/v1/views/no_such_view", "/v1/views/%74otals", "/metrics", "/readyz"] {
        let reply = server.get(path, &reader).await;
        assert_eq!(reply.status, 403, "{path}");
        assert_eq!(reply.json()["type"], "urn:basestream:problem:forbidden");
        assert_eq!((reply.json()["principal"].as_str(), reply.json()["roles"].as_str()), (Some("ann"), Some("reader")), "{path}");
    }
    let sql = async |query: &str| server.post("/v1/sql", &reader, &json!({ "query": query }).to_string()).await.status;
    assert_eq!((sql("SELECT * FROM velocity").await, sql("SELECT * FROM velocity JOIN totals ON true").await), (200, 403));
    let event = r#"{"id":"x","ts":"2026-03-02T11:30:00Z","device":"a","amount":1,"status":"ok"}"#;
    assert_eq!(server.post("/v1/streams/payments/events", &reader, event).await.status, 403);
    assert_eq!(server.post("/v1/views/velocity/runs", &reader, "").await.status, 403);

    let writer = server.token(Role::Writer, &[], &["payments"], None);
    // It may: what is refused is the log, which is not the one of the checkpoints.
    assert_eq!(server.post("/v1/streams/payments/events", &writer, event).await.status, 503);
    assert_eq!(server.post("/v1/streams/other/events", &writer, event).await.status, 403);
    assert_eq!(server.get("/v1/views/velocity/row?device=a", &writer).await.status, 403);
    assert_eq!(server.get("/v1/streams", &writer).await.json()["streams"][0]["stream"], "payments");
    assert_eq!(server.get("/v1/views", &writer).await.json()["views"], json!([]));

    let operator = server.token(Role::Operator, &["velocity"], &[], None);
    assert_eq!(server.post("/v1/views/velocity/runs", &operator, "").await.status, 202);
    assert_eq!(server.post("/v1/views/totals/runs", &operator, "").await.status, 403);
    assert_eq!(server.post("/v1/streams/payments/events", &operator, event).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_several_views_need_the_right_to_read_each() {
    let server = Protected::new(&[]).await;
    let reader = server.token(Role::Reader, &["velocity", "pairs"], &[], None);
    let ask = async |body: &str| server.post("/v1/rows", &reader, body).await;
    assert_eq!(ask(r#"{"views": {"velocity": [{"device": "a"}], "pairs": []}}"#).await.status, 200);
    // The first without a right is named, whatever is wrong with the others.
    let (status, detail) = ask(r#"{"views": {"velocity": [{"devise": 1}], "totals": [{}], "no_such_view": []}}"#).await.problem();
    assert!(status == 403 && detail.contains("may not read the view \"totals\""), "{status} {detail}");
    // Also before it waits for a position that never comes.
    assert_eq!(ask(r#"{"views": {"no_such_view": []}, "after": "payments/0:900"}"#).await.status, 403);
    let writer = server.token(Role::Writer, &[], &[], None);
    assert_eq!(server.post("/v1/rows", &writer, r#"{"views": {"velocity": []}}"#).await.status, 403);
    assert_eq!(server.post("/v1/rows", "", r#"{"views": {}}"#).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_has_the_streams_that_its_principal_may_know_of() {
    let server = Protected::new(&[]).await;
    let one = r#"{"query": "SELECT 1"}"#;
    let cut = |reply: Reply| reply.json()["meta"]["cut"].as_str().unwrap().to_owned();
    let admin = server.token(Role::Admin, &[], &[], None);
    let whole = cut(server.post("/v1/sql", &admin, one).await);
    let named = Vector::from_token(&whole).unwrap().to_string();
    assert!(named.contains("payments/0:"), "{named}");
    let after = json!({ "query": "SELECT 1", "after": whole }).to_string();

    // Reads a view over the stream.
    let reader = server.token(Role::Reader, &["velocity"], &[], None);
    assert_eq!(cut(server.post("/v1/sql", &reader, one).await), whole);
    assert_eq!(cut(server.get("/v1/views/velocity/row?device=a", &reader).await), whole);
    assert_eq!(server.get(&format!("/v1/views/velocity/row?device=a&_after={whole}"), &reader).await.status, 200);
    assert_eq!(server.post("/v1/sql", &reader, &after).await.status, 200);
    assert_eq!(server.get("/v1/views/velocity/row?device=a&_after=other/0:1", &reader).await.status, 404);

    // Reads neither the stream nor a view over it.
    let other = server.token(Role::Reader, &[], &["other"], None);
    assert_eq!(cut(server.post("/v1/sql", &other, one).await), Vector::new().token());
    assert_eq!(server.post("/v1/sql", &other, &after).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_public_says_little_to_who_may_not_read_the_process() {
    let server = Protected::new(&["/", "/healthz", "/readyz"]).await;
    let admin = server.token(Role::Admin, &[], &[], None);
    assert_eq!(server.get("/", "").await.status, 200);
    assert_eq!(server.get("/healthz", "").await.json(), json!({ "status": "ok" }));
    let little = server.get("/readyz", "").await.json();
    assert_eq!(little.as_object().unwrap().keys().collect::<Vec<_>>(), ["catalog", "revision", "status"]);
    assert!(server.get("/readyz", &admin).await.json()["views_refused"].is_array());
    assert_eq!(server.get("/metrics", "").await.status, 401);
    // Public is public, whatever is sent.
    assert_eq!(server.get("/healthz", "authorization: Bearer nonsense\r\n").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_none_is_required_a_token_that_is_sent_still_counts() {
    let harness = Harness::filled().await;
    let protection = Protection::none(Arc::new(|| NOW)).unwrap();
    let keyring = protection.authenticator.keyring.clone();
    let node = harness.node.clone();
    let server = Protected { client: Client::protected(harness, node, protection).await, keyring };
    assert_eq!(server.get("/v1/views/totals/row", "").await.status, 200);
    let reader = server.token(Role::Reader, &["velocity"], &[], None);
    assert_eq!(server.get("/v1/views/totals/row", &reader).await.status, 403);
    assert_eq!(server.get("/v1/views/totals/row", "authorization: Bearer bst_unknown\r\n").await.status, 401);
}

/// Rows without an end: without the look at the token they would come for hours.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_token_is_revoked() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Protected::new(&[]).await;
    let token = server.token(Role::Admin, &[], &[], None);
    let body = json!({ "query": "SELECT value FROM range(0, 9000000000)" }).to_string();
    let request = format!(
        "POST /v1/sql HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n{token}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = tokio::net::TcpStream::connect(server.client.address()).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut piece = vec![0; 64 << 10];
    assert!(connection.read(&mut piece).await.unwrap() > 0);
    server.keyring.set(Vec::new());
    let rest = async {
        let mut last = Vec::new();
        while let Ok(read) = connection.read(&mut piece).await {
            if read == 0 {
                break;
            }
            last = piece[..read].to_vec();
        }
        last
    };
    let last = tokio::time::timeout(std::time::Duration::from_secs(60), rest).await.expect("timed out: the rows go on");
    assert!(!last.ends_with(b"0\r\n\r\n"), "it must not look whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_watches_the_hot_keys_is_let_go_when_its_token_is_revoked() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Protected::new(&[]).await;
    let token = server.token(Role::Reader, &["velocity"], &[], None);
    let request = format!("GET /v1/hot-keys HTTP/1.0\r\nhost: localhost\r\naccept: text/event-stream\r\n{token}\r\n");
    let mut connection = tokio::net::TcpStream::connect(server.client.address()).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    connection.read_exact(&mut status).await.unwrap();
    assert!(status.ends_with(b" 200"), "{}", String::from_utf8_lossy(&status));
    server.keyring.set(Vec::new());
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), connection.read_to_end(&mut rest)).await;
    ended.expect("timed out: the events go on").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_keys_are_those_of_views_that_a_token_may_read() {
    let server = Protected::new(&[]).await;
    let of_velocity = server.token(Role::Reader, &["velocity"], &[], None);
    for _ in 0..100 {
        assert_eq!(server.get("/v1/views/velocity/row?device=a", &of_velocity).await.status, 200);
    }
    let hot = server.get("/v1/hot-keys", &of_velocity).await.json();
    assert_eq!(hot["hot_keys"].as_array().unwrap().len(), 2, "one for each window: {hot}");
    let expected = json!({"view": "velocity", "key": {"device": "a"}, "seen_in": "lookups", "window": "1s", "share": 1.0,
        "per_second": 100.0, "seen_at": engine::events::format_timestamp(NOW)});
    assert_eq!(hot["hot_keys"][0], expected);
    let of_another = server.token(Role::Reader, &["totals"], &[], None);
    assert_eq!(server.get("/v1/hot-keys", &of_another).await.json(), json!({ "hot_keys": [] }));
}
