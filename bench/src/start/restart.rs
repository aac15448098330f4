//! Measures the restart of a killed `up` over many small checkpoints of many partitions: how long until an event that
//! arrived while it was down is in an answer. Until then it reads the ids of the checkpoints within `dedup_within`.

use std::path::Path;
use std::time::{Duration, Instant};

use engine::events::format_timestamp;
use event_log::NewRecord;
use types::tiles::Micros;
use types::{Error, Result};

use super::stop::counts;
use super::until::until;
use super::{Options, segments};
use crate::Programs;
use crate::child::Used;
use crate::events::{END, Events};
use crate::installed::Installed;
use crate::measured_process::MeasuredProcess;
use crate::purchases::arriving::Arriving;
use crate::purchases::question::row_path;
use crate::purchases::{Purchases, STREAM, VIEW, account_text};
use crate::report::{Figure, Table, at_most};
use crate::spread::Spread;

/// The aim, until a new event is in an answer.
const COUNTED_S: f64 = 2.0;
const ACCOUNTS: u64 = 10_000;
/// So short that each batch of events is committed at once.
const INTERVAL: Duration = Duration::from_millis(1);
/// All checkpoints are within the first. None is within the second, as starting takes longer.
const DEDUP_WITHIN: [&str; 2] = ["1d", "1s"];

/// The durations of one restart, from the start of the process.
struct Restarted {
    ready: Duration,
    counted: Duration,
    used: Used,
}

pub(super) async fn measured(options: &Options, programs: &Programs, folder: &Path) -> Result<Table> {
    // None of them is archived: all events arrive through the log.
    let purchases = Purchases { dedup_within: DEDUP_WITHIN[0], ..Purchases::with_size(1, ACCOUNTS) };
    let installed = Installed::with_partitions(folder, &purchases, options.restart_partitions).await?;
    let mut source = Arriving { purchases: purchases.clone(), number: 1, next: 0 };
    let times = (options.restart_checkpoints, options.restart_events);
    let checkpoints = segments::commit(&installed.installation, &mut source, times, INTERVAL).await?;
    installed.installation.run_view(VIEW, &|_| {}).await?;
    let (mut rows, mut arrived) = (Vec::new(), 0);
    for dedup_within in DEDUP_WITHIN {
        let with_window = Purchases { dedup_within, ..purchases.clone() };
        // In the files too, which `up` applies when it starts.
        for (path, text) in with_window.files() {
            std::fs::write(installed.folder.join(path), text)?;
        }
        installed.installation.apply(&with_window.definitions()?, false).await?;
        let mut all = Vec::new();
        // The first one is killed, so that the others are restarts.
        for _ in 0..=options.repeats.max(1) {
            let account = account_text(ACCOUNTS + arrived);
            installed.installation.log.append(STREAM, vec![event(&account, arrived)]).await?;
            arrived += 1;
            all.push(restart(programs, &installed, &account)?);
        }
        rows.push(row((checkpoints, options.restart_partitions), dedup_within, &all[1..]));
    }
    installed.installation.close().await;
    Ok(table(options, rows))
}

/// An event of an account that has no other.
fn event(account: &str, number: u64) -> NewRecord {
    let ts = format_timestamp(END + number as Micros);
    let value = format!(r#"{{"event_id":"new-{number}","ts":"{ts}","account_id":"{account}","amount":1.00}}"#);
    NewRecord { key: Some(account.to_owned().into()), value: Some(value.into()), ..NewRecord::default() }
}

/// Starts the process, waits until the event of this account is in an answer, and kills it.
fn restart(programs: &Programs, installed: &Installed, account: &str) -> Result<Restarted> {
    let began = Instant::now();
    let mut up = MeasuredProcess::start_with(programs, "up", &installed.config(), &installed.folder, &[])?;
    let (address, row) = (&installed.http, row_path(VIEW, account));
    let (ready, counted) = std::thread::scope(|scope| {
        let ready = scope.spawn(|| until(address, "/readyz", began, |_| true).map(|_| began.elapsed()));
        let counted = scope.spawn(|| until(address, &row, began, |body| counts(body, 1)).map(|_| began.elapsed()));
        let panicked = || Error::internal("asking panicked");
        (ready.join().unwrap_or_else(|_| Err(panicked())), counted.join().unwrap_or_else(|_| Err(panicked())))
    });
    up.check()?;
    Ok(Restarted { ready: ready?, counted: counted?, used: up.used() })
}

fn row((checkpoints, partitions): (u64, u64), dedup_within: &str, all: &[Restarted]) -> Vec<Figure> {
    let spread = |value: &dyn Fn(&Restarted) -> f64| Spread::from_values(all.iter().map(value));
    let counted = spread(&|one| one.counted.as_secs_f64());
    vec![
        Figure::Count(checkpoints),
        Figure::Count(partitions),
        Figure::text(dedup_within),
        Figure::seconds(spread(&|one| one.ready.as_secs_f64())),
        Figure::seconds(counted),
        at_most(counted.map(|counted| counted.median), COUNTED_S),
        Figure::bytes(spread(&|one| one.used.peak_bytes as f64)),
    ]
}

fn table(options: &Options, rows: Vec<Vec<Figure>>) -> Table {
    let columns =
        ["checkpoints", "partitions", "dedup_within", "ready s", "new event counted s", "the median, at most 2 s", "peak MiB (resident)"];
    let notes = vec![
        format!(
            "`basestream up`, killed by SIGKILL and started again over checkpoints of {} events, all of them in a \
             snapshot; starts: {}; figures: median (min - max)",
            options.restart_events,
            options.repeats.max(1)
        ),
        "new event: appended before the start; counted: a lookup over HTTP has it; peak: until then".to_owned(),
    ];
    Table::new("A restart over many checkpoints", &columns, rows, notes)
}
