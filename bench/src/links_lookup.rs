//! Measures point lookups of a linked view over graphs of several degrees: in process like `lookup`, and over HTTP;
//! idle, and while events arrive. For one degree it also measures how soon a new link counts.

use std::path::Path;

use jobs::Installation;
use serving::Node;
use types::Result;

use crate::Programs;
use crate::asking::{self, Http, Library, Stretches};
use crate::feed::{Fed, Feed};
use crate::graph::{Graph, Stream, device_text};
use crate::installed::Installed;
use crate::latencies::{self, Latencies};
use crate::machine::Context;
use crate::measured_process::MeasuredProcess;
use crate::report::{Figure, Report, Table};
use crate::spread::Spread;
use crate::view::VIEW;
use crate::within::Within;

mod again;
mod figures;
mod new_link;
mod row_path;
mod truth;

use again::Again;
use figures::{named, rates};
use row_path::path_of;

#[derive(Debug, Clone)]
pub struct Options {
    /// The degree of both hops.
    pub degrees: Vec<u64>,
    pub devices: u64,
    /// How long each stretch of measuring lasts, and how many there are.
    pub seconds: f64,
    pub repeats: usize,
    /// Events per second that arrive in the second half; 0 skips it.
    pub rate: u64,
    /// Keys whose answers are compared with the graph.
    pub checked: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { degrees: vec![3, 30, 100], devices: 100_000, seconds: 5.0, repeats: 5, rate: 50_000, checked: 100 }
    }
}

/// The aims, by degree: the highest p99, in milliseconds.
const AIMS_MS: [(u64, f64); 2] = [(30, 1.0), (100, 5.0)];

struct Tables {
    lookups: Table,
    sizes: Table,
    new_links: Table,
}

/// Runs the benchmark. The installations go to `folder`, one at a time.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let mut tables = Tables { lookups: lookup_table(options), sizes: size_table(), new_links: new_link::table(options) };
    for degree in &options.degrees {
        let of_degree = folder.join(format!("degree-{degree}"));
        std::fs::create_dir_all(&of_degree)?;
        measure(options, *degree, programs, &of_degree, &mut tables).await?;
        std::fs::remove_dir_all(&of_degree)?;
    }
    let question =
        "How long does a point lookup of a view over a JOIN take, by the average degree of both hops, and how soon does a new link count?";
    let Tables { lookups, sizes, new_links } = tables;
    let tables = [lookups, sizes].into_iter().chain(Some(new_links).filter(|table| !table.rows.is_empty())).collect();
    Ok(Report { benchmark: "links-lookup".into(), question: question.to_owned(), context: context.end(), tables })
}

fn lookup_table(options: &Options) -> Table {
    let columns = ["degrees", "request", "load"].into_iter().chain(latencies::COLUMNS).chain(["p99 aim ms", "arriving/s", "counted/s"]);
    let notes = vec![
        format!(
            "one client, uniformly chosen keys of {} devices; {} stretches of {} s each; figures: median (min - max)",
            options.devices, options.repeats, options.seconds
        ),
        "arriving/s: appended to the embedded log by the measuring process; counted/s: the rate at which answers grew".to_owned(),
        "HTTP: GET /row of a real `basestream up`, over a persistent connection; client and server share the cores".to_owned(),
    ];
    Table { title: "Point lookups".into(), columns: columns.map(str::to_owned).collect(), rows: Vec::new(), notes }
}

fn size_table() -> Table {
    let columns = ["degrees", "events", "answers compared with the graph", "batch run s", "snapshot MiB", "opening the node s"];
    Table { title: "Data".into(), columns: columns.map(str::to_owned).to_vec(), ..Table::default() }
}

