//! Ten times the load that one `up` sustains, for a while: memory stays flat, lookups continue, lag returns to 0,
//! nothing is lost.
//!
//! A worker holds what it read until its checkpoint, at most `checkpoint_bytes`. The limit is small here, because
//! otherwise memory would depend on how fast the worker reads (faster while nothing is produced).
//!
//! Not run by default: `just overload` runs it (`BASESTREAM_OVERLOAD_SECONDS`, default 300;
//! `BASESTREAM_OVERLOAD_FACTOR`, default 10; `BASESTREAM_OVERLOAD_RATE`: the events per second that `up` sustains, if
//! known; otherwise found by raising the rate).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use basestream_tests::process::{Project, Running, Urls, free_port};
use basestream_tests::services::engines;
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::show_logs;

const ACCOUNTS: u64 = 2_000;
/// Few, so that the sets of shops soon reach their full size: later growth is then not that of the views' states.
const SHOPS: u64 = 11;
const STREAM: &str = "CREATE STREAM payments (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'ms'), account TEXT NOT NULL, \
    shop TEXT NOT NULL, amount BIGINT NOT NULL) WITH (topic = 'TOPIC', format = 'json', event_time = 'ts', id = 'id', dedup_within = '5s', key = 'account')";
/// Some of them keep all their values, which costs more than a count: fraud teams use such views.
const VIEWS: [(&str, &str); 4] = [
    (
        "by_account",
        "WITH (windows = '1h, 7d') AS SELECT account, count(*) AS events, sum(amount) AS amount, max(amount) AS most, \
         count(DISTINCT shop) AS shops FROM payments GROUP BY account",
    ),
    (
        "by_shop",
        "WITH (windows = '1h, 7d') AS SELECT shop, count(*) AS events, approx_distinct(account) AS accounts FROM payments GROUP BY shop",
    ),
    (
        "large",
        "WITH (windows = '1d') AS SELECT account, avg(amount) AS mean, count(*) AS events FROM payments WHERE amount > 500 GROUP BY account",
    ),
    ("total", "AS SELECT count(*) AS events, sum(amount) AS amount FROM payments"),
];

