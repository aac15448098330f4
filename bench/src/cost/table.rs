//! Formats the measurements as tables.

use super::Outcome;
use crate::report::{Figure, Table};
use crate::spread::Spread;

const WHAT: [&str; 3] = ["events", "keys", "raw text kept"];

fn what(outcome: &Outcome) -> [Figure; 3] {
    let kept = if outcome.case.keep_raw { "yes" } else { "no" };
    [Figure::Count(outcome.case.payments.records), Figure::Count(outcome.case.payments.accounts), Figure::text(kept)]
}

fn per_event(outcome: &Outcome, bytes: u64) -> f64 {
    bytes as f64 / outcome.case.payments.records.max(1) as f64
}

/// What is kept of an event: archive and states.
fn kept_per_event(outcome: &Outcome) -> f64 {
    per_event(outcome, outcome.stored.archive + outcome.stored.states)
}

pub(super) fn bytes(outcomes: &[Outcome]) -> Table {
    let columns = [
        "log: bytes per event",
        "archive: bytes per event",
        "states: bytes per event",
        "archive and states: bytes per event",
        "relative to the first row",
        "snapshot: bytes per key",
        "state rows per key",
    ];
    let row = |outcome: &Outcome| {
        let stored = &outcome.stored;
        let per_key = |number: u64| Figure::number(number as f64 / stored.keys.max(1) as f64);
        let of_first = outcomes.first().map(|first| kept_per_event(outcome) / kept_per_event(first));
        let figures = [
            Figure::number(per_event(outcome, stored.log)),
            Figure::number(per_event(outcome, stored.archive)),
            Figure::number(per_event(outcome, stored.states)),
            Figure::number(kept_per_event(outcome)),
            Figure::ratio(of_first.and_then(|ratio| Spread::from_values([ratio]))),
            per_key(stored.snapshot),
            per_key(stored.state_rows),
        ];
        what(outcome).into_iter().chain(figures).collect()
    };
    let notes = vec![
        "the JSON text of an event has about 260 bytes".to_owned(),
        "log: the embedded log".to_owned(),
        "raw text kept: with `keep_raw`, the archive holds the text next to the columns".to_owned(),
        "states: the states objects of checkpoints, which a batch run's snapshot replaces; they hold a row for each key and minute of a checkpoint"
            .to_owned(),
    ];
    table("What is stored", &columns, outcomes.iter().map(row).collect(), notes)
}

pub(super) fn work(outcomes: &[Outcome]) -> Table {
    let columns = [
        "checkpoints",
        "objects per checkpoint",
        "objects per hour",
        "objects per snapshot",
        "speed: processor s per million",
        "speed: peak MiB",
        "batch run: processor s per million",
        "batch run: peak MiB",
    ];
    let row = |outcome: &Outcome| {
        let stored = &outcome.stored;
        let one = |value: f64| Spread::from_values([value]);
        let millions = outcome.case.payments.records.max(1) as f64 / 1e6;
        let figures = [
            Figure::Count(stored.checkpoints),
            Figure::number(stored.checkpoint_objects as f64 / stored.checkpoints.max(1) as f64),
            Figure::number(stored.objects_per_hour()),
            Figure::Count(stored.snapshot_objects),
            Figure::seconds(one(outcome.speed.processor_s_per_million)),
            Figure::bytes(one(outcome.speed.peak_bytes)),
            Figure::seconds(one(outcome.batch.processor_s / millions)),
            Figure::bytes(one(outcome.batch.peak_bytes as f64)),
        ];
        what(outcome).into_iter().chain(figures).collect()
    };
    let interval = outcomes.first().map_or(0.0, |outcome| outcome.stored.interval.as_secs_f64());
    let notes = vec![
        format!("objects per hour: those of checkpoints, one every {interval} s; more if `checkpoint_bytes` is reached sooner"),
        "processor: user and system time of all threads of the process, including its start and end".to_owned(),
    ];
    table("What processing takes", &columns, outcomes.iter().map(row).collect(), notes)
}

fn table(title: &str, columns: &[&str], rows: Vec<Vec<Figure>>, notes: Vec<String>) -> Table {
    let columns = WHAT.iter().chain(columns).map(|column| (*column).to_owned()).collect();
    Table { title: title.to_owned(), columns, rows, notes }
}
