//! Formats the measurements as tables.

use super::{MOST_MS, MOST_TO_IDLE, Measured, Options, PACE};
use crate::latencies::{self, Latencies, median_of};
use crate::report::{Figure, Table, verdict};

pub(super) fn build(options: &Options, measured: &[Measured]) -> Table {
    let rows = measured.iter().flat_map(|one| {
        let asked = [("HTTP", &one.http), ("PostgreSQL", &one.postgres)];
        asked.map(|(protocol, stretches)| {
            [Figure::text(&one.meanwhile), Figure::text(protocol)].into_iter().chain(latencies::figures(stretches)).collect()
        })
    });
    Table {
        title: "Lookups over HTTP and PostgreSQL, idle and beside heavy work of the same process".into(),
        columns: ["meanwhile", "asked over"].into_iter().chain(latencies::COLUMNS).map(str::to_owned).collect(),
        rows: rows.collect(),
        notes: vec![
            format!(
                "five aggregates over four windows, {} events of {} keys; {} stretches of {} s; figures: median (min - max)",
                options.purchases.events, options.purchases.accounts, options.repeats, options.seconds
            ),
            format!("one client of each protocol, which waits {} ms after an answer; PostgreSQL: a prepared statement", PACE.as_millis()),
            "the clients, `up` and its work share this machine's processors".to_owned(),
        ],
    }
}

/// Each of the others is held against the first, which is idle.
pub(super) fn aims(measured: &[Measured]) -> Table {
    let row = |(one, protocol, idle, busy): (&Measured, &str, &[Latencies], &[Latencies])| {
        let (idle, busy) = (median_of(idle, 0.99).unwrap_or_default(), median_of(busy, 0.99).unwrap_or_default());
        let most = MOST_MS.max(MOST_TO_IDLE * idle);
        vec![
            Figure::text(&one.meanwhile),
            Figure::text(protocol),
            Figure::text(format!("{most:.3}")),
            Figure::text(format!("{busy:.3}: {}", verdict(busy <= most))),
        ]
    };
    let (idle, others) = (&measured[0], &measured[1..]);
    let pairs =
        others.iter().flat_map(|one| [(one, "HTTP", &*idle.http, &*one.http), (one, "PostgreSQL", &*idle.postgres, &*one.postgres)]);
    Table {
        title: format!("Aims: a p99 within {MOST_TO_IDLE} times that of the idle process, or {MOST_MS} ms"),
        columns: ["meanwhile", "asked over", "at most, ms", "found, ms"].map(str::to_owned).to_vec(),
        rows: pairs.map(row).collect(),
        notes: Vec::new(),
    }
}
