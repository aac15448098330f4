//! Reads the facts for the status. A service that does not answer in time is reported, and so is everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use catalog::{AlertTransition, Catalog, CatalogState, DefinitionKind, PartitionRecord, RunRecord};
use committed::registry::Registry;
use definitions::parse;
use definitions::settings::{ClockKind, Settings};
use engine::fresh::ViewVersion;
use engine::functions::Functions;
use event_log::{Log, OpenTransaction, PartitionBounds, ReaderGroup, TopicPartition};
use serving::ReadView;
use storage::{ObjectStorage, read_manifest};
use types::files::FileKind;
use types::tiles::Micros;
use types::vector::{Offset, PartitionId};
use types::{Error, ErrorKind, Result};

use super::node::{FailingView, NodeAnswer, NodeFacts, ask_node};
use super::problems::{BackingService, Facts, LeftOutEvents, RECENT_US, Unreachable};
use super::{RUNS, alerts};
use crate::dead_letters::{NewestDeadLetters, RecentDeadLetters, recent};
use crate::installation::{Installation, now};
use crate::owner;
use crate::trim::has_user;

/// How long a service may take to answer one query.
const WAIT: Duration = Duration::from_secs(5);
/// Of at most this many partitions of one topic the first waiting record is read.
const LOOKED_AT: usize = 32;
/// Well below the time after which a partition is reported as stuck.
const MOVES_WITHIN_US: u64 = 30_000_000;
/// A topic that does not exist: a log that says so has answered.
pub(crate) const PROBE: &str = "status-probe";

/// The services of an installation, each opened or not.
pub(super) struct Services {
    settings: Settings,
    functions: Functions,
    catalog: Result<Catalog>,
    storage: Result<ObjectStorage>,
    log: Result<Arc<dyn Log>>,
}

impl Services {
    pub(super) async fn open(settings: &Settings, functions: &Functions) -> Services {
        Services {
            settings: settings.clone(),
            functions: functions.clone(),
            storage: ObjectStorage::open(settings.storage.url.as_str()).map_err(|error| error.with("setting", "storage.url")),
            catalog: Catalog::open(settings.catalog.url.as_str()).await.map_err(|error| error.with("setting", "catalog.url")),
            log: event_log::open(settings.log.url.as_str(), &settings.log.properties)
                .await
                .map_err(|error| error.with("setting", "log.url")),
        }
    }

    pub(super) fn new(installation: &Installation) -> Services {
        Services {
            settings: installation.settings.clone(),
            functions: installation.functions.clone(),
            catalog: Ok(installation.catalog.clone()),
            storage: Ok(installation.storage.clone()),
            log: Ok(installation.log.clone()),
        }
    }

    /// Returns the facts, and the newest runs of all views.
    pub(super) async fn facts(&self) -> (Facts, Vec<RunRecord>) {
        let mut facts = self.facts_of_settings();
        let runs = self.read_catalog(&mut facts).await.unwrap_or_else(|error| {
            facts.unreachable.push(Unreachable { service: BackingService::Catalog, error: error.to_string() });
            Vec::new()
        });
        // The three are awaited independently.
        let (log, stored, node) =
            futures::join!(self.ask_log(&facts.state), self.ask_storage(&facts.state, facts.now), ask_node(&self.settings.serving));
        let mut node = match node {
            NodeAnswer::Facts(node) => *node,
            NodeAnswer::Silent => NodeFacts::default(),
            NodeAnswer::Unasked(unasked) => {
                facts.unasked = Some(unasked);
                NodeFacts::default()
            }
        };
        facts.refused = std::mem::take(&mut node.views_refused);
        note_log(&mut facts, log);
        match stored {
            Ok(stored) => {
                facts.foreign_storage = stored.foreign;
                (facts.stamps, facts.left_out, facts.dead_letters) = (stored.stamps, stored.left_out, stored.dead_letters);
            }
            Err(error) => facts.unreachable.push(Unreachable { service: BackingService::Storage, error: error.to_string() }),
        }
        // It may belong to another installation.
        if !self.catalog.as_ref().is_ok_and(|catalog| *catalog.identity() != *node.catalog) {
            note_node(&mut facts, node);
        }
        (facts, runs)
    }

