//! What the subscribers of alerts share: the limit of their number, and one poller that reads the catalog for all of
//! them while there are any.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use catalog::{CommittedTransition, Revision, TransitionPlace};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;
use types::{Error, Result, threads};

use super::recent::{EventPiece, Recent, Room, TransitionEvent};
use super::{shown, visible};
use crate::node::Node;
use crate::read_view::Loaded;

/// How many there may be, of all principals.
const MAX_SUBSCRIBERS: usize = 256;
/// How often it is looked whether the catalog moved.
const POLL: Duration = Duration::from_millis(100);
/// How long to wait after an error.
const PAUSE: Duration = Duration::from_secs(1);
/// Transitions that are read together. One takes up to a megabyte.
const READ_AT_ONCE: u32 = 100;
/// Of those that are read, as many are taken as have this many bytes.
const READ_BYTES: usize = 1 << 20;
/// This many subscribers that are behind read the catalog at a time.
const CATCHING_UP: usize = 4;
const ROOM: Room = Room { events: 4_096, bytes: 8 << 20 };

/// Cheap to clone.
#[derive(Clone)]
pub(in crate::http) struct Subscriptions(Arc<Inner>);

struct Inner {
    node: Node,
    stop: CancellationToken,
    room: Room,
    state: Mutex<State>,
    /// Moves when there are more events.
    moved: watch::Sender<()>,
    catching_up: Semaphore,
}

#[derive(Default)]
struct State {
    subscribers: usize,
    polling: Option<AbortOnDropHandle<()>>,
    /// `None` until the first look.
    recent: Option<Recent>,
}

/// One subscriber's place among them.
pub(super) struct AlertSubscription {
    inner: Arc<Inner>,
    moved: watch::Receiver<()>,
}

/// The events that are kept in memory for all subscribers, after the place of one.
pub(super) enum RecentEvents {
    Events(EventPiece),
    /// The subscriber is too far behind.
    Behind,
    /// Nothing was read yet.
    NotYet,
}

/// What the catalog has after a place.
pub(super) struct Read {
    pub(super) piece: EventPiece,
    pub(super) is_kept: bool,
    pub(super) present: Revision,
    pub(super) forgotten: Revision,
    has_more: bool,
}

impl Subscriptions {
    /// They end with `stop`.
    pub(in crate::http) fn new(node: Node, stop: CancellationToken) -> Self {
        Self::with_room(node, stop, ROOM)
    }

    pub(super) fn with_room(node: Node, stop: CancellationToken, room: Room) -> Self {
        let catching_up = Semaphore::new(CATCHING_UP);
        Self(Arc::new(Inner { node, stop, room, state: Mutex::default(), moved: watch::Sender::default(), catching_up }))
    }

    /// Errors: `Busy` where there are as many as may be.
    pub(super) fn subscribe(&self) -> Result<AlertSubscription> {
        let mut state = self.0.lock();
        if state.subscribers >= MAX_SUBSCRIBERS {
            return Err(Error::busy("too many clients follow alerts: try again, or read GET /v1/alerts without a stream")
                .with("most", MAX_SUBSCRIBERS));
        }
        state.subscribers += 1;
        state.polling.get_or_insert_with(|| AbortOnDropHandle::new(threads::QUERIES.spawn(poll(Arc::downgrade(&self.0)))));
        show(&state);
        Ok(AlertSubscription { inner: self.0.clone(), moved: self.0.moved.subscribe() })
    }
}

#[cfg(test)]
impl Subscriptions {
    pub(super) fn is_polling(&self) -> bool {
        self.0.lock().polling.is_some()
    }
}

impl AlertSubscription {
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.inner.stop
    }

    /// Where the catalog is now.
    pub(super) async fn present(&self) -> Result<TransitionPlace> {
        Ok(TransitionPlace::after(self.inner.node.catalog().revision().await?))
    }

    pub(super) fn recent_events(&self, after: TransitionPlace) -> RecentEvents {
        match &self.inner.lock().recent {
            None => RecentEvents::NotYet,
            Some(recent) => recent.after(after).map_or(RecentEvents::Behind, RecentEvents::Events),
        }
    }

    /// Reads from the catalog what is not in memory.
    pub(super) async fn read(&self, after: TransitionPlace) -> Result<Read> {
        let _permit = self.inner.catching_up.acquire().await.map_err(|error| Error::internal(error.to_string()))?;
        self.inner.read(after).await
    }

    /// Waits until there may be more at hand than when this was called last.
    pub(super) async fn moved(&mut self) {
        // The sender lives as long as this.
        let _ = self.moved.changed().await;
    }
}

