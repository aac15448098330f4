//! Runs the peer: Flink SQL on the same Kafka topic, as a program of `bench/peers`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use types::{Error, Result};

use super::speed::Measured;
use crate::child::{self, Limits};
use crate::payments::Topic;

/// Threads of the Flink job.
const PARALLELISM: u32 = 2;
/// The faster of Flink's two ways to aggregate per key and minute: windows, not updating groups.
const AGGREGATION: &str = "window";
/// The memory limit of its Python process; its JVM has its own limits.
const MEMORY: u64 = 8 << 30;
const REQUIREMENTS: &str = include_str!("../../peers/requirements.txt");

/// Flink as `bench/peers/setup` installed it.
#[derive(Debug, Clone)]
pub(super) struct Flink {
    folder: PathBuf,
}

#[derive(Deserialize)]
struct Reported {
    seconds: f64,
    processor_s: f64,
    peak_bytes: f64,
}

/// Sums over all keys and minutes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Sums {
    events: u64,
    amount: String,
}

impl Sums {
    /// Compares the sums with those of all records: Flink does not drop duplicates.
    pub(super) fn check(&self, topic: &Topic) -> Result<()> {
        let amount = super::answer::amount_text(topic.payments.truth().cents_with_duplicates);
        let expected = Sums { events: topic.payments.records, amount };
        if *self == expected {
            return Ok(());
        }
        let told = |sums: &Sums| format!("{} events, {}", sums.events, sums.amount);
        Err(Error::internal("Flink gave a wrong answer").with("found", told(self)).with("expected", told(&expected)))
    }
}

impl Flink {
    /// `None` if it is not installed.
    pub(super) fn installed() -> Option<Flink> {
        let cache = std::env::var("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|_| std::env::var("HOME").map(|home| PathBuf::from(home).join(".cache")));
        let folder = cache.ok()?.join("basestream/peers");
        folder.join("installed.txt").exists().then_some(Flink { folder })
    }

    pub(super) fn version() -> &'static str {
        let line = REQUIREMENTS.lines().find_map(|line| line.strip_prefix("apache-flink=="));
        line.unwrap_or_default()
    }

    pub(super) fn measure(&self, folder: &Path, topic: &Topic, limit: Duration) -> Result<Measured> {
        let told: Reported = self.ask(folder, topic, false, limit)?;
        let records = topic.payments.records as f64;
        Ok(Measured {
            seconds: told.seconds,
            events_per_second: records / told.seconds.max(1e-9),
            processor_s_per_million: told.processor_s * 1e6 / records,
            peak_bytes: told.peak_bytes,
            checkpoints: 0,
            checkpoints_s: 0.0,
        })
    }

    /// Computes the sums in a separate run, because the measured run discards its results.
    pub(super) fn sums(&self, folder: &Path, topic: &Topic, limit: Duration) -> Result<Sums> {
        self.ask(folder, topic, true, limit)
    }

    fn ask<T: DeserializeOwned>(&self, folder: &Path, topic: &Topic, check: bool, limit: Duration) -> Result<T> {
        let jars = std::fs::read_dir(self.folder.join("jars"))?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
        let brokers = topic.url.trim_start_matches("kafka://");
        let question = json!({
            "brokers": brokers, "topic": topic.name, "jars": jars, "parallelism": PARALLELISM, "aggregation": AGGREGATION, "check": check
        });
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
