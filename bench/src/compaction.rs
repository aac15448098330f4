//! What compaction leaves: reading many small checkpoints before and after it, and a catalog of many days.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::Compacted;
use catalog::CompactionRules;
use jobs::compact::Compacting;
use jobs::served::NodeServed;
use jobs::verify::{Verifier, verify_view};
use types::{Error, Result};

use crate::installed::Installed;
use crate::machine::Context;
use crate::programs::Programs;
use crate::purchases::{Purchases, STREAM, VIEW};
use crate::report::{Figure, Report, Table, at_most};
use crate::spread::Spread;

mod days;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// The checkpoints whose files are compacted, and how many events each has.
    pub checkpoints: u64,
    pub events_of_one: u64,
    pub keys: u64,
    /// Days of the synthetic catalog.
    pub days: u64,
    pub workers: u64,
    /// Bytes of the archive file of each checkpoint of the synthetic catalog.
    pub checkpoint_bytes: i64,
    /// Commits and reads of the catalog.
    pub commits: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { checkpoints: 20_000, events_of_one: 16, keys: 10_000, days: 400, workers: 4, checkpoint_bytes: 2 << 20, commits: 500 }
    }
}

/// The aim for reading the stream, running the view and verifying it, after compaction.
const READ_S: f64 = 1.0;
const TWO_DAYS: i64 = 2 * 86_400_000_000;

/// How long it takes to read the same events.
struct Read {
    files: usize,
    count_s: f64,
    run_s: f64,
    verify_s: f64,
}

/// Runs the benchmark. The installation goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let purchases = Purchases::with_size(options.checkpoints * options.events_of_one, options.keys);
    let installed = Installed::create(&folder.join("project"), &purchases).await?;
    for nth in 0..options.checkpoints {
        installed.commit(&purchases, STREAM, nth * options.events_of_one..(nth + 1) * options.events_of_one).await?;
    }
    let before = read(&installed).await?;
    let began = Instant::now();
    let done = compact(&installed).await?;
    let took_s = began.elapsed().as_secs_f64();
    let after = read(&installed).await?;
    let question = "What does compaction leave of many checkpoints, and of many days?".to_owned();
    let tables = vec![files_table(options, &before, (&done, took_s), &after), days::measured(options, folder).await?];
    Ok(Report { benchmark: "compaction".into(), question, context: context.end(), tables })
}

/// Reads all events in three ways.
async fn read(installed: &Installed) -> Result<Read> {
    let installation = &installed.installation;
    let began = Instant::now();
    installation.recompute_view(VIEW, false, &|_| {}).await?;
    let run_s = began.elapsed().as_secs_f64();
    let node = installation.node(None).await?;
    let began = Instant::now();
    let rows = node.query(&format!("SELECT count(*) FROM {STREAM}"), Vec::new()).await?.collect().await?;
    let count_s = began.elapsed().as_secs_f64();
    if rows.iter().map(|batch| batch.num_rows()).sum::<usize>() != 1 {
        return Err(Error::internal("count(*) is one row"));
    }
    let verifier = Verifier {
        catalog: installation.catalog.clone(),
        storage: installation.storage.clone(),
        functions: installation.functions.clone(),
        memory_limit: 4 << 30,
        temp_dir: None,
    };
    let began = Instant::now();
    let report = verify_view(&verifier, VIEW, &NodeServed(node), jobs::now()).await?;
    let verify_s = began.elapsed().as_secs_f64();
    if !report.is_equal() {
        return Err(Error::internal("the view is not what plain SQL says").with("differences", report.difference_count));
    }
    let state = installation.catalog.state().await?;
    Ok(Read { files: state.readable(types::files::FileKind::Archive).count(), count_s, run_s, verify_s })
}

/// Compacts everything, as if its day was over.
async fn compact(installed: &Installed) -> Result<Compacted> {
    let rules = CompactionRules { target_bytes: 256 << 20, after: Duration::ZERO };
    let compacting = Compacting {
        batch: installed.installation.batch(),
        rules,
        clock: Arc::new(|| jobs::now() + TWO_DAYS),
        group_starts: Default::default(),
    };
    compacting.compact().await
}

fn files_table(options: &Options, before: &Read, (done, took_s): (&Compacted, f64), after: &Read) -> Table {
    let seconds = |seconds: f64| Figure::seconds(Spread::from_values([seconds]));
    let row = |what: &str, before: f64, after: f64| vec![Figure::text(what), seconds(before), seconds(after), at_most(Some(after), READ_S)];
    Table {
        title: "Reading small checkpoints".into(),
        columns: ["", "before", "after compaction", "s, at most 1"].map(str::to_owned).to_vec(),
        rows: vec![
            vec![Figure::text("archive files"), Figure::Count(before.files as u64), Figure::Count(after.files as u64), Figure::Absent],
            row("count(*) of the stream", before.count_s, after.count_s),
            row("a full run", before.run_s, after.run_s),
            row("verify", before.verify_s, after.verify_s),
            vec![Figure::text("the compaction"), Figure::Absent, seconds(took_s), Figure::Absent],
        ],
        notes: vec![format!(
            "{} checkpoints of {} events each, {} keys; {} files of {} bytes became {} of {} bytes",
            options.checkpoints,
            options.events_of_one,
            options.keys,
            done.files_read,
            done.bytes_read,
            done.files_written,
            done.bytes_written
        )],
    }
}
