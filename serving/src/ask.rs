//! Asking: the one entry for lookups, and what lookups and queries share: one stand, one time, and where the states come from.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use committed::registry::LiveView;
use datafusion::common::ScalarValue;
use engine::plan::ColumnKind;
use engine::walk::GoOn;
use types::tiles::Micros;
use types::{Error, Result};

use crate::archive::{ArchiveLayer, archive_layer};
use crate::edges::ViewEdges;
use crate::lookup::{Answers, Source, encode_keys, lookup};
use crate::meta::{AskedView, Meta};
use crate::node::Node;
use crate::sql::Queries;
use crate::stand::{LoadedView, ServingClock, Stand};

mod keys;
mod paths;

pub use keys::Keys;
pub use paths::{AskedPaths, MAX_PATHS};

/// This many keys in one lookup at the most.
pub const MAX_KEYS: usize = 10_000;

/// Lookups of more keys than this leave the asynchronous threads, and walks of more than one: a key may have them follow millions of edges.
const INLINE_KEYS: usize = 16;
/// How often a walk of one key asks whether to go on until its first batch of edges is done: for the key, and for the batch.
const SHORT_WALK: usize = 2;

/// The answer of a lookup, in the order of the keys asked.
#[derive(Debug, Clone)]
pub struct Response {
    /// All columns of the view. A key that is not found has its row too: counts 0, the rest NULL.
    pub rows: RecordBatch,
    pub found: Vec<bool>,
    /// The linking paths of a linked view's keys, in the order of the keys and newest first, where they were asked for.
    pub paths: Option<RecordBatch>,
    pub meta: Meta,
}

impl Node {
    /// Looks keys up at `as_of`, or now. Never scans, unless `as_of` needs the archive.
    ///
    /// Errors: `NotFound` for an unknown view, `Input` for keys that are not its keys, `Limit` past [`MAX_KEYS`].
    pub async fn lookup(&self, view: &str, keys: Keys, as_of: Option<Micros>) -> Result<Response> {
        self.lookup_with_paths(view, keys, as_of, AskedPaths::default()).await
    }

    /// The same for keys of a view over a JOIN, with the newest of the paths that link each: [`Response::paths`].
    ///
    /// Errors, beside those of a lookup: `Input` for paths of a view without JOIN, and of a column in which no path can count; `Limit`
    /// where they could be more than [`MAX_PATHS`].
    pub async fn lookup_with_paths(&self, view: &str, keys: Keys, as_of: Option<Micros>, paths: AskedPaths) -> Result<Response> {
        let begun = Instant::now();
        let question = Question::over(self.stand()?, as_of, &[view])?;
        let asked = question.stand.view(view)?;
        let (name, is_copying) = (asked.live.name.to_string(), asked.copying().is_some());
        let answer = match is_copying {
            // In a box: every lookup would carry it.
            true => Box::pin(answer_while_copying(self, question, view, keys, &paths)).await,
            false => answer_keys(self, question, view, keys, &paths).await,
        };
        let response = self.telling(answer).await?;
        metrics::histogram!("basestream_serving_lookup_seconds", "view" => name).record(begun.elapsed().as_secs_f64());
        Ok(response)
    }
}

async fn answer_keys(node: &Node, question: Question, view: &str, keys: Keys, paths: &AskedPaths) -> Result<Response> {
    let loaded = question.stand.view(view)?;
    check_size(loaded, keys.len(), paths)?;
    let of = paths.column(&loaded.live)?;
    let rows = keys.typed(loaded.live.plan.answer_keys())?;
    let columns: Vec<usize> = (0..loaded.live.plan.columns.len()).collect();
    let mut meta = Meta::of(&question, &[AskedView { view: loaded, columns: Some(&columns) }], &[]);
    let estimated = question.estimated.clone();
    let answers = Lookup { question, view: view.into(), keys: rows, columns, paths: paths.most, of }.run(node.queries()).await?;
    estimated.tell(&mut meta);
    Ok(Response { rows: answers.rows, found: answers.found, paths: answers.paths, meta })
}

/// The same, once what the keys need is copied; on another stand where it turns out to be damaged.
async fn answer_while_copying(node: &Node, mut question: Question, view: &str, keys: Keys, paths: &AskedPaths) -> Result<Response> {
    loop {
        let loaded = question.stand.view(view)?;
        check_size(loaded, keys.len(), paths)?;
        let rows = keys.clone().typed(loaded.live.plan.answer_keys())?;
        match question.fetch(loaded, Some(&rows)).await {
            Ok(()) => return answer_keys(node, question, view, keys, paths).await,
            Err(error) if node.goes_on_without(&question.stand.loaded, &error).await? => {
                question = Question::over(node.stand()?, question.as_of, &[view])?;
            }
            Err(error) => return Err(error),
        }
    }
}