/// A producer whose rate can be changed.
struct Producer {
    rate: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Producer {
    fn start(brokers: &str, topic: &str) -> Producer {
        let (rate, sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", brokers).set("compression.codec", "lz4").set("linger.ms", "20").set("acks", "all");
        config.set("queue.buffering.max.messages", "500000").set("enable.idempotence", "true");
        let client: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
        let shared = (rate.clone(), sent.clone(), stop.clone(), topic.to_owned());
        let thread = std::thread::spawn(move || produce(&client, &shared.0, &shared.1, &shared.2, &shared.3));
        Producer { rate, sent, stop, thread: Some(thread) }
    }

    fn at(&self, rate: u64) {
        self.rate.store(rate, Ordering::SeqCst);
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    fn finish(mut self) -> u64 {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap();
        self.sent()
    }
}

fn produce(client: &ThreadedProducer<DefaultProducerContext>, rate: &AtomicU64, sent: &AtomicU64, stop: &CancellationToken, topic: &str) {
    let mut last = Instant::now();
    let mut owed = 0.0;
    while !stop.is_cancelled() {
        std::thread::sleep(Duration::from_millis(10));
        let now = Instant::now();
        owed += now.duration_since(last).as_secs_f64() * rate.load(Ordering::SeqCst) as f64;
        last = now;
        let ts = basestream_tests::now() / 1000;
        while owed >= 1.0 && !stop.is_cancelled() {
            let n = sent.load(Ordering::Relaxed);
            let account = format!("a{}", n.wrapping_mul(0x9e37_79b9) % ACCOUNTS);
            let value = format!(r#"{{"id":"e{n}","ts":{ts},"account":"{account}","shop":"s{}","amount":{}}}"#, n % SHOPS, n % 1000);
            let mut record = BaseRecord::<str, str>::to(topic).key(&account).payload(&value);
            while let Err((error, back)) = client.send(record) {
                assert!(error.rdkafka_error_code() == Some(rdkafka::types::RDKafkaErrorCode::QueueFull), "{error}");
                record = back;
                std::thread::sleep(Duration::from_millis(5));
            }
            sent.store(n + 1, Ordering::Relaxed);
            owed -= 1.0;
        }
    }
    client.flush(Duration::from_secs(60)).unwrap();
}

/// One running `up`, and its measurements.
struct Up {
    running: Running,
    project: Project,
    http: reqwest::Client,
}

/// A sample of the measurements.
#[derive(Debug, Clone, Copy)]
struct Sample {
    seconds: u64,
    phase: &'static str,
    produced: u64,
    read: u64,
    resident_mib: u64,
    lookups: u64,
    median_ms: f64,
    slowest_ms: f64,
}

impl Up {
    async fn start(urls: &Urls, topic: &str) -> Up {
        let folder = tempfile::tempdir().unwrap();
        let views = VIEWS.iter().map(|(name, sql)| (format!("views/{name}.sql"), format!("CREATE VIEW {name} {sql}")));
        for (kind, text) in views.chain([("streams/payments.sql".to_owned(), STREAM.replace("TOPIC", topic))]) {
            let path = folder.path().join(kind);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let http = format!("127.0.0.1:{}", free_port().unwrap());
        let config = format!(
            "[storage]\nurl = \"{}\"\n[catalog]\nurl = \"{}\"\n[log]\nurl = \"{}\"\npartitions = 4\n[speed]\ncheckpoint_bytes = \"32MiB\"\n[serving]\nhttp = \"{http}\"\n",
            urls.storage, urls.catalog, urls.log
        );
        std::fs::write(folder.path().join("basestream.toml"), config).unwrap();
        let project = Project { folder, http };
        let running = project.start("up").unwrap();
        let up = Up { running, project, http: reqwest::Client::new() };
        crate::until("up to be ready", async || up.get("/readyz").await.is_some()).await;
        up
    }

    async fn get(&self, path: &str) -> Option<String> {
        let reply = self.http.get(format!("http://{}{path}", self.project.http)).send().await.ok()?;
        if reply.status().is_success() { reply.text().await.ok() } else { None }
    }

    /// The number of records it read from the log.
    async fn read(&self) -> u64 {
        let metrics = self.get("/metrics").await.unwrap_or_default();
        let counts = metrics.lines().filter(|line| line.starts_with("basestream_speed_records_total"));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
    }

    fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }
}

/// Runs lookups one at a time; keeps their durations since the last sample.
struct Lookups {
    times: Arc<std::sync::Mutex<Vec<f64>>>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<u64>,
}

impl Lookups {
    fn start(http: &str) -> Lookups {
        let (times, stop) = (Arc::new(std::sync::Mutex::new(Vec::new())), CancellationToken::new());
        let shared = (times.clone(), stop.clone(), format!("http://{http}/v1/views/by_account/row?account="));
        let task = tokio::spawn(async move {
            let (client, mut failed) = (reqwest::Client::new(), 0);
            for n in 0u64.. {
                if shared.1.is_cancelled() {
                    break;
                }
                let began = Instant::now();
                let reply = client.get(format!("{}a{}", shared.2, n % ACCOUNTS)).send().await;
                let good = reply.is_ok_and(|reply| reply.status().is_success());
                failed += u64::from(!good);
                shared.0.lock().unwrap().push(began.elapsed().as_secs_f64() * 1e3);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            failed
        });
        Lookups { times, stop, task }
    }

    fn take(&self) -> Vec<f64> {
        let mut times = std::mem::take(&mut *self.times.lock().unwrap());
        times.sort_by(f64::total_cmp);
        times
    }

    async fn failed(self) -> u64 {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

/// Raises the rate until reading fails to keep up twice in a row; returns the last rate that it kept up with.
async fn sustained(up: &Up, producer: &Producer) -> u64 {
    let mut best = 0;
    producer.at(500);
    crate::until("the first events to be read", async || up.read().await > 1_000).await;
    for step in 0.. {
        let rate = 1_000 + 1_000 * step * (step + 1) / 2;
        if !keeps_up(up, producer, rate).await && !keeps_up(up, producer, rate).await {
            break;
        }
        best = rate;
    }
    producer.at(0);
    crate::until("the rest of the ramp to be read", async || up.read().await >= producer.sent()).await;
    best
}

/// Four seconds to warm up, four to measure: the rate of reading matches the rate of producing, and the backlog is at
/// most a second's worth.
async fn keeps_up(up: &Up, producer: &Producer, rate: u64) -> bool {
    producer.at(rate);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (read, sent) = (up.read().await, producer.sent());
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (read, sent, behind) = (up.read().await - read, producer.sent() - sent, producer.sent().saturating_sub(up.read().await));
    println!("{rate} events/s asked: {} produced, {} read, {behind} behind", sent / 4, read / 4);
    read * 100 >= sent * 95 && behind <= rate && sent / 4 >= rate * 9 / 10
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes many minutes: `just overload`"]
async fn ten_times_what_is_sustained_costs_no_memory_no_lookup_and_no_event() {
    show_logs();
    let urls = engines("overload").await;
    let (seconds, factor) = (number("BASESTREAM_OVERLOAD_SECONDS", 300), number("BASESTREAM_OVERLOAD_FACTOR", 10));
    let topic = format!("overload_{}", uuid::Uuid::now_v7().simple());
    let up = Up::start(&urls, &topic).await;
    let producer = Producer::start(urls.log.trim_start_matches("kafka://"), &topic);
    let rate = match number("BASESTREAM_OVERLOAD_RATE", 0) {
        0 => sustained(&up, &producer).await,
        known => known,
    };
    assert!(rate > 0, "up does not keep up with 1000 events/s");
    println!("\none up sustains {rate} events/s here; now {factor} times that for {seconds} s\n");

    let (lookups, mut samples) = (Lookups::start(&up.project.http), Vec::new());
    let began = Instant::now();
    let before = producer.sent();
    producer.at(rate * factor);
    println!(
        "{:>8} {:>10} {:>12} {:>12} {:>12} {:>10} {:>8} {:>9} {:>9}",
        "seconds", "phase", "produced", "read", "behind", "MiB", "lookups", "p50 ms", "max ms"
    );
    let mut overloaded_for = Duration::ZERO;
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let phase = if began.elapsed().as_secs() < seconds { "overload" } else { "recovery" };
        if phase == "recovery" && overloaded_for.is_zero() {
            producer.at(0);
            overloaded_for = began.elapsed();
        }
        let times = lookups.take();
        let sample = Sample {
            seconds: began.elapsed().as_secs(),
            phase,
            produced: producer.sent() - before,
            read: up.read().await.saturating_sub(before),
            resident_mib: up.resident_mib(),
            lookups: times.len() as u64,
            median_ms: times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY),
            slowest_ms: times.last().copied().unwrap_or(f64::INFINITY),
        };
        // `read` can exceed `produced` if an epoch was dropped and read again.
        let behind = sample.produced.saturating_sub(sample.read);
        println!(
            "{:>8} {:>10} {:>12} {:>12} {:>12} {:>10} {:>8} {:>9.1} {:>9.1}",
            sample.seconds,
            sample.phase,
            sample.produced,
            sample.read,
            behind,
            sample.resident_mib,
            sample.lookups,
            sample.median_ms,
            sample.slowest_ms
        );
        samples.push(sample);
        if phase == "recovery" && behind == 0 {
            break;
        }
    }
    let produced = producer.finish();
    let failed = lookups.failed().await;
    verdict(&samples, rate * factor, failed, overloaded_for);
    // Everything is also committed, and every event counts once.
    crate::until("lag 0", async || lag(&up.project) == 0).await;
    let query = "SELECT events FROM total";
    let counted: Value = serde_json::from_str(&up.project.ok(&["query", query, "--json"]).unwrap()).unwrap();
    assert!(counted.to_string().contains(&format!("{produced}")), "{produced} events produced, served: {counted}");
    assert_eq!(up.running.terminate().unwrap(), Some(0));
}

fn lag(project: &Project) -> i64 {
    let status: Value = serde_json::from_str(&project.ok(&["status", "--json"]).unwrap()).unwrap();
    status["partitions"].as_array().unwrap().iter().map(|partition| partition["lag"].as_i64().unwrap_or(i64::MAX / 8)).sum()
}

/// Memory is flat: once every queue is full and the views' states have their full size, the last third of the overload
/// takes at most a tenth more than the second, and recovery at most a fifth more than the whole overload.
fn verdict(samples: &[Sample], asked: u64, failed: u64, overloaded_for: Duration) {
    let overload: Vec<&Sample> = samples.iter().filter(|sample| sample.phase == "overload").collect();
    let third = overload.len().div_ceil(3);
    let most = |samples: &[&Sample]| samples.iter().map(|sample| sample.resident_mib).max().unwrap_or(0);
    let thirds: Vec<u64> = overload.chunks(third).map(most).collect();
    let last = overload.last().unwrap();
    let (reached, read) = (last.produced / last.seconds, last.read / last.seconds);
    let after = samples.iter().map(|sample| sample.resident_mib).max().unwrap_or(0);
    let slowest = samples.iter().map(|sample| sample.slowest_ms).fold(0.0, f64::max);
    let recovery = samples.last().unwrap().seconds as f64 - overloaded_for.as_secs_f64();
    println!(
        "\nproduced {reached} events/s of {asked} asked, read {read} events/s meanwhile\n\
         resident: at most {thirds:?} MiB in the thirds of the overload, {after} MiB in all\n\
         lookups: {} in all, {failed} failed, the slowest {slowest:.0} ms\n\
         recovery: lag 0 after {recovery:.0} s",
        samples.iter().map(|sample| sample.lookups).sum::<u64>(),
    );
    assert!(reached * 10 >= asked * 8, "the producer did not reach the overload");
    assert!(last.read * 2 < last.produced, "that was no overload: the reader kept up");
    assert!(thirds[2] * 10 <= thirds[1] * 11, "resident memory grows");
    assert!(after * 5 <= most(&overload) * 6, "resident memory grows while it recovers");
    assert_eq!(failed, 0, "lookups failed");
}
