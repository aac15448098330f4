//! Point lookups of a linked view, over graphs of several degrees: in process as `lookup` asks, over HTTP as anybody does; alone, and
//! while events arrive.

use std::path::Path;
use std::time::Duration;

use jobs::Installation;
use schemas::Result;
use schemas::fresh::Fresh;
use serving::Node;
use tokio_util::sync::CancellationToken;

use crate::Programs;
use crate::graph::{Graph, Stream};
use crate::installed::Installed;
use crate::latencies::{self, Latencies};
use crate::machine::Context;
use crate::report::{Figure, Report, Table};
use crate::spread::Spread;
use crate::view::VIEW;

mod ask;
mod feed;
mod truth;
mod up;

use ask::{Asked, Http, Lookups, stretches};
use feed::{Fed, Feed};
use up::Up;

#[derive(Debug, Clone)]
pub struct Options {
    /// Of both hops.
    pub degrees: Vec<u64>,
    pub devices: u64,
    /// How long each stretch of measuring lasts, and how many there are.
    pub seconds: f64,
    pub repeats: usize,
    /// Events per second that arrive in the second half; 0 leaves it out.
    pub rate: u64,
    /// Keys whose answers are held against the graph.
    pub checked: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { degrees: vec![3, 30, 100], devices: 100_000, seconds: 5.0, repeats: 5, rate: 50_000, checked: 100 }
    }
}

/// The aims, by degree: the greatest p99, in milliseconds.
const AIMS_MS: [(u64, f64); 2] = [(30, 1.0), (100, 5.0)];
/// So long is asked before it counts.
const WARM_UP: f64 = 0.4;

/// Measures. `folder` takes the installations, one after the other.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let (mut lookups, mut sizes) = (lookup_table(), size_table());
    for degree in &options.degrees {
        let of_degree = folder.join(format!("degree-{degree}"));
        std::fs::create_dir_all(&of_degree)?;
        measure(options, *degree, programs, &of_degree, &mut lookups, &mut sizes).await?;
        std::fs::remove_dir_all(&of_degree)?;
    }
    lookups.notes.push(format!(
        "one client, uniformly chosen keys of {} devices; {} stretches of {} s each: the middle one (least - greatest)",
        options.devices, options.repeats, options.seconds
    ));
    lookups
        .notes
        .push("arriving: appended to the embedded log by the process that asks; counted: the rate at which answers grew".to_owned());
    lookups
        .notes
        .push("HTTP: GET /row of a real `basestream up`, on a connection that is kept; client and server share the cores".to_owned());
    let question = "How long does a point lookup of a view over a JOIN take, by the average degrees of both hops?".to_owned();
    Ok(Report { benchmark: "links-lookup".into(), question, context: context.end(), tables: vec![lookups, sizes] })
}

fn lookup_table() -> Table {
    let columns = ["degrees", "asked", "while"].into_iter().chain(latencies::COLUMNS).chain(["p99 aim ms", "arriving/s", "counted/s"]);
    Table { title: "Point lookups".into(), columns: columns.map(str::to_owned).collect(), ..Table::default() }
}

fn size_table() -> Table {
    let columns = ["degrees", "events", "answers held against the graph", "batch run s", "snapshot MiB", "node opens s"];
    Table { title: "What they were asked of".into(), columns: columns.map(str::to_owned).to_vec(), ..Table::default() }
}

