//! Formats the measurements as tables.

use super::{Active, HEALTH_P99_MS, MOST_TO_IDLE, Measured, Options, PACE};
use crate::latencies::{self, Latencies, median_of};
use crate::report::{Figure, Table, at_most, verdict};
use crate::spread::Spread;

pub(super) fn build(options: &Options, idle: &Measured, busy: &Measured, active: &Active) -> Table {
    let during = format!("batch runs: {}, active {:.0} % of the time", active.runs, active.share * 100.0);
    let rows = [("nothing", idle), (&*during, busy)].into_iter().flat_map(|(meanwhile, measured)| {
        let asked = [("a random key", &measured.lookups), ("/healthz", &measured.health)];
        asked.map(|(asked, stretches)| row(meanwhile, asked, stretches))
    });
    let columns = ["meanwhile", "asked"].into_iter().chain(latencies::COLUMNS);
    Table {
        title: "Lookups over HTTP, idle and during batch runs of the same process".into(),
        columns: columns.map(str::to_owned).collect(),
        rows: rows.collect(),
        notes: vec![
            format!(
                "five aggregates over four windows, {} events of {} keys; {} stretches of {} s; figures: median (min - max)",
                options.purchases.events, options.purchases.accounts, options.repeats, options.seconds
            ),
            format!(
                "clients that look keys up: {}; one more asks /healthz; each waits {} ms after an answer",
                options.clients,
                PACE.as_millis()
            ),
            "runs of the same view, each asked for as soon as the one before has begun; the clients, `up` and its runs share this \
             machine's processors"
                .to_owned(),
        ],
    }
}

fn row(meanwhile: &str, asked: &str, stretches: &[Latencies]) -> Vec<Figure> {
    [Figure::text(meanwhile), Figure::text(asked)].into_iter().chain(latencies::figures(stretches)).collect()
}

pub(super) fn aims(idle: &Measured, busy: &Measured) -> Table {
    let ratio = |quantile: f64| median_of(&busy.lookups, quantile).zip(median_of(&idle.lookups, quantile)).map(|(busy, idle)| busy / idle);
    let health =
        median_of(&busy.health, 0.99).map_or(Figure::Absent, |p99| Figure::text(format!("{p99:.3}: {}", verdict(p99 <= HEALTH_P99_MS))));
    let p50 = Figure::ratio(ratio(0.5).and_then(|ratio| Spread::from_values([ratio])));
    Table {
        title: "Aims".into(),
        columns: ["during batch runs", "at most", "found"].map(str::to_owned).to_vec(),
        rows: vec![
            vec![Figure::text("p50 of a random key, to that of the idle process"), Figure::Absent, p50],
            vec![
                Figure::text("p99 of a random key, to that of the idle process"),
                Figure::number(MOST_TO_IDLE),
                at_most(ratio(0.99), MOST_TO_IDLE),
            ],
            vec![Figure::text("p99 of /healthz, ms"), Figure::number(HEALTH_P99_MS), health],
        ],
        notes: Vec::new(),
    }
}
