//! Events scored one by one: what a sink says of an event before it is stored, what its process says once it is, and the
//! record in the topic are the same, whatever dies in between.

use access::{Authenticator, Keyring, NewToken, new_token};
use basestream_tests::Harness;
use bytes::Bytes;
use catalog::Role;
use serving::http::Protection;
use serving::{Outcome, Scorer};
use types::ErrorKind;
use types::vector::{PartitionId, Vector};

use super::*;

/// Long enough for a worker that begins again; whoever waits for nothing waits as long.
const PATIENCE: Duration = Duration::from_secs(3);

fn record((key, value): &(Option<String>, String)) -> NewRecord {
    let bytes = |text: &String| Bytes::copy_from_slice(text.as_bytes());
    NewRecord { key: key.as_ref().map(bytes), value: Some(bytes(value)), headers: Vec::new(), partition_by: None }
}

/// The record that an outcome says, if it says one.
fn row(outcome: &Outcome) -> Option<Value> {
    outcome.row().map(|row| serde_json::from_slice(row).unwrap())
}

/// One partition: an event then sees every earlier one, and the clock of events is that of its partition.
async fn project() -> (Harness, Place) {
    let mut harness = Harness::new().await.unwrap();
    let url = format!("file://{}", harness.path().join("log").display());
    let place = Place { url, suffix: format!("-{}", Uuid::new_v4().simple()) };
    harness.log = place.log().await;
    for topic in ["in", "out"] {
        harness.log.create_topic(&place.topic(topic), 1).await.unwrap();
    }
    let (stream, sink) = (place.sql(STREAM), place.sql(INCLUSIVE));
    let views = [("by_key", BY_KEY), ("links", LINKS)].map(|(name, sql)| (DefinitionKind::View, name, sql));
    let definitions = [(DefinitionKind::Stream, "s", &*stream)].into_iter().chain(views).chain([(DefinitionKind::Sink, "after", &*sink)]);
    harness.define(&definitions.collect::<Vec<_>>()).await.unwrap();
    (harness, place)
}

