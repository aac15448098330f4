//! A node's side: follows one worker's process, and mirrors its layers as long as it can be reached.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_flight::FlightData;
use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use engine::fresh::{ChangeOutcome, Fresh, FreshLayer, LayerChange, Mirror, Snapshot};
use engine::states::StateRows;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tracing::{debug, error, info, warn};
use types::tiles::Clock;
use types::{Error, ErrorKind, Result};

use crate::asking::DecisionListener;
use crate::layer::{self, Plans};
use crate::message::{FORMAT, Head, LayerHead, LayerRequest, head};
use crate::requests::{Credentials, WorkerConnection, error_of, next};

/// The pause before the second attempt. Later pauses are longer, up to a limit.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LAST_WAIT: Duration = Duration::from_secs(2);
/// How long an owner may be refused before it is asked to claim its partitions again. An owner that lost them learns so
/// sooner.
const REFUSED_FOR: Duration = Duration::from_secs(2);
/// The time limit for a snapshot, whose layers may be large.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(60);
/// A process that has not confirmed by then that it listens counts as unreachable.
const LISTENS_WITHIN: Duration = Duration::from_secs(3);
/// How long to wait for other processes once those that listen have all partitions. A partition may move to one of the
/// others while the event is appended, but a process that hangs must not delay every event until it counts as lost.
const OTHERS_WITHIN: Duration = Duration::from_millis(100);

/// Follows workers for one node. Cheap to clone.
#[derive(Clone)]
pub struct Following {
    /// The fresh layers that the node reads.
    pub fresh: Fresh,
    pub credentials: Credentials,
    /// The views that the node serves. When they change, each stream begins again.
    pub plans: watch::Receiver<Arc<Plans>>,
    /// How much memory the layers of one process may take here.
    pub memory_bytes: usize,
    pub clock: Clock,
    pub links: Links,
}

/// The node's links to the processes that it follows. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Links(Arc<Mutex<BTreeMap<String, Link>>>);

/// A worker's process as a node sees it.
#[derive(Debug, Clone)]
pub struct Link {
    /// The process's name in the catalog.
    pub worker: String,
    pub address: String,
    pub state: LinkState,
    pub since: Instant,
    /// The connection, while the process is followed.
    connection: Option<WorkerConnection>,
}

/// Whether a node reads the layers of the workers of another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// The first connection is not established yet.
    Begun,
    /// The node reads its layers.
    Followed,
    /// The node does not read what the process has not committed.
    Lost { error: String },
}

/// Why a stream ended without an error.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Stopped,
    /// The node serves other views. The stream begins again at once, and the mirrored layers stay until the next
    /// snapshot.
    OtherViews,
    /// The node refused the owner for too long, because it accepted another one. The stream begins again.
    Refused,
}

