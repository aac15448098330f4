//! `training`: the rows of a file with the columns of views as of each row's time, in another file.

use std::path::PathBuf;

use batch::{FirstArrival, Known, Spine, Trained, Training};
use committed::registry::Registry;
use engine::events::format_timestamp;
use serde::Serialize;
use types::{Error, Result};

use crate::input_file::open_input_file;
use crate::installation::Installation;
use crate::mistakes::Mistakes;
use crate::pin::pinned;
use crate::row_file::{RowFile, RowFileFormat};

mod spine;
mod text;
mod typed;

/// Which rows are answered, from which views, and where they go.
#[derive(Debug)]
pub struct TrainingRequest {
    /// A file of Parquet, CSV or JSON lines, by its extension: rows with the views' keys and a time.
    pub spine: PathBuf,
    pub views: Vec<String>,
    /// The column with each row's time.
    pub time: String,
    /// Whether only what is dated before the time of a row counts, and not what has the same time.
    pub exclusive: bool,
    /// With [`Known::Log`], only what the log had received by the time of the row counts.
    pub known: Known,
    pub out: PathBuf,
    /// Whether a file that exists is replaced.
    pub force: bool,
}

impl TrainingRequest {
    /// What is wrong with the request, whatever the catalog has.
    pub(crate) fn mistakes(&self) -> Mistakes {
        let mut mistakes = Mistakes::default();
        self.check(&mut mistakes);
        mistakes
    }

    /// The same, added to other mistakes.
    fn check(&self, mistakes: &mut Mistakes) -> FileFormats {
        let TrainingRequest { spine, out, .. } = self;
        let written = RowFile::check(out, self.force, mistakes);
        if out.exists() && std::fs::canonicalize(out).ok() == std::fs::canonicalize(spine).ok() {
            mistakes.add(Error::input(format!("{} is the spine: expected another --out", out.display())));
        }
        let read = RowFileFormat::from_extension(spine).and_then(|format| open_input_file(spine).map(|_| format));
        let read = read.map_err(|mistake| mistakes.add(mistake)).ok();
        FileFormats { read, written }
    }
}

/// The formats of the file that is read and of the one that is written; `None` for a mistake.
struct FileFormats {
    read: Option<RowFileFormat>,
    written: Option<RowFileFormat>,
}

/// What was written.
#[derive(Debug, Serialize)]
pub struct TrainingReport {
    pub rows: u64,
    pub views: Vec<TrainingView>,
    /// The position up to which the archive was read: rows with a later time do not know what came after it.
    pub position: String,
    pub file: PathBuf,
    /// With [`Known::Log`], the streams of which most rows know nothing, because nothing had arrived yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_arrived: Vec<NotArrived>,
}

/// A stream of which nothing had arrived at the time of most rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotArrived {
    pub stream: String,
    /// The rows that lie before its first event, by the log's clock.
    pub rows: u64,
    /// When the log received that event; null if the archive has none.
    pub first: Option<String>,
}

/// The version of a view whose columns were added to the rows.
#[derive(Debug, Serialize)]
pub struct TrainingView {
    pub view: String,
    pub version: u32,
}

/// Answers the rows and writes them. The file appears when it is whole. `on_read` is called with the number of events
/// read.
///
/// Errors: `Input` for a spine with a row that has no key or no time, a file that exists, or a view whose rows do not
/// follow from one pass over its events; `NotFound` for a view that does not exist.
pub async fn training(installation: &Installation, request: &TrainingRequest, on_read: &(dyn Fn(u64) + Sync)) -> Result<TrainingReport> {
    pinned(&installation.catalog, "training", async {
        let state = installation.catalog.state().await?;
        let registry = Registry::load(&state, &installation.functions).await?;
        let (training, spine, format) = checked(&registry, request)?;
        let mut file = RowFile::create(&request.out, format, &training.output(&spine)?)?;
        let answered = installation.batch().training(&state, &training, spine, &mut |rows| file.write(rows), on_read).await;
        let Trained { rows, arrivals } = file.finish_if(answered)?;
        let views = training.views().map(|view| TrainingView { view: view.name.to_string(), version: view.version }).collect();
        let not_arrived = not_arrived(rows, arrivals);
        Ok(TrainingReport { rows, views, position: state.vector().to_string(), file: request.out.clone(), not_arrived })
    })
    .await
}

/// The streams of which more than half of the rows know nothing.
fn not_arrived(rows: u64, arrivals: Vec<FirstArrival>) -> Vec<NotArrived> {
    let most = arrivals.into_iter().filter(|arrival| arrival.rows_before > rows / 2);
    let shown = |FirstArrival { stream, first, rows_before }| NotArrived {
        stream: String::from(&*stream),
        rows: rows_before,
        first: first.map(format_timestamp),
    };
    most.map(shown).collect()
}

/// Errors: the mistakes of a request that can be found before the rows of the spine are read.
fn checked(registry: &Registry, request: &TrainingRequest) -> Result<(Training, Spine, RowFileFormat)> {
    let mut mistakes = Mistakes::default();
    let FileFormats { read, written } = request.check(&mut mistakes);
    let training = mistakes.noted(Training::new(registry, &request.views, request.exclusive, request.known))?;
    let spine = match training.as_ref().zip(read) {
        Some((training, read)) => mistakes.noted(spine::open(&request.spine, read, training, &request.time))?,
        None => None,
    };
    mistakes.into_result()?;
    let all = training.zip(spine).zip(written).map(|((training, spine), written)| (training, spine, written));
    all.ok_or_else(|| Error::internal("a mistake of a training request was not noted"))
}

#[cfg(test)]
mod tests;
