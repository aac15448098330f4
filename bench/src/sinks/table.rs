//! Formats the measurements as tables.

use super::peer::Beside;
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
            Figure::per_second(Spread::single(at_rate.arrived_per_second)),
            per_second,
            Figure::ratio(Spread::single(at_rate.used.processor_s / at_rate.seconds)),
            Figure::bytes(Spread::single(at_rate.used.peak_bytes as f64)),
        ]
    };
    let notes = vec![
        format!("{} stretches of {} s; figures: median (min - max)", options.repeats, options.seconds),
        "from the call that appends an event to the read that returns its record; reads repeat every 2 ms".to_owned(),
        format!("the sink joins {} views of {} accounts and 100,000 merchants{}", options.views, options.keys, linked(options)),
        "checked at the end: every accepted event has one record, in the order of its partition".to_owned(),
        "processors busy: by one `basestream up`, which runs all layers and writes a checkpoint every 10 s".to_owned(),
    ];
    Table::new("From an event to its record", &columns, at_rates.iter().map(row).collect(), notes)
}

pub(super) fn backlog(options: &Options, backlog: Option<&Backlog>) -> Table {
    let columns = ["events", "records/s", "aim", "processors busy", "peak MiB"];
    let row = |backlog: &Backlog| {
        vec![
            Figure::Count(backlog.events),
            Figure::per_second(Spread::single(backlog.per_second)),
            Figure::text(format!("{AIM_PER_SECOND}: {}", verdict(backlog.per_second >= AIM_PER_SECOND))),
            Figure::ratio(Spread::single(backlog.used.processor_s / backlog.seconds)),
            Figure::bytes(Spread::single(backlog.used.peak_bytes as f64)),
        ]
    };
    let notes = vec![
        format!("the sink joins {} views{}", options.views, linked(options)),
        "from the start of the process to the last record; the topic was filled before".to_owned(),
    ];
    Table::new("A backlog", &columns, backlog.into_iter().map(row).collect(), notes)
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
    Table::new("One event over HTTP", &columns, scored.iter().map(row).collect(), notes)
}

pub(super) fn beside(options: &Options, beside: &Beside) -> Table {
    let columns = ["program", "events", "records/s", "relative to Flink", "processor s per million", "peak MiB"];
    let mut notes = vec![
        format!("a backlog on Kafka of {} accounts and 100,000 merchants; repeats: {}, in turns", options.keys, options.repeats.max(1)),
        "the sink joins two views of one hour, by account and by merchant; in Flink SQL these are two OVER windows of one hour".to_owned(),
    ];
    let rows = match beside {
        Beside::LeftOut(why) => {
            notes.push(format!("left out: {why}"));
            Vec::new()
        }
        Beside::Measured { own, flink } => {
            notes.extend([
                "basestream: from the start of the process to the last record that can be read; with duplicates dropped, every event archived \
                 with its raw record, checkpoints, and records in transactions"
                    .to_owned(),
                "Flink: its job alone, in a JVM that is already running; 2 threads, objects reused, state in memory, no checkpoints, \
                 no transactions, no deduplication; it decodes five of the eleven fields"
                    .to_owned(),
                "checked in every turn: each event (Flink: each record) has one record".to_owned(),
            ]);
            let per_second = |measured: &[Backlog]| Spread::from_values(measured.iter().map(|backlog| backlog.per_second));
            let row = |program: &str, measured: &[Backlog]| {
                let million = |backlog: &Backlog| backlog.used.processor_s * 1e6 / backlog.events.max(1) as f64;
                let ratio = per_second(measured).zip(per_second(flink)).map(|(one, flink)| one.over(&flink));
                vec![
                    Figure::text(program),
                    Figure::Count(options.peer_events),
                    Figure::per_second(per_second(measured)),
                    Figure::ratio(ratio),
                    Figure::seconds(Spread::from_values(measured.iter().map(million))),
                    Figure::bytes(Spread::from_values(measured.iter().map(|backlog| backlog.used.peak_bytes as f64))),
                ]
            };
            vec![row("basestream", own), row("Flink SQL", flink)]
        }
    };
    Table::new("The same topology beside Flink SQL", &columns, rows, notes)
}

fn linked(options: &Options) -> &'static str {
    if options.views > 2 { ", one of them linked" } else { "" }
}