impl Following {
    /// Follows a process until `stop`, whether or not it can be reached. Begins again after an error or a panic.
    pub async fn follow(&self, worker: &str, address: &str, stop: CancellationToken) {
        let mut following = self.clone();
        let mut mirror = Mirror::new(&self.fresh);
        self.links.set(worker, address, LinkState::Begun, None);
        let mut waits = waits();
        loop {
            let mut had_snapshot = false;
            let streaming = AssertUnwindSafe(following.stream(worker, address, &mut mirror, &mut had_snapshot)).catch_unwind();
            let ended = tokio::select! {
                () = stop.cancelled() => Ok(Ok(Ended::Stopped)),
                ended = streaming => ended,
            };
            // What panicked may do so after each snapshot.
            if had_snapshot && ended.is_ok() {
                waits = self::waits();
            }
            let error = match ended {
                Ok(Ok(Ended::Stopped)) => break,
                Ok(Ok(Ended::OtherViews)) => continue,
                Ok(Ok(Ended::Refused)) => Error::conflict("another worker owns its partitions, or did"),
                Ok(Err(error)) => error,
                Err(_panic) => {
                    error!(worker, address, "following a worker panicked; beginning again");
                    Error::internal("following it panicked: see the log")
                }
            };
            mirror.clear();
            self.links.lose(worker, address, &error);
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(waits.next().unwrap_or(LAST_WAIT)) => {}
            }
        }
        drop(mirror);
        self.links.forget(worker);
    }

    /// Reads one stream, from its snapshot to its end.
    async fn stream(&mut self, worker: &str, address: &str, mirror: &mut Mirror, had_snapshot: &mut bool) -> Result<Ended> {
        let plans = self.plans.borrow_and_update().clone();
        let seen = self.fresh.epochs().into_iter().collect();
        let request = LayerRequest { format: FORMAT, views: plans.keys().cloned().collect(), seen };
        let connection = WorkerConnection::open(address, &self.credentials).await?;
        let mut stream = connection.follow(&request).await?;
        let snapshot = tokio::time::timeout(SNAPSHOT_WITHIN, snapshot(&mut stream, &plans, self.memory_bytes)).await;
        let snapshot = snapshot.map_err(|_| Error::unavailable("a worker's snapshot takes too long"))??;
        let layers = snapshot.layers.len();
        let mut refused_at = refused(None, mirror.reset(snapshot));
        *had_snapshot = true;
        self.links.set(worker, address, LinkState::Followed, Some(connection));
        info!(worker, address, layers, "a worker is followed");
        loop {
            let give_up = refused_at.map_or(Duration::MAX, |at: Instant| REFUSED_FOR.saturating_sub(at.elapsed()));
            let message = tokio::select! {
                message = stream.message() => message.map_err(|status| error_of(&status))?,
                changed = self.plans.changed() => return Ok(if changed.is_ok() { Ended::OtherViews } else { Ended::Stopped }),
                () = tokio::time::sleep(give_up), if refused_at.is_some() => return Ok(Ended::Refused),
            };
            let message = message.ok_or_else(|| Error::unavailable("a worker ended its stream"))?;
            let applied = self.apply(mirror, &message, &plans)?;
            refused_at = refused(refused_at, applied);
        }
    }

    fn apply(&self, mirror: &mut Mirror, message: &FlightData, plans: &Plans) -> Result<ChangeOutcome> {
        Ok(match head(message)? {
            Head::Snapshot { .. } => return Err(Error::corrupt("a worker sent a second snapshot in a stream")),
            Head::Layer(head) => {
                let layer = layer::decode(&head, &message.data_body, plans)?;
                let change = LayerChange::Published { layer: Arc::new(layer), complete_to: head.complete_to.clone() };
                let applied = mirror.apply(head.owner, change);
                self.observe(&head, &message.data_body);
                check_memory(mirror.layers().iter().map(|layer| layer.memory_bytes()).sum(), self.memory_bytes)?;
                applied
            }
            Head::Compacted { owner, start, end } => {
                mirror.compact(owner, &start, &end, |layers| FreshLayer::merge(layers, plans))?;
                ChangeOutcome::Whole
            }
            Head::TakenOver { owner, claims } => mirror.apply(owner, LayerChange::TakenOver(claims)),
            Head::Completed { owner, complete_to } => mirror.apply(owner, LayerChange::Completed(complete_to)),
            Head::Withdrawn { owner, committed, partitions } => mirror.apply(owner, LayerChange::Withdrawn { committed, partitions }),
        })
    }

    fn observe(&self, head: &LayerHead, body: &Bytes) {
        metrics::counter!("basestream_serving_feed_layers_total").increment(1);
        metrics::counter!("basestream_serving_feed_bytes_total").increment(body.len() as u64);
        let age = (self.clock)().saturating_sub(head.published_at).max(0);
        metrics::histogram!("basestream_serving_feed_age_seconds").record(age as f64 / 1e6);
    }
}

/// Limits the memory of the layers. They are released as the node's catalog state advances; if it does not, they would
/// grow without bound.
fn check_memory(held_bytes: usize, most_bytes: usize) -> Result<()> {
    if held_bytes <= most_bytes {
        return Ok(());
    }
    let message = "the layers of a worker take too much memory: answers count what is committed";
    Err(Error::limit(message).with("found bytes", held_bytes).with("expected at most", most_bytes))
}

/// Receives the snapshot with which a stream begins. Errors: `Limit` once its layers take more than `most_bytes`.
async fn snapshot(stream: &mut Streaming<FlightData>, plans: &Plans, most_bytes: usize) -> Result<Snapshot<StateRows>> {
    let Head::Snapshot { format, claims, complete_to, layers } = head(&next(stream).await?)? else {
        return Err(Error::corrupt("a worker's stream does not begin with a snapshot"));
    };
    if format != FORMAT {
        let message = "the worker speaks another format: use one release for workers and nodes";
        return Err(Error::input(message).with("found", format).with("expected", FORMAT));
    }
    let mut snapshot = Snapshot { claims, complete_to, layers: Vec::new() };
    let mut held_bytes = 0;
    for _ in 0..layers {
        let message = next(stream).await?;
        let Head::Layer(head) = head(&message)? else { return Err(Error::corrupt("a worker's snapshot has not all of its layers")) };
        let layer = layer::decode(&head, &message.data_body, plans)?;
        held_bytes += layer.memory_bytes();
        check_memory(held_bytes, most_bytes)?;
        snapshot.layers.push((head.owner, Arc::new(layer)));
    }
    Ok(snapshot)
}

/// Returns since when a worker is refused.
fn refused(since: Option<Instant>, applied: ChangeOutcome) -> Option<Instant> {
    match applied {
        ChangeOutcome::Whole => since,
        ChangeOutcome::Refused => since.or_else(|| Some(Instant::now())),
    }
}

fn waits() -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::default().with_min_delay(FIRST_WAIT).with_max_delay(LAST_WAIT).without_max_times().with_jitter().build()
}

