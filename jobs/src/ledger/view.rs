//! The ledger of a view: compares the archive's rows with the events in its states.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType, UInt8Type};
use catalog::{CatalogState, DefinitionKind};
use committed::registry::LiveView;
use committed::segment::{SegmentSession, segment_rows};
use engine::plan::ViewPlan;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use storage::{Manifest, read_bucket, read_manifest};
use types::files::FileKind;
use types::tiles::EdgesFrom;
use types::tiles::{Level, Micros, TileRun, cover};
use types::vector::Vector;
use types::{Error, ErrorKind, Result};

use crate::verify::plain::{Moment, Plain};
use crate::verify::{Expected, Verifier};

/// One view version at one vector and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewLine {
    pub view: Arc<str>,
    pub version: u32,
    pub vector: Vector,
    pub t: Micros,
    /// Archived events of its streams (counted once for each time that the SELECT reads the stream).
    pub archived: i64,
    /// Events that a WHERE excludes.
    pub filtered: i64,
    /// Events that pass WHERE but are before the edge of the longest window. For links that keep when they were last
    /// seen, only a batch run drops events: those before the last run's cut that were before its window.
    pub expired: i64,
    /// Events that are left out because the view fails on them (counted like `archived`).
    pub failed: i64,
    /// The sum of `__events` over the states of the longest window.
    pub events: i64,
    /// `archived = filtered + expired + failed + events`.
    pub balanced: bool,
}

/// Counts the events of a view at the committed vector of `state`. `t` must not be before the time of the view's
/// snapshot: older tiles may be gone.
pub async fn view(verifier: &Verifier, state: &CatalogState, live: &LiveView, t: Micros) -> Result<ViewLine> {
    let vector = state.vector();
    let record = state
        .definitions
        .get(DefinitionKind::View, &live.name, live.version)
        .ok_or_else(|| Error::not_found("the catalog does not hold this view").with("view", &live.name).with("version", live.version))?;
    let mut expected = Expected::of_version(verifier, state, record)?;
    Box::pin(expected.leave_out_failing(&vector)).await?;
    let plain = expected.ask(Moment { t, as_of: false })?;
    let snapshot = match state.snapshot(&live.name, live.version) {
        // Skipped runs advance the catalog's cut, and not the manifest's.
        Some(snapshot) => Some(Manifest { cut: snapshot.cut.clone(), ..manifest(verifier, state, &snapshot.manifest).await? }),
        None => None,
    };
    let mut counts = Box::pin(Counts::read(&expected, &plain, (live, snapshot.as_ref()), &vector)).await;
    if counts.as_ref().is_err_and(|error| error.kind() == ErrorKind::Input) && expected.one_by_one() {
        counts = Box::pin(Counts::read(&expected, &plain, (live, snapshot.as_ref()), &vector)).await;
    }
    let Counts { archived, filtered, expired, failed } = counts?;
    let events = events(verifier, state, live, (snapshot.as_ref(), t)).await?;
    let balanced = archived == filtered + expired + failed + events;
    Ok(ViewLine { view: live.name.clone(), version: live.version, vector, t, archived, filtered, expired, failed, events, balanced })
}

/// What plain SQL counts, see [`ViewLine`].
struct Counts {
    archived: i64,
    filtered: i64,
    expired: i64,
    failed: i64,
}

impl Counts {
    async fn read(expected: &Expected, plain: &Plain, (live, snapshot): (&LiveView, Option<&Manifest>), vector: &Vector) -> Result<Counts> {
        let (mut archived, mut failed) = (0, 0);
        for (stream, times) in &plain.reads {
            let rows = numbers(expected, &format!("SELECT count(*) FROM \"{}\"", stream.replace('"', "\"\"")), vector).await?;
            let left_out = expected.left_out(stream) as i64;
            archived += (rows[0] + left_out) * *times as i64;
            failed += left_out * *times as i64;
        }
        let read = numbers(expected, &plain.read_sql, vector).await?[0];
        let counts = numbers(expected, &plain.counts_sql, vector).await?;
        let expired = if live.plan.liveness_links().is_some() { left_out(expected, snapshot).await? } else { counts[1] };
        Ok(Counts { archived, filtered: read - counts[0], expired, failed })
    }
}

