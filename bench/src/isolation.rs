//! Measures what heavy work in the same process costs lookups: random keys of a view over windows, asked over HTTP and
//! over PostgreSQL of one `up` that is idle, while clients scan the whole view, while batch runs of it follow one
//! another, and beside both.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use types::{Error, Result};

use crate::Programs;
use crate::asking::{self, Client, Getting, Http, Stretches};
use crate::installed::Installed;
use crate::latencies::Latencies;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::purchases::question::row_path;
use crate::purchases::selecting::Selecting;
use crate::purchases::{FOUR_WINDOWS, Purchases, VIEW, account_text};
use crate::report::Report;
use crate::runs::Runs;

mod table;

#[derive(Debug, Clone)]
pub struct Options {
    pub purchases: Purchases,
    /// Clients that scan the whole view over HTTP, one query after the other.
    pub scanners: usize,
    /// How long each stretch of measuring lasts, and how many there are.
    pub seconds: f64,
    pub repeats: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { purchases: Purchases::with_size(5_000_000, 200_000), scanners: 4, seconds: 10.0, repeats: 3 }
    }
}

/// The aim for the p99 of a lookup beside heavy work: this many times that of the idle process, or this many
/// milliseconds.
const MOST_TO_IDLE: f64 = 2.0;
const MOST_MS: f64 = 2.0;

/// What each client waits after an answer, so that the lookups themselves leave the processors idle.
const PACE: Duration = Duration::from_millis(2);

/// What was asked in one situation.
struct Measured {
    meanwhile: String,
    http: Vec<Latencies>,
    postgres: Vec<Latencies>,
}

/// Runs the benchmark. The installation goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let installed = Installed::create(&folder.join("project"), &options.purchases).await?;
    installed.archive(&options.purchases).await?;
    installed.installation.run_view(VIEW, &|_| {}).await?;
    let up = MeasuredProcess::up(programs, &installed.config(), &installed.folder, &installed.http).await?;

    let idle = measure(options, &installed, "nothing".into()).await?;
    let scans = Scans::start(&installed.http, options.scanners)?;
    let mut scanning = measure(options, &installed, String::new()).await?;
    let scanned = tokio::task::spawn_blocking(|| scans.finish()).await??;
    scanning.meanwhile = format!("{} clients scan the view: {scanned} scans", options.scanners);
    let runs = Runs::start_in(&installed.http, VIEW);
    let mut running = measure(options, &installed, String::new()).await?;
    let begun = tokio::task::spawn_blocking(|| runs.finish()).await??;
    running.meanwhile = format!("batch runs of the view: {begun} begun");
    let (scans, runs) = (Scans::start(&installed.http, options.scanners)?, Runs::start_in(&installed.http, VIEW));
    let mut both = measure(options, &installed, String::new()).await?;
    let (scanned, begun) = tokio::task::spawn_blocking(|| Ok::<_, Error>((scans.finish()?, runs.finish()?))).await??;
    both.meanwhile = format!("both: {scanned} scans, {begun} batch runs begun");
    up.stop().await?;
    installed.installation.close().await;
    let question = "What do full scans and batch runs in the same process cost lookups of random keys?".to_owned();
    let measured = [idle, scanning, running, both];
    let tables = vec![table::build(options, &measured), table::aims(&measured)];
    Ok(Report { benchmark: "isolation".into(), question, context: context.end(), tables })
}

async fn measure(options: &Options, installed: &Installed, meanwhile: String) -> Result<Measured> {
    let stretches = Stretches { seconds: options.seconds, repeats: options.repeats };
    let purchases = options.purchases.clone();
    let over_http = Getting::connect(&installed.http, PACE, move |nth| row_path(VIEW, &account_text(purchases.account(nth))))?;
    let over_postgres: Box<dyn Client> = Box::new(Selecting::new(&installed.postgres, options.purchases.clone(), PACE));
    let (http, postgres) = tokio::try_join!(asking::ask(stretches, vec![over_http]), asking::ask(stretches, vec![over_postgres]))?;
    Ok(Measured { meanwhile, http, postgres })
}

/// Clients that scan the whole view.
struct Scans {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<u64>>>,
}

impl Scans {
    fn start(address: &str, clients: usize) -> Result<Scans> {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (stop, mut http) = (stop.clone(), Http::connect(address)?);
            let body = serde_json::json!({ "query": scan() }).to_string();
            Ok(std::thread::spawn(move || {
                let mut scans = 0;
                while !stop.load(Ordering::Relaxed) {
                    http.post("/v1/sql", &body)?;
                    scans += 1;
                }
                Ok(scans)
            }))
        };
        let clients = (0..clients.max(1)).map(client).collect::<Result<_>>()?;
        Ok(Scans { stop, clients })
    }

    fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let join = |client: JoinHandle<Result<u64>>| client.join().unwrap_or_else(|_| Err(Error::internal("what scans panicked")));
        self.clients.into_iter().map(join).sum()
    }
}

/// Reads every key, and columns that have to be merged.
fn scan() -> String {
    let columns: Vec<String> = FOUR_WINDOWS.iter().map(|window| format!("sum(purchases_{0}) AS purchases_{0}", window.text)).collect();
    format!("SELECT count(*) AS keys, {} FROM {VIEW}", columns.join(", "))
}
