//! Measures point lookups of views over windows: in process, over HTTP and over the PostgreSQL protocol, idle and while
//! events arrive and batch runs, against Redis and PostgreSQL with the final rows; keys of every view in one call; and
//! what many other views cost.

use std::path::Path;

use serving::Node;
use types::Result;

use crate::Programs;
use crate::asking::Stretches;
use crate::installed::Installed;
use crate::latencies::Latencies;
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::purchases::selecting::url_of;
use crate::report::{Report, Table};
use crate::within::Within;

mod ask;
mod busy;
mod case;
mod check;
mod final_rows;
mod many_views;
mod postgres;
mod prepare;
mod redis;
mod table;
mod together;
mod windows;

use ask::Ask;
use busy::Busy;
pub use case::Case;
use prepare::{prepare, purchases_of, size_table};
use table::{Access, Row};

/// What is asked of `up` over the PostgreSQL protocol.
const OF_THE_VIEW: &str = "SELECT * FROM account_purchases WHERE account_id = $1";

#[derive(Debug, Clone)]
pub struct Options {
    pub cases: Vec<Case>,
    pub events_per_key: u64,
    /// Clients over HTTP and of the peers; in process there is one per core.
    pub clients: usize,
    /// Keys per request in the measurement of many keys.
    pub batch: usize,
    /// How long each stretch of measuring lasts, and how many there are.
    pub seconds: f64,
    pub repeats: usize,
    /// Events per second that arrive in the second half; 0 skips it.
    pub rate: u64,
    /// Calls per second for keys of every view while events arrive, in cases of several views; 0 skips it.
    pub together: u64,
    /// Keys whose answers are compared with the events.
    pub checked: u64,
    /// Keys and events of the table by window; 0 events skip it.
    pub window_keys: u64,
    pub window_events: u64,
    /// Views of the project in which one view is asked, beside a project of one view, and the keys of each; 0 skips it.
    pub many_views: usize,
    pub many_views_keys: u64,
    /// PostgreSQL's address, if there is one.
    pub postgres: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        let case = |views, windows, keys| Case { views, windows, keys };
        Self {
            cases: vec![
                case(1, 4, 100_000),
                case(1, 4, 1_000_000),
                case(1, 4, 10_000_000),
                case(15, 4, 1_000_000),
                case(1, 1, 1_000_000),
                case(1, 8, 1_000_000),
            ],
            events_per_key: 3,
            clients: 16,
            batch: 100,
            seconds: 3.0,
            repeats: 3,
            rate: 50_000,
            together: 2_000,
            checked: 50,
            window_keys: 10_000,
            window_events: 3_000_000,
            many_views: 200,
            many_views_keys: 10_000,
            postgres: std::env::var("BASESTREAM_TEST_POSTGRES").ok(),
        }
    }
}

/// What was measured of all cases.
struct Measured {
    rows: Vec<Row>,
    together: Vec<together::Outcome>,
    sizes: Table,
}

impl Options {
    fn stretches(&self) -> Stretches {
        Stretches { seconds: self.seconds, repeats: self.repeats }
    }
}

/// Runs the benchmark. The installations and the peers' data go to `folder`, one at a time.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let mut context = Context::begin(command, programs);
    context.versions.extend(redis::version().map(|version| ("redis".to_owned(), version)));
    if let Some(url) = &options.postgres {
        context.versions.insert("postgresql".to_owned(), postgres::version(url).await?);
    }
    let mut measured = Measured { rows: Vec::new(), together: Vec::new(), sizes: size_table() };
    for case in &options.cases {
        let of_case = folder.join(case.to_string().replace(':', "-"));
        std::fs::create_dir_all(&of_case)?;
        measure(options, *case, programs, &of_case, &mut measured).await?;
        std::fs::remove_dir_all(&of_case)?;
    }
    let Measured { rows, together, sizes } = measured;
    let mut tables = vec![table::build(options, &rows), table::aims(&rows), table::flat_in_keys(&rows)];
    if !together.is_empty() {
        tables.push(together::table(options, &together));
    }
    if options.window_events > 0 {
        tables.push(windows::measure(options, &folder.join("windows")).await?);
    }
    tables.push(sizes);
    if options.many_views > 0 {
        tables.push(many_views::measured(options, programs, &folder.join("many-views")).await?);
    }
    let question = "How long does a point lookup of five aggregates over windows take, and how many are answered per second?".to_owned();
    Ok(Report { benchmark: "lookup".into(), question, context: context.end(), tables })
}

