//! A full run in one piece, in slices, and gone on with after it was stopped halfway.

use std::time::{Duration, Instant};

use batch::{RunMode, RunRequest};
use catalog::RunStatus;
use types::{Error, ErrorKind, Result};

use super::growing::Growing;
use crate::purchases::Purchases;
use crate::report::{Figure, Table, at_most};
use crate::spread::Spread;

/// The slices of the history.
const SLICES: u64 = 8;
/// The aims, to a run in one piece: of a run in slices, and of what is left of it after it was stopped halfway.
const IN_SLICES: f64 = 1.3;
const SECOND_HALF: f64 = 0.8;
/// How often a run under way is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const ATTEMPTS: usize = 20;

impl Growing<'_, Purchases> {
    pub(super) async fn slices(&self, repeats: usize) -> Result<Table> {
        let (mut whole, mut sliced, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let mut events = 0;
        for _ in 0..repeats.max(1) {
            let began = Instant::now();
            events = self.full_run(1, std::future::pending()).await?;
            whole.push(began.elapsed());
            let began = Instant::now();
            self.full_run(SLICES, std::future::pending()).await?;
            sliced.push(began.elapsed());
            rest.push(self.second_half(events).await?);
        }
        let spread = |took: &[Duration]| Spread::from_values(took.iter().map(Duration::as_secs_f64));
        let ratio = |took: &[Duration]| spread(took).zip(spread(&whole)).map(|(took, whole)| took.median / whole.median);
        let row = |what: String, took: &[Duration], aim| vec![Figure::Text(what), Figure::seconds(spread(took)), aim];
        Ok(Table {
            title: "A full run in slices".into(),
            columns: ["", "seconds", "to one in one piece, aim"].map(str::to_owned).to_vec(),
            rows: vec![
                row("in one piece".into(), &whole, Figure::Absent),
                row(format!("in {SLICES} slices"), &sliced, at_most(ratio(&sliced), IN_SLICES)),
                row("gone on with, half of it read".into(), &rest, at_most(ratio(&rest), SECOND_HALF)),
            ],
            notes: vec![format!("{events} events; each slice is saved; {repeats} repeats; figures: median (min - max)")],
        })
    }

    /// Recomputes the view in this number of slices, unless it is given up. Returns the number of events it read.
    async fn full_run(&self, slices: u64, given_up: impl Future<Output = ()> + Send) -> Result<i64> {
        let installation = &self.installed.installation;
        let mut batch = installation.batch();
        batch.settings.events_per_slice = self.events.events.div_ceil(slices);
        let request = RunRequest { mode: RunMode::Full, compare: false, ..RunRequest::new(self.view, installation.run_time()) };
        Ok(batch.run_until(request, jobs::clock(), &|_| {}, given_up).await?.events_read)
    }

    /// Stops a run once half of the events are saved, and returns how long the next one takes.
    async fn second_half(&self, events: i64) -> Result<Duration> {
        for _ in 0..ATTEMPTS {
            match self.full_run(SLICES, self.half_is_saved(events)).await {
                // It was done before it was looked at.
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => return Err(error),
            }
            let began = Instant::now();
            self.full_run(SLICES, std::future::pending()).await?;
            return Ok(began.elapsed());
        }
        Err(Error::internal("no run was seen with half of its events saved"))
    }

    /// Ends when a run under way has saved half of the events.
    fn half_is_saved(&self, events: i64) -> impl Future<Output = ()> + Send + use<> {
        let catalog = self.installed.installation.catalog.clone();
        async move {
            loop {
                let state = catalog.state().await;
                let running = state.iter().flat_map(|state| &state.runs).filter(|run| run.status == RunStatus::Running);
                if running.filter_map(|run| run.draft.as_ref()).any(|draft| draft.events >= events / 2) {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
}
