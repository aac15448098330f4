//! The two answerers. A view without JOIN, over one stream or several, merges the states of its keys ([`grouped`]); a
//! view over a JOIN walks the edges that leave them ([`linked`]). [`answerer`] is the one place that decides which:
//! lookups, scans and copies ask the trait.

use std::ops::Deref;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use committed::registry::LiveView;
use engine::plan::Answering;
use engine::states::{FailedRows, SeenBy};
use engine::walk::CancelCheck;
use types::Result;
use types::tiles::Micros;

use crate::answers::Answers;
use crate::kept_keys::{KeptKeys, KeyName};
use crate::read_view::{LoadedView, ReadView};
use crate::row_cache::{RowBasis, RowValidity};

mod edge_layers;
mod grouped;
mod key_range;
mod linked;
mod source;
mod watched;

use grouped::Grouped;
use linked::Linked;
pub use source::{KeyPart, StateSource, scan_parts};
pub use watched::{LinkedKeys, ReverseIndex, WatchedRows, keys_since, rows_of_keys, rows_of_part, watched_parts};

/// Makes the rows of one view from its states.
pub(crate) trait Answerer: Send + Sync {
    /// Whether a key's row depends on the states of other keys, which links lead to. Only such views have paths.
    fn follows_links(&self) -> bool;

    /// These keys as bytes. Different keys have different bytes.
    fn encode(&self, columns: &[ArrayRef], keys: usize) -> Result<BinaryArray>;

    /// The keys asked as bytes.
    fn encoded(&self, asked: &AskedKeys<'_>) -> Result<BinaryArray> {
        match asked.encoded {
            Some(known) => Ok(known.clone()),
            None => self.encode(asked.columns, asked.keys),
        }
    }

    /// The buckets of a snapshot that the rows of these keys are made of.
    fn needed_buckets(&self, columns: &[ArrayRef], keys: usize) -> Result<NeededBuckets>;

    /// The rows of some keys.
    ///
    /// Errors: `Unavailable` where a bucket that is needed is not copied yet. Those of `cancel_check`, which is called
    /// again and again.
    fn rows(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>, cancel_check: &CancelCheck<'_>) -> Result<Answers>;

    /// The same for the thread that asks, if it takes less than about a millisecond; `None` where it would hold up
    /// other requests.
    fn rows_if_quick(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>) -> Result<Option<Answers>>;

    /// The key of a query whose outcome is kept, so that it waits for others that ask the same.
    fn kept_key(&self, asked: &AskedKeys<'_>) -> Result<Option<KeyName>>;

    /// Whether the cached row of one key, made from `known`, is still valid.
    fn row_validity(&self, source: &StateSource<'_>, asked: &AskedKeys<'_>, known: Option<&RowBasis>) -> Result<RowValidity>;

    /// The rows of a view as some events see them, one for each. Errors: as those of [`Answerer::rows`].
    fn rows_seen(&self, source: &StateSource<'_>, seen: &SeenBy<'_>) -> Result<RecordBatch>;

    /// All rows of one part that exist. Errors: as those of [`Answerer::rows`].
    fn scan(&self, source: &StateSource<'_>, asked: &AskedPart<'_>, cancel_check: &CancelCheck<'_>) -> Result<Scanned>;
}

/// How a view is answered.
pub(crate) fn answerer(view: &LiveView) -> impl Deref<Target = dyn Answerer + '_> {
    match &view.plan.answering {
        Answering::Grouped(_) => ViewAnswerer::Grouped(Grouped { view }),
        Answering::Linked(links) => ViewAnswerer::Linked(Linked { view, links }),
    }
}

enum ViewAnswerer<'v> {
    Grouped(Grouped<'v>),
    Linked(Linked<'v>),
}

impl<'v> Deref for ViewAnswerer<'v> {
    type Target = dyn Answerer + 'v;

    fn deref(&self) -> &Self::Target {
        match self {
            ViewAnswerer::Grouped(grouped) => grouped,
            ViewAnswerer::Linked(linked) => linked,
        }
    }
}

/// The keys of a lookup, and what is asked of their rows.
pub(crate) struct AskedKeys<'a> {
    /// One for each key of the view, in the order of its keys.
    pub(crate) columns: &'a [ArrayRef],
    /// What [`Answerer::encode`] returned for them, if it was asked before.
    pub(crate) encoded: Option<&'a BinaryArray>,
    pub(crate) keys: usize,
    pub(crate) t: Micros,
    /// Indices of the plan's columns.
    pub(crate) wanted: &'a [usize],
    pub(crate) paths: WantedPaths,
    /// What is kept of hot keys. Without it nothing is kept.
    pub(crate) kept: Option<&'a KeptKeys>,
}

/// Which linking paths are asked of each key.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WantedPaths {
    /// At most this many; 0 for none.
    pub(crate) most: usize,
    /// Only those that count in this column (an index of the plan's).
    pub(crate) counted_in: Option<usize>,
}

/// One part of a scan.
pub(crate) struct AskedPart<'a> {
    pub(crate) part: u32,
    pub(crate) t: Micros,
    /// Indices of the plan's columns.
    pub(crate) wanted: &'a [usize],
}

/// Which buckets have to be copied before keys are looked up.
pub(crate) enum NeededBuckets {
    /// Those of these encoded keys.
    OfKeys(BinaryArray),
    All,
}

/// The rows of one part.
pub(crate) struct Scanned {
    pub(crate) rows: RecordBatch,
    /// One of them is an estimate.
    pub(crate) estimated: bool,
    /// Values that could not be computed: they are NULL.
    pub(crate) failed: FailedRows,
}

/// All rows of one part that exist at `t`, and which of their values could not be computed; `wanted` are indices of the
/// plan's columns.
///
/// Errors: `Unavailable` where the part's bucket is not copied yet; a view over a JOIN needs all of them.
pub fn scan(view: &LiveView, source: &StateSource<'_>, part: u32, t: Micros, wanted: &[usize]) -> Result<(RecordBatch, FailedRows)> {
    let Scanned { rows, failed, .. } = answerer(view).scan(source, &AskedPart { part, t, wanted }, &|| Ok(()))?;
    Ok((rows, failed))
}

/// The rows of a view as each of some events sees them: with what the events before it in its batch add, and without
/// what comes after it. One row for each event, in their order, with the wanted columns. Values that cannot be computed
/// are NULL.
///
/// Errors: `Unavailable` while a part of the snapshot that is needed is being copied.
pub fn rows_seen(read_view: &ReadView, view: &LoadedView, seen: &SeenBy<'_>) -> Result<RecordBatch> {
    answerer(&view.live).rows_seen(&StateSource::new(read_view, view, None), seen)
}