    /// Returns the facts from within a node, and the newest runs of all views. The node has read the catalog's state
    /// and planned the definitions. The object storage is asked for the newest dead letters alone: what the rest costs
    /// grows with the files.
    pub(super) async fn facts_of_node(
        &self,
        read_view: &ReadView,
        mut node: NodeFacts,
        newest: &mut NewestDeadLetters,
    ) -> (Facts, Vec<RunRecord>) {
        let loaded = &read_view.loaded;
        let mut facts = Facts {
            state: (*loaded.state).clone(),
            registry: Some(Ok((*loaded.registry).clone())),
            refused: std::mem::take(&mut node.views_refused),
            ..self.facts_of_settings()
        };
        let asked = in_time("the catalog", self.ask_catalog(&mut facts));
        let (log, asked) = futures::join!(self.ask_log(&loaded.state), asked);
        let runs = asked.unwrap_or_else(|error| {
            facts.unreachable.push(Unreachable { service: BackingService::Catalog, error: error.to_string() });
            Vec::new()
        });
        note_log(&mut facts, log);
        note_node(&mut facts, node);
        if let Ok(storage) = &self.storage {
            let reasons = newest.reasons(storage, &facts.state, facts.now.saturating_sub(RECENT_US)).await;
            let with_reason = |reason| RecentDeadLetters { replayed: 0, reason: Some(Ok(reason)) };
            facts.dead_letters = reasons.into_iter().map(|(stream, reason)| (stream, with_reason(reason))).collect();
        }
        (facts, runs)
    }

