//! The installation that a file is played on: all three layers, with a clock that stands still until the file moves it.
//!
//! | statement | what it does |
//! |---|---|
//! | `CREATE STREAM ..`, `CREATE VIEW ..` | checks and applies it beside the definitions before it; the same name again changes one |
//! | `APPEND TO stream`, then a record a line | appends to the log, and waits until the speed layer has read it: fresh, not checkpointed |
//! | `CHECKPOINT` | has the speed layer commit what it read |
//! | `RUN BATCH view` | recomputes the view from the archive and publishes its snapshot |
//! | `RUN ALERTS` | evaluates each alert once, and puts out what began or ceased |
//! | `SET clock = '..'` | moves the clock forward; it begins at 2026-03-02T12:00:00Z |
//! | `LOOKUP view key=value ..` | looks a key up, as `basestream lookup` does; the answer is the row if the key is found |
//! | anything else | is a query, as `basestream query` takes it |

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use basestream_tests::{Harness, Worker};
use batch::RunTime;
use definitions::Definitions;
use definitions::parse::{parse_definitions, parse_stream};
use engine::fresh::Fresh;
use event_alerts::{Alerts, StalledAlerts};
use serving::{Keys, Node, ServingClock};
use tokio_util::sync::CancellationToken;
use types::vector::PartitionId;
use types::{Error, Result};

/// 2026-03-02T12:00:00Z.
const BEGIN: i64 = 1_772_452_800_000_000;
const PARTITIONS: u32 = 2;
/// No checkpoint but those that a file asks for.
const NEVER: Duration = Duration::from_secs(24 * 3600);

pub struct Project {
    harness: Harness,
    fresh: Fresh,
    node: Node,
    clock: Arc<AtomicI64>,
    /// The definitions' texts.
    sources: Vec<(String, String)>,
    worker: Option<Worker>,
    workers: usize,
}

impl Project {
    pub async fn new() -> Project {
        let harness = Harness::new().await.unwrap();
        let (clock, fresh) = (Arc::new(AtomicI64::new(BEGIN)), Fresh::default());
        let read = clock.clone();
        let node = harness.node_by(ServingClock::Wall, Some(fresh.clone()), Arc::new(move || read.load(Ordering::Relaxed))).await.unwrap();
        node.attach_log(harness.log.clone());
        Project { harness, fresh, node, clock, sources: Vec::new(), worker: None, workers: 0 }
    }

    /// Runs one statement. The rows of its answer, or the message of its refusal.
    pub async fn run(&mut self, text: &str) -> std::result::Result<Vec<String>, String> {
        self.statement(text).await.map_err(|error| error.to_string())
    }

    pub async fn close(mut self) {
        self.checkpoint().await.unwrap();
    }

