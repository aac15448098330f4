//! What a batch run holds of its memory limit: for each aggregate, with one key and with many.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use arrow::array::ArrayRef;
use types::tiles::Micros;
use types::{Error, Result};

use crate::child::{self, Finished, Limits};
use crate::events::Events;
use crate::installed::{Installed, Pristine};
use crate::machine::Context;
use crate::programs::Programs;
use crate::purchases::question::KEY;
use crate::purchases::{Purchases, STREAM};
use crate::report::{Figure, Report, Table, at_most};
use crate::spread::Spread;

/// One of each kind of state: numbers, sets, sketches, lists of values, and the events themselves.
pub const AGGREGATES: [&str; 23] = [
    "count(*)",
    "sum(amount)",
    "avg(amount)",
    "max(event_id)",
    "count(DISTINCT event_id)",
    "count(DISTINCT amount)",
    "sum(DISTINCT amount)",
    "median(amount)",
    "percentile_cont(0.9) WITHIN GROUP (ORDER BY amount)",
    "approx_distinct(event_id)",
    "approx_median(amount)",
    "first_value(event_id ORDER BY ts)",
    "last_n(event_id, 20)",
    "top_k(event_id, 20)",
    "var_pop(amount)",
    "corr(amount, amount)",
    "array_agg(event_id ORDER BY ts)",
    "string_agg(event_id, ',' ORDER BY ts)",
    "sequence_match('(?1)(?2)', ts, amount >= 500, amount > 900)",
    "window_funnel('1h', ts, amount >= 500, amount > 900)",
    "session_count(ts, '1s')",
    "longest_gap(ts)",
    "retention(amount > 500, amount > 900)",
];

/// Of the limit.
const AIM: f64 = 1.2;

#[derive(Debug, Clone)]
pub struct Options {
    pub events: u64,
    /// Where there are many keys.
    pub keys: u64,
    pub limit_bytes: u64,
    pub aggregates: Vec<String>,
    /// The time limit of a run.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            events: 8_000_000,
            keys: 1_000_000,
            limit_bytes: 512 << 20,
            aggregates: AGGREGATES.map(str::to_owned).to_vec(),
            timeout: Duration::from_secs(600),
        }
    }
}

/// Runs each aggregate's view from the archive, in a process of its own.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let mut rows = Vec::new();
    for keys in [1, options.keys] {
        let events = OneAggregateEach { purchases: Purchases::with_size(options.events, keys), aggregates: options.aggregates.clone() };
        let installed = Installed::create(&folder.join(format!("project-{keys}")), &events).await?;
        installed.archive(&events).await?;
        let installed = installed.close().await?;
        for (number, aggregate) in options.aggregates.iter().enumerate() {
            let finished = batch_run(options, programs, &installed, &view_name(number));
            rows.push(row(aggregate, keys, finished, options.limit_bytes));
        }
    }
    let columns = ["aggregate", "keys", "run, s", "own memory at its peak, MiB", "of the limit (aim 1.2)"];
    let notes = vec![
        "own memory: anonymous and shared pages of the process, sampled every 5 ms, with what the program itself takes".to_owned(),
        "refused: the run ended with an error that says what the limit would have to be".to_owned(),
    ];
    let title = format!("A limit of {} MiB", options.limit_bytes >> 20);
    let question = format!(
        "How much memory does a full run of a view with one aggregate take, for {} events of one key and of {} keys?",
        options.events, options.keys
    );
    Ok(Report { benchmark: "run-memory".into(), question, context: context.end(), tables: vec![Table::new(&title, &columns, rows, notes)] })
}

fn batch_run(options: &Options, programs: &Programs, installed: &Pristine, view: &str) -> Result<Finished> {
    let mut command = Command::new(&programs.basestream);
    command.args(["batch", "run", view, "--full", "--json", "--config"]).arg(&installed.config);
    command.env("BASESTREAM__BATCH__MEMORY_LIMIT", format!("\"{}B\"", options.limit_bytes));
    child::run(&mut command, &Limits { time: options.timeout, memory_bytes: u64::MAX })
}

fn row(aggregate: &str, keys: u64, finished: Result<Finished>, limit_bytes: u64) -> Vec<Figure> {
    let name = [Figure::text(aggregate), Figure::Count(keys)];
    let figures = match finished {
        Ok(Finished { wall, used, .. }) => [
            Figure::seconds(Spread::single(wall.as_secs_f64())),
            Figure::bytes(Spread::single(used.own_peak_bytes as f64)),
            at_most(Some(used.own_peak_bytes as f64 / limit_bytes as f64), AIM),
        ],
        Err(error) => [Figure::Absent, Figure::Absent, Figure::text(refusal(&error))],
    };
    name.into_iter().chain(figures).collect()
}

/// What a run that failed said, in one line.
fn refusal(error: &Error) -> String {
    let text = error.to_string();
    let said = text.rsplit("error: ").next().unwrap_or(&text);
    format!("refused: {}", said.split(" / ").next().unwrap_or(said))
}

fn view_name(number: usize) -> String {
    format!("aggregate_{number}")
}

/// Purchases with a view for each aggregate.
#[derive(Debug, Clone)]
struct OneAggregateEach {
    purchases: Purchases,
    aggregates: Vec<String>,
}

impl Events for OneAggregateEach {
    fn files(&self) -> Vec<(String, String)> {
        let views = self.aggregates.iter().enumerate().map(|(number, aggregate)| {
            let name = view_name(number);
            let text = format!(
                "CREATE VIEW {name} WITH (windows = '1h, 90d', strategy = 'full') AS\n\
                 SELECT {KEY}, {aggregate} AS a FROM {STREAM} GROUP BY {KEY};\n"
            );
            (format!("views/{name}.sql"), text)
        });
        let streams = self.purchases.files().into_iter().filter(|(path, _)| path.starts_with("streams/"));
        streams.chain(views).collect()
    }

    fn streams(&self) -> Vec<(&'static str, u64)> {
        self.purchases.streams()
    }

    fn time(&self, stream: &str, number: u64) -> Micros {
        self.purchases.time(stream, number)
    }

    fn column(&self, stream: &str, name: &str, numbers: &[u64]) -> Option<ArrayRef> {
        self.purchases.column(stream, name, numbers)
    }
}
