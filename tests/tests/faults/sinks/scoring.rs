//! Events scored one by one: what a sink says of an event before it is stored, what its process says once it is, and
//! the record in the topic are the same, whatever dies in between.

use access::{Authenticator, Keyring, NewToken, new_token};
use basestream_tests::{Harness, until};
use bytes::Bytes;
use catalog::Role;
use serving::http::Protection;
use serving::{EventOutcome, Scorer};
use tokio::task::JoinHandle;
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
fn row(outcome: &EventOutcome) -> Option<Value> {
    outcome.row().map(|row| serde_json::from_slice(row).unwrap())
}

/// One partition: an event then sees every earlier one, and the clock of events is that of its partition.
async fn project() -> (Harness, TestLog) {
    project_of(1, &AFTER).await
}

async fn scored(seed: u64) {
    show_logs();
    let mut rng = StdRng::seed_from_u64(seed);
    let (harness, test_log) = project().await;
    let failed = Arc::new(AtomicUsize::new(0));
    let mut process = Process::start(&harness, &test_log, "w0", &failed).await;
    let partition = PartitionId::new("s", 0);
    let (mut asked, mut reported, mut lives) = (BTreeMap::new(), BTreeMap::new(), 0);
    let mut position = Vector::new();
    for number in 0..120 {
        if rng.random_ratio(1, 30) {
            lives += 1;
            process.kill().await;
            process = Process::start(&harness, &test_log, &format!("w{lives}"), &failed).await;
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
        let stored = process.sinks.append(&sink, event, Vec::new(), PATIENCE).await.unwrap();
        position.set(partition.clone(), stored.offset.next());
        asked.extend(before.map(|outcome| ((0, stored.offset.0), outcome)));
        reported.extend(stored.outcome.map(|outcome| ((0, stored.offset.0), outcome)));
    }
    let expected = expected(&harness, &test_log, ServingClock::Event).await;
    let rows: BTreeMap<_, _> = expected.iter().filter_map(|(event, row)| Some((*event, row.after.clone()?))).collect();
    let began = Instant::now();
    while put_out(&harness, &test_log, INCLUSIVE).await.len() < rows.len() {
        assert!(began.elapsed() < Duration::from_secs(120), "timed out: seed {seed}: the records do not come");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    process.finish().await;
    assert_eq!(put_out(&harness, &test_log, INCLUSIVE).await, rows);
    let (mut compared, mut unknown) = (0, 0);
    for (event, outcome) in &asked {
        // It is not known then whether the event's id was there before.
        if expected.contains_key(event) {
            assert_eq!(row(outcome).as_ref(), rows.get(event), "seed {seed}: asked of {event:?}: {outcome:?}");
            compared += 1;
        }
    }
    for (event, outcome) in &reported {
        match outcome {
            EventOutcome::Scored(_) | EventOutcome::Filtered => {
                assert!(expected.contains_key(event), "seed {seed}: {event:?}: {outcome:?}");
                assert_eq!(row(outcome).as_ref(), rows.get(event), "seed {seed}: outcome of {event:?}: {outcome:?}");
            }
            EventOutcome::Duplicate | EventOutcome::DeadLetter => {
                assert!(!expected.contains_key(event), "seed {seed}: {event:?}: {outcome:?}")
            }
            EventOutcome::Unknown => unknown += 1,
            EventOutcome::Failed(row) => panic!("no event fails: {row:?}"),
        }
    }
    assert!(lives > 0 && compared > 80 && reported.len() - unknown > 80, "seed {seed}: {lives}, {compared}, {}, {unknown}", reported.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_scored_before_it_is_stored_as_after() {
    for seed in 1..=2 {
        scored(seed).await;
    }
}

/// Its worker dies before a checkpoint holds the event, and the next one decides by a version that leaves nothing out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_client_heard_that_it_is_filtered_gets_no_record_from_the_next_worker() {
    show_logs();
    let (harness, test_log) = project().await;
    let reliable = async || Arc::new(Flaky { log: test_log.log().await, append: Arc::new(|_| Append::default()), failed: Arc::default() });
    let store = async |process: &Process, id: &str| {
        let sink = process.reads.loaded().unwrap().registry.sinks[0].clone();
        let event = record(&(Some("k1".to_owned()), event_json(id, 5)));
        process.sinks.append(&sink, event, Vec::new(), Duration::from_secs(120)).await.unwrap()
    };
    let process = Process::start_committing(&harness, &test_log, "w0", reliable().await, Duration::from_secs(3_600)).await;
    let filtered = store(&process, "e1").await;
    assert_eq!((filtered.offset, filtered.outcome), (Offset(0), Some(EventOutcome::Filtered)));
    process.kill().await;
    second_version(&harness, test_log.sql(&INCLUSIVE.replace(" WHERE e.x <> 5", ""))).await;
    let process = Process::start_on(&harness, &test_log, "w1", reliable().await).await;
    let scored = store(&process, "e2").await;
    assert!(matches!(scored.outcome, Some(EventOutcome::Scored(_))), "{scored:?}");
    let out = put_out(&harness, &test_log, INCLUSIVE).await;
    assert_eq!(out.into_keys().collect::<Vec<_>>(), [(0, scored.offset.0)]);
    process.finish().await;
}

/// The HTTP of a process whose events are scored, and the tokens of who asks.
struct Served {
    url: String,
    client: reqwest::Client,
    admin: String,
    /// May read both views of the sink.
    both: String,
    /// May read one of them.
    one: String,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Served {
    async fn start(process: &Process, test_log: &TestLog) -> Served {
        let token = |name: &str, role, views: &[&str]| {
            let (views, streams) = (views.iter().map(ToString::to_string).collect(), Vec::new());
            new_token(NewToken { name: name.into(), role, views, streams, created_by: "tests".into(), expires_at: None }, 0).unwrap()
        };
        let (admin, of_admin) = token("admin", Role::Admin, &[]);
        let (both, of_both) = token("both", Role::Reader, &["by_key", "links"]);
        let (one, of_one) = token("one", Role::Reader, &["by_key"]);
        let keyring = Keyring::new().unwrap();
        keyring.set(vec![of_admin, of_both, of_one]);
        let authenticator = Authenticator { is_required: true, keyring, issuer: None, clock: Arc::new(|| 1) };
        let protection = Protection { authenticator, public: Arc::default(), tls: None, hosts: Arc::default() };
        let bound = serving::http::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let (url, stop) = (format!("http://{}", bound.address), CancellationToken::new());
        let task = serving::http::serve(process.reads.clone(), test_log.log().await, None, protection, bound, stop.clone());
        Served { url, client: reqwest::Client::new(), admin, both, one, stop, task }
    }

    async fn post(&self, path: &str, token: &str, body: &str) -> (u16, Value) {
        let url = format!("{}/v1/sinks/{path}", self.url);
        let reply = self.client.post(url).bearer_auth(token).header("content-type", "application/json").body(body.to_owned()).send();
        let reply = reply.await.unwrap();
        (reply.status().as_u16(), reply.json().await.unwrap())
    }

    /// Stores an event. A worker that begins again has no partition meanwhile.
    async fn store(&self, body: &str) -> Value {
        let began = Instant::now();
        loop {
            let (status, answer) = self.post("after?store=true", &self.admin, body).await;
            if status == 200 {
                return answer;
            }
            assert!([409, 504].contains(&status), "{answer}");
            assert!(began.elapsed() < Duration::from_secs(120), "timed out: the event is not stored: {answer}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn sinks(&self, token: &str) -> Vec<Value> {
        let reply = self.client.get(format!("{}/v1/sinks", self.url)).bearer_auth(token).send().await.unwrap();
        let answer: Value = reply.json().await.unwrap();
        answer["sinks"].as_array().unwrap().clone()
    }

    async fn finish(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn event_json(id: &str, x: i64) -> String {
    json!({ "id": id, "ts": BEGIN, "k": "k1", "u": "k1-u", "x": x }).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_event_is_scored_as_over_http_and_for_whom() {
    show_logs();
    let (harness, test_log) = project().await;
    let process = Process::start(&harness, &test_log, "w0", &Arc::default()).await;
    let served = Served::start(&process, &test_log).await;
    let first_row = first_event_is_stored_once_there_is_a_worker(&served).await;
    answers_depend_on_what_is_asked_and_by_whom(&served).await;
    // One event was stored once, and once more as a duplicate.
    assert_eq!(put_out(&harness, &test_log, INCLUSIVE).await.len(), 1);
    repeated_event_gets_the_record_that_is_out(&harness, &test_log, &served, &first_row).await;
    paused_sink_scores_and_stores_nothing(&harness, &served).await;
    each_of_many_gets_its_own_record(&served).await;
    record_of_another_version_is_not_returned(&harness, &test_log, &served).await;
    served.finish().await;
    process.finish().await;
}

/// The sink joins no view, whose streams would say how far the clock of events is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_event_that_is_not_stored_is_scored_at_the_time_of_its_stream() {
    show_logs();
    let (harness, test_log) = project().await;
    let at = test_log.sql("CREATE SINK at WITH (topic = '{out}-at') AS SELECT id, as_of() AS at FROM s");
    harness.define(&[(DefinitionKind::Sink, "at", &*at)]).await.unwrap();
    let reliable = Flaky { log: test_log.log().await, append: Arc::new(|_| Append::default()), failed: Arc::default() };
    let process = Process::start_on(&harness, &test_log, "w0", Arc::new(reliable)).await;
    let served = Served::start(&process, &test_log).await;
    let dated = |id: &str, ts: Micros| json!({ "id": id, "ts": ts, "k": "k1", "u": "k1-u", "x": 1 }).to_string();
    const HOUR: Micros = 3_600_000_000;
    served.store(&dated("e1", BEGIN + HOUR)).await;
    let late = dated("e2", BEGIN);
    let (status, before) = served.post("at?store=false", &served.admin, &late).await;
    assert_eq!(status, 200, "{before}");
    let (status, stored) = served.post("at?store=true&timeout_ms=25000", &served.admin, &late).await;
    assert_eq!(status, 200, "{stored}");
    assert_eq!(before["row"], stored["row"]);
    assert!(before["row"]["at"].is_string(), "{before}");
    served.finish().await;
    process.finish().await;
}

/// Until the worker has taken its partition over, nothing is stored. Returns the event's record.
async fn first_event_is_stored_once_there_is_a_worker(served: &Served) -> Value {
    let began = Instant::now();
    loop {
        let (status, answer) = served.post("after?store=true&timeout_ms=25000", &served.admin, &event_json("e1", 1)).await;
        match status {
            409 => assert!(answer["detail"].as_str().unwrap().contains("have only 0 of the partitions"), "{answer}"),
            _ => {
                assert_eq!((status, &answer["status"], &answer["row"]["n_1h"]), (200, &json!("scored"), &json!(1)), "{answer}");
                return answer["row"].clone();
            }
        }
        assert!(began.elapsed() < Duration::from_secs(120), "timed out: no worker takes the partition over: {answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn answers_depend_on_what_is_asked_and_by_whom(served: &Served) {
    let Served { admin, both, one, .. } = served;
    for (path, token, body, status, expected) in [
        ("after", admin, event_json("e2", 2), 200, "\"status\":\"scored\""),
        ("after", both, event_json("e2", 2), 200, "\"n_1h\":2"),
        ("after?store=false", admin, event_json("e2", 5), 200, "\"status\":\"filtered\""),
        ("after?store=true", admin, event_json("e1", 1), 200, "\"status\":\"duplicate\""),
        ("after?store=true", both, event_json("e2", 2), 403, "may not append"),
        ("after", one, event_json("e2", 2), 403, "may not ask the sink"),
        ("nothing", one, event_json("e2", 2), 403, "may not ask the sink"),
        ("afte", admin, event_json("e2", 2), 404, "did you mean"),
        ("after", admin, "{}".to_owned(), 400, "the event does not fit the stream"),
        ("after", admin, format!("[{},{}]", event_json("a", 1), event_json("b", 1)), 400, "2 events: expected one JSON object"),
        ("after", admin, "[{\"id\": ?}]".to_owned(), 400, "found '?}]' at $[0].id (line 1, column 9); expected one JSON object"),
        ("after", admin, " \n".to_owned(), 400, "the body is empty: expected one JSON object of the columns of the stream"),
        ("after?store=maybe", admin, event_json("e2", 2), 400, "expected true or false"),
        ("after?timeout_ms=0", admin, event_json("e2", 2), 400, "expected milliseconds"),
        ("after?wait=1", admin, event_json("e2", 2), 400, "there is no parameter"),
        ("after", &"wrong".to_owned(), event_json("e2", 2), 401, ""),
    ] {
        let (found, answer) = match (path, status) {
            ("after?store=true", 200) => (200, served.store(&body).await),
            _ => served.post(path, token, &body).await,
        };
        assert!(found == status && answer.to_string().contains(expected), "{path} {body}: {found} {answer}");
    }
    let listed = [served.sinks(admin).await.len(), served.sinks(both).await.len(), served.sinks(one).await.len()];
    assert_eq!(listed, [1, 1, 0]);
}

/// Whoever got no answer sends the event again. This process never waited for the record of e3.
async fn repeated_event_gets_the_record_that_is_out(harness: &Harness, test_log: &TestLog, served: &Served, first_row: &Value) {
    let again = served.store(&event_json("e1", 1)).await;
    assert_eq!((&again["status"], &again["row"], &again["meta"]["sink"]), (&json!("duplicate"), first_row, &json!("after@1")), "{again}");
    assert_eq!(again["first"], json!({ "status": "scored", "event": format!("{}/0/0", test_log.topic("in")) }), "{again}");
    // Who sends another event under its id does not learn the record.
    let other = served.store(&event_json("e1", 9)).await;
    assert_eq!((&other["status"], &other["row"], &other["first"]), (&json!("duplicate"), &Value::Null, &Value::Null), "{other}");
    harness.append(&test_log.topic("in"), 1, vec![(Some("k1".to_owned()), event_json("e3", 3))]).await.unwrap();
    let again = served.store(&event_json("e3", 3)).await;
    assert_eq!((&again["status"], &again["row"], &again["first"]), (&json!("duplicate"), &Value::Null, &Value::Null), "{again}");
    assert!(again["help"].as_str().unwrap().contains(&format!("in the topic '{}'", test_log.topic("out"))), "{again}");
}

async fn paused_sink_scores_and_stores_nothing(harness: &Harness, served: &Served) {
    let (admin, event) = (&served.admin, event_json("p1", 1));
    let pause = catalog::PauseRecord { kind: DefinitionKind::Sink, name: "after".into(), since: now() };
    let commit = |add, remove| catalog::Commit { id: Uuid::now_v7(), add, remove, ..catalog::Commit::default() };
    harness.catalog.commit(commit(vec![catalog::Add::Pause(pause)], Vec::new())).await.unwrap();
    until("the pause", async || served.post("after", admin, &event).await.0 == 409).await;
    let (status, answer) = served.post("after?store=true", admin, &event).await;
    assert!(status == 409 && answer.to_string().contains("the sink \\\"after\\\" is paused"), "{answer}");
    assert!(served.sinks(admin).await[0]["paused_since"].is_string());
    let remove = catalog::Remove::Pause { kind: DefinitionKind::Sink, name: "after".into() };
    harness.catalog.commit(commit(Vec::new(), vec![remove])).await.unwrap();
    until("the end of the pause", async || served.post("after", admin, &event).await.0 == 200).await;
}

async fn each_of_many_gets_its_own_record(served: &Served) {
    let (mut scored, began) = (0, Instant::now());
    for round in 0.. {
        let asked = (0..40).map(|number| async move {
            let id = format!("m{round}-{number}");
            let answer = served.post("after?store=true", &served.admin, &event_json(&id, 3)).await;
            (id, answer)
        });
        for (id, (status, answer)) in futures::future::join_all(asked).await {
            // The log of this process fails now and then: its worker begins again, and has no partition meanwhile.
            assert!([200, 409, 504].contains(&status), "{answer}");
            if answer["status"] == "scored" {
                assert_eq!(answer["row"]["id"], json!(id), "{answer}");
                scored += 1;
            }
        }
        if scored >= 20 {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "timed out: only {scored} events are scored");
    }
}

/// Applies a second version of the sink.
async fn second_version(harness: &Harness, sql: String) {
    let version = |version, status| {
        catalog::Add::Definition(catalog::DefinitionRecord {
            kind: DefinitionKind::Sink,
            name: "after".into(),
            version,
            sql: sql.clone(),
            status,
            created_at: 0,
            since: 0,
            kept_until: None,
            rolled_back: false,
        })
    };
    let versions = vec![version(1, catalog::DefinitionStatus::Retired), version(2, catalog::DefinitionStatus::Active)];
    let commit = catalog::Commit { id: Uuid::now_v7(), add: versions, ..catalog::Commit::default() };
    harness.catalog.commit(commit).await.unwrap();
}

/// The outcome of one version is not returned to a caller who may use another version, which may read other views.
async fn record_of_another_version_is_not_returned(harness: &Harness, test_log: &TestLog, served: &Served) {
    second_version(harness, test_log.sql(INCLUSIVE)).await;
    until("the second version", async || served.store(&event_json("e1", 1)).await["meta"]["sink"] == "after@2").await;
    let again = served.store(&event_json("e1", 1)).await;
    assert_eq!((&again["status"], &again["row"], &again["first"]), (&json!("duplicate"), &Value::Null, &Value::Null), "{again}");
}