    /// Returns the last transition of each alert, as far as there is one.
    pub(super) async fn last_transitions(&self, facts: &Facts) -> Vec<AlertTransition> {
        let is_silent = facts.unreachable.iter().any(|known| known.service == BackingService::Catalog);
        match &self.catalog {
            Ok(catalog) if !is_silent => in_time("the catalog", alerts::last_transitions(catalog, &facts.alerts)).await.unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn facts_of_settings(&self) -> Facts {
        Facts {
            now: now(),
            embedded_log: self.settings.log.url.as_str().starts_with("file:"),
            checkpoint_interval: self.settings.speed.checkpoint_interval,
            event_clock: self.settings.serving.clock == ClockKind::Event,
            ..Facts::default()
        }
    }

    async fn read_catalog(&self, facts: &mut Facts) -> Result<Vec<RunRecord>> {
        let catalog = self.catalog.as_ref().map_err(again)?;
        facts.state = (*catalog.state().await?).clone();
        facts.registry = Some(Registry::load(&facts.state, &self.functions).await.map_err(|error| error.to_string()));
        self.ask_catalog(facts).await
    }

    /// Asks for what is no part of the catalog's state.
    async fn ask_catalog(&self, facts: &mut Facts) -> Result<Vec<RunRecord>> {
        let catalog = self.catalog.as_ref().map_err(again)?;
        let registry = facts.registry.as_ref().and_then(|registry| registry.as_ref().ok());
        facts.alerts = alerts::read(catalog, &facts.state, registry, facts.now).await?;
        facts.marked_for_deletion = catalog.marked_for_deletion().await?;
        catalog.runs(None, RUNS).await
    }

    /// Reads what the log knows of each live stream's topic, and of other consumer groups.
    async fn ask_log(&self, state: &CatalogState) -> Result<LogAnswers> {
        let log = self.log.as_ref().map_err(again)?;
        let topics = topics(state);
        if topics.is_empty() {
            in_time("the log", log.bounds(PROBE)).await?;
        }
        let requests: Vec<_> = topics.into_iter().map(|(stream, topic)| ask_topic(&**log, state, stream, topic)).collect();
        let groups = in_time("the log", log.reader_groups());
        let (topics, groups) = futures::join!(futures::future::join_all(requests), groups);
        Ok(LogAnswers { topics, idle_groups: idle_groups(groups.unwrap_or_default(), &self.settings.speed.group, state) })
    }

    async fn ask_storage(&self, state: &CatalogState, now: Micros) -> Result<StorageFacts> {
        let storage = self.storage.as_ref().map_err(again)?;
        in_time("the object storage", storage.probe()).await?;
        let dead_letters = match &self.catalog {
            Ok(catalog) => recent_dead_letters(catalog, storage, state, now).await,
            Err(_) => BTreeMap::new(),
        };
        let (stamps, left_out) = published(storage, state).await;
        Ok(StorageFacts { foreign: self.foreign_storage().await, stamps, left_out, dead_letters })
    }

    /// Why the storage is not the one of this catalog, where that is known.
    async fn foreign_storage(&self) -> Option<String> {
        let (Ok(catalog), Ok(storage)) = (&self.catalog, &self.storage) else { return None };
        let found = in_time("the object storage", owner::is_taken(catalog, storage)).await.err()?;
        (found.kind() == ErrorKind::Input).then(|| found.to_string())
    }
}

/// Returns the groups without a worker that hold back records of topics of this installation, whose group is `own`.
fn idle_groups(groups: Vec<ReaderGroup>, own: &str, state: &CatalogState) -> Vec<ReaderGroup> {
    let mut idle: Vec<ReaderGroup> = groups.into_iter().filter(|group| !group.is_active && group.name != own).collect();
    idle.iter_mut().for_each(|group| group.topics.retain(|topic| has_user(state, topic).unwrap_or_default()));
    idle.retain(|group| !group.topics.is_empty());
    idle
}

fn note_log(facts: &mut Facts, answers: Result<LogAnswers>) {
    match answers {
        Ok(answers) => {
            facts.idle_groups = answers.idle_groups;
            for (stream, topic) in answers.topics {
                facts.identities.extend(topic.identity.map(|identity| (stream.clone(), identity)));
                facts.waiting_since.extend(topic.waiting_since);
                let with_id = |open: OpenTransaction| (PartitionId::new(stream.clone(), open.partition), open);
                facts.open_transactions.extend(topic.open_transactions.into_iter().map(with_id));
                facts.ends.insert(stream, topic.ends);
            }
        }
        Err(error) => facts.unreachable.push(Unreachable { service: BackingService::Log, error: error.to_string() }),
    }
}

/// Takes note of what a node of this installation reports.
fn note_node(facts: &mut Facts, node: NodeFacts) {
    facts.failing = node.outages;
    facts.workers = node.workers;
    facts.building = node.views_building.into_iter().map(|building| ViewVersion::new(building.view, building.version)).collect();
    // It knows what failed after the snapshots' cuts, too.
    let left_out = |failing: FailingView| (ViewVersion::new(failing.view, failing.version), failing.left_out);
    facts.left_out.extend(node.views_failing.into_iter().map(left_out));
}

struct LogAnswers {
    topics: Vec<(Arc<str>, TopicAnswers)>,
    idle_groups: Vec<ReaderGroup>,
}

struct TopicAnswers {
    ends: Result<Vec<PartitionBounds>, String>,
    identity: Option<String>,
    waiting_since: Vec<(PartitionId, Micros)>,
    open_transactions: Vec<OpenTransaction>,
}

struct StorageFacts {
    foreign: Option<String>,
    stamps: BTreeMap<ViewVersion, Result<String, String>>,
    left_out: BTreeMap<ViewVersion, LeftOutEvents>,
    dead_letters: BTreeMap<Arc<str>, RecentDeadLetters>,
}

async fn ask_topic(log: &dyn Log, state: &CatalogState, stream: Arc<str>, topic: Arc<str>) -> (Arc<str>, TopicAnswers) {
    let ends = match in_time("the log", log.bounds(&topic)).await {
        Ok(ends) => ends,
        Err(error) => {
            let (waiting_since, open_transactions) = Default::default();
            return (stream, TopicAnswers { ends: Err(error.to_string()), identity: None, waiting_since, open_transactions });
        }
    };
    let identity = match ends.is_empty() {
        true => None,
        false => in_time("the log", log.identity(&topic)).await.ok(),
    };
    let waiting_since = waiting(log, state, &stream, &topic, &ends).await;
    let open_transactions = open_transactions(log, state, &stream, &topic, &ends).await;
    (stream, TopicAnswers { ends: Ok(ends), identity, waiting_since, open_transactions })
}

/// Returns the open transactions in the partitions that stand still. In one that moves they do not last.
async fn open_transactions(
    log: &dyn Log,
    state: &CatalogState,
    stream: &Arc<str>,
    topic: &Arc<str>,
    ends: &[PartitionBounds],
) -> Vec<OpenTransaction> {
    let stands_still = |partition: &i32| {
        let known = state.partitions.get(&PartitionId::new(stream.clone(), *partition));
        known.is_none_or(|known| !moves(known, now()))
    };
    let still: Vec<i32> = ends.iter().map(|ends| ends.partition).filter(stands_still).take(LOOKED_AT).collect();
    match still.is_empty() {
        true => Vec::new(),
        false => in_time("the log", log.open_transactions(topic, &still)).await.unwrap_or_default(),
    }
}

/// Returns the topic of each live stream.
pub(crate) fn topics(state: &CatalogState) -> BTreeMap<Arc<str>, Arc<str>> {
    let streams = state.live(DefinitionKind::Stream);
    streams.filter_map(|record| Some((record.name.clone(), parse::parse_stream(&record.sql).ok()?.topic))).collect()
}

/// Returns when the log received the first uncommitted record, for each partition that has one.
async fn waiting(
    log: &dyn Log,
    state: &CatalogState,
    stream: &Arc<str>,
    topic: &Arc<str>,
    ends: &[PartitionBounds],
) -> Vec<(PartitionId, Micros)> {
    let mut found = Vec::new();
    for ends in ends {
        let id = PartitionId::new(stream.clone(), ends.partition);
        let known = state.partitions.get(&id);
        let next = known.map_or(Offset::ZERO, |known| known.next_offset).max(ends.begin);
        if next >= ends.end || found.len() >= LOOKED_AT || known.is_some_and(|known| moves(known, now())) {
            continue;
        }
        let source = TopicPartition { topic: topic.clone(), partition: ends.partition };
        match in_time("the log", log.read(&source, next, 1)).await {
            Ok(fetched) => found.extend(fetched.records.first().map(|record| (id, record.timestamp))),
            // The others would fail as well.
            Err(_) => break,
        }
    }
    found
}

/// Whether what was committed of a partition is so new that no record waits for long. A log whose clock is wrong shows
/// nothing.
fn moves(known: &PartitionRecord, now: Micros) -> bool {
    known.complete_to.is_some_and(|complete_to| now.abs_diff(complete_to) <= MOVES_WITHIN_US)
}

/// Reads the manifest of each published snapshot: the stamp of its states, and the events that they leave out.
async fn published(
    storage: &ObjectStorage,
    state: &CatalogState,
) -> (BTreeMap<ViewVersion, Result<String, String>>, BTreeMap<ViewVersion, LeftOutEvents>) {
    let (mut stamps, mut left_out) = (BTreeMap::new(), BTreeMap::new());
    for snapshot in &state.snapshots {
        if !state.live(DefinitionKind::View).any(|view| view.name == snapshot.view && view.version == snapshot.version) {
            continue;
        }
        let file = state.files.get(&snapshot.manifest).filter(|file| file.kind == FileKind::Manifest);
        let version = ViewVersion::new(snapshot.view.clone(), snapshot.version);
        let manifest = match file {
            Some(file) => in_time("the object storage", read_manifest(storage, file)).await,
            None => Err(Error::corrupt("the catalog names no such file").with("file", &snapshot.manifest)),
        };
        match manifest {
            Ok(manifest) => {
                let first = manifest.failures.listed().next();
                left_out.extend(
                    first.map(|first| (version.clone(), LeftOutEvents { failed: manifest.failures.count(), first: first.to_string() })),
                );
                stamps.insert(version, Ok(manifest.stamp));
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => drop(stamps.insert(version, Err(error.to_string()))),
        }
    }
    (stamps, left_out)
}

/// Returns what became of the recent dead letters of each stream that has any.
async fn recent_dead_letters(
    catalog: &Catalog,
    storage: &ObjectStorage,
    state: &CatalogState,
    now: Micros,
) -> BTreeMap<Arc<str>, RecentDeadLetters> {
    let dead = state.readable(FileKind::DeadLetters);
    let streams: BTreeSet<&Arc<str>> = dead.filter_map(|file| file.subject.as_ref()).collect();
    let mut found = BTreeMap::new();
    for stream in streams {
        let recent = in_time("the object storage", async {
            let replays = catalog.replayed_dead_letters(stream).await?;
            recent(storage, state, stream, &replays, now.saturating_sub(RECENT_US)).await
        });
        let unread = |error: Error| RecentDeadLetters { replayed: 0, reason: Some(Err(error.to_string())) };
        found.insert(stream.clone(), recent.await.unwrap_or_else(unread));
    }
    found
}

/// Awaits an answer for as long as a user would wait.
async fn in_time<T>(who: &str, request: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::unavailable(format!("{who} did not answer within {} s", WAIT.as_secs()));
    tokio::time::timeout(WAIT, request).await.map_err(late)?
}

/// Copies an error that is reported more than once.
fn again(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

#[cfg(test)]
mod tests;
