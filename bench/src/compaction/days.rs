//! A catalog as it is after many days: compacted by the product's own decision, and written as commits.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use catalog::{
    Add, Catalog, CatalogState, CheckpointRange, CheckpointRecord, Commit, CompactionRules, StreamsRead, checkpoint_commit, compacted,
    compactions,
};
use types::files::{EventTimeBounds, FileKind, FileRecord, ObjectName, StoredObject};
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, Result};
use uuid::Uuid;

use super::Options;
use crate::latencies::{Latencies, median_of};
use crate::report::{Figure, Table, at_most};
use crate::spread::Spread;

const RULES: CompactionRules = CompactionRules { target_bytes: 256 << 20, after: Duration::from_secs(3_600) };
const SECOND: Micros = 1_000_000;
const DAY: Micros = 86_400 * SECOND;
const CHECKPOINT_EVERY: Micros = 10 * SECOND;
/// Compactions of the simulated day.
const ROUND_EVERY: Micros = 600 * SECOND;
const EVENTS_OF_ONE: i64 = 50_000;
const ROWS_OF_A_COMMIT: usize = 2_000;

/// The aims: of a process that opens the catalog, and of commits beside those to an empty one.
const OPEN_S: f64 = 1.0;
const RESIDENT_MIB: f64 = 300.0;
const CATALOG_MIB: f64 = 200.0;
const COMMIT_TO_EMPTY: f64 = 1.3;

/// A day in which workers commit, and what is compacted meanwhile.
struct Day {
    /// What is left of it when it is over.
    over: Vec<(CheckpointRecord, FileRecord)>,
    /// What there is of it just before it is over.
    open: Vec<(CheckpointRecord, FileRecord)>,
    committed_bytes: i64,
    written_bytes: i64,
}

pub(super) async fn measured(options: &Options, folder: &Path) -> Result<Table> {
    let day = simulated(options);
    let url = |name: &str| format!("sqlite://{}", folder.join(name).display());
    let (large, empty) = (Catalog::open(&url("large.db")).await?, Catalog::open(&url("empty.db")).await?);
    fill(&large, &day, options.days).await?;
    large.close().await;

    let resident_before = resident_bytes()?;
    let began = Instant::now();
    let large = Catalog::open(&url("large.db")).await?;
    let state = large.state().await?;
    let open_s = began.elapsed().as_secs_f64();
    let resident = resident_bytes()? - resident_before;
    let catalog_bytes = std::fs::metadata(folder.join("large.db"))?.len() as f64;
    let (commits_large, reads_large) = commits(&large, options).await?;
    let (commits_empty, reads_empty) = commits(&empty, options).await?;
    let ratio = |large: &Latencies, empty: &Latencies| {
        let (large, empty) = (std::slice::from_ref(large), std::slice::from_ref(empty));
        median_of(large, 0.99).zip(median_of(empty, 0.99)).map(|(large, empty)| large / empty)
    };
    let mib = f64::from(1 << 20);
    let row = |what: &str, found: Figure, aim: Figure| vec![Figure::text(what), found, aim];
    Ok(Table {
        title: "A catalog of many days".into(),
        columns: ["", "found", "aim"].map(str::to_owned).to_vec(),
        rows: vec![
            row("checkpoints that were committed", Figure::Count(options.days * day_checkpoints(options)), Figure::Absent),
            row("checkpoints in the catalog", Figure::Count(state.checkpoints.len() as u64), Figure::Absent),
            row("of a day that is over", Figure::Count(day.over.len() as u64), Figure::Absent),
            row("of a day that is not quite over", Figure::Count(day.open.len() as u64), Figure::Absent),
            row(
                "bytes compacted to bytes committed",
                Figure::ratio(Spread::from_values([day.written_bytes as f64 / day.committed_bytes.max(1) as f64])),
                Figure::Absent,
            ),
            row("seconds until it is opened and read", Figure::seconds(Spread::from_values([open_s])), at_most(Some(open_s), OPEN_S)),
            row("MiB of memory that it takes", Figure::bytes(Spread::from_values([resident])), at_most(Some(resident / mib), RESIDENT_MIB)),
            row("MiB of the catalog", Figure::bytes(Spread::from_values([catalog_bytes])), at_most(Some(catalog_bytes / mib), CATALOG_MIB)),
            row("p99 of a commit, to an empty catalog's", Figure::Absent, at_most(ratio(&commits_large, &commits_empty), COMMIT_TO_EMPTY)),
            row(
                "p99 of reading a commit, to an empty catalog's",
                Figure::Absent,
                at_most(ratio(&reads_large, &reads_empty), COMMIT_TO_EMPTY),
            ),
        ],
        notes: vec![format!(
            "{} days of {} workers with a partition each, a checkpoint every 10 s with an archive file of {} bytes; the last day is not over; \
             {} commits of a checkpoint, each read by the same process",
            options.days, options.workers, options.checkpoint_bytes, options.commits
        )],
    })
}

fn day_checkpoints(options: &Options) -> u64 {
    options.workers * (DAY / CHECKPOINT_EVERY) as u64
}

