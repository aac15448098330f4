//! A full run while incremental ones of the same view go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use batch::{RunMode, RunRequest};
use catalog::{RunRecord, RunStatus};
use types::{Error, ErrorKind, Result};

use super::growing::Growing;
use crate::purchases::Purchases;
use crate::report::{Figure, Table};
use crate::spread::Spread;

/// Events that each incremental run finds.
const EVENTS_OF_A_RUN: u64 = 5_000;
/// How often a run under way is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Growing<'_, Purchases> {
    /// Full runs of which each has incremental ones beside it, one after the other, on the events from `next` on.
    pub(super) async fn beside(&self, repeats: usize, mut next: u64) -> Result<(Table, u64)> {
        let (mut alone, mut full, mut meanwhile) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..repeats.max(1) {
            let began = Instant::now();
            self.compared_full_run().await?;
            alone.push(began.elapsed());
            let began = Instant::now();
            let has_ended = AtomicBool::new(false);
            let running = async {
                let run = self.compared_full_run().await?;
                has_ended.store(true, Ordering::SeqCst);
                Ok::<_, Error>((run, began.elapsed()))
            };
            let ((run, took), more) = futures::future::try_join(running, self.incremental_runs(next, &has_ended)).await?;
            if run.comparison.is_some_and(|comparison| comparison.found() != Some(0)) {
                return Err(Error::internal("a full run found other states than the others had kept"));
            }
            full.push(took);
            let (more, committed) = more;
            next = committed;
            meanwhile.push(more);
        }
        let spread = |took: &[Duration]| Spread::from_values(took.iter().map(Duration::as_secs_f64));
        let counts = Spread::from_values(meanwhile.iter().map(|runs| runs.len() as f64));
        let waits: Vec<Duration> = meanwhile.into_iter().flatten().collect();
        let longest = waits.iter().max().map(Duration::as_secs_f64);
        let row = |what: &str, runs: Figure, took: &[Duration], longest: Option<f64>| {
            vec![
                Figure::text(what),
                runs,
                Figure::seconds(spread(took)),
                longest.map_or(Figure::Absent, |s| Figure::Text(format!("{s:.2}"))),
            ]
        };
        let table = Table {
            title: "Incremental runs beside a full one".into(),
            columns: ["", "runs", "seconds", "the longest, s"].map(str::to_owned).to_vec(),
            rows: vec![
                row("a full run alone", Figure::Text("1".into()), &alone, None),
                row("a full run beside others", Figure::Text("1".into()), &full, None),
                row(
                    "incremental runs meanwhile",
                    Figure::Text(counts.map_or_else(String::new, |counts| format!("{:.0}", counts.median))),
                    &waits,
                    longest,
                ),
            ],
            notes: vec![format!(
                "each incremental run finds {EVENTS_OF_A_RUN} new events, and begins as soon as they are committed; both are compared; \
                 {repeats} repeats; figures: median (min - max); before, an incremental run waited until the full one had ended"
            )],
        };
        Ok((table, next))
    }

    async fn compared_full_run(&self) -> Result<RunRecord> {
        let installation = &self.installed.installation;
        let request = RunRequest { mode: RunMode::Full, ..RunRequest::new(self.view, installation.run_time()) };
        installation.batch().run(request, jobs::clock(), &|_| {}).await
    }

    /// Incremental runs until a full one has ended; returns how long each took, and the number of the next event.
    async fn incremental_runs(&self, mut next: u64, has_ended: &AtomicBool) -> Result<(Vec<Duration>, u64)> {
        let mut took = Vec::new();
        while !has_ended.load(Ordering::SeqCst) {
            if !self.is_full_run_beside().await? {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            self.archive(next..next + EVENTS_OF_A_RUN).await?;
            next += EVENTS_OF_A_RUN;
            match self.run(RunStatus::Succeeded).await {
                Ok(ran) => took.push(ran.took),
                // The full run was about to add the rest.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Ok((took, next))
    }

    async fn is_full_run_beside(&self) -> Result<bool> {
        let state = self.installed.installation.catalog.state().await?;
        Ok(state.runs.iter().any(|run| run.status == RunStatus::Running && run.beside))
    }
}