fn check_size(view: &LoadedView, keys: usize, paths: &AskedPaths) -> Result<()> {
    if keys > MAX_KEYS {
        return Err(Error::limit(format!("{keys} keys in one lookup: expected at most {MAX_KEYS}")));
    }
    paths.check(&view.live, keys)
}

/// What an answer stands on: one stand and one time, for all of its views.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) stand: Arc<Stand>,
    pub(crate) as_of: Option<Micros>,
    pub(crate) estimated: Arc<Estimated>,
}

/// The columns that turned out to be estimates while an answer was made: a node had more neighbours than are followed.
#[derive(Debug, Default)]
pub(crate) struct Estimated(Mutex<BTreeSet<String>>);

impl Estimated {
    /// Notes the values among these columns of a view.
    pub(crate) fn note(&self, view: &LiveView, columns: &[usize]) {
        let values = columns.iter().map(|column| &view.plan.columns[*column]).filter(|column| matches!(column.kind, ColumnKind::Value(_)));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(values.map(|column| column.field.name().clone()));
    }

    /// Adds what was noted to an answer's meta.
    pub(crate) fn tell(&self, meta: &mut Meta) {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meta.approximate.extend(noted.iter().cloned());
        meta.approximate.sort();
        meta.approximate.dedup();
    }
}

impl Question {
    /// A question about these views. When one of them must be computed from the archive, which holds what is committed, all
    /// of them stand on the committed vector: an answer has one position.
    pub(crate) fn over(stand: Stand, as_of: Option<Micros>, views: &[impl AsRef<str>]) -> Result<Question> {
        let question = Question { stand: Arc::new(stand), as_of, estimated: Arc::default() };
        let mut archive = false;
        for view in views {
            archive |= question.needs_archive(question.stand.view(view.as_ref())?);
        }
        if !archive {
            return Ok(question);
        }
        Ok(Question { stand: Arc::new(committed(&question.stand)), ..question })
    }

    /// The time at which a view is answered.
    pub(crate) fn t(&self, view: &LiveView) -> Micros {
        self.as_of.unwrap_or_else(|| self.stand.t_of(view))
    }

    /// The time of a question that asks no view.
    pub(crate) fn t_without_view(&self) -> Micros {
        self.as_of.unwrap_or_else(|| match self.stand.clock {
            ServingClock::Wall => self.stand.now,
            ServingClock::Event => self.stand.loaded.state.partitions.values().filter_map(|p| p.max_event_time).max().unwrap_or_default(),
        })
    }

    /// Also without `as_of`, when the snapshot was made for a later time (by another clock).
    pub(crate) fn needs_archive(&self, view: &LoadedView) -> bool {
        match self.as_of {
            Some(t) => !view.answers_at(t, self.stand.max_event_time(&view.live)),
            None => !view.keeps(self.t(&view.live)),
        }
    }

    /// True when the published snapshot cannot be read (it is damaged, or of another format): the answer is made without it.
    pub(crate) fn is_degraded(&self, view: &LoadedView) -> bool {
        let published = self.stand.loaded.state.snapshot(&view.live.name, view.live.version);
        published.is_some_and(|published| view.snapshot.as_ref().is_none_or(|copy| copy.manifest.run != published.run))
    }

    /// Waits until what these keys of a view need is copied, or all of it without keys.
    pub(crate) async fn fetch(&self, view: &LoadedView, keys: Option<&[Vec<ScalarValue>]>) -> Result<()> {
        let Some(copy) = view.copying().filter(|_| !self.needs_archive(view)) else { return Ok(()) };
        let Some(keys) = keys.filter(|_| view.live.plan.links.is_none()) else { return copy.fetch_all().await };
        let columns = keys::columns(view.live.plan.answer_keys(), keys)?;
        copy.fetch(&encode_keys(&view.live, &columns, keys.len())?).await
    }

    /// Waits until all of a view's snapshot is copied.
    pub(crate) async fn fetch_all(&self, view: &str) -> Result<()> {
        match self.stand.view(view)?.copying() {
            Some(copy) => copy.fetch_all().await,
            None => Ok(()),
        }
    }