/// Plays one day. Every ten minutes what is due is compacted.
fn simulated(options: &Options) -> Day {
    let mut state = CatalogState::default();
    let (mut revision, mut written_bytes, mut open) = (0, 0, Vec::new());
    for round in 1..=DAY / ROUND_EVERY + 7 {
        let now = round * ROUND_EVERY;
        if now == DAY {
            open = contents(&state);
        }
        if now <= DAY {
            for step in (now - ROUND_EVERY) / CHECKPOINT_EVERY..now / CHECKPOINT_EVERY {
                for worker in 0..options.workers {
                    revision += 1;
                    let (record, file) = checkpoint(worker as i32, step, revision, options.checkpoint_bytes);
                    state.checkpoints.extend([record]);
                    state.files.extend([file]);
                }
            }
        }
        written_bytes += compact(&mut state, now);
    }
    let committed_bytes = options.checkpoint_bytes * day_checkpoints(options) as i64;
    Day { over: contents(&state), open, committed_bytes, written_bytes }
}

fn contents(state: &CatalogState) -> Vec<(CheckpointRecord, FileRecord)> {
    let of = |checkpoint: &CheckpointRecord| Some((checkpoint.clone(), state.files.of_checkpoint(checkpoint.id).next()?.clone()));
    state.checkpoints.iter().filter_map(of).collect()
}

/// Compacts what is due, and returns the bytes that it writes.
fn compact(state: &mut CatalogState, now: Micros) -> i64 {
    let groups: Vec<Vec<CheckpointRecord>> = compactions(state, &StreamsRead::default(), &RULES, &BTreeSet::new(), now)
        .into_iter()
        .map(|group| group.into_iter().cloned().collect())
        .collect();
    let (mut written, mut gone, mut new) = (0, BTreeSet::new(), Vec::new());
    for group in &groups {
        let id = Uuid::now_v7();
        let Some(record) = compacted(id, &group.iter().collect::<Vec<_>>()) else { continue };
        let bytes: i64 = group.iter().flat_map(|checkpoint| state.files.of_checkpoint(checkpoint.id)).map(|file| file.bytes).sum();
        gone.extend(group.iter().map(|checkpoint| checkpoint.id));
        written += bytes;
        new.push((record, file(id, bytes, group.len() as i64 * EVENTS_OF_ONE)));
    }
    if !gone.is_empty() {
        state.checkpoints.rewrite(|all| all.retain(|checkpoint| !gone.contains(&checkpoint.id)));
        state.files.rewrite(|all| all.retain(|file| file.checkpoint.is_none_or(|id| !gone.contains(&id))));
    }
    for (record, file) in new {
        state.checkpoints.extend([record]);
        state.files.extend([file]);
    }
    written
}

fn checkpoint(worker: i32, step: i64, revision: i64, bytes: i64) -> (CheckpointRecord, FileRecord) {
    let id = Uuid::now_v7();
    let at = (step + 1) * CHECKPOINT_EVERY - 1;
    let range = CheckpointRange {
        clock: Some(at),
        max_event_time: Some(at),
        complete_to: Some(at),
        ..CheckpointRange::of_events(PartitionId::new("events", worker), step * EVENTS_OF_ONE, (step + 1) * EVENTS_OF_ONE)
    };
    let record = CheckpointRecord { id, worker: format!("worker-{worker}"), committed_at: at, revision, ranges: vec![range] };
    (record, file(id, bytes, EVENTS_OF_ONE))
}

fn file(checkpoint: Uuid, bytes: i64, rows: i64) -> FileRecord {
    let name = ObjectName::Archive { stream: "events".into(), checkpoint };
    let event_times = EventTimeBounds { min: 0, max: 1 };
    FileRecord { kind: FileKind::Archive, ..name.record(StoredObject { bytes, checksum: 1 }, rows, Some(event_times)) }
}

/// Writes days that are over, and one that is not.
async fn fill(catalog: &Catalog, day: &Day, days: u64) -> Result<()> {
    for number in 0..days {
        let of_day = if number + 1 == days { &day.open } else { &day.over };
        for rows in of_day.chunks(ROWS_OF_A_COMMIT) {
            let mut add = Vec::new();
            for (record, known) in rows {
                let id = Uuid::now_v7();
                let ranges = record.ranges.iter().map(|range| moved(range, number as i64)).collect();
                add.push(Add::Checkpoint(CheckpointRecord {
                    id,
                    ranges,
                    committed_at: record.committed_at + number as i64 * DAY,
                    ..record.clone()
                }));
                add.push(Add::File(file(id, known.bytes, known.rows)));
            }
            catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await?;
        }
    }
    Ok(())
}

fn moved(range: &CheckpointRange, days: i64) -> CheckpointRange {
    let offsets = days * (DAY / CHECKPOINT_EVERY) * EVENTS_OF_ONE;
    CheckpointRange { start: Offset(range.start.0 + offsets), end: Offset(range.end.0 + offsets), ..range.clone() }
}

/// Commits checkpoints one after another, and reads each state as a node does.
async fn commits(catalog: &Catalog, options: &Options) -> Result<(Latencies, Latencies)> {
    let (mut committing, mut reading) = (Latencies::begin()?, Latencies::begin()?);
    catalog.state().await?;
    for step in 0..options.commits as i64 {
        let (mut record, file) = checkpoint(1_000, step, 0, 1);
        record.committed_at = jobs::now();
        let began = Instant::now();
        catalog.commit(checkpoint_commit(record, vec![file], &Default::default())).await?;
        committing.add(began.elapsed());
        let began = Instant::now();
        catalog.state().await?;
        reading.add(began.elapsed());
    }
    Ok((committing, reading))
}

/// The memory of this process that is its own.
fn resident_bytes() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0).ok_or_else(|| Error::internal("the system does not say how much memory this process has"))
}
