//! Which snapshot a view is answered from. What to do is decided from facts alone ([`decide`]), then done.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use catalog::{CatalogState, SnapshotRecord};
use committed::registry::LiveView;
use storage::read_manifest;
use tracing::{info, warn};
use types::files::FileKind;
use types::tiles::Micros;
use types::{Error, ErrorKind, Result};
use uuid::Uuid;

use super::Follower;
use super::loading::KnownVersion;
use crate::copy::SnapshotCopy;
use crate::read_view::{LoadedView, LostSnapshot};

/// How long a snapshot that could not be loaded is left alone.
const LOAD_AGAIN: Duration = Duration::from_secs(30);

/// What is known of a view's snapshot before anything is read.
#[derive(Debug, Clone, Copy)]
struct SnapshotFacts {
    /// The run of the published snapshot, if there is one.
    published: Option<Uuid>,
    /// The run of the copy at hand, and whether it turned out to be damaged.
    at_hand: Option<(Uuid, bool)>,
    /// The snapshot that the view was last answered without.
    lost: Option<LostSnapshot>,
    now: Micros,
}

/// What to do about a view's snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SnapshotStep {
    /// None is published: answer from all checkpoints.
    AnswerWithout,
    /// The copy at hand is of the published snapshot.
    Keep,
    /// The published snapshot could not be loaded a little while ago, or its states are of another format: do not try
    /// again yet, or at all.
    LeaveAlone(LostSnapshot),
    /// The copy at hand is of the published snapshot, and damaged: report it, and go on without.
    ReportDamaged,
    /// Open the published snapshot.
    Open,
}

fn decide(facts: SnapshotFacts) -> SnapshotStep {
    let Some(published) = facts.published else { return SnapshotStep::AnswerWithout };
    let at_hand = facts.at_hand.filter(|(run, _)| *run == published);
    let is_recent = |lost: &LostSnapshot| facts.now.saturating_sub(lost.at) < LOAD_AGAIN.as_micros() as Micros;
    let lost = facts.lost.filter(|lost| lost.run == published && (lost.is_foreign || is_recent(lost)));
    match (at_hand, lost) {
        (Some((_, false)), _) => SnapshotStep::Keep,
        (_, Some(lost)) => SnapshotStep::LeaveAlone(lost),
        (Some((_, true)), None) => SnapshotStep::ReportDamaged,
        (None, None) => SnapshotStep::Open,
    }
}

/// The snapshot to answer from, and the published one where that is another.
pub(super) type SnapshotOutcome = (Option<Arc<SnapshotCopy>>, Option<LostSnapshot>);

impl Follower {
    /// The published snapshot. One that cannot be loaded is answered without: from the one before, where this node
    /// still has it, and the checkpoints after its cut, or from all checkpoints.
    pub(super) async fn load_snapshot(
        &self,
        live: &LiveView,
        known: KnownVersion<'_>,
        state: &CatalogState,
        damaged: &Mutex<Vec<Error>>,
    ) -> Result<SnapshotOutcome> {
        let (known, is_served) = (known.view(), known.is_served());
        let published = state.snapshot(&live.name, live.version);
        let copy = known.and_then(|known| known.snapshot.clone());
        let damage = copy.as_ref().and_then(|copy| copy.damage().map(Error::copied));
        let facts = SnapshotFacts {
            published: published.map(|record| record.run),
            at_hand: copy.as_ref().map(|copy| (copy.manifest.run, damage.is_some())),
            lost: known.and_then(|known| known.lost),
            now: (self.0.wall)(),
        };
        let usable = copy.filter(|_| damage.is_none());
        let step = decide(facts);
        let Some(record) = published.filter(|_| step != SnapshotStep::AnswerWithout) else { return Ok((None, None)) };
        let error = match (step, damage) {
            (SnapshotStep::Keep, _) => return Ok((usable, None)),
            (SnapshotStep::LeaveAlone(lost), _) => return Ok((usable, Some(lost))),
            (SnapshotStep::ReportDamaged, Some(damage)) => damage,
            _ => match self.open_snapshot((live, is_served), record, state, known).await {
                Ok(Some(copy)) => return Ok((Some(copy), None)),
                Ok(None) => return Ok((None, Some(LostSnapshot { run: record.run, at: facts.now, is_foreign: true }))),
                Err(error) if error.kind() == ErrorKind::Corrupt => error,
                Err(error) => return Err(error),
            },
        };
        warn!(view = %live.name, run = %record.run, %error, "a snapshot cannot be loaded; answering without it");
        metrics::counter!("basestream_serving_load_failures_total", "view" => live.name.to_string()).increment(1);
        damaged.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        Ok((usable, Some(LostSnapshot { run: record.run, at: facts.now, is_foreign: false })))
    }

    /// `None`: its states are of another format.
    async fn open_snapshot(
        &self,
        (live, is_served): (&LiveView, bool),
        record: &SnapshotRecord,
        state: &CatalogState,
        known: Option<&LoadedView>,
    ) -> Result<Option<Arc<SnapshotCopy>>> {
        let file = state.files.get(&record.manifest).filter(|file| file.kind == FileKind::Manifest);
        let file =
            file.ok_or_else(|| Error::corrupt("the catalog names no file of a snapshot's manifest").with("manifest", &record.manifest))?;
        let manifest = read_manifest(&self.0.storage, file).await?;
        if !live.plan.reads_stamp(&manifest.stamp) {
            warn!(view = %live.name, version = live.version, run = %record.run, "the snapshot's states are of another format: the view is answered without it, or built anew");
            return Ok(None);
        }
        let (storage, cache) = (&self.0.storage, &self.0.settings.cache);
        let before = known.and_then(|known| known.snapshot.as_deref());
        let copy = match (self.0.settings.at_once && !is_served) || self.is_fetched_as_asked(live.status) {
            true => SnapshotCopy::begin(storage, manifest, live, cache, before),
            false => SnapshotCopy::open(storage, manifest, live, cache, before).await?,
        };
        info!(view = %live.name, version = live.version, run = %record.run, rows = copy.manifest.rows, "serving a new snapshot");
        Ok(Some(Arc::new(copy)))
    }
}

#[cfg(test)]
mod tests;