    async fn statement(&mut self, text: &str) -> Result<Vec<String>> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        match first.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["CREATE", _, name, ..] => self.create(name, text).await?,
            ["APPEND", "TO", stream] => self.append(stream, rest).await?,
            ["CHECKPOINT"] => self.checkpoint().await?,
            ["RUN", "BATCH", view] => self.run_batch(view).await?,
            ["RUN", "ALERTS"] => self.run_alerts().await?,
            ["SET", "clock", "=", time] => self.move_clock(time)?,
            ["LOOKUP", view, keys @ ..] => return self.lookup(view, keys).await,
            _ => return self.query(text).await,
        }
        Ok(Vec::new())
    }

    async fn create(&mut self, name: &str, text: &str) -> Result<()> {
        let mut sources = self.sources.clone();
        sources.retain(|(known, _)| known != name);
        sources.push((name.to_owned(), text.to_owned()));
        let texts: Vec<(Option<PathBuf>, String)> = sources.iter().map(|(_, text)| (None, text.clone())).collect();
        let (definitions, mistakes) = parse_definitions(&texts);
        mistakes.into_result()?;
        self.apply(definitions).await?;
        self.sources = sources;
        // The next worker reads the new definitions.
        self.checkpoint().await
    }

    async fn apply(&self, definitions: Definitions) -> Result<()> {
        let functions = &self.harness.functions;
        let checked = jobs::check::check_definitions(definitions, functions, BEGIN).await;
        checked.diagnostics.clone().into_result()?;
        let target = jobs::apply::ApplyTarget {
            catalog: &self.harness.catalog,
            storage: &self.harness.storage,
            log: &*self.harness.log,
            partitions: PARTITIONS,
            functions,
            progress: &|_| {},
        };
        let wanted = jobs::apply::Wanted::Definitions { definitions: &checked.definitions, staging: &checked.staging };
        jobs::apply::apply(&target, wanted, jobs::apply::ApplyOptions::default(), BEGIN).await.map(|_| ())
    }

    async fn append(&mut self, stream: &str, lines: &str) -> Result<()> {
        if self.worker.is_none() {
            self.workers += 1;
            let name = format!("worker-{}", self.workers);
            self.worker = Some(self.harness.worker(&name, NEVER, Some(self.fresh.for_worker())));
        }
        let source = self.sources.iter().find(|(name, _)| name == stream).ok_or_else(|| Error::not_found(format!("no stream {stream}")))?;
        let definition = parse_stream(&source.1)?;
        let key = |line: &str| [&definition.key, &definition.id].into_iter().flatten().find_map(|column| text_of(line, column));
        let records = lines.lines().map(|line| (key(line), line.to_owned()));
        self.harness.append(&definition.topic, PARTITIONS, records.collect()).await?;
        self.wait_until_read(stream, &definition.topic).await
    }

    async fn wait_until_read(&self, stream: &str, topic: &str) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            self.node.refresh().await?;
            let position = self.node.read_view()?.vector;
            let ends = self.harness.log.bounds(topic).await?;
            if ends.iter().all(|end| position.get(&PartitionId::new(stream, end.partition)) >= end.end) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(Error::unavailable(format!("timed out: the speed layer did not read {topic} to its end in 60 s")))
    }

    /// A worker that ends commits what it read; the next one goes on there.
    async fn checkpoint(&mut self) -> Result<()> {
        if let Some(worker) = self.worker.take() {
            worker.finish().await?;
        }
        self.node.refresh().await
    }

    async fn run_batch(&self, view: &str) -> Result<()> {
        self.harness.batch(view, RunTime::At(self.clock.load(Ordering::Relaxed))).await?;
        self.node.refresh().await
    }

    /// As a process does that holds their leases for as long as it takes.
    async fn run_alerts(&mut self) -> Result<()> {
        self.node.refresh().await?;
        let alerts: BTreeSet<Arc<str>> = self.node.read_view()?.loaded.registry.alerts.iter().map(|alert| alert.name.clone()).collect();
        self.workers += 1;
        let owner = format!("alerts-{}", self.workers);
        let (node, log, group) = (self.node.clone(), self.harness.log.clone(), "basestream".to_owned());
        let (lease, clock, stalled) = (Duration::from_secs(6), Arc::new(basestream_tests::now), StalledAlerts::default());
        let runner = Alerts { node, log, group, partitions: PARTITIONS, owner: owner.clone(), lease, clock, stalled };
        let stop = CancellationToken::new();
        let running = tokio::spawn(runner.run(stop.clone()));
        let begun = Instant::now();
        loop {
            // A runner evaluates nothing older than the lease that it took.
            self.node.refresh().await?;
            let runners = self.harness.catalog.alert_runners().await?;
            let evaluated = runners.into_iter().filter(|runner| runner.owner == owner && runner.evaluated_at.is_some());
            if evaluated.map(|runner| runner.alert).collect::<BTreeSet<_>>() == alerts {
                break;
            }
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(Error::unavailable("timed out: not every alert was evaluated in 60 s"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
        running.await.map_err(|error| Error::internal(error.to_string()))
    }

    fn move_clock(&self, time: &str) -> Result<()> {
        let to = serving::parse_as_of(time.trim_matches(['\'', ';']))?;
        assert!(self.clock.fetch_max(to, Ordering::Relaxed) <= to, "the clock only goes forward");
        Ok(())
    }

    async fn query(&self, sql: &str) -> Result<Vec<String>> {
        self.node.refresh().await?;
        let batches = self.node.query(sql, Vec::new()).await?.collect().await?;
        Ok(batches.iter().map(rows_of).collect::<Result<Vec<_>>>()?.concat())
    }

    /// A `~` in a value is a space.
    async fn lookup(&self, view: &str, keys: &[&str]) -> Result<Vec<String>> {
        self.node.refresh().await?;
        let key = keys.iter().filter_map(|pair| pair.split_once('=')).map(|(name, value)| (name.to_owned(), value.replace('~', " ")));
        let answer = self.node.lookup(view, Keys::Text(vec![key.collect()]), None).await?;
        if answer.found == [true] { rows_of(&answer.rows) } else { Ok(Vec::new()) }
    }
}

fn rows_of(batch: &RecordBatch) -> Result<Vec<String>> {
    let row = |row: usize| {
        let values = batch.columns().iter().map(|column| Ok(shown(serving::json::value(column, row)?.get())));
        Ok(crate::script::one_space(&values.collect::<Result<Vec<String>>>()?.join(" ")))
    };
    (0..batch.num_rows()).map(row).collect()
}

/// A text of a record: by it our producers choose the partition.
fn text_of(line: &str, column: &str) -> Option<String> {
    let record: serde_json::Value = serde_json::from_str(line).ok()?;
    record.get(column)?.as_str().map(str::to_owned)
}

/// A value as in the JSON of an answer; texts without their quotes.
fn shown(json: &str) -> String {
    match serde_json::from_str(json) {
        Ok(serde_json::Value::Null) => "NULL".into(),
        Ok(serde_json::Value::String(text)) if text.is_empty() => "(empty)".into(),
        Ok(serde_json::Value::String(text)) => text,
        _ => json.to_owned(),
    }
}
