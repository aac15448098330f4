//! Measures how soon `up` ends when it is asked to, over a catalog of many checkpoints, with events that it has read
//! and not committed.

use std::path::Path;
use std::time::Instant;

use catalog::{Add, Catalog, CheckpointRange, CheckpointRecord, Commit};
use serde_json::Value;
use types::Result;
use types::files::{ObjectName, StoredObject};
use types::vector::PartitionId;
use uuid::Uuid;

use super::until::until;
use super::{ACCOUNT, Options, segments};
use crate::Programs;
use crate::feed::Source;
use crate::installed::Installed;
use crate::measured_process::MeasuredProcess;
use crate::purchases::arriving::Arriving;
use crate::purchases::question::KEY;
use crate::purchases::{Purchases, VIEW, account_text};
use crate::report::{Figure, Table, at_most};
use crate::spread::Spread;

/// The aim of an orderly stop.
const STOP_S: f64 = 10.0;
/// Appended before each stop.
const EVENTS: u64 = 1_000;
const EVENTS_OF_ONE: u64 = 1_000;
const CHECKPOINTS_OF_A_COMMIT: usize = 1_000;

pub(super) async fn measured(options: &Options, programs: &Programs, folder: &Path) -> Result<Table> {
    // All events are of one account.
    let purchases = Purchases::with_size(1, 1);
    let installed = Installed::create(folder, &purchases).await?;
    let (catalog, storage) = (&installed.installation.catalog, &installed.installation.storage);
    // A storage that belongs to no catalog has to have its files.
    storage.take_for(catalog.identity()).await?;
    add_history(catalog, options.stop_checkpoints).await?;
    let mut source = Arriving { purchases, number: 1, next: 0 };
    let (mut ready_s, mut stop_s) = (Vec::new(), Vec::new());
    for _ in 0..options.repeats.max(1) {
        let began = Instant::now();
        let up = MeasuredProcess::up(programs, &installed.config(), &installed.folder, &installed.http).await?;
        ready_s.push(began.elapsed().as_secs_f64());
        for (topic, records) in source.take(EVENTS) {
            installed.installation.log.append(&topic, records).await?;
        }
        let row = format!("/v1/views/{VIEW}/row?{KEY}={}", account_text(ACCOUNT));
        until(&installed.http, &row, Instant::now(), |body| counts(body, source.next))?;
        let asked = Instant::now();
        up.stop().await?;
        stop_s.push(asked.elapsed().as_secs_f64());
    }
    installed.installation.close().await;
    Ok(table(options, &ready_s, &stop_s))
}

fn table(options: &Options, ready_s: &[f64], stop_s: &[f64]) -> Table {
    let seconds = |of: &[f64]| Figure::seconds(Spread::from_values(of.iter().copied()));
    let slowest = stop_s.iter().copied().reduce(f64::max);
    Table::new(
        "An orderly stop",
        &["checkpoints in the catalog", "ready s", "from SIGTERM to the end s", "the slowest, at most 10 s"],
        vec![vec![Figure::Count(options.stop_checkpoints), seconds(ready_s), seconds(stop_s), at_most(slowest, STOP_S)]],
        vec![format!(
            "`basestream up` is asked to end when {EVENTS} events that arrived since its start are in an answer; stops: {}",
            options.repeats.max(1)
        )],
    )
}

/// Adds the checkpoints of a stream that is not defined any more. Nobody reads their files, so there are none.
async fn add_history(catalog: &Catalog, checkpoints: u64) -> Result<()> {
    let numbers: Vec<u64> = (0..checkpoints).collect();
    for some in numbers.chunks(CHECKPOINTS_OF_A_COMMIT) {
        let add = some.iter().flat_map(|number| checkpoint_and_file(*number)).collect();
        catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await?;
    }
    Ok(())
}

/// Committed now: it is not compacted yet.
fn checkpoint_and_file(number: u64) -> [Add; 2] {
    let (id, start) = (Uuid::now_v7(), (number * EVENTS_OF_ONE) as i64);
    let range = CheckpointRange::of_events(PartitionId::new("history", 0), start, start + EVENTS_OF_ONE as i64);
    let file = ObjectName::Archive { stream: "history".into(), checkpoint: id };
    let file = file.record(StoredObject { bytes: 1 << 20, checksum: 1 }, EVENTS_OF_ONE as i64, None);
    [Add::Checkpoint(CheckpointRecord::new(id, "worker", jobs::now(), vec![range])), Add::File(file)]
}

/// Whether a row counts this many events.
pub(super) fn counts(body: &[u8], events: u64) -> bool {
    let column = format!("purchases_{}", segments::WINDOW.text);
    serde_json::from_slice::<Value>(body).is_ok_and(|answer| answer["row"][&column] == events)
}
