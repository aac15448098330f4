//! `backtest`: what a sink, and an edited definition of it, would have decided about archived events, in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use batch::{BacktestProgress, Backtested, Known, ReceivedLate};
use catalog::{ArchiveBounds, CatalogState, archive_files};
use committed::registry::{LiveSink, Registry};
use engine::events::format_timestamp;
use serde::Serialize;
use types::tiles::Micros;
use types::{Error, Result};

use crate::installation::Installation;
use crate::mistakes::Mistakes;
use crate::pin::pinned;
use crate::row_file::{RowFile, RowFileFormat};

mod compared_columns;
mod difference;
mod edited;
mod prepare;

pub use difference::{Cell, VerdictDifference, VerdictExample};

use difference::VerdictComparison;
use prepare::{PreparedBacktest, prepared};

/// Which events of a sink's stream are scored, and where the rows go.
#[derive(Debug)]
pub struct BacktestRequest {
    pub sink: String,
    /// The first event time that is scored.
    pub from: Micros,
    /// The first event time that is not.
    pub to: Micros,
    pub known: Known,
    /// A file of Parquet, CSV or JSON lines, by its extension.
    pub out: PathBuf,
    /// Whether a file that exists is replaced.
    pub force: bool,
    /// Values of parameters, which replace those in effect. One of the definitions uses each of them.
    pub set: Vec<(String, String)>,
    pub changed: Option<EditedSink>,
}

impl BacktestRequest {
    /// What is wrong with the request, whatever the catalog has.
    pub(crate) fn mistakes(&self) -> Mistakes {
        let mut mistakes = Mistakes::default();
        self.check(&mut mistakes);
        mistakes
    }

    /// The same, added to other mistakes. Returns the format of the file.
    fn check(&self, mistakes: &mut Mistakes) -> Option<RowFileFormat> {
        if self.from >= self.to {
            mistakes.add(Error::input("the range is empty: expected --from before --to"));
        }
        let mut named = BTreeSet::new();
        let repeated: BTreeSet<&String> = self.set.iter().map(|(name, _)| name).filter(|name| !named.insert(*name)).collect();
        for name in repeated {
            mistakes.add(Error::input(format!("--set names the parameter \"{name}\" more than once: expected one value")));
        }
        RowFile::check(&self.out, self.force, mistakes)
    }
}

/// An edited definition of the sink, and how the two are compared.
#[derive(Debug)]
pub struct EditedSink {
    /// A file with the CREATE SINK. Its views and parameters take the place of those that are applied.
    pub file: PathBuf,
    /// The column in which a sink decides: one of [`VERDICTS`] if it is not named.
    pub verdict: Option<String>,
    /// The column that is summed: [`AMOUNT`], if there is one, where none is named.
    pub amount: Option<String>,
}

/// The columns in which a sink decides, where none is named.
pub const VERDICTS: [&str; 2] = ["decision", "verdict"];
pub const AMOUNT: &str = "amount";

/// What a backtest did.
#[derive(Debug, Serialize)]
pub struct BacktestReport {
    pub sink: String,
    pub version: u32,
    /// The values of the parameters that the sink uses.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<Arc<str>, String>,
    /// Events in the range for which WHERE holds, that of either definition.
    pub rows: u64,
    pub file: PathBuf,
    /// What the edited definition reads that is not applied.
    #[serde(skip_serializing_if = "UnappliedDefinitions::is_empty")]
    pub unapplied: UnappliedDefinitions,
    /// Where the edited definition decides otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<VerdictDifference>,
    /// Why there are no rows, if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_rows: Option<NoRows>,
    /// The views of which most rows see nothing in a window, because the log received the events too late.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub received_late: Vec<LateRows>,
}

/// The views and parameters of the file of an edited sink that are not applied like that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UnappliedDefinitions {
    pub views: BTreeSet<Arc<str>>,
    /// With their values.
    pub parameters: BTreeMap<Arc<str>, String>,
}