/// Returns the number of link events that the snapshot left out: those before the cut of its last recomputation and
/// before their side's longest range at its time, and those that were left out since when tiers were merged.
async fn left_out(expected: &Expected, snapshot: Option<&Manifest>) -> Result<i64> {
    let snapshot = snapshot.filter(|manifest| manifest.edges_from != EdgesFrom::default());
    let Some((manifest, joined)) = snapshot.and_then(|manifest| Some((manifest, manifest.joined.as_ref()?))) else { return Ok(0) };
    let (cut, t) = manifest.left_out.as_ref().map_or((&manifest.cut, joined.t), |left_out| (&left_out.cut, left_out.t));
    let plain = expected.ask(Moment { t, as_of: false })?;
    Ok(numbers(expected, &plain.counts_sql, cut).await?[1] + manifest.expired)
}

/// Returns the one row of a query that counts.
async fn numbers(expected: &Expected, sql: &str, vector: &Vector) -> Result<Vec<i64>> {
    let batches: Vec<RecordBatch> = expected.run(sql, vector).await?.try_collect().await?;
    let row = batches.iter().find(|batch| batch.num_rows() > 0);
    let row = row.ok_or_else(|| Error::internal("a count has no row").with("sql", sql))?;
    let value = |column: &Arc<dyn arrow::array::Array>| column.as_primitive_opt::<Int64Type>().map(|numbers| numbers.value(0));
    row.columns().iter().map(|column| value(column).ok_or_else(|| Error::internal("a count is no BIGINT").with("sql", sql))).collect()
}

async fn manifest(verifier: &Verifier, state: &CatalogState, path: &str) -> Result<Manifest> {
    let file = state.files.get(path).filter(|file| file.kind == FileKind::Manifest);
    let file = file.ok_or_else(|| Error::corrupt("the catalog does not hold a snapshot's manifest").with("file", path))?;
    read_manifest(&verifier.storage, file).await
}

/// Sums `__events` over the longest window: of the snapshot, then of the states of every checkpoint after its cut.
async fn events(verifier: &Verifier, state: &CatalogState, live: &LiveView, (snapshot, t): (Option<&Manifest>, Micros)) -> Result<i64> {
    let span = live.plan.range(live.plan.existence).at(t);
    let rolled_up = cover(span, &live.plan.levels);
    let finest = if live.plan.finest() == Level::All { rolled_up.clone() } else { cover(span, &live.plan.levels[..1]) };
    let mut sum = 0;
    for bucket in snapshot.iter().flat_map(|manifest| manifest.state_files()) {
        let mut batches = read_bucket(&verifier.storage, bucket).await?;
        while let Some(batch) = batches.try_next().await? {
            sum += events_in(&live.plan, &batch, &rolled_up)?;
        }
    }
    let cut = snapshot.map(|manifest| manifest.cut.clone()).unwrap_or_default();
    let session = SegmentSession::new(&verifier.functions, verifier.memory_limit)?;
    let streams = live.streams();
    // One that has nothing of these streams is within every vector.
    for checkpoint in state.checkpoints.iter().filter(|checkpoint| !checkpoint.is_within_of(&streams, &cut)) {
        let segment = segment_rows(&verifier.storage, &session, live, state, checkpoint).await?;
        sum += events_in(&live.plan, segment.rows.batch(), &finest)?;
    }
    Ok(sum)
}

/// Sums the events of state rows in these tiles. Columns are found by position: the keys, level, tile, then `__events`.
fn events_in(plan: &ViewPlan, batch: &RecordBatch, runs: &[TileRun]) -> Result<i64> {
    let wrong = || Error::corrupt("state rows are not of their view's schema").with("view", &plan.view);
    let first = plan.keys.len();
    let columns = batch.columns().get(first..first + 3).ok_or_else(wrong)?;
    let levels = columns[0].as_primitive_opt::<UInt8Type>().ok_or_else(wrong)?;
    let tiles = columns[1].as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(wrong)?;
    let events = columns[2].as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let mut sum = 0;
    for row in 0..batch.num_rows() {
        let level = Level::from_code(levels.value(row)).ok_or_else(wrong)?;
        if runs.iter().any(|run| run.contains(level, tiles.value(row))) {
            sum += events.value(row);
        }
    }
    Ok(sum)
}
