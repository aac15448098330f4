//! Implements `verify`: compares what is served with plain SQL over the archive, for every key and every column.
//!
//! ```text
//! view's text -- plain --> one SELECT -- expected --> rows of the archive up to the vector --+
//! served -- answer --> rows at (vector, t) --------------------------------------------------+-- compare --> report
//! ```
//!
//! The expected side shares no planning with the layers: it rewrites the view's text ([`plain`]) and passes it to
//! DataFusion like any query. [`verify_log`] goes one step further back and compares the archive with the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use catalog::{Catalog, CatalogState};
use engine::events::format_timestamp;
use engine::functions::Functions;
use futures::future::BoxFuture;
use serde::Serialize;
use storage::ObjectStorage;
use types::tiles::Micros;
use types::vector::{Offset, Vector};
use types::{Error, ErrorKind, Result};

mod compare;
mod events_scanned;
mod expected;
pub(crate) mod http;
mod left_out;
mod log;
pub mod plain;
mod spread;
pub(crate) mod values;

pub use compare::ValueDifference;
pub(crate) use events_scanned::EventsScanned;
pub use expected::Expected;
pub use http::HttpServed;
pub use log::{LogReport, verify_log};

use plain::Moment;

use crate::pin::Pin;

/// How long to wait until the archive reaches the vector of an answer: a few checkpoints.
const ARCHIVE_WAIT: Duration = Duration::from_secs(120);
const ARCHIVE_POLL: Duration = Duration::from_millis(200);

/// The side that is verified: a serving node, in this process or at a URL.
pub trait Served: Send + Sync {
    /// Returns all rows of a view, with the vector and the time they were computed from. `schema` has the types that
    /// plain SQL gives the view's columns, for answers that arrive as text.
    fn answer<'a>(&'a self, view: &'a str, schema: &'a SchemaRef) -> BoxFuture<'a, Result<ServedAnswer>>;
}

/// An answer of the served side.
#[derive(Debug, Clone)]
pub struct ServedAnswer {
    /// The version of the view that answered, if the served side says it.
    pub version: Option<u32>,
    pub vector: Vector,
    pub t: Micros,
    /// Asked with `as_of`: events after `t` do not count.
    pub as_of: bool,
    pub rows: Vec<RecordBatch>,
    /// Values that could not be computed: they are NULL in `rows`.
    pub failed: Vec<FailedCells>,
    /// The answer came in a form whose lists have NULL instead of NaN and infinities.
    pub without_nan: bool,
}

/// Values of some rows that could not be computed.
#[derive(Debug, Clone)]
pub struct FailedCells {
    /// The keys of the rows, under the names of their columns.
    pub keys: RecordBatch,
    /// A row of `keys`, and the name of a column.
    pub cells: Vec<(usize, String)>,
}

/// What the expected side reads from.
#[derive(Debug, Clone)]
pub struct Verifier {
    pub catalog: Catalog,
    pub storage: ObjectStorage,
    pub functions: Functions,
    /// In bytes; a larger recomputation spills to disk.
    pub memory_limit: usize,
    /// Where it spills to; the system's temporary folder if absent.
    pub temp_dir: Option<PathBuf>,
}

/// The result for one view.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    pub view: Arc<str>,
    pub version: u32,
    /// The events before this vector were compared.
    pub vector: Vector,
    /// The time of the answer, in RFC 3339.
    pub t: String,
    /// Whether nothing of any of the view's streams is committed yet: then there was nothing to compare.
    pub nothing_committed: bool,
    /// The view's streams of which nothing is committed yet.
    pub unread: Vec<Arc<str>>,
    /// Offsets of the view's streams that were accepted as lost, with the reason: neither side has their events.
    pub gaps: Vec<String>,
    /// Events on which the view fails: neither side counts them.
    pub failed: u64,
    /// Rows of the expected side.
    pub rows: u64,
    /// The number of columns compared.
    pub columns: usize,
    /// Columns compared with a tolerance, because their functions return estimates.
    pub approximate: Vec<String>,
    /// Rows of a linked view that have more neighbours than `max_degree`: compared by the bound of an estimate.
    pub crowded: u64,
    /// Values that are past a limit, of which both sides say so.
    pub past: u64,
    /// The first differences.
    pub differences: Vec<ValueDifference>,
    pub difference_count: u64,
    pub seconds: f64,
}

impl VerifyReport {
    /// Whether no difference was found.
    pub fn is_equal(&self) -> bool {
        self.difference_count == 0
    }
}

/// Verifies one view. `now` is the wall clock, for the lease that keeps the files.
pub async fn verify_view(verifier: &Verifier, view: &str, served: &dyn Served, now: Micros) -> Result<VerifyReport> {
    verify_view_counting(verifier, view, served, now, &EventsScanned::default()).await
}

