//! One installation on the real engines, each reached directly or through a proxy that injects faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basestream_tests::patience::PATIENCE;
use basestream_tests::process::Urls;
use basestream_tests::{Harness, Worker, now};
use batch::RunTime;
use catalog::{Catalog, DefinitionKind};
use committed::registry::Registry;
use engine::fresh::Fresh;
use engine::functions::Functions;
use event_log::Log;
use jobs::served::NodeServed;
use jobs::verify::{Verifier, verify_log, verify_view};
use serving::{Node, ServingClock, StateSource, scan, scan_parts};
use storage::ObjectStorage;
use tokio_util::sync::CancellationToken;
use types::timed_out;
use types::vector::{PartitionId, Vector};

use crate::feed::{STREAM, VIEW, truth};

pub struct Engines {
    pub harness: Harness,
    /// The topic, and the consumer group.
    pub topic: String,
    pub urls: Urls,
}

/// The addresses of engines that are not reached at their own.
#[derive(Default)]
pub struct Routes {
    pub postgres: Option<String>,
    pub s3: Option<String>,
    pub kafka: Option<String>,
}

impl Engines {
    /// Creates a catalog, a prefix and a topic, with the stream and the view of [`crate::feed`].
    pub async fn open(urls: Urls, partitions: u32, routes: Routes) -> Engines {
        let topic = format!("outages_{}", uuid::Uuid::now_v7().simple());
        let quick = [
            ("session.timeout.ms", "6000"),
            ("heartbeat.interval.ms", "300"),
            ("topic.metadata.refresh.interval.ms", "500"),
            ("message.timeout.ms", "8000"),
            ("reconnect.backoff.max.ms", "1000"),
        ];
        let properties: BTreeMap<String, String> = quick.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let catalog = match &routes.postgres {
            None => urls.catalog.clone(),
            Some(address) => {
                let mut url: reqwest::Url = urls.catalog.parse().unwrap();
                url.set_port(address.rsplit(':').next().unwrap().parse().ok()).unwrap();
                url.to_string()
            }
        };
        let storage = match &routes.s3 {
            None => ObjectStorage::open(&urls.storage).unwrap(),
            Some(address) => storage_at(&urls.storage, address),
        };
        let log = routes.kafka.as_ref().map_or(urls.log.clone(), |address| format!("kafka://{address}"));
        let harness = Harness {
            folder: tempfile::tempdir().unwrap(),
            catalog: Catalog::open(&catalog).await.unwrap(),
            storage,
            log: event_log::open(&log, &properties).await.unwrap(),
            functions: Functions::standard(),
            copies: Default::default(),
        };
        let stream = STREAM.replace("TOPIC", &topic);
        harness.define(&[(DefinitionKind::Stream, "payments", &stream), (DefinitionKind::View, "by_account", VIEW)]).await.unwrap();
        let engines = Engines { harness, topic, urls };
        engines.direct_log().await.create_topic(&engines.topic, partitions).await.unwrap();
        engines
    }

    /// The log, without a proxy.
    pub async fn direct_log(&self) -> Arc<dyn Log> {
        let quick = [("message.timeout.ms", "8000"), ("reconnect.backoff.max.ms", "1000")];
        let properties = quick.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        event_log::open(&self.urls.log, &properties).await.unwrap()
    }

    pub fn worker(&self, name: &str, checkpoint_interval: Duration, fresh: Option<Fresh>) -> Worker {
        self.worker_that(name, checkpoint_interval, fresh, false)
    }

