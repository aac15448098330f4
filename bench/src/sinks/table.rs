//! Formats the measurements as tables.

use super::scoring::Scored;
use super::{AIM_MS, AIM_PER_SECOND, AIM_SCORED_MS, AtRate, Backlog, Options};
use crate::latencies;
use crate::report::{Figure, Table, verdict};
use crate::spread::Spread;

pub(super) fn latencies(options: &Options, at_rates: &[AtRate]) -> Table {
    let columns =
        ["events/s", "records", "p50 ms", "p99 ms", "p99 aim ms", "slowest ms", "arriving/s", "records/s", "processors busy", "peak MiB"];
    let row = |at_rate: &AtRate| {
        let [records, per_second, p50, p99, _, slowest] = latencies::figures(&at_rate.stretches);
        vec![
            Figure::Count(at_rate.rate),
            records,
            p50,
            p99,
            latencies::aim(&at_rate.stretches, AIM_MS),
            slowest,
            Figure::per_second(one(at_rate.arrived_per_second)),
            per_second,
            Figure::ratio(one(at_rate.used.processor_s / at_rate.seconds)),
            Figure::bytes(one(at_rate.used.peak_bytes as f64)),
        ]
    };
    let notes = vec![
        format!("{} stretches of {} s; figures: median (min - max)", options.repeats, options.seconds),
        "from the call that appends an event to the read that returns its record; reads repeat every 2 ms".to_owned(),
        format!("the sink joins {} views of {} accounts and 100,000 merchants{}", options.views, options.keys, linked(options)),
        "checked at the end: every accepted event has one record, in the order of its partition".to_owned(),
        "processors busy: by one `basestream up`, which runs all layers and writes a checkpoint every 10 s".to_owned(),
    ];
    table("From an event to its record", &columns, at_rates.iter().map(row).collect(), notes)
}

pub(super) fn backlog(options: &Options, backlog: Option<&Backlog>) -> Table {
    let columns = ["events", "records/s", "aim", "processors busy", "peak MiB"];
    let row = |backlog: &Backlog| {
        vec![
            Figure::Count(backlog.events),
            Figure::per_second(one(backlog.per_second)),
            Figure::text(format!("{AIM_PER_SECOND}: {}", verdict(backlog.per_second >= AIM_PER_SECOND))),
            Figure::ratio(one(backlog.used.processor_s / backlog.seconds)),
            Figure::bytes(one(backlog.used.peak_bytes as f64)),
        ]
    };
    let notes = vec![
        format!("the sink joins {} views{}", options.views, linked(options)),
        "from the start of the process to the last record; the topic was filled before".to_owned(),
    ];
    table("A backlog", &columns, backlog.into_iter().map(row).collect(), notes)
}

pub(super) fn scored(options: &Options, scored: &[Scored]) -> Table {
    let columns = ["store", "events/s beside", "scored", "scored/s", "p50 ms", "p99 ms", "p99 aim ms", "slowest ms"];
    let row = |scored: &Scored| {
        let [count, per_second, p50, p99, _, slowest] = latencies::figures(&scored.stretches);
        let aim = latencies::aim(&scored.stretches, AIM_SCORED_MS);
        vec![Figure::text(scored.stored.to_string()), Figure::Count(scored.beside), count, per_second, p50, p99, aim, slowest]
    };
    let notes = vec![
        format!("8 clients that together ask {} times a second; each answer is checked to be a record", options.scored),
        "`store` true: the event is appended, and the answer is the record that the sink has put out".to_owned(),
    ];
    table("One event over HTTP", &columns, scored.iter().map(row).collect(), notes)
}

fn linked(options: &Options) -> &'static str {
    if options.views > 2 { ", one of them linked" } else { "" }
}

fn one(value: f64) -> Option<Spread> {
    Spread::from_values([value])
}

fn table(title: &str, columns: &[&str], rows: Vec<Vec<Figure>>, notes: Vec<String>) -> Table {
    Table { title: title.into(), columns: columns.iter().map(|column| (*column).to_owned()).collect(), rows, notes }
}
