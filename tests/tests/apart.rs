//! Nodes apart from their workers: one `basestream speed` and three `basestream serve`, each a process, on the embedded
//! log and an SQLite catalog. No checkpoint is due while they are asked.

#![allow(clippy::unwrap_used)]

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use basestream_tests::process::{Project, free_port};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// One worker: two would commit when they share the partitions out.
const SETTINGS: &str = "[storage]\nurl = 'data/storage'\n[catalog]\nurl = 'sqlite:data/catalog.db'\n[log]\nurl = 'data/log'\npartitions = 3\n\
    [speed]\nworkers = 1\ncheckpoint_interval = '10m'\nflight = '127.0.0.1:0'\n";

const PAYMENTS: &str = "CREATE STREAM payments (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, amount DECIMAL(18,2) NOT NULL) \
    WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'device');\n";

const DEVICES: &str = "CREATE VIEW devices WITH (windows = '1h') AS SELECT device, count(*) AS n, sum(amount) AS amount, \
    count(DISTINCT id) AS ids FROM payments GROUP BY device;\n";

const TOTALS: &str = "CREATE VIEW totals AS SELECT count(*) AS n, sum(amount) AS amount FROM payments;\n";

/// A process; killed when it is dropped.
struct Process(Child);

impl Process {
    fn start(project: &Project, name: &str, settings: &[(&str, &str)]) -> Process {
        let log = std::fs::File::options().create(true).append(true).open(project.folder.path().join(format!("{name}.log"))).unwrap();
        let mut command = project.command(&[name]).unwrap();
        command.envs(settings.iter().copied());
        Process(command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    /// By SIGTERM, in order.
    fn stop(mut self) {
        let sent = std::process::Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node of its own process.
struct Node {
    url: String,
    http: reqwest::Client,
    _process: Process,
}

impl Node {
    async fn start(project: &Project) -> Node {
        Node::start_with(project, &[]).await
    }

    async fn start_with(project: &Project, settings: &[(&str, &str)]) -> Node {
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let settings = [&[("BASESTREAM__SERVING__HTTP", address.as_str())][..], settings].concat();
        let process = Process::start(project, "serve", &settings);
        let node = Node { url: format!("http://{address}"), http: reqwest::Client::new(), _process: process };
        node.until("it is ready", async |node| node.try_get("/readyz").await.is_some()).await;
        node
    }

    async fn try_get(&self, path: &str) -> Option<Value> {
        let response = self.http.get(format!("{}{path}", self.url)).send().await.ok()?;
        response.status().is_success().then_some(())?;
        response.json().await.ok()
    }

    async fn get(&self, path: &str) -> Value {
        let response = self.http.get(format!("{}{path}", self.url)).send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn(&Node) -> bool) {
        let began = Instant::now();
        while !is_so(self).await {
            assert!(began.elapsed() < PATIENCE, "timed out: {what}: {:?}", self.try_get("/readyz").await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How many workers' processes it follows, and how many it does not reach.
    async fn workers(&self) -> (usize, usize) {
        let ready = self.get("/readyz").await;
        let workers = ready["workers"].as_array().unwrap().clone();
        let followed = workers.iter().filter(|worker| worker["followed"] == true).count();
        (followed, workers.len() - followed)
    }

    /// Everything the node answers, and the position of the answers. With `after`, once it counts that position.
    async fn answers(&self, after: Option<&str>) -> (Vec<Value>, String) {
        let after = after.map(|position| format!("_after={position}")).unwrap_or_default();
        let mut rows = Vec::new();
        let totals = self.get(&format!("/v1/views/totals/row?{after}")).await;
        rows.push(totals["row"].clone());
        for device in ["a", "b", "c", "nobody"] {
            rows.push(self.get(&format!("/v1/views/devices/row?device={device}&{after}")).await["row"].clone());
        }
        (rows, totals["meta"]["cut"].as_str().unwrap().to_owned())
    }

    /// Stores an event and returns the answer of the sink `scored`.
    async fn store(&self, event: &Value) -> (u16, Value) {
        let url = format!("{}/v1/sinks/scored?store=true&timeout_ms=25000", self.url);
        let response = self.http.post(url).json(event).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// Returns the position after the events.
    async fn append(&self, events: &[Value]) -> String {
        let response = self.http.post(format!("{}/v1/streams/payments/events", self.url)).json(events).send().await.unwrap();
        let (status, accepted) = (response.status(), response.json::<Value>().await.unwrap());
        assert_eq!((status.as_u16(), &accepted["accepted"]), (202, &json!(events.len())), "{accepted}");
        accepted["position"].as_str().unwrap().to_owned()
    }
}

fn events(ids: std::ops::Range<usize>) -> Vec<Value> {
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let event = |id: usize| json!({"id": format!("e{id}"), "ts": now, "device": (["a", "b", "c"][id % 3]), "amount": format!("{id}.25")});
    ids.map(event).collect()
}

fn committed(project: &Project) -> i64 {
    let status: Value = serde_json::from_str(&project.ok(&["status", "--json"]).unwrap()).unwrap();
    status["partitions"].as_array().unwrap().iter().map(|partition| partition["next_offset"].as_i64().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_apart_answer_alike_before_any_checkpoint_and_when_their_worker_dies_and_the_next_one_speaks() {
    let files = [
        ("basestream.toml", SETTINGS.to_owned()),
        ("streams/payments.sql", PAYMENTS.to_owned()),
        ("views/devices.sql", DEVICES.to_owned()),
        ("views/totals.sql", TOTALS.to_owned()),
    ];
    let project = Project::from_files(&files, String::new()).unwrap();
    project.ok(&["apply"]).unwrap();
    let worker = Process::start(&project, "speed", &[]);
    let nodes = [Node::start(&project).await, Node::start(&project).await, Node::start(&project).await];
    let of_commits = Node::start_with(&project, &[("BASESTREAM__SERVING__FRESH", "committed")]).await;
    for node in &nodes {
        node.until("it follows the worker", async |node| node.workers().await == (1, 0)).await;
    }

    let mut position = String::new();
    for round in 0..5 {
        position = nodes[round % 3].append(&events(round * 60..(round + 1) * 60)).await;
        let first = nodes[0].answers(Some(&position)).await.0;
        assert_eq!(first[0]["n"], json!((round + 1) * 60), "{first:?}");
        for node in &nodes[1..] {
            assert_eq!(node.answers(Some(&position)).await.0, first, "round {round}");
        }
    }
    assert_eq!(committed(&project), 0, "no checkpoint was committed");
    assert_eq!(of_commits.answers(None).await.0[0]["n"], json!(0), "it follows no worker");

    // The worker dies: what was answered stays, and who begins anew has what is committed, until the next owner speaks.
    let (before, _) = nodes[0].answers(Some(&position)).await;
    drop(worker);
    for node in &nodes {
        node.until("it lost the worker", async |node| node.workers().await.0 == 0).await;
        assert_eq!(node.answers(None).await.0, before, "no answer goes back");
    }
    let late = Node::start(&project).await;
    assert_eq!(late.answers(None).await.0[0]["n"], json!(0), "the committed vector stands");
    let worker = Process::start(&project, "speed", &[]);
    for node in nodes.iter().chain([&late]) {
        node.until("it follows the next worker", async |node| node.workers().await.0 == 1).await;
        node.until("what was read is read again", async |node| node.answers(None).await.0 == before).await;
    }
    // Between the two, its answers may have stood before the lost worker's: once again, later events count on all.
    let position = nodes[1].append(&events(300..330)).await;
    let after = late.answers(Some(&position)).await.0;
    assert_eq!(after[0]["n"], json!(330));
    for node in &nodes {
        assert_eq!(node.answers(Some(&position)).await.0, after);
    }
    assert_eq!(committed(&project), 0);

    // A worker that stops in order commits, and nothing is lost between its last layer and its checkpoint.
    worker.stop();
    assert_eq!(committed(&project), 330);
    for node in nodes.iter().chain([&late]) {
        node.until("it is gone", async |node| node.workers().await == (0, 0)).await;
        assert_eq!(node.answers(Some(&position)).await.0, after);
    }
    assert_eq!(of_commits.answers(Some(&position)).await.0, after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_apart_stores_an_event_and_answers_with_the_record_that_a_worker_of_another_process_made() {
    const SCORED: &str = "CREATE SINK scored WITH (topic = 'scored') AS SELECT p.id, d.n_1h FROM payments p \
        LEFT JOIN devices d ON d.device = p.device;\n";
    let files = [
        ("basestream.toml", SETTINGS.to_owned()),
        ("streams/payments.sql", PAYMENTS.to_owned()),
        ("views/devices.sql", DEVICES.to_owned()),
        ("sinks/scored.sql", SCORED.to_owned()),
    ];
    let project = Project::from_files(&files, String::new()).unwrap();
    project.ok(&["apply"]).unwrap();
    let _worker = Process::start(&project, "speed", &[]);
    let node = Node::start(&project).await;
    let (mut stored, began) = (0, Instant::now());
    loop {
        let (status, answer) = node.store(&events(stored..stored + 1)[0]).await;
        match (status, &answer["status"]) {
            // The worker is not reached yet, or has not all partitions.
            (409 | 503, _) => tokio::time::sleep(Duration::from_millis(20)).await,
            // The sink has not begun.
            (200, outcome) if outcome == "unknown" => stored += 1,
            _ => {
                assert_eq!((status, &answer["status"]), (200, &json!("scored")), "{answer}");
                assert_eq!(answer["row"], json!({"id": format!("e{stored}"), "n_1h": stored / 3 + 1}), "{answer}");
                break;
            }
        }
        assert!(began.elapsed() < PATIENCE, "timed out: no event is scored: {answer}");
    }
}
