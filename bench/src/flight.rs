//! Measures reads of a whole view: over Flight SQL, as HTTP's Arrow stream, as `COPY` over the PostgreSQL protocol, and
//! as PostgreSQL's own `COPY` of a table with the same rows.

use std::io::Write;
use std::path::Path;

use basestream_tests::process::free_port;
use types::{Error, Result};

use crate::Programs;
use crate::installed::Installed;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::report::{Figure, Report, Table};
use crate::spread::Spread;

mod postgres;
mod reading;
mod wide;

use reading::Read;
use wide::{VIEW, Wide};

#[derive(Debug, Clone)]
pub struct Options {
    /// Rows of the view.
    pub rows: u64,
    /// Its columns, the key among them.
    pub columns: usize,
    pub repeats: usize,
    /// PostgreSQL's address, if there is one.
    pub postgres: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { rows: 1_000_000, columns: 20, repeats: 5, postgres: std::env::var("BASESTREAM_TEST_POSTGRES").ok() }
    }
}

/// The reads of one way.
struct Way {
    name: &'static str,
    reads: Vec<Read>,
}

/// Runs the benchmark, and compares what was read with the events. The installation goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let mut context = Context::begin(command, programs);
    let events = Wide::new(options.rows, options.columns)?;
    let installed = Installed::create(&folder.join("project"), &events).await?;
    let (flight, postgres) = (format!("127.0.0.1:{}", free_port()?), installed.postgres.clone());
    // `[serving]` is the file's last section.
    writeln!(std::fs::OpenOptions::new().append(true).open(installed.config())?, "flight = \"{flight}\"")?;
    installed.archive(&events).await?;
    installed.installation.run_view(VIEW, &|_| {}).await?;
    let (config, http) = (installed.config(), installed.http.clone());
    installed.close().await?;

    let up = MeasuredProcess::up(programs, &config, folder, &http).await?;
    let sql = format!("SELECT * FROM {VIEW}");
    let mut ways = Vec::new();
    let mut reads = Vec::new();
    for _ in 0..options.repeats {
        reads.push(reading::flight(&flight, &sql).await?);
    }
    ways.push(Way { name: "Flight SQL", reads: std::mem::take(&mut reads) });
    for _ in 0..options.repeats {
        reads.push(reading::http(&http, &sql).await?);
    }
    ways.push(Way { name: "HTTP, Arrow stream", reads: std::mem::take(&mut reads) });
    let url = format!("postgres://bench@{postgres}/basestream?sslmode=disable");
    for _ in 0..options.repeats {
        reads.push(postgres::copy(&url, &format!("({sql})"), options.rows).await?);
    }
    ways.push(Way { name: "PostgreSQL protocol, COPY binary", reads: std::mem::take(&mut reads) });
    let answer = reading::batches(&flight, &sql).await?;
    up.stop().await?;
    if let Some(server) = &options.postgres {
        let database = postgres::Database::create(server).await?;
        let outcome = database.read(&answer, options).await;
        database.remove().await?;
        ways.push(Way { name: "PostgreSQL itself, COPY binary", reads: outcome? });
        context.versions.insert("postgresql".to_owned(), postgres::version(server).await?);
    }
    let arrow_bytes = answer.iter().map(reading::bytes).sum::<usize>() as f64;
    for way in &ways {
        check(way, options)?;
    }
    let question = format!("How fast is a whole view of {} rows and {} columns read?", options.rows, options.columns);
    let tables = vec![table(options, &ways, arrow_bytes)];
    Ok(Report { benchmark: "flight".into(), question, context: context.end(), tables })
}

fn check(way: &Way, options: &Options) -> Result<()> {
    let is_right = |read: &Read| read.rows == options.rows && read.counted.is_none_or(|counted| counted == options.rows);
    match way.reads.iter().find(|read| !is_right(read)) {
        Some(read) => {
            Err(Error::internal("what was read is not what the events say").with("way", way.name).with("read", format!("{read:?}")))
        }
        None => Ok(()),
    }
}

fn table(options: &Options, ways: &[Way], arrow_bytes: f64) -> Table {
    const MB: f64 = 1e6;
    let columns = ["read by", "rows", "seconds", "MB/s of Arrow", "rows/s", "MB on the wire", "rate / HTTP"];
    let rate = |way: &Way| Spread::from_values(way.reads.iter().map(|read| arrow_bytes / MB / read.seconds));
    let of_http = ways.iter().find(|way| way.name.starts_with("HTTP")).and_then(&rate);
    let row = |way: &Way| {
        let wire = way.reads.first().map_or(0.0, |read| read.wire_bytes as f64 / MB);
        vec![
            Figure::text(way.name),
            Figure::Count(options.rows),
            Figure::seconds(Spread::from_values(way.reads.iter().map(|read| read.seconds))),
            rate(way).map_or(Figure::Absent, Figure::Number),
            Figure::per_second(Spread::from_values(way.reads.iter().map(|read| options.rows as f64 / read.seconds))),
            Figure::number(wire),
            Figure::ratio(rate(way).zip(of_http).map(|(own, http)| own.over(&http))),
        ]
    };
    let notes = vec![
        format!(
            "one event for each key, all in one snapshot; the answer is {:.1} MB of Arrow, and MB/s counts these for every way",
            arrow_bytes / MB
        ),
        format!(
            "each way reads the whole view {} times, one after the other, in one connection each; rows are decoded as Arrow, of COPY the bytes are counted",
            options.repeats
        ),
        "PostgreSQL itself has the rows in a table, ready to be read; the others answer the view from its states".to_owned(),
    ];
    Table {
        title: "Reads of a whole view".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: ways.iter().map(row).collect(),
        notes,
    }
}