impl Drop for AlertSubscription {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        state.subscribers -= 1;
        if state.subscribers == 0 {
            (state.polling, state.recent) = (None, None);
        }
        show(&state);
    }
}

/// Polls the catalog for all subscribers, until it is aborted when the last one leaves.
async fn poll(subscriptions: Weak<Inner>) {
    loop {
        let Some(inner) = subscriptions.upgrade() else { return };
        let pause = match inner.read_new().await {
            Ok(true) => Duration::ZERO,
            Ok(false) => POLL,
            Err(error) => {
                debug!(%error, "the transitions of alerts cannot be read; trying again");
                PAUSE
            }
        };
        drop(inner);
        tokio::time::sleep(pause).await;
    }
}

impl Inner {
    /// Adds what was committed since the last call. Returns whether there is more.
    async fn read_new(&self) -> Result<bool> {
        let revision = self.node.catalog().revision().await?;
        let last = self.lock().recent.as_ref().map(Recent::to);
        let Some(last) = last else {
            self.lock().recent = Some(Recent::new(TransitionPlace::after(revision), self.room));
            self.moved.send_replace(());
            return Ok(false);
        };
        if last == TransitionPlace::after(revision) {
            return Ok(false);
        }
        let read = self.read(last).await?;
        if read.is_kept && read.piece.to == last {
            return Ok(false);
        }
        let mut state = self.lock();
        // The poller of subscribers that have gone meanwhile may still be here.
        let Some(recent) = state.recent.as_mut().filter(|recent| recent.to() == last) else { return Ok(false) };
        match read.is_kept {
            true => recent.add(read.piece),
            // Each subscriber finds out by itself that some are gone.
            false => *recent = Recent::new(TransitionPlace::after(read.present), self.room),
        }
        drop(state);
        self.moved.send_replace(());
        Ok(read.has_more)
    }

    async fn read(&self, after: TransitionPlace) -> Result<Read> {
        let found = self.node.catalog().transitions_after(after, READ_AT_ONCE).await?;
        let present = TransitionPlace::after(found.revision);
        let is_kept = after <= present && after.is_kept(found.forgotten);
        let loaded = self.node.loaded();
        let (mut events, mut bytes, mut is_known) = (Vec::<Arc<TransitionEvent>>::new(), 0, true);
        for committed in &found.transitions {
            let Some(event) = event_of(committed, loaded.as_deref())? else {
                is_known = false;
                break;
            };
            bytes += event.json.len();
            events.push(Arc::new(event));
            if bytes >= READ_BYTES {
                break;
            }
        }
        let is_cut = events.len() < found.transitions.len();
        let is_whole = !is_cut && found.transitions.len() < READ_AT_ONCE as usize;
        let to = if is_whole { present } else { events.last().map_or(after, |last| last.place) };
        let has_more = !is_whole && is_known;
        Ok(Read { piece: EventPiece { events, to }, is_kept, present: found.revision, forgotten: found.forgotten, has_more })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` for a transition of an alert that this node will learn of in a moment: it decides who sees it.
fn event_of(committed: &CommittedTransition, loaded: Option<&Loaded>) -> Result<Option<TransitionEvent>> {
    let made = &committed.transition;
    let alerts = loaded.into_iter().flat_map(|loaded| &loaded.registry.alerts);
    let live = alerts.into_iter().find(|live| live.name == made.alert && live.version == made.version);
    if live.is_none() && loaded.is_none_or(|loaded| loaded.state.revision < committed.revision) {
        return Ok(None);
    }
    Ok(Some(TransitionEvent {
        place: committed.place(),
        alert: made.alert.clone(),
        view: live.and_then(visible::view_of).cloned(),
        state: made.kind.word(),
        json: shown::transition(made)?,
    }))
}

fn show(state: &State) {
    metrics::gauge!("basestream_serving_alert_subscribers").set(state.subscribers as f64);
}
