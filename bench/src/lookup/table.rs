//! Formats the measurements as tables, with their aims.

use super::busy::Meanwhile;
use super::case::Case;
use super::{Options, ask};
use crate::latencies::{self, Latencies, median_of, per_second};
use crate::report::{Figure, Table, at_least, at_most};
use crate::spread::Spread;

/// The way by which keys are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Library,
    Http,
    HttpBatch,
    Wire,
    Redis,
    RedisBatch,
    Postgres,
    PostgresBatch,
}

/// One measurement.
pub(super) struct Row {
    case: Case,
    access: Access,
    clients: usize,
    /// Keys in one request.
    keys: usize,
    stretches: Vec<Latencies>,
    meanwhile: Option<Meanwhile>,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Access::Library => "in process",
            Access::Http => "HTTP, GET row",
            Access::HttpBatch => "HTTP, POST rows",
            Access::Wire => "prepared SELECT over the PostgreSQL protocol",
            Access::Redis => "Redis, GET",
            Access::RedisBatch => "Redis, MGET",
            Access::Postgres => "PostgreSQL, prepared SELECT",
            Access::PostgresBatch => "PostgreSQL, prepared SELECT of many keys",
        }
    }

    fn is_batch(self) -> bool {
        matches!(self, Access::HttpBatch | Access::RedisBatch | Access::PostgresBatch)
    }
}

impl Row {
    pub(super) fn idle(case: Case, access: Access, options: &Options, stretches: Vec<Latencies>) -> Row {
        let clients = if access == Access::Library { ask::cores() } else { options.clients };
        Row { case, access, clients, keys: if access.is_batch() { options.batch } else { 1 }, stretches, meanwhile: None }
    }

    pub(super) fn busy(case: Case, access: Access, options: &Options, stretches: Vec<Latencies>, meanwhile: Meanwhile) -> Row {
        Row { meanwhile: Some(meanwhile), ..Row::idle(case, access, options, stretches) }
    }

    fn keys_per_second(&self) -> Option<Spread> {
        let by = |value: f64| value * self.keys as f64;
        per_second(&self.stretches).map(|rate| Spread { min: by(rate.min), median: by(rate.median), max: by(rate.max) })
    }

    fn figures(&self) -> Vec<Figure> {
        let of = |of: fn(&Meanwhile) -> Figure| self.meanwhile.as_ref().map_or(Figure::Absent, of);
        let mut row = vec![
            Figure::text(self.case.to_string()),
            Figure::text(self.access.name()),
            Figure::text(if self.meanwhile.is_some() { "events arrive, batch runs" } else { "idle" }),
            Figure::Count(self.clients as u64),
            Figure::Count(self.keys as u64),
            Figure::per_second(self.keys_per_second()),
        ];
        row.extend(latencies::figures(&self.stretches));
        row.push(of(|meanwhile| Figure::per_second(Spread::from_values([meanwhile.fed.appended_per_second]))));
        row.push(of(|meanwhile| Figure::per_second(Spread::from_values([meanwhile.fed.counted_per_second]))));
        row.push(of(|meanwhile| Figure::Count(meanwhile.runs)));
        row
    }
}

pub(super) fn build(options: &Options, rows: &[Row]) -> Table {
    let first = ["views:windows:keys", "request", "load", "clients", "keys per request", "keys/s"];
    let columns = first.into_iter().chain(latencies::COLUMNS).chain(["arriving/s", "counted/s", "batch runs"]);
    let notes = vec![
        format!(
            "uniformly chosen keys, each time of another view; {} stretches of {} s each; figures: median (min - max)",
            options.repeats, options.seconds
        ),
        "five aggregates for each window".to_owned(),
        "HTTP: a real `basestream up` with persistent connections; clients and servers share the cores".to_owned(),
        "Redis and PostgreSQL hold the final rows, as JSON and as a table with a primary key; the clients are the crates redis and sqlx"
            .to_owned(),
        "arriving/s: appended to the embedded log by the measuring process; counted/s: the rate at which answers grew".to_owned(),
        "batch runs: how many succeeded meanwhile, each in a separate process".to_owned(),
    ];
    Table {
        title: "Point lookups".into(),
        columns: columns.map(str::to_owned).collect(),
        rows: rows.iter().map(Row::figures).collect(),
        notes,
    }
}