async fn scored(seed: u64) {
    show_logs();
    let mut rng = StdRng::seed_from_u64(seed);
    let (harness, place) = project().await;
    let failed = Arc::new(AtomicUsize::new(0));
    let mut process = Process::start(&harness, &place, "w0", &failed).await;
    let partition = PartitionId::new("s", 0);
    let (mut asked, mut told, mut lives) = (BTreeMap::new(), BTreeMap::new(), 0);
    let mut position = Vector::new();
    for number in 0..120 {
        if rng.random_ratio(1, 30) {
            lives += 1;
            process.kill().await;
            process = Process::start(&harness, &place, &format!("w{lives}"), &failed).await;
        }
        let event = record(&event(&mut rng, number));
        let sink = process.reads.loaded().unwrap().registry.sinks[0].clone();
        let before = async {
            process.reads.wait_for(&position).await?;
            let read_view = process.reads.read_view_of(&["by_key".into(), "links".into()]).await?;
            process.sinks.score(&read_view, &sink, &event).await
        };
        let before = match before.await {
            Ok(scored) => Some(scored.outcome),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Input | ErrorKind::Unavailable), "{error}");
                None
            }
        };
        let stored = process.sinks.append(&sink, event, PATIENCE).await.unwrap();
        position.set(partition.clone(), stored.offset.next());
        asked.extend(before.map(|outcome| ((0, stored.offset.0), outcome)));
        told.extend(stored.outcome.map(|outcome| ((0, stored.offset.0), outcome)));
    }
    let expected = expected(&harness, &place).await;
    let rows: BTreeMap<_, _> = expected.iter().filter_map(|(event, row)| Some((*event, row.after.clone()?))).collect();
    let began = Instant::now();
    while put_out(&harness, &place, INCLUSIVE).await.len() < rows.len() {
        assert!(began.elapsed() < Duration::from_secs(90), "seed {seed}: the records do not come");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    process.finish().await;
    assert_eq!(put_out(&harness, &place, INCLUSIVE).await, rows);
    let (mut compared, mut unknown) = (0, 0);
    for (event, outcome) in &asked {
        // It is not known then whether the event's id was there before.
        if expected.contains_key(event) {
            assert_eq!(row(outcome).as_ref(), rows.get(event), "seed {seed}: asked of {event:?}: {outcome:?}");
            compared += 1;
        }
    }
    for (event, outcome) in &told {
        match outcome {
            Outcome::Scored(_) | Outcome::Filtered => {
                assert!(expected.contains_key(event), "seed {seed}: {event:?}: {outcome:?}");
                assert_eq!(row(outcome).as_ref(), rows.get(event), "seed {seed}: told of {event:?}: {outcome:?}");
            }
            Outcome::Duplicate | Outcome::DeadLetter => assert!(!expected.contains_key(event), "seed {seed}: {event:?}: {outcome:?}"),
            Outcome::Unknown => unknown += 1,
            Outcome::Failed(row) => panic!("no event fails: {row:?}"),
        }
    }
    assert!(lives > 0 && compared > 80 && told.len() - unknown > 80, "seed {seed}: {lives}, {compared}, {}, {unknown}", told.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_scored_before_it_is_stored_as_after() {
    for seed in 1..=2 {
        scored(seed).await;
    }
}

/// A process whose events are scored over HTTP.
struct Served {
    url: String,
    http: reqwest::Client,
}

impl Served {
    async fn post(&self, path: &str, token: &str, body: &str) -> (u16, Value) {
        let url = format!("{}/v1/sinks/{path}", self.url);
        let reply = self.http.post(url).bearer_auth(token).header("content-type", "application/json").body(body.to_owned()).send();
        let reply = reply.await.unwrap();
        (reply.status().as_u16(), reply.json().await.unwrap())
    }

    async fn get(&self, token: &str) -> (u16, Value) {
        let reply = self.http.get(format!("{}/v1/sinks", self.url)).bearer_auth(token).send().await.unwrap();
        (reply.status().as_u16(), reply.json().await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_event_is_scored_as_over_http_and_for_whom() {
    show_logs();
    let (harness, place) = project().await;
    let process = Process::start(&harness, &place, "w0", &Arc::default()).await;
    let token = |name: &str, role, views: &[&str], streams: &[&str]| {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let (views, streams) = (list(views), list(streams));
        new_token(NewToken { name: name.into(), role, views, streams, created_by: "tests".into(), expires_at: None }, 0).unwrap()
    };
    let admin = token("admin", Role::Admin, &[], &[]);
    let both = token("both", Role::Reader, &["by_key", "links"], &[]);
    let one = token("one", Role::Reader, &["by_key"], &[]);
    let keyring = Keyring::new().unwrap();
    keyring.set([&admin, &both, &one].map(|(_, record)| record.clone()).to_vec());
    let authenticator = Authenticator { is_required: true, keyring, issuer: None, clock: Arc::new(|| 1) };
    let protection = Protection { authenticator, public: Arc::default(), tls: None, hosts: Arc::default() };
    let bound = serving::http::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let served = Served { url: format!("http://{}", bound.address), http: reqwest::Client::new() };
    let stop = CancellationToken::new();
    let http = serving::http::serve(process.reads.clone(), place.log().await, None, protection, bound, stop.clone());

    let event = |id: &str, x: i64| json!({ "id": id, "ts": BEGIN, "k": "k1", "u": "k1-u", "x": x }).to_string();
    // Until the worker has taken its partition over, nothing is stored.
    let began = Instant::now();
    loop {
        let (status, answer) = served.post("after?store=true", &admin.0, &event("e1", 1)).await;
        match status {
            409 => assert!(answer["detail"].as_str().unwrap().contains("have 0 of the partitions"), "{answer}"),
            _ => {
                assert_eq!((status, &answer["status"], &answer["row"]["n_1h"]), (200, &json!("scored"), &json!(1)), "{answer}");
                break;
            }
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (path, token, body, status, expected) in [
        ("after", &admin.0, event("e2", 2), 200, "\"status\":\"scored\""),
        ("after", &both.0, event("e2", 2), 200, "\"n_1h\":2"),
        ("after?store=false", &admin.0, event("e2", 5), 200, "\"status\":\"filtered\""),
        ("after?store=true", &admin.0, event("e1", 1), 200, "\"status\":\"duplicate\""),
        ("after?store=true", &both.0, event("e2", 2), 403, "may not append"),
        ("after", &one.0, event("e2", 2), 403, "may not ask the sink"),
        ("nothing", &one.0, event("e2", 2), 403, "may not ask the sink"),
        ("afte", &admin.0, event("e2", 2), 404, "did you mean"),
        ("after", &admin.0, "{}".to_owned(), 400, "the event is not one of the stream"),
        ("after", &admin.0, format!("[{},{}]", event("a", 1), event("b", 1)), 400, "2 events: expected one JSON object"),
        ("after?store=maybe", &admin.0, event("e2", 2), 400, "expected true or false"),
        ("after?timeout_ms=0", &admin.0, event("e2", 2), 400, "expected milliseconds"),
        ("after?wait=1", &admin.0, event("e2", 2), 400, "there is no parameter"),
        ("after", &"wrong".to_owned(), event("e2", 2), 401, ""),
    ] {
        let (found, answer) = served.post(path, token, &body).await;
        assert!(found == status && answer.to_string().contains(expected), "{path} {body}: {found} {answer}");
    }
    let listed = |answer: &Value| answer["sinks"].as_array().unwrap().len();
    assert_eq!(listed(&served.get(&admin.0).await.1), 1);
    assert_eq!(listed(&served.get(&both.0).await.1), 1);
    assert_eq!(listed(&served.get(&one.0).await.1), 0);
    // One event was stored once, and once more as a duplicate.
    assert_eq!(put_out(&harness, &place, INCLUSIVE).await.len(), 1);

    // Many at once: each answer is the record of its own event.
    let asked = (0..40).map(|number| {
        let body = event(&format!("m{number}"), 3);
        let (served, token) = (&served, &admin.0);
        async move { (number, served.post("after?store=true", token, &body).await) }
    });
    for (number, (status, answer)) in futures::future::join_all(asked).await {
        // The log of this process fails now and then: its worker begins again, and has no partition meanwhile.
        assert!([200, 409, 504].contains(&status), "{answer}");
        if answer["status"] == "scored" {
            assert_eq!(answer["row"]["id"], json!(format!("m{number}")), "{answer}");
        }
    }
    stop.cancel();
    http.await.unwrap().unwrap();
    process.finish().await;
}