async fn measure(options: &Options, case: Case, programs: &Programs, folder: &Path, measured: &mut Measured) -> Result<()> {
    let Measured { rows, together, sizes } = measured;
    let purchases = purchases_of(options, case);
    let installed = Installed::create(&folder.join("project"), &purchases).await?;
    let node = prepare(options, case, &installed, &purchases, sizes).await?;
    let asking = Ask { stretches: options.stretches(), purchases: purchases.clone(), clients: options.clients, batch: options.batch };
    let expected = check::expected(&purchases, options.checked);
    check::node(&node, &expected).await?;
    let mut idle = |access: Access, stretches| rows.push(Row::idle(case, access, options, stretches));
    idle(Access::Library, asking.node(&node).await?);

    let up = MeasuredProcess::up(programs, &installed.config(), &installed.folder, &installed.http).await?;
    check::http(&installed.http, &expected)?;
    postgres::check(&url_of(&installed.postgres), OF_THE_VIEW, purchases.windows(), &expected).await?;
    idle(Access::Http, asking.http(&installed.http).await?);
    idle(Access::HttpBatch, asking.http_batch(&installed.http).await?);
    idle(Access::Wire, asking.wire(&installed.postgres).await?);
    if case.has_several_views() && options.together > 0 && options.rate > 0 {
        check::views(&installed.http, &purchases, &expected)?;
        together.push(together::measure(options, case, &installed, &asking, 3).await?);
    }
    if options.rate > 0 {
        let busy = Busy::start(options, programs, &installed, &purchases, 1).await?;
        let from = asking.counted(&installed.http)?;
        let single = asking.http(&installed.http).await?;
        let batched = asking.http_batch(&installed.http).await?;
        let to = asking.counted(&installed.http)?;
        let found = busy.finish(from, to).await?;
        rows.push(Row::busy(case, Access::Http, options, single, found));
        rows.push(Row::busy(case, Access::HttpBatch, options, batched, found));
    }
    up.stop().await?;
    if case.has_peers() {
        peers(options, &asking, &node, &expected, folder, &mut |access, stretches| rows.push(Row::idle(case, access, options, stretches)))
            .await?;
    }
    drop(node);
    if options.rate > 0 {
        let layers = Within::start(&installed.installation).await?;
        let busy = Busy::start(options, programs, &installed, &purchases, 2).await?;
        let from = layers.counted()?;
        let measured = asking.node(&layers.node).await?;
        let found = busy.finish(from, layers.counted()?).await?;
        layers.end().await?;
        rows.push(Row::busy(case, Access::Library, options, measured, found));
    }
    installed.installation.close().await;
    Ok(())
}

/// The available peers, with the final rows as of before any events arrived.
async fn peers(
    options: &Options,
    asking: &Ask,
    node: &Node,
    expected: &check::Expected,
    folder: &Path,
    add: &mut (dyn FnMut(Access, Vec<Latencies>) + Send),
) -> Result<()> {
    if let Some(server) = redis::Server::start(&folder.join("redis"))? {
        server.fill(node).await?;
        server.check(expected)?;
        add(Access::Redis, server.ask(asking).await?);
        add(Access::RedisBatch, server.ask_batch(asking).await?);
    }
    if let Some(url) = &options.postgres {
        let database = postgres::Database::create(url).await?;
        let asked = database.fill_and_ask(asking, node, expected).await;
        database.remove().await?;
        let (single, batched) = asked?;
        add(Access::Postgres, single);
        add(Access::PostgresBatch, batched);
    }
    Ok(())
}
