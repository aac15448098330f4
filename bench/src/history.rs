//! What batch runs cost as history grows: a full run, and incremental ones after a little more of it; what a long
//! series of incremental runs writes, leaves behind and makes a node copy; what a full run costs in slices, one that
//! goes on after half of it, and one beside incremental runs; and what several full runs cost together.

use std::path::Path;
use std::time::{Duration, Instant};

use catalog::RunStatus;
use serving::Keys;
use storage::Tier;
use types::Result;

use crate::graph::Graph;
use crate::installed::Installed;
use crate::latencies::{Latencies, median_of};
use crate::machine::Context;
use crate::programs::Programs;
use crate::purchases::{Purchases, STREAM, VIEW, account_text};
use crate::report::{Figure, Report, Table, at_most};
use crate::spread::Spread;

mod beside;
mod copying;
mod growing;
pub mod links;
mod slices;
mod together;

use copying::{Copied, Copying};
use growing::{CHECKPOINT_EVENTS, Growing, Ran, bytes, seconds};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    pub purchases: Purchases,
    /// Of the linked view.
    pub graph: Graph,
    pub repeats: usize,
    /// Incremental runs in the series, each after one `PART_OF_A_RUN`th more events; 0 skips it.
    pub runs: u64,
    /// Lookups in one stretch.
    pub lookups: u64,
    /// Events of the views that recompute together; 0 skips them.
    pub together_events: u64,
}

impl Default for Options {
    fn default() -> Self {
        let purchases = Purchases { strategy: types::Strategy::Incremental, ..Purchases::with_size(5_000_000, 100_000) };
        let together_events = purchases.events;
        Self { purchases, graph: links::graph(1.0), repeats: 3, runs: 200, lookups: 20_000, together_events }
    }
}

impl Options {
    /// The number of events of the first run, so that those of the others are what is left.
    fn first(&self) -> u64 {
        let of_steps: u64 = STEPS.iter().map(|(thousandths, _)| thousandths * self.repeats as u64).sum();
        self.purchases.events * 1_000 / (1_000 + of_steps + self.runs * 1_000 / PART_OF_A_RUN)
    }
}

/// How much more of the history an incremental run finds, in thousandths, and the aim: the most of a full run's time.
const STEPS: [(u64, f64); 3] = [(1, 0.05), (10, 0.08), (100, 0.25)];
/// The aim for a run that finds nothing new, in seconds.
const NOTHING_NEW_S: f64 = 0.1;
/// The aim for the bytes that a series of runs writes, to those of its deltas.
const WRITTEN_TO_NEW: f64 = 8.0;
/// The aim for lookups after the series, to those after a full run.
const LOOKUPS_TO_FULL: f64 = 1.3;
/// Each run of the series finds this part of the history anew.
const PART_OF_A_RUN: u64 = 1_000;
/// Runs the benchmark. The installation goes to `folder`.
pub async fn run(options: &Options, programs: &Programs, folder: &Path, command: &str) -> Result<Report> {
    let context = Context::begin(command, programs);
    let first = options.first();
    let installed = Installed::create(&folder.join("project"), &options.purchases).await?;
    let history = Growing { installed, events: &options.purchases, stream: STREAM, view: VIEW };
    history.archive(0..first).await?;

    let mut full = Vec::new();
    for _ in 0..options.repeats.max(1) {
        full.push(history.recompute().await?);
    }
    let (steps, next) = history.steps(first, &STEPS.map(|(thousandths, _)| thousandths), options.repeats).await?;
    let mut nothing = Vec::new();
    for _ in 0..options.repeats {
        nothing.push(history.run(RunStatus::Skipped).await?);
    }
    let series = history.series(options, next).await?;
    let slices = history.slices(options.repeats).await?;
    let (beside, _) = history.beside(options.repeats, series.next).await?;
    let question = "What do batch runs cost as history grows?".to_owned();
    history.installed.installation.close().await;
    let linked = links::measured(&options.graph, options.repeats, &folder.join("links")).await?;
    let copied = copying::table(&series.full_copy, &series.copies);
    let mut tables = vec![runs_table(options, &full, &steps, &nothing)];
    tables.extend(series.table(options));
    tables.extend([copied, slices, beside, linked]);
    if options.together_events > 0 {
        std::fs::remove_dir_all(folder.join("project"))?;
        let purchases = Purchases { events: options.together_events, ..options.purchases.clone() };
        tables.push(together::measured(&purchases, options.repeats, &folder.join("together")).await?);
    }
    Ok(Report { benchmark: "history".into(), question, context: context.end(), tables })
}

impl Growing<'_, Purchases> {
    /// A series of incremental runs from this event on, and a full run after it.
    async fn series(&self, options: &Options, mut next: u64) -> Result<Series> {
        let copying = Copying::open(&self.installed.installation).await?;
        let full_copy = copying.copy(self, &self.recompute().await?).await?;
        let (mut runs, mut copies, mut new_bytes, mut tiers) = (Vec::new(), Vec::new(), 0, 0);
        for _ in 0..options.runs {
            let more = options.first() / PART_OF_A_RUN;
            self.archive(next..next + more).await?;
            next += more;
            let ran = self.run(RunStatus::Succeeded).await?;
            copies.push(copying.copy(self, &ran).await?);
            runs.push(ran);
            let manifest = self.manifest().await?;
            new_bytes += manifest.tiers().last().map_or(0, Tier::bytes);
            tiers = tiers.max(manifest.deltas.len() + 1);
        }
        let after_series = lookups(&copying.node, options).await?;
        let full_took = self.recompute().await?.took;
        copying.node.refresh().await?;
        let after_full = lookups(&copying.node, options).await?;
        Ok(Series { next, runs, full_copy, copies, new_bytes, tiers, full_took, after_series, after_full })
    }
}