async fn measure(options: &Options, degree: u64, programs: &Programs, folder: &Path, tables: &mut Tables) -> Result<()> {
    let graph = Graph::of_degree(degree, options.devices);
    let installed = Installed::create(folder, &graph).await?;
    installed.archive(&graph).await?;
    let run = installed.installation.run_view(VIEW, &|_| {}).await?;
    let began = std::time::Instant::now();
    let node = installed.installation.node(None).await?;
    let opened = began.elapsed();
    truth::check(&node, &graph, options.checked).await?;
    let seconds = |micros: i64| Spread::from_values([micros as f64 / 1e6]);
    tables.sizes.rows.push(vec![
        Figure::text(named(degree)),
        Figure::Count(Stream::BOTH.into_iter().map(|stream| graph.count(stream)).sum()),
        Figure::Count(options.checked),
        Figure::seconds(run.ended_at.zip(run.started_at).and_then(|(ended, started)| seconds(ended - started))),
        Figure::bytes(Spread::from_values([run.bytes_written as f64])),
        Figure::seconds(Spread::from_values([opened.as_secs_f64()])),
    ]);
    let stretches = Stretches { seconds: options.seconds, repeats: options.repeats };
    let mut add = |asked: &str, meanwhile: &str, stretches: Vec<Latencies>, fed: Option<Fed>| {
        let row = row(degree, asked, meanwhile, &stretches, fed.as_ref());
        tables.lookups.rows.push(row);
    };
    add("in process", "idle", ask_node(stretches, &node, graph).await?, None);
    drop(node);

    let up = MeasuredProcess::up(programs, &installed.config(), &installed.folder, &installed.http).await?;
    add("HTTP", "idle", ask_http(stretches, &installed.http, graph).await?, None);
    if options.rate > 0 {
        let feed = Feed::start(installed.installation.log.clone(), Again { graph, number: 1, next: 0 }, options.rate).await?;
        let mut http = Http::connect(&installed.http)?;
        let from = http.counted(&path_of(&graph, 0))?;
        let measured = ask_http(stretches, &installed.http, graph).await?;
        let to = http.counted(&path_of(&graph, 0))?;
        add("HTTP", "events arrive", measured, Some(feed.finish(from, to).await?));
    }
    up.stop().await?;
    if options.rate > 0 {
        let (measured, fed) = while_events_arrive(&installed.installation, stretches, graph, options.rate).await?;
        add("in process", "events arrive", measured, Some(fed));
    }
    if degree == new_link::DEGREE {
        new_link::measure(options, programs, &installed, graph, &mut tables.new_links).await?;
    }
    installed.installation.close().await;
    Ok(())
}

/// Runs the layers of `up` within this process, and looks up in process.
async fn while_events_arrive(installation: &Installation, stretches: Stretches, graph: Graph, rate: u64) -> Result<(Vec<Latencies>, Fed)> {
    let layers = Within::start(installation).await?;
    let feed = Feed::start(installation.log.clone(), Again { graph, number: 2, next: 0 }, rate).await?;
    let from = layers.counted()?;
    let measured = ask_node(stretches, &layers.node, graph).await?;
    let fed = feed.finish(from, layers.counted()?).await?;
    layers.end().await?;
    Ok((measured, fed))
}

async fn ask_node(stretches: Stretches, node: &Node, graph: Graph) -> Result<Vec<Latencies>> {
    let client = Library::new(node.clone(), move |nth| (VIEW.to_owned(), device_text(graph.device(nth))));
    asking::ask(stretches, vec![Box::new(client)]).await
}

async fn ask_http(stretches: Stretches, address: &str, graph: Graph) -> Result<Vec<Latencies>> {
    let mut http = Http::connect(address)?;
    asking::ask(stretches, vec![Box::new(move |nth| http.get(&path_of(&graph, nth)).map(drop))]).await
}

fn row(degree: u64, asked: &str, meanwhile: &str, stretches: &[Latencies], fed: Option<&Fed>) -> Vec<Figure> {
    let aim = AIMS_MS.iter().find(|(of, _)| *of == degree).map_or(Figure::Absent, |(_, most)| latencies::aim(stretches, *most));
    let mut row = vec![Figure::text(named(degree)), Figure::text(asked), Figure::text(meanwhile)];
    row.extend(latencies::figures(stretches));
    row.push(aim);
    row.extend(rates(fed));
    row
}
