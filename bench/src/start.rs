//! Measures the restart of a killed process: how long until it is ready, until its first lookup is answered, and until
//! its copy is complete; how long one takes to end that is asked to; and how long a restart over many checkpoints takes
//! until a new event counts.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use types::{Error, Result};

use crate::Programs;
use crate::child::Used;
use crate::installed::Installed;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::purchases::question::KEY;
use crate::purchases::{Purchases, VIEW, account_text};
use crate::report::{Figure, Report, Table};
use crate::spread::Spread;

mod restart;
mod segments;
mod stop;
mod until;

use segments::Segments;
use until::until;

#[derive(Debug, Clone)]
pub struct Options {
    pub keys: Vec<u64>,
    /// Events per key in the snapshot.
    pub events_per_key: u64,
    /// Checkpoints after the snapshot, and the events of each.
    pub checkpoints: u64,
    pub checkpoint_events: u64,
    pub repeats: usize,
    /// In the catalog of a process that is asked to end.
    pub stop_checkpoints: u64,
    /// Checkpoints over which a process is started again, the events of each, and the partitions; 0 checkpoints skip
    /// it.
    pub restart_checkpoints: u64,
    pub restart_events: u64,
    pub restart_partitions: u64,
}

impl Default for Options {
    fn default() -> Self {
        // An hour of ten-second checkpoints, at 1,000 events a second.
        Self {
            keys: vec![1_000_000, 10_000_000],
            events_per_key: 2,
            checkpoints: 360,
            checkpoint_events: 10_000,
            repeats: 3,
            stop_checkpoints: 100_000,
            restart_checkpoints: 20_000,
            restart_events: 16,
            restart_partitions: 32,
        }
    }
}

/// The account whose row is looked up: the first ones have the most events.
const ACCOUNT: u64 = 0;
/// A setting of the serving layer.
const CACHE: &str = "BASESTREAM__SERVING__CACHE_DIR";

/// Runs the benchmark. The installations go to `folder`, one at a time.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let mut table = empty_table(options);
    for keys in &options.keys {
        let of_keys = folder.join(keys.to_string());
        std::fs::create_dir_all(&of_keys)?;
        measure(options, *keys, programs, &of_keys, &mut table).await?;
        std::fs::remove_dir_all(&of_keys)?;
    }
    let stop = stop::measured(options, programs, &folder.join("stop")).await?;
    let mut tables = vec![table, stop];
    if options.restart_checkpoints > 0 {
        tables.push(restart::measured(options, programs, &folder.join("restart")).await?);
    }
    let question = "How soon does a killed process answer again, with many keys in its snapshot and segments after it, and how soon \
                    does one count a new event, over many checkpoints; and how soon does one end that is asked to?";
    Ok(Report { benchmark: "start".into(), question: question.to_owned(), context: context.end(), tables })
}

fn empty_table(options: &Options) -> Table {
    let columns = [
        "keys",
        "snapshot MiB",
        "segments",
        "events in segments",
        "local copy of the snapshot",
        "ready s",
        "first lookup s",
        "copy complete s",
        "peak MiB",
    ];
    let notes = vec![
        format!("`basestream up`, killed by SIGKILL and started again; starts: {}; figures: median (min - max)", options.repeats),
        "times are measured from the start of the process".to_owned(),
        "ready: `/readyz` answers; first lookup: a row that counts the events of the segments".to_owned(),
        "copy complete: every bucket of the snapshot is local; peak: until then".to_owned(),
    ];
    Table { title: "From the start of a process".into(), columns: columns.map(str::to_owned).to_vec(), rows: Vec::new(), notes }
}

async fn measure(options: &Options, keys: u64, programs: &Programs, folder: &Path, table: &mut Table) -> Result<()> {
    let purchases = Purchases::with_size(keys * options.events_per_key, keys);
    let installed = Installed::create(&folder.join("project"), &purchases).await?;
    installed.archive(&purchases).await?;
    let run = installed.installation.run_view(VIEW, &|_| {}).await?;
    let segments = segments::make(&installed.installation, &purchases, options.checkpoints, options.checkpoint_events).await?;
    let cache = folder.join("cache");
    std::fs::create_dir_all(&cache)?;
    let (mut kept, mut deleted) = (Vec::new(), Vec::new());
    let expected = segments::counted(&purchases, segments.events, ACCOUNT);
    let begin = || start(programs, &installed, &cache, expected);
    // The process that is killed first.
    begin()?;
    for _ in 0..options.repeats.max(1) {
        kept.push(begin()?);
        std::fs::remove_dir_all(&cache)?;
        std::fs::create_dir_all(&cache)?;
        deleted.push(begin()?);
    }
    installed.installation.close().await;
    for (copy, started) in [("kept", kept), ("deleted", deleted)] {
        table.rows.push(row(keys, run.bytes_written, &segments, copy, &started));
    }
    Ok(())
}

fn row(keys: u64, bytes: i64, segments: &Segments, copy: &str, started: &[Started]) -> Vec<Figure> {
    let spread = |of: &dyn Fn(&Started) -> f64| Spread::from_values(started.iter().map(of));
    vec![
        Figure::Count(keys),
        Figure::bytes(Spread::from_values([bytes as f64])),
        Figure::Count(segments.checkpoints),
        Figure::Count(segments.events),
        Figure::text(copy),
        Figure::seconds(spread(&|one| one.ready.as_secs_f64())),
        Figure::seconds(spread(&|one| one.answered.as_secs_f64())),
        Figure::seconds(spread(&|one| one.copied.as_secs_f64())),
        Figure::bytes(spread(&|one| one.used.peak_bytes as f64)),
    ]
}

/// The durations of one start.
struct Started {
    ready: Duration,
    answered: Duration,
    copied: Duration,
    used: Used,
}

/// Starts the process, waits until everything is done, and kills it.
fn start(programs: &Programs, installed: &Installed, cache: &Path, expected: u64) -> Result<Started> {
    let began = Instant::now();
    let mut up = MeasuredProcess::start_with(programs, "up", &installed.config(), &installed.folder, &[(CACHE, cache.as_os_str())])?;
    let row = format!("/v1/views/{VIEW}/row?{KEY}={}", account_text(ACCOUNT));
    let address = &installed.http;
    let (ready, answer) = std::thread::scope(|scope| {
        let ready = scope.spawn(|| until(address, "/readyz", began, |_| true).map(|_| began.elapsed()));
        let answer = scope.spawn(|| until(address, &row, began, |_| true).map(|body| (began.elapsed(), body)));
        let panicked = || Error::internal("asking panicked");
        (ready.join().unwrap_or_else(|_| Err(panicked())), answer.join().unwrap_or_else(|_| Err(panicked())))
    });
    let copied = until(address, "/readyz", began, is_copied).map(|_| began.elapsed());
    up.check()?;
    let used = up.used();
    // Dropping sends SIGKILL.
    drop(up);
    let (answered, body) = answer?;
    let served: Value = serde_json::from_slice(&body).map_err(|error| Error::internal(format!("an answer is no JSON: {error}")))?;
    let served = &served["row"][format!("purchases_{}", segments::WINDOW.text)];
    if *served != expected {
        return Err(Error::internal("a row differs from the events").with("served", served).with("expected", expected));
    }
    Ok(Started { ready: ready?, answered, copied: copied?, used })
}

/// Reads whether the copy is complete from `/readyz`.
pub(crate) fn is_copied(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|ready| ready["views_copying"].as_array().is_some_and(Vec::is_empty))
}