/// Looks up random keys one after the other, in process.
async fn lookups(node: &serving::Node, options: &Options) -> Result<Vec<Latencies>> {
    let mut stretches = Vec::new();
    for stretch in 0..options.repeats as u64 {
        let mut latencies = Latencies::begin()?;
        for nth in 0..options.lookups {
            let key = account_text(options.purchases.account(stretch * options.lookups + nth));
            let began = Instant::now();
            node.lookup(VIEW, Keys::Text(vec![vec![("account_id".to_owned(), key)]]), None).await?;
            latencies.add(began.elapsed());
        }
        stretches.push(latencies);
    }
    Ok(stretches)
}

/// What a series of incremental runs cost, and left.
struct Series {
    /// The number of the next event.
    next: u64,
    runs: Vec<Ran>,
    /// What a node copied after a full run, and after each of these.
    full_copy: Copied,
    copies: Vec<Copied>,
    /// The bytes of their deltas.
    new_bytes: i64,
    /// The most tiers of a snapshot.
    tiers: usize,
    /// How long a full run after them took.
    full_took: Duration,
    after_series: Vec<Latencies>,
    after_full: Vec<Latencies>,
}

fn runs_table(options: &Options, full: &[Ran], steps: &[Vec<Ran>], nothing: &[Ran]) -> Table {
    let full_s = seconds(full);
    let row = |what: String, ran: &[Ran], aim: Figure| {
        let events = ran.first().map_or(0, |ran| ran.run.events_read);
        vec![Figure::text(what), Figure::Count(events as u64), Figure::seconds(seconds(ran)), Figure::bytes(bytes(ran)), aim]
    };
    let mut rows = vec![row("a full run".into(), full, Figure::Absent)];
    for ((thousandths, most), ran) in STEPS.into_iter().zip(steps) {
        let ratio = seconds(ran).zip(full_s).map(|(step, full)| step.median / full.median);
        rows.push(row(format!("after {} % more", thousandths as f64 / 10.0), ran, at_most(ratio, most)));
    }
    rows.push(row("after nothing new".into(), nothing, at_most(seconds(nothing).map(|spread| spread.median), NOTHING_NEW_S)));
    Table {
        title: "Runs".into(),
        columns: ["run", "events read", "seconds", "MiB written", "to the full run (nothing new: s), aim"].map(str::to_owned).to_vec(),
        rows,
        notes: vec![
            format!(
                "five aggregates over four windows, {} events of {} keys at first; checkpoints of at most {CHECKPOINT_EVENTS} events with states; \
                 {} runs each; figures: median (min - max)",
                full.first().map_or(0, |ran| ran.run.events_read),
                options.purchases.accounts,
                options.repeats
            ),
            format!("aims, of a full run's time: {}; after nothing new at most {NOTHING_NEW_S} s", aims()),
        ],
    }
}

fn aims() -> String {
    let aims = STEPS.map(|(thousandths, most)| format!("at most {:.0} % after {} % more", most * 100.0, thousandths as f64 / 10.0));
    aims.join(", ")
}

impl Series {
    /// `None` for a series without runs: nothing was measured.
    fn table(&self, options: &Options) -> Option<Table> {
        if self.runs.is_empty() {
            return None;
        }
        let written: i64 = self.runs.iter().map(|ran| ran.run.bytes_written).sum();
        let amplification = written as f64 / self.new_bytes.max(1) as f64;
        let ratio = |quantile: f64| {
            let (series, full) = median_of(&self.after_series, quantile).zip(median_of(&self.after_full, quantile))?;
            Some(series / full)
        };
        let text = |name: &str, figure: Figure| vec![Figure::text(name), figure];
        let milliseconds =
            |of: &[Latencies], quantile: f64| Figure::milliseconds(median_of(of, quantile).and_then(|ms| Spread::from_values([ms])));
        Some(Table {
            title: "A series of incremental runs".into(),
            columns: ["", "found"].map(str::to_owned).to_vec(),
            rows: vec![
                text("seconds of a run", Figure::seconds(seconds(&self.runs))),
                text("seconds of a full run after it", Figure::seconds(Spread::from_values([self.full_took.as_secs_f64()]))),
                text("MiB written", Figure::bytes(Spread::from_values([written as f64]))),
                text("bytes written to those of the deltas, at most 8", at_most(Some(amplification), WRITTEN_TO_NEW)),
                text("tiers, at most", Figure::Count(self.tiers as u64)),
                text("p50 of a lookup after it, ms", milliseconds(&self.after_series, 0.5)),
                text("p50 of a lookup after a full run, ms", milliseconds(&self.after_full, 0.5)),
                text("p50 to that after a full run, at most 1.3", at_most(ratio(0.5), LOOKUPS_TO_FULL)),
                text("p99 to that after a full run, at most 1.3", at_most(ratio(0.99), LOOKUPS_TO_FULL)),
            ],
            notes: vec![format!(
                "{} runs, each after a thousandth more events; {} stretches of {} lookups of random keys, in process, one after the other",
                options.runs, options.repeats, options.lookups
            )],
        })
    }
}

#[cfg(test)]
mod tests;