impl Links {
    /// Returns the links to all followed processes, ordered by name.
    pub fn all(&self) -> Vec<Link> {
        self.lock().values().cloned().collect()
    }

    /// Whether the node reads what a process has not committed.
    pub fn is_followed(&self, worker: &str) -> bool {
        self.lock().get(worker).is_some_and(|link| link.state == LinkState::Followed)
    }

    /// Asks every process to listen for the decision about one event, which is about to be appended to this topic. An
    /// error names the process that cannot be reached, and why. Slow processes are left out once the others have all of
    /// these partitions.
    pub async fn listen(&self, topic: &Arc<str>, partitions: &BTreeSet<i32>) -> Vec<Result<DecisionListener>> {
        let links = self.all();
        let listening: FuturesUnordered<_> = links.iter().map(|link| link.listen(topic)).collect();
        let mut have_all = have_all(partitions);
        let is_enough = |listener: &Result<DecisionListener>| listener.as_ref().is_ok_and(|listener| have_all(&listener.partitions));
        answers_in_time(listening, is_enough, || tokio::time::sleep(OTHERS_WITHIN)).await
    }

    fn set(&self, worker: &str, address: &str, state: LinkState, connection: Option<WorkerConnection>) {
        let link = Link { worker: worker.to_owned(), address: address.to_owned(), state, since: Instant::now(), connection };
        self.lock().insert(worker.to_owned(), link);
        self.show();
    }

    /// Logs the first failure only, and records since when the process is lost.
    fn lose(&self, worker: &str, address: &str, error: &Error) {
        let before = self.lock().get(worker).cloned();
        let was_lost = before.as_ref().is_some_and(|link| matches!(link.state, LinkState::Lost { .. }));
        match was_lost {
            true => debug!(worker, address, %error, "a worker cannot be reached"),
            false => {
                warn!(worker, address, %error, "a worker is not followed: answers count what it committed");
                metrics::counter!("basestream_serving_feed_lost_total", "reason" => reason(error.kind())).increment(1);
            }
        }
        self.set(worker, address, LinkState::Lost { error: error.to_string() }, None);
        if let Some(since) = before.filter(|_| was_lost).map(|link| link.since)
            && let Some(link) = self.lock().get_mut(worker)
        {
            link.since = since;
        }
    }

    fn forget(&self, worker: &str) {
        self.lock().remove(worker);
        self.show();
    }

    fn show(&self) {
        let links = self.all();
        let followed = links.iter().filter(|link| link.state == LinkState::Followed).count();
        metrics::gauge!("basestream_serving_feed_workers", "state" => "followed").set(followed as f64);
        metrics::gauge!("basestream_serving_feed_workers", "state" => "lost").set((links.len() - followed) as f64);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    async fn listen(&self, topic: &Arc<str>) -> Result<DecisionListener> {
        let unreached = || Error::unavailable("a worker is not reached").with("worker", &self.worker).with("address", &self.address);
        let connection = self.connection.as_ref().ok_or_else(unreached)?;
        let listening = tokio::time::timeout(LISTENS_WITHIN, DecisionListener::begin(connection, topic)).await;
        listening.map_err(|_| unreached())?.map_err(|error| error.with("worker", &self.worker))
    }
}

/// Returns a check that is called with one answer after the other: whether the answers so far have all of these
/// partitions.
fn have_all(wanted: &BTreeSet<i32>) -> impl FnMut(&BTreeSet<i32>) -> bool {
    let mut reached: BTreeSet<i32> = BTreeSet::new();
    move |partitions: &BTreeSet<i32>| {
        reached.extend(partitions);
        wanted.is_subset(&reached)
    }
}

/// Collects answers until one `is_enough`. From then on, the others have until the limit is over.
async fn answers_in_time<A, L: Future<Output = ()>>(
    mut asked: FuturesUnordered<impl Future<Output = A>>,
    mut is_enough: impl FnMut(&A) -> bool,
    begin_limit: impl FnOnce() -> L,
) -> Vec<A> {
    let (mut answers, mut are_enough) = (Vec::new(), false);
    while !are_enough {
        let Some(answer) = asked.next().await else { return answers };
        are_enough = is_enough(&answer);
        answers.push(answer);
    }
    let mut limit = pin!(begin_limit());
    loop {
        tokio::select! {
            biased;
            answer = asked.next() => match answer {
                Some(answer) => answers.push(answer),
                None => return answers,
            },
            () = &mut limit => return answers,
        }
    }
}

fn reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unauthenticated | ErrorKind::Forbidden => "refused",
        ErrorKind::Limit => "cut off",
        ErrorKind::Conflict => "overtaken",
        ErrorKind::Unavailable => "not reached",
        ErrorKind::Internal => "internal error",
        _ => "not understood",
    }
}

#[cfg(test)]
mod tests;