impl UnappliedDefinitions {
    pub(crate) fn is_empty(&self) -> bool {
        self.views.is_empty() && self.parameters.is_empty()
    }
}

/// A view of which most rows see nothing in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LateRows {
    pub view: Arc<str>,
    /// The rows of events that the log received so late that no window of the view reaches back to their own time.
    pub rows: u64,
}

/// What the archive has where nothing was scored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoRows {
    /// False if no event is in the range for certain. Otherwise none is, or WHERE holds for none of them.
    pub may_have_events: bool,
    /// The event times of the first and the last event in the archive; null if it has none.
    pub earliest: Option<String>,
    pub latest: Option<String>,
}

/// Scores the events and writes their rows. The file appears when it is whole.
///
/// Errors: `Input` for a file that exists or has another extension, a sink that cannot be backtested, an edited
/// definition that cannot be compared with it, an edited stream, or a parameter that is set twice or that no definition
/// uses; `NotFound` for a sink or a parameter that does not exist. Of several mistakes all are listed.
pub async fn backtest(
    installation: &Installation,
    request: &BacktestRequest,
    on_progress: &(dyn Fn(BacktestProgress) + Sync),
) -> Result<BacktestReport> {
    pinned(&installation.catalog, "backtest", async {
        let state = installation.catalog.state().await?;
        let PreparedBacktest { definitions, mut comparison, output, format } = prepared(installation, &state, request).await?;
        let (registry, sink) = (&definitions.registry, &definitions.live);
        let backtest = definitions.backtest(request, installation);
        let mut file = RowFile::create(&request.out, format, &output)?;
        let mut take = |rows: &RecordBatch| {
            if let Some(comparison) = &mut comparison {
                comparison.add(rows)?;
            }
            file.write(rows)
        };
        let scored = installation.batch().backtest(&state, &backtest, &mut take, on_progress).await;
        let Backtested { rows, received_late } = file.finish_if(scored)?;
        let difference = comparison.map(VerdictComparison::finish);
        let no_rows = match &sink.plan {
            Ok(plan) if rows == 0 => Some(no_rows(&state, &plan.stream.name, request.from, request.to)),
            _ => None,
        };
        Ok(BacktestReport {
            sink: request.sink.clone(),
            version: sink.version,
            parameters: used_values(registry, sink),
            rows,
            file: request.out.clone(),
            unapplied: definitions.unapplied(),
            difference,
            no_rows,
            received_late: most_late(rows, received_late),
        })
    })
    .await
}

/// By the event times that the catalog keeps of each file of the archive.
fn no_rows(state: &CatalogState, stream: &Arc<str>, from: Micros, to: Micros) -> NoRows {
    let files = |bounds| archive_files(state, std::slice::from_ref(stream), bounds);
    let in_range = ArchiveBounds { oldest: Some(from), newest: Some(to - 1), ..ArchiveBounds::default() };
    let all = files(ArchiveBounds::default());
    NoRows {
        may_have_events: !files(in_range).is_empty(),
        earliest: all.iter().filter_map(|file| file.min_event_time).min().map(format_timestamp),
        latest: all.iter().filter_map(|file| file.max_event_time).max().map(format_timestamp),
    }
}

/// The views of which more than half of the rows see nothing in a window.
fn most_late(rows: u64, received_late: Vec<ReceivedLate>) -> Vec<LateRows> {
    let most = received_late.into_iter().filter(|late| late.rows > rows / 2);
    most.map(|ReceivedLate { view, rows }| LateRows { view, rows }).collect()
}

fn used_values(registry: &Registry, sink: &LiveSink) -> BTreeMap<Arc<str>, String> {
    let used = sink.plan.as_ref().map(|plan| plan.parameters.clone()).unwrap_or_default();
    let values = registry.parameters.iter().filter(|parameter| used.contains_key(&parameter.name));
    values.map(|parameter| (parameter.name.clone(), parameter.value.clone())).collect()
}

#[cfg(test)]
mod tests;
