//! Formats the measurements as a table.

use super::{AIM_MS, Options, Outcome};
use crate::latencies;
use crate::payments::Source;
use crate::report::{Figure, Table};
use crate::spread::Spread;

pub(super) fn build(options: &Options, outcomes: &[Outcome], left_out: Vec<String>) -> Table {
    let columns = [
        "acknowledged by",
        "events/s",
        "probes",
        "p50 ms",
        "p99 ms",
        "p99 aim ms",
        "slowest ms",
        "arriving/s",
        "counted/s",
        "processors busy",
        "peak MiB",
    ];
    let row = |outcome: &Outcome| {
        let [probes, _, p50, p99, _, slowest] = latencies::figures(&outcome.stretches);
        let one = |value: f64| Spread::from_values([value]);
        vec![
            Figure::text(match outcome.source {
                Source::Embedded => "HTTP 202, embedded log",
                Source::Kafka(_) => "Kafka",
            }),
            Figure::Count(outcome.rate),
            probes,
            p50,
            p99,
            latencies::aim(&outcome.stretches, AIM_MS),
            slowest,
            Figure::per_second(one(outcome.arrived_per_second)),
            Figure::per_second(one(outcome.counted_per_second)),
            Figure::ratio(one(outcome.used.processor_s / outcome.seconds)),
            Figure::bytes(one(outcome.used.peak_bytes as f64)),
        ]
    };
    let mut notes = vec![
        format!(
            "{} events per second with a new key each, sent when they are due; {} stretches of {} s; figures: median (min - max)",
            options.probes, options.repeats, options.seconds
        ),
        "from the acknowledgement to the answer of the first lookup over HTTP that counts the event".to_owned(),
        "lookups repeat every millisecond, later after a twentieth of the elapsed time".to_owned(),
        "arriving/s: appended to the log by the measuring process; counted/s: the rate at which answers grew".to_owned(),
        "checked at the end: every event is counted exactly once".to_owned(),
        "processors busy: by one `basestream up`, which runs all layers and writes a checkpoint every 10 s".to_owned(),
    ];
    notes.extend(left_out);
    Table {
        title: "From acknowledged to counted".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: outcomes.iter().map(row).collect(),
        notes,
    }
}
