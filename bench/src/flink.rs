//! Runs Flink SQL on a Kafka topic, as the program of `bench/peers`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use types::{Error, Result};

use crate::child::{self, Limits, Used};
use crate::payments::Topic;

/// Threads of a Flink job.
const PARALLELISM: u32 = 2;
/// The memory limit of its Python process; its JVM has its own limits.
const MEMORY: u64 = 8 << 30;
/// How long a job that runs until it is stopped may take to start, and to stop.
const STARTS: Duration = Duration::from_secs(180);
const STOPS: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
const REQUIREMENTS: &str = include_str!("../peers/requirements.txt");

/// Flink as `bench/peers/setup` installed it.
#[derive(Debug, Clone)]
pub(crate) struct Flink {
    folder: PathBuf,
}

/// What a job took: without the start of its JVM and its planning.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Reported {
    pub(crate) seconds: f64,
    pub(crate) processor_s: f64,
    pub(crate) peak_bytes: f64,
}

/// A job that runs until it is stopped. If it is dropped, its Python process is killed, and its JVM ends with that.
pub(crate) struct FlinkJob {
    child: Child,
    /// The process id of its JVM.
    jvm: u32,
    errors: PathBuf,
}

/// What a job prints once it runs.
#[derive(Deserialize)]
struct JobRuns {
    jvm: u32,
}

impl Flink {
    /// `None` if it is not installed.
    pub(crate) fn installed() -> Option<Flink> {
        let cache = std::env::var("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|_| std::env::var("HOME").map(|home| PathBuf::from(home).join(".cache")));
        let folder = cache.ok()?.join("basestream/peers");
        folder.join("installed.txt").exists().then_some(Flink { folder })
    }

    pub(crate) fn version() -> &'static str {
        let line = REQUIREMENTS.lines().find_map(|line| line.strip_prefix("apache-flink=="));
        line.unwrap_or_default()
    }

    /// Runs a job of `flink_sql.py` over the topic, from its beginning to its end, and returns what it reports.
    pub(crate) fn run<T: DeserializeOwned>(&self, folder: &Path, topic: &Topic, job: &Value, limit: Duration) -> Result<T> {
        let mut command = self.command(folder, topic, job)?;
        let finished = child::run(&mut command, &Limits { time: limit, memory_bytes: MEMORY })?;
        // Some of its libraries also write to standard output.
        let last = finished.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last)
            .map_err(|error| Error::internal(format!("Flink reported nothing: {error}")).with("found", &finished.stdout))
    }

    /// Starts a job that reads the topic from its beginning and follows it, and waits until it runs.
    pub(crate) async fn start(&self, folder: &Path, topic: &Topic, job: &Value) -> Result<FlinkJob> {
        let mut command = self.command(folder, topic, job)?;
        let (output, errors) = (folder.join("flink.out"), folder.join("flink.err"));
        let child = command.stdin(Stdio::piped()).stdout(File::create(&output)?).stderr(File::create(&errors)?).spawn()?;
        let mut job = FlinkJob { child, jvm: 0, errors };
        let began = Instant::now();
        loop {
            let runs = std::fs::read_to_string(&output)?.lines().find_map(|line| serde_json::from_str::<JobRuns>(line).ok());
            if let Some(JobRuns { jvm }) = runs {
                job.jvm = jvm;
                return Ok(job);
            }
            if job.child.try_wait()?.is_some() {
                return Err(job.failed("it ended"));
            }
            if began.elapsed() > STARTS {
                return Err(job.failed("it does not start"));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn command(&self, folder: &Path, topic: &Topic, job: &Value) -> Result<Command> {
        let jars = std::fs::read_dir(self.folder.join("jars"))?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
        let brokers = topic.brokers().unwrap_or(&topic.url);
        let checkpoints = folder.join("checkpoints");
        let question = json!({
            "brokers": brokers, "topic": topic.name, "jars": jars, "parallelism": PARALLELISM, "checkpoints": checkpoints, "job": job
        });
        std::fs::create_dir_all(folder)?;
        let path = folder.join("flink.json");
        std::fs::write(&path, question.to_string())?;
        let mut command = Command::new(self.folder.join("bin/python"));
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/flink_sql.py")).arg(&path);
        Ok(command)
    }
}

impl FlinkJob {
    /// What its JVM used so far.
    pub(crate) fn used(&self) -> Used {
        child::used_by(self.jvm).unwrap_or_default()
    }

    /// Errors if it had failed before.
    pub(crate) async fn stop(mut self) -> Result<()> {
        // It waits for the end of its input.
        drop(self.child.stdin.take());
        let began = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => return Err(self.failed("it failed")),
                None if began.elapsed() > STOPS => return Err(self.failed("it does not stop")),
                None => tokio::time::sleep(POLL).await,
            }
        }
    }

    fn failed(&self, what: &str) -> Error {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(8).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join(" / ");
        Error::internal(format!("a job of Flink is not as expected: {what}")).with("wrote", last)
    }
}

impl Drop for FlinkJob {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
