//! How soon events count while a run builds a new view over existing history, beside how soon they did just before; and
//! the memory that this takes.

use std::ffi::OsStr;
use std::path::Path;
use std::slice::from_ref;
use std::time::{Duration, Instant};

use catalog::{RunRecord, RunStatus};
use engine::events::format_timestamp;
use event_log::NewRecord;
use serde_json::Value;
use types::tiles::Micros;
use types::{Error, Result};

use super::counted::CATCH_UP;
use super::{Options, WARM_UP};
use crate::asking::sql_number;
use crate::events::{END, Events};
use crate::feed::Feed;
use crate::installed::Installed;
use crate::latencies::{self, Latencies, median_of};
use crate::measured_process::MeasuredProcess;
use crate::probe::{Http, Probe, ProbedValue, Prober, Sink};
use crate::purchases::arriving::Arriving;
use crate::purchases::question::KEY;
use crate::purchases::{FOUR_WINDOWS, Purchases, STREAM, VIEW, account_text};
use crate::report::{Figure, Table, at_most};
use crate::spread::Spread;
use crate::{Programs, child};

const PROBED: ProbedValue = ProbedValue { view: VIEW, key: KEY, value: "purchases_1h" };
/// The memory limit of a run, and its setting.
const LIMIT_BYTES: u64 = 1 << 30;
const LIMIT: &str = "BASESTREAM__BATCH__MEMORY_LIMIT";
/// The aims: the median p99 while a view is built, to the highest p99 before; and the memory that is added meanwhile,
/// to the limit.
const TO_HIGHEST_BEFORE: f64 = 1.0;
const ADDED_TO_LIMIT: f64 = 1.2;
/// How long probes are sent before it is looked whether the view is built.
const SLICE_S: f64 = 1.0;
const SAMPLE: Duration = Duration::from_millis(20);
/// A build that takes longer is given up.
const LONGEST: Duration = Duration::from_secs(1_800);

/// What was measured in one stretch.
struct Stretch {
    latencies: Latencies,
    /// The peak of the process's own memory.
    own_bytes: u64,
}

/// A stretch before a view is built, and one while it is.
struct Building {
    before: Stretch,
    during: Stretch,
    run: RunRecord,
}

/// Measures at each rate, and checks at the end that the old view and the new one count every event once.
pub(super) async fn measured(options: &Options, programs: &Programs, folder: &Path) -> Result<Table> {
    let purchases = Purchases::with_size(options.building_events, options.keys);
    let installed = Installed::create(folder, &purchases).await?;
    installed.archive(&purchases).await?;
    installed.installation.run_view(VIEW, &|_| {}).await?;
    let limit = format!("\"{LIMIT_BYTES}B\"");
    let variables = [(LIMIT, OsStr::new(&limit))];
    let (config, logs) = (installed.config(), &installed.folder);
    let up = MeasuredProcess::up_with(programs, &config, logs, &installed.http, &variables).await?;
    let http = Http::new(&installed.http, PROBED)?;
    let accounts = purchases.accounts;
    let mut prober = Prober::new(Sink::Http, http.clone(), move |nth| probe(accounts, nth));
    let (mut rows, mut built, mut arrived) = (Vec::new(), 0, 0);
    for (number, rate) in options.rates.iter().enumerate() {
        let source = Arriving { purchases: purchases.clone(), number: number as u64, next: 0 };
        let feed = Feed::start(installed.installation.log.clone(), source, *rate).await?;
        tokio::time::sleep(Duration::from_secs_f64(options.seconds * WARM_UP)).await;
        let mut buildings = Vec::new();
        for _ in 0..options.repeats.max(1) {
            built += 1;
            let with_view = with_built_view(&purchases, built);
            buildings.push(build(options, &mut prober, &up, &installed, &with_view).await?);
        }
        arrived += feed.stop().await?;
        rows.extend(rows_of(*rate, &buildings));
    }
    let counted = with_built_view(&purchases, built);
    check(&installed, &counted, &http, arrived + prober.sent()).await?;
    up.stop().await?;
    installed.installation.close().await;
    Ok(table(options, rows))
}

/// The same with one more view of the same SELECT.
fn with_built_view(purchases: &Purchases, number: u64) -> Purchases {
    let mut views = purchases.views.clone();
    views.push((format!("built_{number}"), FOUR_WINDOWS.to_vec()));
    Purchases { views, ..purchases.clone() }
}

