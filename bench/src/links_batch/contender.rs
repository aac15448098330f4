//! Who is measured, each as a process of its own, one after the other in every repeat.

use std::path::{Path, PathBuf};
use std::process::Command;

use schemas::{Error, Result};
use serde::Deserialize;
use serde_json::json;

use super::answer::{self, Answer};
use super::files_of;
use super::parts::Parts;
use super::plain::Question;
use crate::Programs;
use crate::child::{self, Limits, Used};
use crate::graph::Stream;
use crate::installed::Pristine;
use crate::view::{Dialect, VIEW, Windows, edges_select, plain_select};

/// What all work on.
pub(super) struct Site<'a> {
    pub(super) programs: &'a Programs,
    pub(super) installed: &'a Pristine,
    pub(super) parquet: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) windows: Windows,
    pub(super) threads: usize,
    pub(super) limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Plain SQL over Parquet.
    DuckDb,
    /// The same question, by somebody who deduplicates edges by hand.
    DuckDbEdges,
    /// Plain SQL over the archive, by our own engine without the layers.
    PlainSelect,
    /// `basestream batch run`, the first of its view.
    BatchRun,
    /// The next one: nothing is new, and the join's rows are carried over.
    BatchAgain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contender {
    pub(super) kind: Kind,
    pub(super) memory_bytes: u64,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Of the question itself, as its process tells.
    pub(super) seconds: f64,
    /// Of the whole process.
    pub(super) wall_s: f64,
    pub(super) used: Used,
    /// Of a batch run.
    pub(super) parts: Option<Parts>,
}

pub(super) struct Outcome {
    pub(super) contender: Contender,
    pub(super) measured: Vec<Measured>,
    /// Why it was given up.
    pub(super) failure: Option<Error>,
    /// Of the last repeat.
    pub(super) answer: Option<Answer>,
    /// The file that takes a peer's answer.
    file: PathBuf,
}

impl Contender {
    /// Everybody who is there.
    pub(super) fn all(peer_memory_bytes: u64, duckdb: bool) -> Vec<Contender> {
        let of = |kind, memory_bytes| Contender { kind, memory_bytes };
        let mut all = Vec::new();
        if duckdb {
            all.extend([of(Kind::DuckDb, peer_memory_bytes), of(Kind::DuckDb, 1 << 30), of(Kind::DuckDbEdges, peer_memory_bytes)]);
        }
        all.extend([of(Kind::PlainSelect, peer_memory_bytes), of(Kind::BatchRun, 1 << 30)]);
        all.extend([of(Kind::BatchRun, 4 << 30), of(Kind::BatchAgain, 4 << 30)]);
        all
    }

    fn is_run(&self) -> bool {
        matches!(self.kind, Kind::BatchRun | Kind::BatchAgain)
    }

    pub(super) fn name(&self) -> String {
        let name = match self.kind {
            Kind::DuckDb => "DuckDB, plain SQL",
            Kind::DuckDbEdges => "DuckDB, edges deduplicated by hand",
            Kind::PlainSelect => "DataFusion, plain SQL over the archive",
            Kind::BatchRun => "basestream batch run",
            Kind::BatchAgain => "basestream batch run again, nothing new",
        };
        name.to_owned()
    }
}

/// Runs everybody so many times, in turns. Who fails once is not asked again.
pub(super) async fn measure(site: &Site<'_>, contenders: &[Contender], repeats: usize) -> Vec<Outcome> {
    let outcome = |(number, contender): (usize, &Contender)| {
        let file = site.folder.join(format!("answer-{number}.parquet"));
        Outcome { contender: *contender, measured: Vec::new(), failure: None, answer: None, file }
    };
    let mut outcomes: Vec<Outcome> = contenders.iter().enumerate().map(outcome).collect();
    let repeats = repeats.max(1);
    for repeat in 1..=repeats {
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.failure.is_none()) {
            if let Err(error) = one_more(site, outcome, repeat == repeats).await {
                eprintln!("{} ({} MiB): {error}", outcome.contender.name(), outcome.contender.memory_bytes >> 20);
                outcome.failure = Some(error);
            }
        }
    }
    outcomes
}

async fn one_more(site: &Site<'_>, outcome: &mut Outcome, is_last: bool) -> Result<()> {
    outcome.measured.push(measure_one(site, outcome)?);
    if is_last {
        outcome.answer = Some(match outcome.contender.is_run() {
            true => answer::joined(site.installed).await?,
            false => answer::read(&outcome.file)?,
        });
    }
    Ok(())
}

/// What each process prints, among other things.
#[derive(Deserialize)]
struct Told {
    seconds: f64,
}

fn measure_one(site: &Site<'_>, outcome: &Outcome) -> Result<Measured> {
    let mut command = command(site, outcome)?;
    if outcome.contender.kind == Kind::BatchRun {
        site.installed.restore()?;
    }
    let finished = child::run(&mut command, &site.limits)?;
    let told: Told = serde_json::from_str(&finished.stdout)
        .map_err(|error| Error::internal(format!("a process told no seconds: {error}")).with("found", &finished.stdout))?;
    Ok(Measured { seconds: told.seconds, wall_s: finished.wall.as_secs_f64(), used: finished.used, parts: Parts::of(&finished.stderr) })
}

fn command(site: &Site<'_>, outcome: &Outcome) -> Result<Command> {
    let Contender { kind, memory_bytes } = outcome.contender;
    let question = match kind {
        Kind::BatchRun | Kind::BatchAgain => return Ok(batch_run(site, memory_bytes)),
        Kind::DuckDb => duckdb(site, outcome, &plain_select(&site.windows, Dialect::DuckDb)),
        Kind::DuckDbEdges => duckdb(site, outcome, &edges_select(&site.windows)),
        Kind::PlainSelect => json!(Question {
            config: site.installed.config.clone(),
            sql: plain_select(&site.windows, Dialect::DataFusion),
            memory_bytes,
            answer: Some(outcome.file.clone()),
        }),
    };
    let path = site.folder.join("question.json");
    std::fs::write(&path, question.to_string())?;
    let mut command = match kind {
        Kind::PlainSelect => {
            let mut command = Command::new(&site.programs.bench);
            command.arg("plain-select");
            command
        }
        _ => site.programs.peer("duckdb_query.py")?,
    };
    command.arg(path);
    Ok(command)
}

fn duckdb(site: &Site<'_>, outcome: &Outcome, sql: &str) -> serde_json::Value {
    let tables: serde_json::Map<String, serde_json::Value> =
        Stream::BOTH.into_iter().map(|stream| (stream.name().to_owned(), json!(files_of(stream, site.parquet)))).collect();
    json!({
        "tables": tables,
        "sql": sql,
        "threads": site.threads,
        "memory_limit": format!("{}MiB", outcome.contender.memory_bytes >> 20),
        "temp_directory": site.folder.join("duckdb-spilled"),
        "answer": outcome.file,
    })
}

fn batch_run(site: &Site<'_>, memory_bytes: u64) -> Command {
    let mut command = Command::new(&site.programs.basestream);
    command.args(["batch", "run", VIEW, "--json", "--log-level", "batch=info", "--log-format", "json", "--config"]);
    command.arg(&site.installed.config);
    command.env("BASESTREAM__BATCH__MEMORY_LIMIT", format!("\"{}MiB\"", memory_bytes >> 20));
    command
}
