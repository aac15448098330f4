//! Runs Flink SQL on a Kafka topic, as the program of `bench/peers`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use types::{Error, Result};

use crate::child::{self, Limits};
use crate::payments::Topic;

/// Threads of a Flink job.
const PARALLELISM: u32 = 2;
/// The memory limit of its Python process; its JVM has its own limits.
const MEMORY: u64 = 8 << 30;
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
        let jars = std::fs::read_dir(self.folder.join("jars"))?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
        let brokers = topic.url.trim_start_matches("kafka://");
        let question = json!({ "brokers": brokers, "topic": topic.name, "jars": jars, "parallelism": PARALLELISM, "job": job });
        std::fs::create_dir_all(folder)?;
        let path = folder.join("flink.json");
        std::fs::write(&path, question.to_string())?;
        let mut command = Command::new(self.folder.join("bin/python"));
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/flink_sql.py")).arg(&path);
        let finished = child::run(&mut command, &Limits { time: limit, memory_bytes: MEMORY })?;
        // Some of its libraries also write to standard output.
        let last = finished.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last)
            .map_err(|error| Error::internal(format!("Flink reported nothing: {error}")).with("found", &finished.stdout))
    }
}