/// An event of an account that has no other.
fn probe(accounts: u64, nth: u64) -> Probe {
    let account = account_text(accounts + nth);
    let ts = format_timestamp(END + nth as Micros);
    let event = format!(r#"{{"event_id":"probe-{nth}","ts":"{ts}","account_id":"{account}","amount":1.00}}"#);
    let record = NewRecord { value: Some(event.into()), ..NewRecord::default() };
    Probe { sends: vec![(STREAM.to_owned(), record)], key: account }
}

/// Probes for a stretch; then defines the last of these views, which retires the one that was built before, and probes
/// until it is built and served.
async fn build(
    options: &Options,
    prober: &mut Prober<impl Fn(u64) -> Probe>,
    up: &MeasuredProcess,
    installed: &Installed,
    with_view: &Purchases,
) -> Result<Building> {
    let before = stretch(up, prober.stretch(options.probes, options.seconds)).await?;
    let view = with_view.views.last().map_or(VIEW, |(view, _)| view.as_str());
    installed.installation.apply(&with_view.definitions()?, true).await?;
    let probing = async {
        let (began, mut all) = (Instant::now(), Latencies::begin()?);
        while began.elapsed() < LONGEST {
            all.add_all(&prober.stretch(options.probes, SLICE_S).await?)?;
            if is_built(installed, view).await? {
                return Ok(all);
            }
        }
        Err(Error::unavailable("a view is not built").with("view", view).with("after s", LONGEST.as_secs()))
    };
    let during = stretch(up, probing).await?;
    let runs = installed.installation.catalog.runs(Some(view), 5).await?;
    let run = runs.into_iter().find(|run| run.status == RunStatus::Succeeded);
    let run = run.ok_or_else(|| Error::internal("a view was built without a run").with("view", view))?;
    Ok(Building { before, during, run })
}

/// Whether a run has built the view, and the node serves it.
async fn is_built(installed: &Installed, view: &str) -> Result<bool> {
    let state = installed.installation.catalog.state().await?;
    if !state.snapshots.iter().any(|snapshot| &*snapshot.view == view) {
        return Ok(false);
    }
    let Ok(answer) = reqwest::get(format!("http://{}/v1/views/{view}", installed.http)).await else { return Ok(false) };
    let is_answered = answer.status().is_success();
    Ok(is_answered && answer.json::<Value>().await.is_ok_and(|view| view["building"].is_null()))
}

/// Samples the memory of the process while probes are sent.
async fn stretch(up: &MeasuredProcess, probing: impl Future<Output = Result<Latencies>>) -> Result<Stretch> {
    let mut probing = std::pin::pin!(probing);
    let mut own_bytes = 0;
    loop {
        own_bytes = own_bytes.max(child::used_by(up.id()).map_or(0, |used| used.own_peak_bytes));
        tokio::select! {
            latencies = &mut probing => return Ok(Stretch { latencies: latencies?, own_bytes }),
            () = tokio::time::sleep(SAMPLE) => {}
        }
    }
}

/// Checks that the views count every event once: those of the history that are in the longest window, and those that
/// arrived.
async fn check(installed: &Installed, purchases: &Purchases, http: &Http, arrived: u64) -> Result<()> {
    let (began, all) = (Instant::now(), purchases.events + arrived);
    while http.counted().await? < all {
        if began.elapsed() > CATCH_UP {
            return Err(Error::unavailable("not every event was counted").with("expected", all));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let window = FOUR_WINDOWS[3];
    let start = window.start(END);
    let archived = (0..purchases.events).filter(|number| purchases.time(STREAM, *number) >= start).count() as u64;
    for view in [VIEW, purchases.views.last().map_or(VIEW, |(view, _)| view.as_str())] {
        let query = format!("SELECT sum(purchases_{}) AS number FROM {view}", window.text);
        let found = sql_number(&installed.http, &query).await?;
        if found != archived + arrived {
            let error = Error::internal("a view counts other events than arrived").with("view", view);
            return Err(error.with("found", found).with("expected", archived + arrived));
        }
    }
    Ok(())
}

fn rows_of(rate: u64, buildings: &[Building]) -> [Vec<Figure>; 2] {
    let spread = |value: &dyn Fn(&Building) -> Option<f64>| Spread::from_values(buildings.iter().filter_map(value));
    let p99 = |stretch: &Stretch| median_of(from_ref(&stretch.latencies), 0.99);
    let before = spread(&|one| p99(&one.before));
    let during = spread(&|one| p99(&one.during));
    let ratio = spread(&|one| Some(p99(&one.during)? / p99(&one.before)?));
    let to_highest = during.zip(before).map(|(during, before)| during.median / before.max);
    let added = |one: &Building| one.during.own_bytes.saturating_sub(one.before.own_bytes) as f64;
    let most_added = buildings.iter().map(added).reduce(f64::max);
    let took = |one: &Building| Some((one.run.ended_at? - one.run.started_at?) as f64 / 1e6);
    let row = |what: &str, of: &dyn Fn(&Building) -> &Stretch| {
        let stretches: Vec<Latencies> = buildings.iter().map(|one| of(one).latencies.clone()).collect();
        let [probes, _, p50, p99, _, slowest] = latencies::figures(&stretches);
        let own = Figure::bytes(spread(&|one| Some(of(one).own_bytes as f64)));
        vec![Figure::text(what), Figure::Count(rate), probes, p50, p99, slowest, own]
    };
    let mut rows = [row("before", &|one| &one.before), row("while it is built", &|one| &one.during)];
    rows[0].extend([Figure::Absent, Figure::Absent, Figure::Absent, Figure::Absent]);
    rows[1].extend([
        Figure::ratio(ratio),
        at_most(to_highest, TO_HIGHEST_BEFORE),
        at_most(most_added.map(|bytes| bytes / LIMIT_BYTES as f64), ADDED_TO_LIMIT),
        Figure::seconds(spread(&took)),
    ]);
    rows
}

fn table(options: &Options, rows: Vec<Vec<Figure>>) -> Table {
    let columns = [
        "stretch",
        "events/s",
        "probes",
        "p50 ms",
        "p99 ms",
        "slowest ms",
        "own MiB, at most",
        "p99 to before",
        "p99 to the highest before, at most 1",
        "memory added to the limit, at most 1.2",
        "run s",
    ];
    let notes = vec![
        format!(
            "one `up` with {} archived events of {} keys and a view over them; a second view of the same SELECT is \
             built, and replaced by the next one; {} views at each rate; figures: median (min - max)",
            options.building_events, options.keys, options.repeats
        ),
        format!("probes are of the view that was there: {} per second with a new key each", options.probes),
        format!("before: {} s; while it is built: from its definition until it is served, in whole s", options.seconds),
        format!(
            "own: anonymous and shared pages of the process, sampled every {} ms; the limit of a run is {} MiB",
            SAMPLE.as_millis(),
            LIMIT_BYTES >> 20
        ),
        "checked at the end: both views count every event exactly once".to_owned(),
    ];
    Table::new("While a view is built over history", &columns, rows, notes)
}