async fn measure(options: &Options, degree: u64, programs: &Programs, folder: &Path, lookups: &mut Table, sizes: &mut Table) -> Result<()> {
    let graph = Graph::of_degree(degree, options.devices);
    let installed = Installed::create(folder, &graph).await?;
    installed.archive(&graph).await?;
    let run = installed.installation.run_view(VIEW, &|_| {}).await?;
    let began = std::time::Instant::now();
    let node = installed.installation.node(None).await?;
    let opened = began.elapsed();
    truth::check(&node, &graph, options.checked).await?;
    let seconds = |micros: i64| Spread::of([micros as f64 / 1e6]);
    sizes.rows.push(vec![
        Figure::text(named(degree)),
        Figure::Count(Stream::BOTH.into_iter().map(|stream| graph.count(stream)).sum()),
        Figure::Count(options.checked),
        Figure::seconds(run.ended_at.zip(run.started_at).and_then(|(ended, started)| seconds(ended - started))),
        Figure::bytes(Spread::of([run.bytes_written as f64])),
        Figure::seconds(Spread::of([opened.as_secs_f64()])),
    ]);
    let asking = Lookups { graph, seconds: options.seconds, warm_up: options.seconds * WARM_UP };
    let mut add = |asked: &str, meanwhile: &str, stretches: Vec<Latencies>, fed: Option<Fed>| {
        let row = row(degree, asked, meanwhile, &stretches, fed.as_ref());
        lookups.rows.push(row);
    };
    add("in process", "idle", stretches(asking, Asked::Node(node.clone()), options.repeats).await?, None);
    drop(node);

    let up = Up::start(programs, &installed).await?;
    let http = Http::new(&installed.http)?;
    add("HTTP", "idle", stretches(asking, Asked::Http(http.clone()), options.repeats).await?, None);
    if options.rate > 0 {
        let feed = Feed::start(&installed.installation, graph, options.rate, 1).await?;
        let from = http.counted(&graph).await?;
        let measured = stretches(asking, Asked::Http(http.clone()), options.repeats).await?;
        let to = http.counted(&graph).await?;
        add("HTTP", "events arrive", measured, Some(feed.finish(from, to).await?));
    }
    up.stop()?;
    if options.rate > 0 {
        let (measured, fed) = while_events_arrive(&installed.installation, &asking, options).await?;
        add("in process", "events arrive", measured, Some(fed));
    }
    installed.installation.close().await;
    Ok(())
}

/// The layers of one process, as `up` has them, asked in process.
async fn while_events_arrive(installation: &Installation, asking: &Lookups, options: &Options) -> Result<(Vec<Latencies>, Fed)> {
    let (stop, fresh) = (CancellationToken::new(), Fresh::default());
    let node = installation.node(Some(fresh.clone())).await?;
    let following = tokio::spawn({
        let (node, stop) = (node.clone(), stop.clone());
        async move { node.run(stop).await }
    });
    let speed = installation.speed(&format!("{}-bench", installation.worker), Some(fresh));
    let working = tokio::spawn({
        let stop = stop.clone();
        async move { speed.run(stop).await }
    });
    let feed = Feed::start(installation, asking.graph, options.rate, 2).await?;
    let from = counted(&node)?;
    let measured = stretches(*asking, Asked::Node(node.clone()), options.repeats).await?;
    let fed = feed.finish(from, counted(&node)?).await?;
    stop.cancel();
    working.await??;
    following.await?;
    Ok((measured, fed))
}

/// All events that answers count now, and when that is.
fn counted(node: &Node) -> Result<(u64, std::time::Instant)> {
    let events = node.stand()?.vector.iter().map(|(_, offset)| offset.0 as u64).sum();
    Ok((events, std::time::Instant::now()))
}

fn row(degree: u64, asked: &str, meanwhile: &str, stretches: &[Latencies], fed: Option<&Fed>) -> Vec<Figure> {
    let aim = AIMS_MS.iter().find(|(of, _)| *of == degree).map(|(_, most)| *most);
    let aim = aim.zip(latencies::median_of(stretches, 0.99)).map(|(most, p99)| {
        let verdict = if p99 <= most { "met" } else { "missed" };
        Figure::text(format!("{most}: {verdict}"))
    });
    let rate = |of: fn(&Fed) -> f64| fed.map_or(Figure::Absent, |fed| Figure::per_second(Spread::of([of(fed)])));
    let mut row = vec![Figure::text(named(degree)), Figure::text(asked), Figure::text(meanwhile)];
    row.extend(latencies::figures(stretches));
    row.extend([aim.unwrap_or(Figure::Absent), rate(|fed| fed.appended_per_second), rate(|fed| fed.counted_per_second)]);
    row
}

fn named(degree: u64) -> String {
    format!("{degree} x {degree}")
}

/// A duration of so many seconds.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}
