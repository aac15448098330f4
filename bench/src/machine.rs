//! Describes the machine and the versions that a figure was measured on.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;

use engine::events::format_timestamp;
use serde::{Deserialize, Serialize};

use crate::programs::Programs;

/// Machine, versions, date and command of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Context {
    pub date: String,
    pub command: String,
    pub machine: BTreeMap<String, String>,
    pub versions: BTreeMap<String, String>,
    /// The one-minute load averages before and after, which show what else ran.
    pub load_before: f64,
    pub load_after: f64,
}

impl Context {
    /// Must be called before anything is measured.
    pub fn begin(command: &str, programs: &Programs) -> Context {
        let load = load();
        Context {
            date: format_timestamp(jobs::now()),
            command: command.to_owned(),
            machine: machine(),
            versions: versions(programs),
            load_before: load,
            load_after: load,
        }
    }

    pub fn end(mut self) -> Context {
        self.load_after = load();
        self
    }

    pub fn markdown(&self) -> String {
        let list = |of: &BTreeMap<String, String>| of.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
        format!(
            "{}; {}; {}; load average before and after: {:.1}, {:.1}.",
            self.date,
            list(&self.machine),
            list(&self.versions),
            self.load_before,
            self.load_after
        )
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.markdown())
    }
}

fn machine() -> BTreeMap<String, String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start_matches([':', ' ', '\t']).to_owned()))
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let mut facts = BTreeMap::from([("cores".to_owned(), cores.to_string())]);
    facts.extend(field(&read("/proc/cpuinfo"), "model name").map(|model| ("cpu".to_owned(), model)));
    facts.extend(memory.map(|kib| ("memory".to_owned(), format!("{} GiB", kib >> 20))));
    facts.insert("kernel".to_owned(), read("/proc/sys/kernel/osrelease").trim().to_owned());
    facts
}

fn versions(programs: &Programs) -> BTreeMap<String, String> {
    let commit = Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short", "HEAD"]).output().ok();
    let commit = commit.filter(|output| output.status.success()).map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let profile = if cfg!(debug_assertions) { "debug (its figures mean nothing)" } else { "release" };
    let own = format!("{} {} {profile}", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default());
    let mut versions =
        BTreeMap::from([("basestream".to_owned(), own), ("datafusion".to_owned(), datafusion::DATAFUSION_VERSION.to_owned())]);
    versions.extend(programs.duckdb_version().map(|version| ("duckdb".to_owned(), version)));
    versions.extend(programs.polars_version().map(|version| ("polars".to_owned(), version)));
    versions
}

/// The one-minute load average; 0 if it is unknown.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}
