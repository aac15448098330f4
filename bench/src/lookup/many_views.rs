//! A lookup in one of many views, beside the same in a project of one view: in `up`, and by the command line.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use types::{Error, Result};

use super::ask::Ask;
use super::case::Case;
use super::prepare::purchases_of;
use super::{Options, check};
use crate::Programs;
use crate::asking::Http;
use crate::child::{self, Finished, Limits};
use crate::installed::Installed;
use crate::latencies::{self, Latencies, median_of};
use crate::measured_process::MeasuredProcess;
use crate::purchases::question::{KEY, row_path};
use crate::purchases::{Purchases, VIEW, account_text};
use crate::report::{Figure, Table};
use crate::spread::Spread;
use crate::start::is_copied;

const WINDOWS: usize = 4;
/// A start or a command that takes longer is given up.
const LONGEST: Duration = Duration::from_secs(600);

/// What was measured in a project of some views.
struct Outcome {
    views: usize,
    /// From the start of `up`.
    ready_s: f64,
    answered_s: f64,
    /// The memory of `up` when it has copied all snapshots.
    own_bytes: u64,
    stretches: Vec<Latencies>,
    /// `basestream lookup`.
    commands: Vec<Finished>,
}

/// The installations go to `folder`, one at a time.
pub(super) async fn measured(options: &Options, programs: &Programs, folder: &Path) -> Result<Table> {
    let mut outcomes = Vec::new();
    for views in [1, options.many_views] {
        let of_views = folder.join(views.to_string());
        outcomes.push(measure(options, programs, views, &of_views).await?);
        std::fs::remove_dir_all(&of_views)?;
    }
    Ok(table(options, &outcomes))
}

async fn measure(options: &Options, programs: &Programs, views: usize, folder: &Path) -> Result<Outcome> {
    let purchases = purchases_of(options, Case { views, windows: WINDOWS, keys: options.many_views_keys });
    let installed = Installed::create(folder, &purchases).await?;
    installed.archive(&purchases).await?;
    for (view, _) in &purchases.views {
        installed.installation.run_view(view, &|_| {}).await?;
    }
    // The first accounts have the most events.
    let key = account_text(0);
    let began = Instant::now();
    let up = MeasuredProcess::up(programs, &installed.config(), &installed.folder, &installed.http).await?;
    let ready_s = began.elapsed().as_secs_f64();
    let mut http = Http::connect(&installed.http)?;
    http.get(&row_path(VIEW, &key))?;
    let answered_s = began.elapsed().as_secs_f64();
    while !is_copied(http.get("/readyz")?) {
        if began.elapsed() > LONGEST {
            return Err(Error::unavailable("the snapshots are not copied").with("after s", LONGEST.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let own_bytes = up.used().own_peak_bytes;
    check::http(&installed.http, &check::expected(&purchases, options.checked))?;
    // The same question in both projects: the first view is asked, by one client.
    let asked = Purchases { views: purchases.views[..1].to_vec(), ..purchases };
    let asking = Ask { stretches: options.stretches(), purchases: asked, clients: 1, batch: options.batch };
    let stretches = asking.http(&installed.http).await?;
    up.stop().await?;
    let commands = (0..options.repeats.max(1)).map(|_| look_up(programs, &installed, &key)).collect::<Result<_>>()?;
    installed.installation.close().await;
    Ok(Outcome { views, ready_s, answered_s, own_bytes, stretches, commands })
}

fn look_up(programs: &Programs, installed: &Installed, key: &str) -> Result<Finished> {
    let mut command = Command::new(&programs.basestream);
    command.args(["lookup", VIEW, &format!("{KEY}={key}"), "--json", "--config"]).arg(installed.config());
    let finished = child::run(&mut command, &Limits { time: LONGEST, memory_bytes: u64::MAX })?;
    match finished.stdout.contains(key) {
        true => Ok(finished),
        false => Err(Error::internal("a lookup printed another row").with("key", key).with("found", finished.stdout)),
    }
}

fn table(options: &Options, outcomes: &[Outcome]) -> Table {
    let columns = [
        "views",
        "ready s",
        "first lookup s",
        "own MiB",
        "p50 ms",
        "p99 ms",
        "p50 to one view",
        "p99 to one view",
        "`basestream lookup` s",
        "its peak MiB",
    ];
    let row = |outcome: &Outcome| {
        let single = |value: f64| Figure::seconds(Spread::single(value));
        let [_, _, p50, p99, _, _] = latencies::figures(&outcome.stretches);
        let to_one = |quantile: f64| {
            let one = median_of(&outcomes.first()?.stretches, quantile)?;
            Spread::single(median_of(&outcome.stretches, quantile)? / one)
        };
        let commands = |value: fn(&Finished) -> f64| Spread::from_values(outcome.commands.iter().map(value));
        vec![
            Figure::Count(outcome.views as u64),
            single(outcome.ready_s),
            single(outcome.answered_s),
            Figure::bytes(Spread::single(outcome.own_bytes as f64)),
            p50,
            p99,
            Figure::ratio(to_one(0.5)),
            Figure::ratio(to_one(0.99)),
            Figure::seconds(commands(|finished| finished.wall.as_secs_f64())),
            Figure::bytes(commands(|finished| finished.used.peak_bytes as f64)),
        ]
    };
    let notes = vec![
        format!(
            "views of the same SELECT over {WINDOWS} windows, {} keys; one client asks `up` for random keys of the first one \
             over HTTP; {} stretches of {} s; figures: median (min - max)",
            options.many_views_keys, options.repeats, options.seconds
        ),
        "ready, first lookup: from the start of `up`; own: its memory when it has copied every snapshot".to_owned(),
        "`basestream lookup`: the whole command, while `up` does not run".to_owned(),
    ];
    Table::new("A lookup in one of many views", &columns, outcomes.iter().map(row).collect(), notes)
}
