//! How far behind the log the process's sources are, as gauges: the lag of each partition, and the age of each view's
//! answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use catalog::{Catalog, CatalogState, DefinitionKind};
use event_log::{Log, PartitionBounds};
use serving::{Node, ReadView};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use types::Result;
use types::outage::Attempts;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};

use super::answers::noted;
use super::parts::{Parts, Stage};
use crate::all_counted::AllCounted;
use crate::installation::{Installation, now};
use crate::status::{PROBE, topics};

/// How often the log is asked where its partitions end.
const EVERY: Duration = Duration::from_secs(10);

/// Where partitions end, per stream. Without an entry the log did not say.
type Ends = BTreeMap<Arc<str>, Vec<PartitionBounds>>;

/// What is compared with the log.
pub(super) enum LagSource {
    /// A node: its answers have an age too.
    Node(Node),
    Catalog(Catalog),
}

/// Starts [`watch`] as a part. `answered` gets whether the log answers.
pub(super) fn start(parts: &mut Parts, stage: Stage, installation: &Installation, source: LagSource, answered: Attempts) {
    let log = installation.log.clone();
    parts.start(stage, "lag", |stop| async move {
        watch(source, log, answered, stop).await;
        Ok(())
    });
}

/// Until `stop`, asks the log where its partitions end, notes in `answers` whether it said so, and sets the gauges.
async fn watch(source: LagSource, log: Arc<dyn Log>, answers: Attempts, stop: CancellationToken) {
    let rounds = async {
        let mut shown = Shown::default();
        loop {
            if let Err(error) = shown.round(&source, &*log, &answers).await {
                debug!(%error, "the lag of the partitions is not known");
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = rounds => {}
    }
}

/// The gauges that have a value, and what the ages are computed from.
#[derive(Default)]
struct Shown {
    partitions: BTreeSet<PartitionId>,
    views: BTreeSet<Arc<str>>,
    counted: AllCounted,
}

impl Shown {
    async fn round(&mut self, source: &LagSource, log: &dyn Log, answers: &Attempts) -> Result<()> {
        // Positions first: what they have reached by then is compared with ends that are read later.
        let (state, read_view) = match source {
            LagSource::Node(node) => {
                let read_view = node.read_view()?;
                (read_view.loaded.state.clone(), Some(read_view))
            }
            LagSource::Catalog(catalog) => (catalog.state().await?, None),
        };
        let asked_at = now();
        let mut ends = Ends::new();
        let outcome = noted(answers, read_ends(log, &state, &mut ends)).await;
        self.show_lags(lags(&state, &ends), outcome.is_ok());
        if let Some(read_view) = read_view {
            let places = PartitionPositions::from_read_view(&read_view, &ends);
            let ages = ages(&places, &views(&read_view), &mut self.counted, asked_at);
            self.show_ages(ages);
        }
        outcome
    }

    /// A partition that is gone has no lag. (A gauge keeps its last value.) `is_whole`: the log said of all partitions
    /// where they end.
    fn show_lags(&mut self, lags: BTreeMap<PartitionId, i64>, is_whole: bool) {
        let set = |partition: &PartitionId, lag: i64| {
            let (stream, number) = (partition.stream.to_string(), partition.partition.to_string());
            metrics::gauge!("basestream_partition_lag_records", "stream" => stream, "partition" => number).set(lag as f64);
        };
        if is_whole {
            self.partitions.iter().filter(|known| !lags.contains_key(*known)).for_each(|gone| set(gone, 0));
            self.partitions.clear();
        }
        lags.iter().for_each(|(partition, lag)| set(partition, *lag));
        self.partitions.extend(lags.into_keys());
    }

    fn show_ages(&mut self, ages: BTreeMap<Arc<str>, Micros>) {
        let set = |view: &Arc<str>, age: Micros| {
            metrics::gauge!("basestream_serving_answer_age_seconds", "view" => view.to_string()).set(age as f64 / 1e6);
        };
        self.views.iter().filter(|known| !ages.contains_key(*known)).for_each(|gone| set(gone, 0));
        ages.iter().for_each(|(view, age)| set(view, *age));
        self.views = ages.into_keys().collect();
    }
}

/// Asks the log about the topic of each live stream. One that it says nothing of is left out, and is the error.
async fn read_ends(log: &dyn Log, state: &CatalogState, ends: &mut Ends) -> Result<()> {
    let topics = topics(state);
    if topics.is_empty() {
        // A log that knows no such topic has answered.
        return log.bounds(PROBE).await.map(drop);
    }
    let mut outcome = Ok(());
    for (stream, topic) in topics {
        match log.bounds(&topic).await {
            Ok(bounds) => {
                ends.insert(stream, bounds);
            }
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

/// Returns how many records of each partition are in the log and in no checkpoint.
fn lags(state: &CatalogState, ends: &Ends) -> BTreeMap<PartitionId, i64> {
    let partitions = ends.iter().flat_map(|(stream, bounds)| bounds.iter().map(move |bounds| (stream, bounds)));
    let lag = |(stream, bounds): (&Arc<str>, &PartitionBounds)| {
        let id = PartitionId::new(stream.clone(), bounds.partition);
        let next = state.partitions.get(&id).map_or(Offset::ZERO, |known| known.next_offset).max(bounds.begin);
        (id, (bounds.end.0 - next.0).max(0))
    };
    partitions.map(lag).collect()
}

/// What is known of each partition.
#[derive(Debug, Default)]
struct PartitionPositions(BTreeMap<PartitionId, PartitionPosition>);

#[derive(Debug, Clone)]
struct PartitionPosition {
    /// The next offset that answers do not count.
    position: Offset,
    /// Where the log ended a moment later, if it said so.
    end: Option<Offset>,
    /// Every record that the log received before this is counted.
    complete_to: Option<Micros>,
    /// Of its stream, and when that was defined.
    topic: Arc<str>,
    defined_at: Micros,
}

impl PartitionPositions {
    fn from_read_view(read_view: &ReadView, ends: &Ends) -> Self {
        let state = &read_view.loaded.state;
        let mut places = BTreeMap::new();
        for stream in state.live(DefinitionKind::Stream) {
            let Some(live) = read_view.loaded.registry.streams.get(&stream.name) else { continue };
            let bounds = ends.get(&stream.name).into_iter().flatten();
            let at_log = bounds.map(|bounds| (PartitionId::new(stream.name.clone(), bounds.partition), Some(bounds.end)));
            let committed = state.partitions.keys().filter(|id| id.stream == stream.name).map(|id| (id.clone(), None));
            for (id, end) in committed.chain(at_log) {
                let (position, complete_to) = (read_view.vector.get(&id), read_view.complete_to_of_partition(&id));
                let topic = live.definition.topic.clone();
                places.insert(id, PartitionPosition { position, end, complete_to, topic, defined_at: stream.created_at });
            }
        }
        Self(places)
    }
}

/// Returns the served views, each with its streams.
fn views(read_view: &ReadView) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
    let registry = &read_view.loaded.registry;
    let is_served = |name: &Arc<str>, version: u32| registry.served(name).is_some_and(|served| served.version == version);
    let served = registry.views.iter().filter(|live| is_served(&live.name, live.version));
    served.map(|live| (live.name.clone(), live.plan.streams.iter().map(|stream| stream.name.clone()).collect())).collect()
}

/// Returns how old each view's answers are at `asked_at`, before the log was asked: every record that the log received
/// earlier than that is counted. Nothing for a view whose streams have no partition.
fn ages(
    places: &PartitionPositions,
    views: &BTreeMap<Arc<str>, Vec<Arc<str>>>,
    counted: &mut AllCounted,
    asked_at: Micros,
) -> BTreeMap<Arc<str>, Micros> {
    let streams: BTreeSet<&Arc<str>> = views.values().flatten().collect();
    counted.keep_streams(|stream| streams.contains(stream));
    let mut complete = Vec::with_capacity(places.0.len());
    for (id, place) in &places.0 {
        let at_end = place.end.is_some_and(|end| end <= place.position);
        let complete_to = counted.complete_to((id, &place.topic), place.complete_to, at_end, asked_at);
        complete.push((&id.stream, complete_to.unwrap_or(place.defined_at)));
    }
    let age = |(view, streams): (&Arc<str>, &Vec<Arc<str>>)| {
        let oldest = complete.iter().filter(|(stream, _)| streams.contains(stream)).map(|(_, complete_to)| *complete_to).min()?;
        Some((view.clone(), asked_at.saturating_sub(oldest).max(0)))
    };
    views.iter().filter_map(age).collect()
}

#[cfg(test)]
mod tests;
