//! Measures how soon a new link counts: a new user opens an account on a new device and logs in from another, at a
//! `basestream up`.

use types::{Error, Result};

use super::Options;
use super::again::Again;
use super::figures::{named, rates};
use super::row_path::path_of;
use crate::Programs;
use crate::asking::{self, Stretches};
use crate::events::END;
use crate::feed::{Fed, Feed};
use crate::graph::{Event, Graph, Stream, device_text};
use crate::installed::Installed;
use crate::latencies::{self, Latencies};
use crate::measured_process::MeasuredProcess;
use crate::probe::{Http, Probe, ProbedValue, Prober, Sink};
use crate::report::{Figure, Table};
use crate::view::{VALUES, VIEW};

/// The degree of both hops of the graph in which it is measured.
pub(super) const DEGREE: u64 = 30;
/// The aim: the highest p99, in milliseconds.
const AIM_MS: f64 = 1_000.0;
const PER_SECOND: f64 = 50.0;
/// How long probes are sent before the measurement starts, as a share of a stretch.
const WARM_UP: f64 = 0.4;
const PROBED: ProbedValue = ProbedValue { view: VIEW, key: "device_id", value: "linked_devices_30d" };

pub(super) fn table(options: &Options) -> Table {
    let columns = ["degrees", "load", "probes", "p50 ms", "p99 ms", "p99 aim ms", "slowest ms", "arriving/s", "counted/s"];
    let notes = vec![
        format!(
            "{PER_SECOND} probes per second, sent when they are due; {} stretches of {} s each; figures: median (min - max)",
            options.repeats, options.seconds
        ),
        "a probe is an account of a new user on a new device and, once that is acknowledged, a login of this user from another new device"
            .to_owned(),
        "from the acknowledgement of the login (HTTP 202) to the answer of the first lookup over HTTP that counts the link".to_owned(),
        "lookups repeat every millisecond, later after a twentieth of the elapsed time".to_owned(),
        "measured on a separate `basestream up`, after the lookups above".to_owned(),
        "arriving/s: appended to the embedded log by the measuring process; counted/s: the rate at which answers grew, including those for probes"
            .to_owned(),
        "checked at the end: each device has exactly one link".to_owned(),
    ];
    Table { title: "A new link".into(), columns: columns.map(str::to_owned).to_vec(), rows: Vec::new(), notes }
}

/// Adds the rows of this measurement.
pub(super) async fn measure(options: &Options, programs: &Programs, installed: &Installed, graph: Graph, table: &mut Table) -> Result<()> {
    let up = MeasuredProcess::up(programs, &installed.config(), &installed.folder, &installed.http).await?;
    let http = Http::new(&installed.http, PROBED)?;
    let mut prober = Prober::new(Sink::Http, http.clone(), move |nth| probe(&graph, nth));
    table.rows.push(row("idle", &stretches(options, &mut prober).await?, None));
    if options.rate > 0 {
        let feed = Feed::start(installed.installation.log.clone(), Again { graph, number: 3, next: 0 }, options.rate).await?;
        let mut counting = asking::Http::connect(&installed.http)?;
        let from = counting.counted(&path_of(&graph, 0))?;
        let measured = stretches(options, &mut prober).await?;
        let to = counting.counted(&path_of(&graph, 0))?;
        table.rows.push(row("events arrive", &measured, Some(&feed.finish(from, to).await?)));
    }
    check(&http, &graph, prober.sent()).await?;
    up.stop().await?;
    Ok(())
}

async fn stretches<P: Fn(u64) -> Probe>(options: &Options, prober: &mut Prober<P>) -> Result<Vec<Latencies>> {
    prober.stretch(PER_SECOND, options.seconds * WARM_UP).await?;
    prober.stretches(PER_SECOND, Stretches { seconds: options.seconds, repeats: options.repeats }).await
}

/// A user and devices that are not in the graph: the account's device is linked with the login's.
fn probe(graph: &Graph, nth: u64) -> Probe {
    let send = |stream: Stream, device: u64| {
        let event = Event { ts: END + nth as i64, user: graph.users + nth, device };
        (stream.name().to_owned(), event.record(&format!("new-{nth}")))
    };
    let device = device_of(graph, nth);
    Probe { sends: vec![send(Stream::Account, device), send(Stream::Login, device + 1)], key: device_text(device) }
}

/// The account's device; the login's is the next number.
fn device_of(graph: &Graph, nth: u64) -> u64 {
    graph.devices + 2 * nth
}

/// Checks that each probe's device has one link, by one user, in every window.
async fn check(http: &Http, graph: &Graph, probes: u64) -> Result<()> {
    for nth in 0..probes {
        let device = device_text(device_of(graph, nth));
        let row = http.row(&device).await?;
        if let Some(column) = VALUES.into_iter().find(|column| row[*column] != 1) {
            return Err(Error::internal("a new link is not counted once")
                .with("device", device)
                .with("column", column)
                .with("found", &row[column]));
        }
    }
    Ok(())
}

fn row(meanwhile: &str, stretches: &[Latencies], fed: Option<&Fed>) -> Vec<Figure> {
    let [probes, _, p50, p99, _, slowest] = latencies::figures(stretches);
    let aim = latencies::aim(stretches, AIM_MS);
    let mut row = vec![Figure::text(named(DEGREE)), Figure::text(meanwhile), probes, p50, p99, aim, slowest];
    row.extend(rates(fed));
    row
}