    /// The archive's states of a view, when they are needed; of one key, when only that is asked.
    pub(crate) async fn archive(&self, queries: &Queries, view: &LiveView, key: Option<&[ScalarValue]>) -> Result<ArchiveLayer> {
        archive_layer(queries, view, &self.stand.loaded.state, self.t(view), self.as_of, key).await
    }
}

/// The same stand without what is not checkpointed yet.
fn committed(stand: &Stand) -> Stand {
    Stand { fresh: Vec::new(), vector: stand.loaded.vector.clone(), complete_to: Default::default(), ..stand.clone() }
}

/// The rows of these keys, of one view: what HTTP and the lookup path of SQL both run.
pub(crate) struct Lookup {
    pub(crate) question: Question,
    pub(crate) view: Arc<str>,
    /// Each in the order of the view's keys and of their types.
    pub(crate) keys: Vec<Vec<ScalarValue>>,
    /// Indices of the plan's columns.
    pub(crate) columns: Vec<usize>,
    /// Of each key of a linked view: how many paths are told.
    pub(crate) paths: usize,
    /// Only those that count in this column (an index of the plan's).
    pub(crate) of: Option<usize>,
}

impl Lookup {
    pub(crate) async fn run(self, queries: &Queries) -> Result<Answers> {
        let view = self.question.stand.view(&self.view)?;
        let archive = match self.question.needs_archive(view) {
            // In a box: the plan of a query makes a large future, which every lookup would carry.
            true => Some(Box::pin(self.question.archive(queries, &view.live, self.only_key(view.live.plan.links.is_some()))).await?),
            false => None,
        };
        if view.live.plan.links.is_none() && self.keys.len() <= INLINE_KEYS {
            return self.merge(archive.as_ref(), &|| Ok(()));
        }
        if view.live.plan.links.is_some()
            && self.keys.len() == 1
            && self.paths == 0
            && let Some(answers) = self.short_walk(archive.as_ref(), SHORT_WALK)?
        {
            return Ok(answers);
        }
        Box::pin(queries.lookups().run(move |waiting| self.merge(archive.as_ref(), &|| waiting.check()))).await
    }

    /// Walks one key here: another thread would come later than the answer of most. `None`: it leads to more edges than are held at once,
    /// some thirty milliseconds' worth.
    fn short_walk(&self, archive: Option<&ArchiveLayer>, asks: usize) -> Result<Option<Answers>> {
        let (asked, is_long) = (AtomicUsize::new(0), AtomicBool::new(false));
        let go_on = || match asked.fetch_add(1, Ordering::Relaxed) < asks {
            true => Ok(()),
            false => {
                is_long.store(true, Ordering::Relaxed);
                Err(Error::unavailable("the walk is a long one"))
            }
        };
        match self.merge(archive, &go_on) {
            Err(_) if is_long.load(Ordering::Relaxed) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// The one key that is asked. Links may lead from it to any event, so that all are needed there.
    fn only_key(&self, is_linked: bool) -> Option<&[ScalarValue]> {
        match self.keys.as_slice() {
            [key] if !key.is_empty() && !is_linked => Some(key),
            _ => None,
        }
    }

    /// An error of `go_on` ends it.
    fn merge(&self, archive: Option<&ArchiveLayer>, go_on: &GoOn<'_>) -> Result<Answers> {
        let loaded = self.question.stand.view(&self.view)?;
        let live = &loaded.live;
        let columns = keys::columns(live.plan.answer_keys(), &self.keys)?;
        let encoded = encode_keys(live, &columns, self.keys.len())?;
        let encoded: Vec<&[u8]> = encoded.iter().flatten().collect();
        let source = match archive {
            Some(layer) => Source::Archive(layer),
            None => Source::Layers { stand: &self.question.stand, view: loaded },
        };
        let t = self.question.t(live);
        let mut answers = lookup(live, &source, &encoded, t, &self.columns, go_on)?;
        if answers.estimated {
            self.question.estimated.note(live, &self.columns);
        }
        if let Some(links) = live.plan.links.as_ref().filter(|_| self.paths > 0) {
            let edges = ViewEdges::new(&source, live)?;
            let walk = live.walk(links, &edges, t).while_ok(go_on);
            let mut paths = Vec::with_capacity(self.keys.len());
            for key in 0..self.keys.len() {
                go_on()?;
                let of_key: Vec<ArrayRef> = columns.iter().map(|column| column.slice(key, 1)).collect();
                paths.push(walk.paths(&of_key, self.paths, self.of)?);
            }
            answers.paths = paths.first().map(|first| concat_batches(&first.schema(), &paths)).transpose()?;
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests;