/// Aims in process: the highest p99 in milliseconds, and the lowest rate.
const MOST_P99_MS: f64 = 1.0;
const LEAST_PER_SECOND: f64 = 200_000.0;
/// Aims over the network: the lowest rates, as shares of a peer's for one key.
const LEAST_TO_POSTGRES: f64 = 1.2;
const LEAST_TO_REDIS: f64 = 0.6;

/// The aims and the results.
pub(super) fn aims(rows: &[Row]) -> Table {
    let columns = ["views:windows:keys", "load", "in process: p99 ms, aim 1", "in process: rate / 200,000", "HTTP: rate / PostgreSQL"];
    let more = ["PostgreSQL protocol: rate / PostgreSQL, aim 1.2", "HTTP: rate / Redis GET, aim 0.6"];
    let columns = columns.into_iter().chain(more).chain(["HTTP, many keys: rate / Redis MGET", "HTTP, many keys: rate / Redis GET"]);
    let line = |(case, is_busy): (Case, bool)| {
        let found = |access: Access| rows.iter().find(|row| (row.case, row.access, row.meanwhile.is_some()) == (case, access, is_busy));
        let rate = |access: Access| found(access).and_then(Row::keys_per_second).map(|rate| rate.median);
        let ratio = |own: Access, peer: Access| rate(own).zip(rate(peer)).map(|(own, peer)| own / peer);
        let over = |own: Access, peer: Access| at_least(ratio(own, peer), 1.0);
        vec![
            Figure::text(case.to_string()),
            Figure::text(if is_busy { "events arrive, batch runs" } else { "idle" }),
            at_most(found(Access::Library).and_then(|row| median_of(&row.stretches, 0.99)), MOST_P99_MS),
            at_least(rate(Access::Library).map(|rate| rate / LEAST_PER_SECOND), 1.0),
            over(Access::Http, Access::Postgres),
            at_least(ratio(Access::Wire, Access::Postgres), LEAST_TO_POSTGRES),
            at_least(ratio(Access::Http, Access::Redis), LEAST_TO_REDIS),
            over(Access::HttpBatch, Access::RedisBatch),
            over(Access::HttpBatch, Access::Redis),
        ]
    };
    let mut situations: Vec<(Case, bool)> = Vec::new();
    for row in rows {
        let situation = (row.case, row.meanwhile.is_some());
        if !situations.contains(&situation) {
            situations.push(situation);
        }
    }
    Table {
        title: "Aims".into(),
        columns: columns.map(str::to_owned).collect(),
        rows: situations.into_iter().map(line).collect(),
        notes: Vec::new(),
    }
}

/// How the time of lookups in process grows with the keys of one view of four windows.
pub(super) fn flat_in_keys(rows: &[Row]) -> Table {
    let own = |row: &&Row| row.access == Access::Library && row.meanwhile.is_none() && row.case.has_peers();
    let mut sizes: Vec<(u64, &Row)> = rows.iter().filter(own).map(|row| (row.case.keys, row)).collect();
    sizes.sort_by_key(|(keys, _)| *keys);
    let measured: Vec<(Figure, &[Latencies])> = sizes.iter().map(|(keys, row)| (Figure::Count(*keys), &*row.stretches)).collect();
    flat("Lookups in process, by number of keys", "keys", &measured)
}

/// The aim: the highest ratio of a lookup's time to the first one's.
const FLAT: f64 = 1.5;

/// Medians relative to the first one.
pub(super) fn flat(title: &str, by: &str, measured: &[(Figure, &[Latencies])]) -> Table {
    let first = measured.first().and_then(|(_, stretches)| median_of(stretches, 0.5));
    let columns = [by.to_owned()].into_iter().chain(latencies::COLUMNS.map(str::to_owned));
    let row = |(nth, (name, stretches)): (usize, &(Figure, &[Latencies]))| {
        let ratio = median_of(stretches, 0.5).zip(first).map(|(own, first)| own / first);
        let verdict = if nth == 0 { Figure::Absent } else { at_most(ratio, FLAT) };
        [name.clone()].into_iter().chain(latencies::figures(stretches)).chain([verdict]).collect()
    };
    Table {
        title: title.to_owned(),
        columns: columns.chain([format!("p50 / first p50, aim {FLAT}")]).collect(),
        rows: measured.iter().enumerate().map(row).collect(),
        notes: Vec::new(),
    }
}
