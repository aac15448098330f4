//! Views that recompute at the same time: together, with one scan of the archive, and one after the other.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batch::{RunMode, RunRequest};
use catalog::RunRecord;
use types::{Result, Strategy};

use crate::installed::Installed;
use crate::purchases::{Purchases, STREAM};
use crate::report::{Figure, Table, at_most};
use crate::spread::Spread;

const VIEWS: usize = 5;
/// The aim: the time together, to that of one after the other.
const TOGETHER: f64 = 1.0;

/// Recomputes five views of the same SELECT in both ways. The installation goes to `folder`.
pub(super) async fn measured(purchases: &Purchases, repeats: usize, folder: &Path) -> Result<Table> {
    let name = |nth: usize| (format!("view_{nth}"), purchases.windows().to_vec());
    let events = Purchases { strategy: Strategy::Full, views: (0..VIEWS).map(name).collect(), ..purchases.clone() };
    let installed = Installed::create(folder, &events).await?;
    installed.archive(&events).await?;
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..repeats.max(1) {
        alone.push(one_after_the_other(&installed, &events).await?);
        together.push(at_the_same_time(&installed, &events).await?);
    }
    installed.installation.close().await;
    let spread = |took: &[Duration]| Spread::from_values(took.iter().map(Duration::as_secs_f64));
    let ratio = spread(&together).zip(spread(&alone)).map(|(together, alone)| together.median / alone.median);
    let row = |what: &str, took: &[Duration], aim| vec![Figure::text(what), Figure::seconds(spread(took)), aim];
    Ok(Table {
        title: "Views that recompute at the same time".into(),
        columns: ["", "seconds", "to one after the other, aim"].map(str::to_owned).to_vec(),
        rows: vec![
            row("one after the other", &alone, Figure::Absent),
            row("together, with one scan of the archive", &together, at_most(ratio, TOGETHER)),
        ],
        notes: vec![format!("{VIEWS} views with five aggregates over four windows, {} events; {repeats} repeats", events.events)],
    })
}

async fn one_after_the_other(installed: &Installed, events: &Purchases) -> Result<Duration> {
    let began = Instant::now();
    for (view, _) in &events.views {
        installed.installation.recompute_view(view, false, &|_| {}).await?;
    }
    Ok(began.elapsed())
}

async fn at_the_same_time(installed: &Installed, events: &Purchases) -> Result<Duration> {
    let installation = &installed.installation;
    let began = Instant::now();
    let layers = installation.batch().sharing_scan(&Arc::from(STREAM), events.views.len());
    let mut runs = Vec::new();
    for (layer, (view, _)) in layers.into_iter().zip(&events.views) {
        let request = RunRequest { mode: RunMode::Full, compare: false, ..RunRequest::new(view.as_str(), installation.run_time()) };
        runs.push(tokio::spawn(async move { layer.run(request, jobs::clock(), &|_| {}).await }));
    }
    for run in runs {
        let _: RunRecord = run.await??;
    }
    Ok(began.elapsed())
}