/// The same, and counts in `read` the archived events that it has read so far.
pub(crate) async fn verify_view_counting(
    verifier: &Verifier,
    view: &str,
    served: &dyn Served,
    now: Micros,
    read: &EventsScanned,
) -> Result<VerifyReport> {
    let pin = Pin::take(&verifier.catalog, "verify", now).await?;
    // Boxed, like its parts: the future is large, and would take that much of the stack in every caller.
    let outcome = Box::pin(verify_pinned(verifier, view, served, read)).await;
    pin.release().await;
    outcome
}

async fn verify_pinned(verifier: &Verifier, view: &str, served: &dyn Served, read: &EventsScanned) -> Result<VerifyReport> {
    let started = Instant::now();
    // Only t, the vector and the files change after this: the columns' types do not depend on them.
    let before = Expected::new(verifier, &*verifier.catalog.state().await?, view)?;
    let schema = before.schema().await?;
    let answer = served.answer(view, &schema).await?;
    let state = archived_up_to(&verifier.catalog, &answer.vector).await?;
    let mut expected = Expected::new(verifier, &state, view)?;
    expected.count_into(read);
    if expected.version() != before.version() || answer.version.is_some_and(|version| version != expected.version()) {
        return Err(Error::conflict("the view was replaced by a new version while it was verified: verify it again").with("view", view));
    }
    let plain = expected.ask(Moment { t: answer.t, as_of: answer.as_of })?;
    Box::pin(expected.leave_out_failing(&answer.vector)).await?;
    let mut compared = Box::pin(compare_rows(&expected, &plain, &answer)).await;
    if compared.as_ref().is_err_and(|error| error.kind() == ErrorKind::Input) && expected.one_by_one() {
        compared = Box::pin(compare_rows(&expected, &plain, &answer)).await;
    }
    let compared = compared?;
    let unread = unread(&plain, &answer.vector);
    Ok(VerifyReport {
        view: view.into(),
        version: expected.version(),
        nothing_committed: unread.len() == plain.reads.len(),
        unread,
        vector: answer.vector,
        t: format_timestamp(answer.t),
        gaps: gaps_of(&state, &plain),
        failed: plain.reads.keys().map(|stream| expected.left_out(stream)).sum(),
        rows: compared.rows,
        columns: plain.columns.len(),
        approximate: plain
            .columns
            .iter()
            .filter(|column| values::Tolerance::for_column(column).is_approximate())
            .map(|c| c.name.clone())
            .collect(),
        crowded: compared.crowded,
        past: compared.past,
        differences: compared.differences,
        difference_count: compared.difference_count,
        seconds: started.elapsed().as_secs_f64(),
    })
}

async fn compare_rows(expected: &Expected, plain: &plain::Plain, answer: &ServedAnswer) -> Result<compare::Compared> {
    let keys = expected.crowded(plain, &answer.vector).await?;
    let is_crowded = keys.iter().any(|batch| batch.num_rows() > 0);
    let weights = if is_crowded { expected.weights(plain, &answer.vector).await? } else { Vec::new() };
    let crowded = compare::Crowded { keys, weights, max_degree: plain.max_degree };
    // A sum that is past its type is NULL on the expected side: a served number would differ.
    if answer.failed.is_empty() {
        let rows = expected.rows(plain, &answer.vector).await?;
        let compared = compare::compare(&plain.columns, answer, rows, &crowded, &[]).await?;
        if !compared.may_be_past {
            return Ok(compared);
        }
    }
    let past = expected.past(plain, &answer.vector).await?;
    let rows = expected.rows(plain, &answer.vector).await?;
    compare::compare(&plain.columns, answer, rows, &crowded, &past).await
}

/// Returns the streams that are read of which no record precedes the vector.
fn unread(plain: &plain::Plain, vector: &Vector) -> Vec<Arc<str>> {
    let is_read = |stream: &Arc<str>| vector.iter().any(|(partition, next)| partition.stream == *stream && next > Offset::ZERO);
    plain.reads.keys().filter(|stream| !is_read(stream)).cloned().collect()
}

/// Returns what was accepted as lost, of the streams that are read.
fn gaps_of(state: &CatalogState, plain: &plain::Plain) -> Vec<String> {
    let of_streams = state.gaps.iter().filter(|gap| plain.reads.iter().any(|(stream, _)| **stream == *gap.partition.stream));
    of_streams.map(|gap| format!("{} {}..{}: {}", gap.partition, gap.start, gap.end, gap.reason)).collect()
}

/// Returns the catalog state once its archive has every event before `vector`: an answer may include events that are
/// not checkpointed yet.
async fn archived_up_to(catalog: &Catalog, vector: &Vector) -> Result<Arc<CatalogState>> {
    let started = Instant::now();
    loop {
        let state = catalog.state().await?;
        let Some(behind) = state.vector().behind(vector) else { return Ok(state) };
        if started.elapsed() > ARCHIVE_WAIT {
            let message = "the archive does not reach the answer's vector: is the speed layer running?";
            let error = Error::unavailable(message).with("partition", behind.partition);
            return Err(error.with("found", behind.found).with("expected", behind.expected));
        }
        tokio::time::sleep(ARCHIVE_POLL).await;
    }
}

#[cfg(test)]
pub(crate) mod tests;
