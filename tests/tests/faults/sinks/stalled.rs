//! A sink that fails holds up the stream that it reads, and no other.

use catalog::{Add, Commit, DefinitionStatus};
use types::vector::PartitionId;

use super::*;

const OTHER: &str = "CREATE STREAM o (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'))
    WITH (topic = '{out_before}', event_time = 'ts', id = 'id')";
const OF_OTHER: &str = "CREATE SINK others WITH (topic = '{out_other}') AS SELECT e.id FROM o e";
const FAILING: &str = "CREATE SINK failing WITH (topic = '{out}') AS
    SELECT e.id, v.n_1h FROM s e LEFT JOIN by_key v ON v.k = e.k";

struct Run {
    harness: Harness,
    test_log: TestLog,
    appended: i64,
}

impl Run {
    /// A few events of each stream, all of one key.
    async fn append(&mut self) {
        for _ in 0..5 {
            let (id, ts) = (format!("e{}", self.appended), BEGIN + self.appended);
            let of_s = json!({ "id": id, "ts": ts, "k": "k0", "u": "u", "x": 1 }).to_string();
            self.harness.append(&self.test_log.topic("in"), 1, vec![(Some("k0".into()), of_s)]).await.unwrap();
            let of_o = json!({ "id": id, "ts": ts }).to_string();
            self.harness.append(&self.test_log.topic("out_before"), 1, vec![(None, of_o)]).await.unwrap();
            self.appended += 1;
        }
    }

    /// The other stream is read to its end and its records are out, whatever becomes of the first.
    async fn other_goes_on(&self) {
        self.harness.committed("o", &self.test_log.topic("out_before")).await.unwrap();
        let found = put_out(&self.harness, &self.test_log, OF_OTHER).await;
        assert_eq!(found.len() as i64, self.appended);
    }

    async fn committed_of_s(&self) -> i64 {
        self.harness.catalog.state().await.unwrap().vector().get(&PartitionId::new("s", 0)).0
    }

    /// Waits until the worker says that it leaves a stream out, or that it does not.
    async fn until_stalled(&self, process: &Process, is_stalled: bool) -> String {
        let began = Instant::now();
        loop {
            match process.progress.stalled() {
                Some(outage) if is_stalled => return outage.error,
                None if !is_stalled => return String::new(),
                other => assert!(began.elapsed() < Duration::from_secs(60), "timed out: found {other:?}, expected {is_stalled}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Every event of the first stream has its record, with what it saw: it is the n-th of its key.
    async fn all_of_s(&self) {
        self.harness.committed("s", &self.test_log.topic("in")).await.unwrap();
        let found = put_out(&self.harness, &self.test_log, FAILING).await;
        let expected: BTreeMap<_, _> = (0..self.appended).map(|n| ((0, n), json!({ "id": format!("e{n}"), "n_1h": n + 1 }))).collect();
        assert_eq!(found, expected);
    }

    async fn set_status(&self, name: &str, status: DefinitionStatus) {
        let state = self.harness.catalog.state().await.unwrap();
        let record = state.definitions.iter().find(|record| &*record.name == name).unwrap().with_status(status, 0);
        let commit = Commit { id: Uuid::now_v7(), add: vec![Add::Definition(record)], ..Commit::default() };
        self.harness.catalog.commit(commit).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_fails_holds_up_its_stream_alone_and_goes_on_when_the_cause_is_gone() {
    show_logs();
    let mut harness = Harness::new().await.unwrap();
    let test_log = TestLog { url: format!("file://{}", harness.path().join("log").display()), suffix: String::new() };
    harness.log = test_log.log().await;
    for topic in ["in", "out", "out_before", "out_other"] {
        harness.log.create_topic(&test_log.topic(topic), 1).await.unwrap();
    }
    let (stream, other) = (test_log.sql(STREAM), test_log.sql(OTHER));
    let (failing, of_other) = (test_log.sql(FAILING), test_log.sql(OF_OTHER));
    let definitions = [
        (DefinitionKind::Stream, "s", stream.as_str()),
        (DefinitionKind::Stream, "o", other.as_str()),
        (DefinitionKind::View, "by_key", BY_KEY),
        (DefinitionKind::Sink, "failing", failing.as_str()),
        (DefinitionKind::Sink, "others", of_other.as_str()),
    ];
    harness.define(&definitions).await.unwrap();
    let is_refused = Arc::new(AtomicBool::new(true));
    let (refuses, refused_topic) = (is_refused.clone(), test_log.topic("out"));
    let append = move |topic: &str| Append { is_lost: refuses.load(Ordering::Relaxed) && topic == refused_topic, ..Append::default() };
    let log = Flaky { log: test_log.log().await, append: Arc::new(append), failed: Arc::default() };
    let process = Process::start_on(&harness, &test_log, "w", Arc::new(log)).await;
    let mut run = Run { harness, test_log, appended: 0 };

    // Its topic takes no records.
    run.append().await;
    let said = run.until_stalled(&process, true).await;
    assert!(said.contains("\"failing\" over the stream \"s\"") && said.contains("the log does not answer"), "{said}");
    run.other_goes_on().await;
    run.append().await;
    run.other_goes_on().await;
    assert_eq!(run.committed_of_s().await, 0, "nothing of it is decided");
    is_refused.store(false, Ordering::Relaxed);
    run.all_of_s().await;
    run.until_stalled(&process, false).await;

    // It cannot be planned.
    let before = run.committed_of_s().await;
    run.set_status("by_key", DefinitionStatus::Retired).await;
    let said = run.until_stalled(&process, true).await;
    assert!(said.contains("\"failing\" over the stream \"s\"") && said.contains("cannot be planned"), "{said}");
    run.append().await;
    run.other_goes_on().await;
    assert_eq!(run.committed_of_s().await, before);
    run.set_status("by_key", DefinitionStatus::Active).await;
    run.until_stalled(&process, false).await;
    run.all_of_s().await;
    process.finish().await;
}
