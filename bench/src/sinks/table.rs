//! Formats the measurements as tables.

use super::peer::{MeasuredPeers, PeerOutcome, Scorer};
use super::scoring::Scored;
use super::{AIM_MS, AIM_PER_SECOND, AIM_SCORED_MS, AtRate, Backlog, DEFAULT_CHECKPOINT_S, OnLogs, Options};
use crate::latencies;
use crate::payments::Source;
use crate::report::{Figure, Table, verdict};
use crate::spread::Spread;

pub(super) fn latencies(options: &Options, on_logs: &OnLogs) -> Table {
    let columns = [
        "log",
        "events/s",
        "records",
        "p50 ms",
        "p99 ms",
        "p99 aim ms",
        "slowest ms",
        "arriving/s",
        "records/s",
        "processors busy",
        "peak MiB",
    ];
    let row = |(source, at_rate): &(Source, AtRate)| {
        let [records, per_second, p50, p99, _, slowest] = latencies::figures(&at_rate.stretches);
        vec![
            Figure::text(source.name()),
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
    let mut notes = vec![
        format!("{} stretches of {} s; figures: median (min - max)", options.repeats, options.seconds),
        "measured once records are at most half a second of events behind, or have been given a minute for it".to_owned(),
        "from the call that appends an event to the read that returns its record; reads repeat every 2 ms, on Kafka of committed \
         transactions (`read_committed`)"
            .to_owned(),
        format!("the sink joins {} views of {} accounts and 100,000 merchants{}", options.views, options.keys, linked(options)),
        "checked at the end: every accepted event has one record, in the order of its partition".to_owned(),
        format!("processors busy: by one `basestream up`, which runs all layers and writes a checkpoint every {DEFAULT_CHECKPOINT_S} s"),
    ];
    notes.extend(on_logs.left_out.iter().cloned());
    Table::new("From an event to its record", &columns, on_logs.at_rates.iter().map(row).collect(), notes)
}

pub(super) fn backlog(options: &Options, on_logs: &OnLogs) -> Table {
    let columns = ["log", "events", "records/s", "aim", "processors busy", "peak MiB"];
    let row = |(source, backlog): &(Source, Backlog)| {
        vec![
            Figure::text(source.name()),
            Figure::Count(backlog.events),
            Figure::per_second(Spread::single(backlog.per_second)),
            Figure::text(format!("{AIM_PER_SECOND}: {}", verdict(backlog.per_second >= AIM_PER_SECOND))),
            Figure::ratio(Spread::single(backlog.used.processor_s / backlog.seconds)),
            Figure::bytes(Spread::single(backlog.used.peak_bytes as f64)),
        ]
    };
    let mut notes = vec![
        format!("the sink joins {} views{}", options.views, linked(options)),
        "from the start of the process to the last record; the topic was filled before".to_owned(),
    ];
    notes.extend(on_logs.left_out.iter().cloned());
    Table::new("A backlog", &columns, on_logs.backlogs.iter().map(row).collect(), notes)
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

/// Of a backlog, and of events that arrive; without measurements, one table that says why.
pub(super) fn beside(options: &Options, beside: &PeerOutcome) -> Vec<Table> {
    match beside {
        PeerOutcome::LeftOut(why) => vec![Table::new(BACKLOG_BESIDE, &["program"], Vec::new(), vec![format!("left out: {why}")])],
        PeerOutcome::Measured(measured) => {
            let backlog = (!measured.backlogs.is_empty()).then(|| backlog_beside(options, measured));
            let latencies = (!measured.at_rates.is_empty()).then(|| latencies_beside(options, measured));
            backlog.into_iter().chain(latencies).collect()
        }
    }
}

const BACKLOG_BESIDE: &str = "The same topology beside Flink SQL";
const LATENCIES_BESIDE: &str = "From an event to its record, beside Flink SQL";

fn backlog_beside(options: &Options, measured: &MeasuredPeers) -> Table {
    let columns = [
        "program",
        "checkpoints s",
        "events",
        "records/s",
        "relative to Flink",
        "relative to Flink, exactly once",
        "processor s per million",
        "peak MiB",
    ];
    let per_second = |scorer: Scorer| {
        let (_, backlogs) = measured.backlogs.iter().find(|(other, _)| *other == scorer)?;
        Spread::from_values(backlogs.iter().map(|backlog| backlog.per_second))
    };
    let row = |(scorer, backlogs): &(Scorer, Vec<Backlog>)| {
        let own = per_second(*scorer);
        let relative_to = |flink: Option<Spread>| Figure::ratio(own.zip(flink).map(|(own, flink)| own.over(&flink)));
        let exactly_once = scorer.checkpoint_s().and_then(|checkpoint_s| per_second(Scorer::FlinkExactlyOnce { checkpoint_s }));
        let million = |backlog: &Backlog| backlog.used.processor_s * 1e6 / backlog.events.max(1) as f64;
        vec![
            Figure::text(name(*scorer)),
            scorer.checkpoint_s().map_or(Figure::Absent, Figure::Count),
            Figure::Count(options.peer_events),
            Figure::per_second(own),
            relative_to(per_second(Scorer::Flink)),
            relative_to(exactly_once),
            Figure::seconds(Spread::from_values(backlogs.iter().map(million))),
            Figure::bytes(Spread::from_values(backlogs.iter().map(|backlog| backlog.used.peak_bytes as f64))),
        ]
    };
    let mut notes = vec![
        format!("a backlog on Kafka of {} accounts and 100,000 merchants; repeats: {}, in turns", options.keys, options.repeats.max(1)),
        "the sink joins two views of one hour, by account and by merchant; in Flink SQL these are two OVER windows of event time"
            .to_owned(),
        "basestream: from the start of the process to the last record that can be read; with duplicates dropped, every event archived \
         with its raw record, checkpoints, and records in transactions"
            .to_owned(),
        "Flink: its job alone, in a JVM that is already running; 2 threads, objects reused, no deduplication; it decodes five of the \
         eleven fields; without checkpoints also no transactions, and state in memory"
            .to_owned(),
        "relative to Flink: to Flink without checkpoints; exactly once: to Flink with checkpoints as often".to_owned(),
    ];
    notes.extend(notes_beside(options));
    Table::new(BACKLOG_BESIDE, &columns, measured.backlogs.iter().map(row).collect(), notes)
}

fn latencies_beside(options: &Options, measured: &MeasuredPeers) -> Table {
    let columns = [
        "program",
        "checkpoints s",
        "events/s",
        "records",
        "p50 ms",
        "p99 ms",
        "p99 relative to Flink",
        "slowest ms",
        "arriving/s",
        "records/s",
        "processors busy",
        "peak MiB",
    ];
    let p99 = |at_rate: &AtRate| latencies::median_of(&at_rate.stretches, 0.99);
    let row = |(scorer, at_rate): &(Scorer, AtRate)| {
        let [records, per_second, p50, p99_ms, _, slowest] = latencies::figures(&at_rate.stretches);
        let is_its_flink = |(other, flink): &&(Scorer, AtRate)| {
            matches!(other, Scorer::FlinkExactlyOnce { .. }) && other.checkpoint_s() == scorer.checkpoint_s() && flink.rate == at_rate.rate
        };
        let flink = measured.at_rates.iter().find(is_its_flink).and_then(|(_, flink)| p99(flink));
        vec![
            Figure::text(name(*scorer)),
            scorer.checkpoint_s().map_or(Figure::Absent, Figure::Count),
            Figure::Count(at_rate.rate),
            records,
            p50,
            p99_ms,
            Figure::ratio(p99(at_rate).zip(flink).and_then(|(own, flink)| Spread::single(own / flink))),
            slowest,
            Figure::per_second(Spread::single(at_rate.arrived_per_second)),
            per_second,
            Figure::ratio(Spread::single(at_rate.used.processor_s / at_rate.seconds)),
            Figure::bytes(Spread::single(at_rate.used.peak_bytes as f64)),
        ]
    };
    let mut notes = vec![
        format!(
            "{} stretches of {} s, or of two checkpoints if that is longer; figures: median (min - max); p99 relative to Flink: with \
             checkpoints as often",
            options.repeats, options.seconds
        ),
        "from the call that appends an event to the read under `read_committed` that returns its record; reads repeat every 2 ms"
            .to_owned(),
        format!("on Kafka; the sink joins two views of one hour, of {} accounts and 100,000 merchants", options.keys),
        "Flink: two OVER windows of processing time, which wait for no watermark; records can be read once the checkpoint after them \
         commits their transaction"
            .to_owned(),
        "basestream commits the records of a micro-batch in one transaction; its records do not wait for checkpoints".to_owned(),
        "processors busy, peak: of one `basestream up`, and of Flink's JVM".to_owned(),
    ];
    notes.extend(notes_beside(options));
    Table::new(LATENCIES_BESIDE, &columns, measured.at_rates.iter().map(row).collect(), notes)
}

fn name(scorer: Scorer) -> &'static str {
    match scorer {
        Scorer::Basestream { .. } => "basestream",
        Scorer::FlinkExactlyOnce { .. } => "Flink SQL, exactly once",
        Scorer::Flink => "Flink SQL",
    }
}

fn notes_beside(options: &Options) -> [String; 3] {
    [
        format!("checkpoints s: seconds between them; basestream's default is {DEFAULT_CHECKPOINT_S}"),
        format!(
            "Flink exactly once: the Kafka sink's guarantee `exactly-once`, state in {}, checkpoints in local files",
            options.flink_state
        ),
        "checked each time: every event (Flink: every record) has one record, with the count and the sum of its account".to_owned(),
    ]
}

fn linked(options: &Options) -> &'static str {
    if options.views > 2 { ", one of them linked" } else { "" }
}