    /// A worker that continues after a gap in the log if `accept_gap` is set.
    pub fn worker_that(&self, name: &str, checkpoint_interval: Duration, fresh: Option<Fresh>, accept_gap: bool) -> Worker {
        let dedup = speed::DedupSettings { memory_bytes: 64 << 20, folder: std::env::temp_dir().join("basestream-dedup") };
        let speed = speed::Speed {
            catalog: self.harness.catalog.clone(),
            storage: self.harness.storage.clone(),
            log: self.harness.log.clone(),
            functions: self.harness.functions.clone(),
            fresh,
            sinks: None,
            registration: None,
            ids: speed::ProcessIds::new(dedup, 1),
            writers: Default::default(),
            settings: speed::WorkerSettings {
                worker: name.to_owned(),
                group: self.topic.clone(),
                checkpoint_interval,
                checkpoint_bytes: 64 << 20,
                merged_beside_rows: 20,
                max_future: Duration::from_secs(600),
                partitions: 4,
                accept_gap,
            },
            clock: Arc::new(now),
            progress: Default::default(),
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        Worker { stop, task: tokio::spawn(async move { speed.run(token).await }) }
    }

    /// The committed vector, and the ends of the log.
    pub async fn vector_and_ends(&self) -> types::Result<(Vector, Vector)> {
        let vector = self.harness.catalog.state().await?.vector();
        let bounds = self.harness.log.bounds(&self.topic).await?;
        Ok((vector, bounds.iter().map(|bounds| (PartitionId::new("payments", bounds.partition), bounds.end)).collect()))
    }

    /// Waits until the whole log is committed: lag 0.
    pub async fn reaches_the_end(&self) {
        let began = Instant::now();
        loop {
            let at = self.vector_and_ends().await;
            let is_at_end = |(vector, ends): &(Vector, Vector)| !ends.is_empty() && ends.iter().all(|(p, end)| vector.get(p) == end);
            if at.as_ref().is_ok_and(is_at_end) {
                return;
            }
            if began.elapsed() >= PATIENCE {
                timed_out::fail(format!("the log's end was not reached: {at:?}"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// After the faults, every event counts once, compared with the producer, plain SQL over the archive, the log and
    /// the ledger; from segments and from a snapshot. Every file that the catalog names is whole.
    pub async fn holds_once(&self, events: impl IntoIterator<Item = u64>) {
        let truth = truth(events);
        self.reaches_the_end().await;
        let node = self.harness.node(ServingClock::Event, None).await.unwrap();
        same(&table(&node), &truth, "from segments");
        self.run_until_it_succeeds().await;
        node.refresh().await.unwrap();
        same(&table(&node), &truth, "from a snapshot");
        let verifier = Verifier {
            catalog: self.harness.catalog.clone(),
            storage: self.harness.storage.clone(),
            functions: self.harness.functions.clone(),
            memory_limit: 256 << 20,
            temp_dir: None,
        };
        let report = verify_view(&verifier, "by_account", &NodeServed(node), now()).await.unwrap();
        assert!(report.is_equal(), "{report:?}");
        let reports = verify_log(&verifier, &*self.harness.log, &[], now()).await.unwrap();
        assert!(!reports.is_empty(), "the log has no partition");
        for report in reports {
            assert!(report.is_equal(), "{report:?}");
        }
        self.balances(&verifier).await;
    }

    async fn balances(&self, verifier: &Verifier) {
        let state = self.harness.catalog.state().await.unwrap();
        let lines = jobs::ledger::partitions(&self.harness.storage, &state, &Vector::new()).await.unwrap();
        assert!(!lines.is_empty(), "nothing is committed");
        for line in lines {
            assert_eq!(line.mismatch, None, "{line:?}");
        }
        let registry = Registry::load(&state, &self.harness.functions).await.unwrap();
        for view in &registry.views {
            let line = jobs::ledger::view(verifier, &state, view, now()).await.unwrap();
            assert!(line.balanced, "{line:?}");
        }
        for file in state.files.iter().filter(|file| !file.marked_for_deletion) {
            self.harness.storage.get_checked(&file.path, file.bytes, file.checksum).await.unwrap();
        }
    }

    async fn run_until_it_succeeds(&self) {
        let began = Instant::now();
        while let Err(error) = self.harness.batch("by_account", RunTime::EventClock).await {
            assert!(began.elapsed() < PATIENCE, "no run succeeds: {error}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// How often a partition's next checkpoint came from another worker.
    pub async fn handovers(&self) -> usize {
        let state = self.harness.catalog.state().await.unwrap();
        let mut owners: BTreeMap<PartitionId, BTreeMap<i64, &str>> = BTreeMap::new();
        for checkpoint in state.checkpoints.iter() {
            for range in &checkpoint.ranges {
                owners.entry(range.partition.clone()).or_default().insert(range.start.0, &checkpoint.worker);
            }
        }
        let changes = |owners: &BTreeMap<i64, &str>| owners.values().zip(owners.values().skip(1)).filter(|(a, b)| a != b).count();
        owners.values().map(changes).sum()
    }

    /// How many checkpoints each worker committed.
    pub async fn commits_by_worker(&self) -> BTreeMap<String, usize> {
        let mut commits = BTreeMap::new();
        for checkpoint in self.harness.catalog.state().await.unwrap().checkpoints.iter() {
            *commits.entry(checkpoint.worker.clone()).or_default() += 1;
        }
        commits
    }
}

/// The storage of an S3 URL, at an address that replaces the one in the environment.
fn storage_at(url: &str, address: &str) -> ObjectStorage {
    let url: reqwest::Url = url.parse().unwrap();
    let store = object_store::aws::AmazonS3Builder::from_env()
        .with_bucket_name(url.host_str().unwrap())
        .with_endpoint(format!("http://{address}"))
        .with_allow_http(true)
        .build()
        .unwrap();
    ObjectStorage::over(Arc::new(object_store::prefix::PrefixStore::new(store, url.path().trim_matches('/')))).unwrap()
}

/// All rows of the view that a node serves now, as sorted text.
pub fn table(node: &Node) -> Vec<String> {
    let read_view = node.read_view().unwrap();
    let view = read_view.view("by_account").unwrap();
    let wanted: Vec<usize> = (0..view.live.plan.columns.len()).collect();
    let source = StateSource::Layers { read_view: &read_view, view };
    let t = read_view.t_of(&view.live);
    let mut lines = Vec::new();
    for part in 0..scan_parts(&source) {
        let rows = scan(&view.live, &source, part, t, &wanted).unwrap().0;
        let options = arrow::util::display::FormatOptions::default().with_null("NULL");
        let columns: Vec<_> =
            rows.columns().iter().map(|c| arrow::util::display::ArrayFormatter::try_new(c.as_ref(), &options).unwrap()).collect();
        lines.extend((0..rows.num_rows()).map(|row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join(" ")));
    }
    lines.sort();
    lines
}

fn same(served: &[String], truth: &[String], how: &str) {
    let other = truth.iter().zip(served).find(|(truth, served)| truth != served);
    assert!(
        served == truth,
        "{how}: {} rows, {} expected; the first that differs (expected, served): {other:?}",
        served.len(),
        truth.len()
    );
}
