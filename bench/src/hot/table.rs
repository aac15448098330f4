//! Formats the measurements as tables.

use std::time::Duration;

use super::backlog::Taken;
use super::{HEALTH_P99_MS, HOT_P50_MS, Meanwhile, Options, Outcome};
use crate::latencies::{self, Latencies, median_of};
use crate::report::{Figure, Table, verdict};
use crate::spread::Spread;

pub(super) fn build(options: &Options, outcomes: &[Outcome], first: Duration) -> Table {
    let mut rows =
        vec![one_row("nothing", "the hot key, for the first time", Figure::milliseconds(Spread::from_values([first.as_secs_f64() * 1e3])))];
    for outcome in outcomes {
        let asked = [("/healthz", &outcome.health), ("another key", &outcome.other), ("the hot key", &outcome.hot)];
        rows.extend(
            asked.into_iter().filter(|(_, stretches)| !stretches.is_empty()).map(|(asked, stretches)| row(outcome, asked, stretches)),
        );
    }
    let columns = ["meanwhile", "asked"].into_iter().chain(latencies::COLUMNS);
    Table {
        title: "Answers over HTTP beside a hot key".into(),
        columns: columns.map(str::to_owned).collect(),
        rows,
        notes: vec![
            format!(
                "count(DISTINCT) of {} visitors of one key, beside {} events of {} other keys; {} stretches of {} s; figures: median (min - max)",
                options.hot_events, options.other_events, options.keys, options.repeats, options.seconds
            ),
            "the hot key's clients ask again at once; /healthz and other keys are asked by one client each, every two milliseconds"
                .to_owned(),
            "clients and `up` share this machine's processors".to_owned(),
        ],
    }
}

fn one_row(meanwhile: &str, asked: &str, took: Figure) -> Vec<Figure> {
    let absent = || Figure::Absent;
    vec![Figure::text(meanwhile), Figure::text(asked), Figure::Count(1), absent(), took, absent(), absent(), absent()]
}

fn row(outcome: &Outcome, asked: &str, stretches: &[Latencies]) -> Vec<Figure> {
    [Figure::text(text(outcome)), Figure::text(asked)].into_iter().chain(latencies::figures(stretches)).collect()
}

fn text(outcome: &Outcome) -> String {
    match outcome.meanwhile {
        Meanwhile::Nothing => "nothing".into(),
        Meanwhile::Hot(clients) => format!("{clients} clients ask the hot key"),
        Meanwhile::HotAndArriving(clients) => format!("{clients} clients ask the hot key, and events arrive, half of them of it"),
    }
}

/// The same questions with the cache of rows and without.
pub(super) fn cache(outcomes: &[Outcome], uncached: &[Outcome]) -> Table {
    let mut rows = Vec::new();
    for without in uncached {
        let with = outcomes.iter().filter(|with| with.meanwhile == without.meanwhile);
        for (cache, outcome) in with.map(|with| ("with", with)).chain([("without", without)]) {
            let figures = latencies::figures(&outcome.hot);
            rows.push([Figure::text(text(outcome)), Figure::text(cache)].into_iter().chain(figures).collect());
        }
    }
    Table {
        title: "The hot key with its finished row, and without".into(),
        columns: ["meanwhile", "row cache"].into_iter().chain(latencies::COLUMNS).map(str::to_owned).collect(),
        rows,
        notes: vec!["without: `serving.row_cache = 0`; what was merged of the key is kept all the same".to_owned()],
    }
}

/// What the speed layer took.
pub(super) fn backlogs(taken: &[Taken]) -> Option<Table> {
    let row = |taken: &Taken| {
        let keys = if taken.is_skewed { "one key has half" } else { "keys alike" };
        let share = taken.share.map_or(Figure::Absent, |share| Figure::text(format!("{share:.3}")));
        vec![Figure::text(keys), Figure::Count(taken.events), Figure::per_second(Spread::from_values([taken.per_second])), share]
    };
    let table = Table {
        title: "A backlog through `up`".into(),
        columns: ["keys", "events", "per second", "share that /v1/hot-keys lists"].map(str::to_owned).to_vec(),
        rows: taken.iter().map(row).collect(),
        notes: vec!["from taking the partitions over until answers count all events; one run each".to_owned()],
    };
    (!taken.is_empty()).then_some(table)
}

pub(super) fn aims(outcomes: &[Outcome]) -> Table {
    let mut rows = Vec::new();
    for outcome in outcomes {
        rows.push(aim(outcome, "/healthz p99 ms", median_of(&outcome.health, 0.99), HEALTH_P99_MS));
        if matches!(outcome.meanwhile, Meanwhile::Hot(_)) {
            rows.push(aim(outcome, "hot key p50 ms", median_of(&outcome.hot, 0.5), HOT_P50_MS));
        }
    }
    Table {
        title: "Aims".into(),
        columns: ["meanwhile", "measured", "at most", "found"].map(str::to_owned).to_vec(),
        rows,
        notes: Vec::new(),
    }
}

fn aim(outcome: &Outcome, measured: &str, found: Option<f64>, most: f64) -> Vec<Figure> {
    let found = found.map_or(Figure::Absent, |found| Figure::text(format!("{found:.3}: {}", verdict(found <= most))));
    vec![Figure::text(text(outcome)), Figure::text(measured), Figure::number(most), found]
}
