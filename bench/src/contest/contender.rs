//! The contenders of a contest, and how each is measured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::{Value, json};
use types::{Error, Result};

use super::answer::{self, Answer, Shape};
use super::parts::{self, Parts, Step};
use super::plain::SelectTask;
use crate::Programs;
use crate::child::{self, Limits, Used};
use crate::installed::Pristine;

/// What all contenders share.
pub struct Site<'a> {
    pub programs: &'a Programs,
    pub installed: &'a Pristine,
    /// The peers' tables: names, and the Parquet files of each.
    pub tables: BTreeMap<String, String>,
    pub folder: &'a Path,
    pub view: &'a str,
    /// The table that has the answer after a batch run.
    pub answered_by: &'a str,
    pub shape: &'a Shape,
    /// The messages in a batch run's log that end its steps.
    pub steps: &'a [Step],
    pub threads: usize,
    pub limits: Limits,
}

/// How a contender computes the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// DuckDB runs this SQL over Parquet.
    DuckDb(String),
    /// Polars evaluates these expressions over Parquet, without a memory limit.
    Polars(Value),
    /// Our own engine runs this SQL over the archive, without the layers.
    PlainSelect(String),
    /// `basestream batch run`, the first of its view.
    BatchRun,
    /// A second run, without new events.
    BatchAgain,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contender {
    pub name: String,
    pub how: How,
    pub memory_bytes: u64,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The time of the query itself, as its process reports it.
    pub seconds: f64,
    /// The time of the whole process.
    pub wall_s: f64,
    pub used: Used,
    /// The steps of a batch run.
    pub parts: Option<Parts>,
}

pub struct Outcome {
    pub contender: Contender,
    pub measured: Vec<Measured>,
    /// Why it was given up.
    pub failure: Option<Error>,
    /// Rows of its answer in the last repeat; they are the same for all contenders.
    pub rows: Option<usize>,
    /// The file that receives a peer's answer.
    file: PathBuf,
}

impl Contender {
    pub fn new(name: &str, how: How, memory_bytes: u64) -> Contender {
        Contender { name: name.to_owned(), how, memory_bytes }
    }

    pub fn is_run(&self) -> bool {
        matches!(self.how, How::BatchRun | How::BatchAgain)
    }

    pub fn is_duckdb(&self) -> bool {
        matches!(self.how, How::DuckDb(_))
    }
}

/// Runs every contender `repeats` times, in turns. A contender that fails is not run again. Errors if two answers
/// differ.
pub async fn measure(site: &Site<'_>, contenders: Vec<Contender>, repeats: usize) -> Result<Vec<Outcome>> {
    let outcome = |(number, contender): (usize, Contender)| {
        let file = site.folder.join(format!("answer-{number}.parquet"));
        Outcome { contender, measured: Vec::new(), failure: None, rows: None, file }
    };
    let mut outcomes: Vec<Outcome> = contenders.into_iter().enumerate().map(outcome).collect();
    let mut first: Option<(String, Answer)> = None;
    let repeats = repeats.max(1);
    for repeat in 1..=repeats {
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.failure.is_none()) {
            match measure_one(site, outcome) {
                Ok(measured) => outcome.measured.push(measured),
                Err(error) => {
                    eprintln!("{} ({} MiB): {error}", outcome.contender.name, outcome.contender.memory_bytes >> 20);
                    outcome.failure = Some(error);
                }
            }
            if repeat == repeats && outcome.failure.is_none() {
                hold_answer(site, outcome, &mut first).await?;
            }
        }
    }
    if first.is_none() { Err(Error::internal("no contender answered")) } else { Ok(outcomes) }
}

/// Compares an answer with the first one.
async fn hold_answer(site: &Site<'_>, outcome: &mut Outcome, first: &mut Option<(String, Answer)>) -> Result<()> {
    let answer = match outcome.contender.is_run() {
        true => answer::served(site.installed, site.answered_by, site.shape).await?,
        false => answer::read(&outcome.file, site.shape)?,
    };
    outcome.rows = Some(answer.len());
    match first {
        Some((name, first)) => {
            first.same(&answer).map_err(|error| error.with("one", &*name).with("another", &outcome.contender.name))?;
        }
        None => *first = Some((outcome.contender.name.clone(), answer)),
    }
    Ok(())
}

/// The part that is read of what each process prints.
#[derive(Deserialize)]
struct Reported {
    seconds: f64,
}

fn measure_one(site: &Site<'_>, outcome: &Outcome) -> Result<Measured> {
    let mut command = command(site, outcome)?;
    if outcome.contender.how == How::BatchRun {
        site.installed.restore()?;
    }
    let finished = child::run(&mut command, &site.limits)?;
    let reported: Reported = serde_json::from_str(&finished.stdout)
        .map_err(|error| Error::internal(format!("a process reported no seconds: {error}")).with("found", &finished.stdout))?;
    let parts = parts::from_log(&finished.stderr, site.steps);
    Ok(Measured { seconds: reported.seconds, wall_s: finished.wall.as_secs_f64(), used: finished.used, parts })
}

fn command(site: &Site<'_>, outcome: &Outcome) -> Result<Command> {
    let Contender { how, memory_bytes, .. } = &outcome.contender;
    let (mut command, question) = match how {
        How::BatchRun | How::BatchAgain => return Ok(batch_run(site, *memory_bytes)),
        How::DuckDb(sql) => (site.programs.peer("duckdb_query.py")?, duckdb(site, outcome, sql)),
        How::Polars(expressions) => {
            let mut command = site.programs.peer("polars_query.py")?;
            command.env("POLARS_MAX_THREADS", site.threads.to_string());
            (command, polars(site, outcome, expressions))
        }
        How::PlainSelect(sql) => {
            let mut command = Command::new(&site.programs.bench);
            command.arg("plain-select");
            let question = SelectTask {
                config: site.installed.config.clone(),
                view: site.view.to_owned(),
                sql: sql.clone(),
                memory_bytes: *memory_bytes,
                answer: Some(outcome.file.clone()),
            };
            (command, json!(question))
        }
    };
    let path = site.folder.join("question.json");
    std::fs::write(&path, question.to_string())?;
    command.arg(path);
    Ok(command)
}

fn duckdb(site: &Site<'_>, outcome: &Outcome, sql: &str) -> Value {
    json!({
        "tables": site.tables,
        "sql": sql,
        "threads": site.threads,
        "memory_limit": format!("{}MiB", outcome.contender.memory_bytes >> 20),
        "temp_directory": site.folder.join("duckdb-spilled"),
        "answer": outcome.file,
    })
}

fn polars(site: &Site<'_>, outcome: &Outcome, expressions: &Value) -> Value {
    let mut question = expressions.clone();
    question["tables"] = json!(site.tables);
    question["answer"] = json!(outcome.file);
    question
}

fn batch_run(site: &Site<'_>, memory_bytes: u64) -> Command {
    let mut command = Command::new(&site.programs.basestream);
    command.args(["batch", "run", site.view, "--full", "--json", "--log-level", "batch=info", "--log-format", "json", "--config"]);
    command.arg(&site.installed.config);
    command.env("BASESTREAM__BATCH__MEMORY_LIMIT", format!("\"{}MiB\"", memory_bytes >> 20));
    command
}
