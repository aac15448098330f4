//! Which keys of an alert began or ceased to satisfy its condition, from one read view to the next.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use catalog::{AlertTransition, AlertVersion};
use committed::registry::{LiveAlert, LiveView};
use engine::alerts::{AlertPlan, KeyWatch, OpenState, Transition};
use serving::{
    LinkedKeys, LoadedView, ReadView, ReverseIndex, ServingClock, WatchedRows, keys_since, rows_of_keys, rows_of_part, watched_parts,
};
use types::tiles::{Micros, RowTime, Span, micros};
use types::vector::Vector;
use types::{Result, TransitionKind};

use crate::event_clock::EventClock;
use crate::outbox::{Outbox, TransitionOrigin};

mod part_reads;
mod transitions;

use part_reads::PartReads;

/// Keys that are evaluated together.
const CHUNK: usize = 4_096;
/// The same of a linked view: each may have to be walked over thousands of edges. Progress is noted during walks too.
const LINKED_CHUNK: usize = 256;
/// A round evaluates at most this many stretches between window edges one by one; what is due later is evaluated at the
/// time of the round. 86,400: a day has this many one-second hops.
const STRETCHES: usize = 86_400;

/// After a pass that only sets timers, at most this many keys are looked up one by one; of more, all are evaluated.
const MOST_LOOKED_UP: usize = 32_768;

/// A round catches up if its time is this far past the previous round's.
const CATCHES_UP: Micros = 1_000_000;

pub(crate) type EncodedKey = Arc<[u8]>;

/// The keys of one alert, over one version of its view.
pub(crate) struct Evaluation {
    alert: AlertVersion,
    resolve: bool,
    repeat: Option<Micros>,
    plan: Arc<AlertPlan>,
    watch: KeyWatch<EncodedKey>,
    /// The position of the last read view; `None` before the first one.
    position: Option<Vector>,
    /// The time of the last round, and before the first one that of the last transitions.
    at: Micros,
    /// The time from which the next round evaluates the keys; `None` if it evaluates them at its own time alone.
    goes_on_from: Option<Micros>,
    /// Whether the condition has changed since the last round: it may hold for any key.
    is_replanned: bool,
    /// The keys of a pass that only sets timers to which something may happen until the time of the round.
    unsettled: Vec<EncodedKey>,
    event_clock: EventClock,
    /// Of a linked view: which keys an edge changes.
    reverse: ReverseIndex,
}

/// What the processes that ran the alert before left in the catalog.
pub(crate) struct RecoveredState {
    pub(crate) open: HashMap<EncodedKey, OpenState>,
    /// The keys that ceased and had begun at `at` or later, each with its `since`.
    pub(crate) ceased: HashMap<EncodedKey, Micros>,
    /// The time of the last transitions.
    pub(crate) at: Micros,
    /// The time of the last round, which may be later.
    pub(crate) last_round: Option<Micros>,
}

impl Evaluation {
    /// Continues from the recovered state. No time before the last round is evaluated.
    pub(crate) fn new(alert: &LiveAlert, plan: Arc<AlertPlan>, left: RecoveredState, reverse: ReverseIndex) -> Self {
        let RecoveredState { open, ceased, at, last_round } = left;
        let (resolve, repeat) = (alert.definition.resolve, alert.definition.repeat);
        Self {
            alert: AlertVersion { name: alert.name.clone(), version: alert.version },
            resolve,
            repeat: repeat.map(|repeat| micros(repeat).max(1)),
            plan,
            watch: KeyWatch::new(repeat, open).after(at, ceased),
            position: None,
            at,
            goes_on_from: last_round.map(|last_round| last_round.max(at)),
            is_replanned: false,
            unsettled: Vec::new(),
            event_clock: EventClock::default(),
            reverse,
        }
    }

    /// Continues with new values of parameters. An open alert stays open until its key is evaluated in the next round.
    pub(crate) fn follow(&mut self, plan: &Arc<AlertPlan>) {
        if self.plan.parameters != plan.parameters {
            (self.plan, self.is_replanned) = (plan.clone(), true);
        }
    }

    pub(crate) fn open(&self) -> usize {
        self.watch.open().len()
    }

    /// The time of the last round.
    pub(crate) fn at(&self) -> Micros {
        self.at
    }

    /// What a read view must have counted for a round to evaluate it.
    pub(crate) fn position(&self) -> Option<&Vector> {
        self.position.as_ref()
    }

    /// Indexes the near edges that a read view of a linked view has and the last one had not. Returns whether there is
    /// room for them; without it, the read view cannot be evaluated.
    pub(crate) async fn index_edges(&mut self, read_view: &ReadView, outbox: &Outbox<'_>) -> Result<bool> {
        let loaded = read_view.view(&self.plan.view.view)?;
        let lacking = self.reverse.lacking(read_view, loaded, &|| outbox.held.note_progress())?;
        let Some(lacking) = lacking else { return Ok(false) };
        for rows in lacking {
            self.reverse.add(loaded, rows)?;
            note_progress(outbox).await?;
        }
        Ok(true)
    }

    pub(crate) fn index_bytes(&self) -> usize {
        self.reverse.bytes()
    }

    /// Evaluates the keys that have changed since the last read view and those that are due. In the first round, after
    /// a parameter was set, and if it is not known which keys have changed, it evaluates all keys. Returns the time at
    /// which it evaluated them, or `None` if it has to wait. Everything that the log received before `complete_to` is
    /// counted in the read view, whose edges are indexed.
    ///
    /// A process that catches up reads hours of events in a moment. So keys are evaluated at the time of the last
    /// round, even if another process made it, and then at each time at which their rows change, up to now. If no
    /// window edge lies between two rounds, rows do not change in between. The time a row changed is unknown; the time
    /// a silence became long enough is known. If an all-time value includes a later event, the row is evaluated at that
    /// event's time ([`AlertPlan::values_since`]).
    pub(crate) async fn round(
        &mut self,
        read_view: &ReadView,
        complete_to: Option<Micros>,
        outbox: &mut Outbox<'_>,
    ) -> Result<Option<Micros>> {
        let loaded = read_view.view(&self.plan.view.view)?;
        let last_round = self.goes_on_from.unwrap_or(self.at);
        let Some(t) = self.time_of(read_view, &loaded.live, complete_to).filter(|t| *t >= last_round && loaded.keeps(*t)) else {
            return Ok(None);
        };
        let position = read_view.vector.of_streams(&loaded.live.streams());
        if self.position.as_ref().is_some_and(|last| !position.covers(last)) {
            return Ok(None);
        }
        let changed = match &self.position {
            Some(last) if !self.is_replanned => {
                keys_since(read_view, loaded, (last, self.at), &self.reverse, &|| outbox.held.note_progress())?
            }
            _ => None,
        };
        let round = Round { read_view, loaded, position: &position, changed: changed.as_ref(), t };
        // New values of parameters are in effect from now on.
        let from = self.goes_on_from.filter(|from| !self.is_replanned && *from < t && loaded.keeps(*from));
        let edge = from.and_then(|from| self.plan.next_edge(from));
        let evaluates_from = from.filter(|_| edge.is_some_and(|edge| edge <= t));
        let mut unsettled = None;
        if let Some(from) = evaluates_from {
            self.evaluate_changed(&round, (from, Pass::Evaluate), outbox).await?;
        } else if let Some(from) = from.filter(|from| t - from > CATCHES_UP) {
            self.unsettled.clear();
            self.evaluate_changed(&round, (from, Pass::OnlyArm), outbox).await?;
            unsettled = Some(std::mem::take(&mut self.unsettled));
        }
        self.evaluate_due(&round, outbox).await?;
        match unsettled {
            // No row has changed since the pass, but for those that were due.
            Some(keys) if keys.len() <= MOST_LOOKED_UP => {
                let keys: Vec<(EncodedKey, Micros)> = keys.into_iter().map(|key| (key, t)).collect();
                self.evaluate_keys(&round, &keys, Pass::Evaluate, outbox).await?;
            }
            _ if evaluates_from.is_none() => self.evaluate_changed(&round, (t, Pass::Evaluate), outbox).await?,
            _ => {}
        }
        (self.position, self.at, self.goes_on_from, self.is_replanned) = (Some(position), t, Some(t), false);
        Ok(Some(t))
    }

    /// The time before which every event of the log is counted. By the clock of events, it is the newest event time
    /// received before that.
    fn time_of(&mut self, read_view: &ReadView, view: &LiveView, complete_to: Option<Micros>) -> Option<Micros> {
        match read_view.clock {
            ServingClock::Wall => complete_to.map(|time| time.min(read_view.now)),
            ServingClock::Event => self.event_clock.at(read_view.now, read_view.max_event_time(view), complete_to),
        }
    }

    /// Evaluates the keys that have changed, or all keys, at a time.
    async fn evaluate_changed(&mut self, round: &Round<'_>, (at, pass): (Micros, Pass), outbox: &mut Outbox<'_>) -> Result<()> {
        match round.changed {
            Some(keys) => self.evaluate_keys(round, &keys.iter().map(|key| (key.clone(), at)).collect::<Vec<_>>(), pass, outbox).await,
            None => self.evaluate_every_key(round, (at, pass), outbox).await,
        }
    }

    /// Evaluates the keys that are due up to the time of the round: stretch by stretch, and the rest at that time.
    async fn evaluate_due(&mut self, round: &Round<'_>, outbox: &mut Outbox<'_>) -> Result<()> {
        for _ in 0..STRETCHES {
            let due = self.due_in_stretch(round);
            if due.is_empty() {
                break;
            }
            self.evaluate_keys(round, &due, Pass::Evaluate, outbox).await?;
        }
        while let Some((_, keys)) = self.watch.due(round.t) {
            let keys: Vec<(EncodedKey, Micros)> = keys.into_iter().map(|key| (key, round.t)).collect();
            self.evaluate_keys(round, &keys, Pass::Evaluate, outbox).await?;
        }
        Ok(())
    }

    /// Removes and returns the keys that are due first and those that are due before the next window edge, each with
    /// the time at which it is evaluated. Stretches follow one another, so a process that continues after what is
    /// committed skips none.
    fn due_in_stretch(&mut self, round: &Round<'_>) -> Vec<(EncodedKey, Micros)> {
        let mut due = Vec::new();
        let mut until = round.t;
        while let Some((at, keys)) = self.watch.due(until) {
            if due.is_empty() {
                until = self.plan.next_edge(at).map_or(until, |edge| until.min(edge - 1));
            }
            let at = if round.loaded.keeps(at) { at } else { round.t };
            due.extend(keys.into_iter().map(|key| (key, at)));
        }
        due
    }

    async fn evaluate_every_key(&mut self, round: &Round<'_>, (at, pass): (Micros, Pass), outbox: &mut Outbox<'_>) -> Result<()> {
        let without_row = match self.plan.view.links().is_some() {
            true => self.evaluate_linked_parts(round, (at, pass), outbox).await?,
            false => self.evaluate_parts(round, (at, pass), outbox).await?,
        };
        // An open key without a row has ceased.
        let mut without_row: Vec<(EncodedKey, Micros)> = without_row.into_iter().map(|key| (key, at)).collect();
        without_row.sort_unstable();
        self.evaluate_keys(round, &without_row, pass, outbox).await
    }

    /// Evaluates the keys of a view without JOIN that have a row. Returns the other open keys.
    async fn evaluate_parts(
        &mut self,
        round: &Round<'_>,
        (at, pass): (Micros, Pass),
        outbox: &mut Outbox<'_>,
    ) -> Result<HashSet<EncodedKey>> {
        let parts = watched_parts(round.read_view, round.loaded)?;
        let (read_view, plan) = (round.read_view.clone(), self.plan.clone());
        let mut reads = PartReads::begin(parts, move |part| {
            let loaded = read_view.view(&plan.view.view)?;
            rows_of_part(&read_view, loaded, &plan, &part, at)
        });
        let mut without_row = self.open_keys();
        while let Some((keys, watched)) = reads.next().await? {
            // A part may have no keys to evaluate.
            note_progress(outbox).await?;
            for from in (0..keys.len()).step_by(CHUNK) {
                let chunk = from..keys.len().min(from + CHUNK);
                let keys: Vec<&EncodedKey> = keys[chunk.clone()].iter().collect();
                for key in &keys {
                    without_row.remove(*key);
                }
                let (found, changes) = (watched.found[chunk.clone()].to_vec(), watched.changes[chunk.clone()].to_vec());
                let since = watched.since[chunk.clone()].to_vec();
                let watched = WatchedRows { rows: watched.rows.slice(from, chunk.len()), found, changes, since };
                let rows = TimedRows { times: vec![at; chunk.len()], watched, pass };
                let made = self.evaluate_rows(round, &keys, &rows)?;
                put(outbox, made, round).await?;
            }
        }
        Ok(without_row)
    }

    /// The same for a linked view.
    async fn evaluate_linked_parts(
        &mut self,
        round: &Round<'_>,
        (at, pass): (Micros, Pass),
        outbox: &mut Outbox<'_>,
    ) -> Result<HashSet<EncodedKey>> {
        let mut without_row = self.open_keys();
        let parts = watched_parts(round.read_view, round.loaded)?;
        let mut linked = LinkedKeys::new(round.read_view, round.loaded, &parts, &|| outbox.held.note_progress())?;
        for part in parts {
            let keys = linked.take_part(round.read_view, round.loaded, &part, &|| outbox.held.note_progress())?;
            note_progress(outbox).await?;
            for key in &keys {
                without_row.remove(key);
            }
            let keys: Vec<(EncodedKey, Micros)> = keys.into_iter().map(|key| (key, at)).collect();
            self.evaluate_keys(round, &keys, pass, outbox).await?;
        }
        Ok(without_row)
    }

    fn open_keys(&self) -> HashSet<EncodedKey> {
        self.watch.open().keys().cloned().collect()
    }

    async fn evaluate_keys(&mut self, round: &Round<'_>, keys: &[(EncodedKey, Micros)], pass: Pass, outbox: &mut Outbox<'_>) -> Result<()> {
        let chunk = if self.plan.view.links().is_some() { LINKED_CHUNK } else { CHUNK };
        for keys in keys.chunks(chunk) {
            let mut made = Vec::new();
            for (t, keys) in group_by_spans(&self.plan, keys) {
                let encoded: Vec<&[u8]> = keys.iter().map(|(key, _)| &**key).collect();
                let watched = rows_of_keys(round.read_view, round.loaded, &self.plan, (&encoded, t), &|| outbox.held.note_progress())?;
                let rows = TimedRows { times: keys.iter().map(|(_, time)| *time).collect(), watched, pass };
                made.extend(self.evaluate_rows(round, &keys.iter().map(|(key, _)| key).collect::<Vec<_>>(), &rows)?);
            }
            put(outbox, made, round).await?;
        }
        Ok(())
    }

    /// Evaluates one row of each key at its time, and returns what happened.
    fn evaluate_rows(&mut self, round: &Round<'_>, keys: &[&EncodedKey], timed: &TimedRows) -> Result<Vec<AlertTransition>> {
        let WatchedRows { rows, found, changes, since: known_since } = &timed.watched;
        let held = self.plan.held(rows, &timed.times)?;
        let next = self.plan.next_change(rows, &timed.times)?;
        let values_since = self.plan.values_since(rows);
        self.note_failures(&held.failed);
        let mut happened: Vec<(u32, Transition<EncodedKey>)> = Vec::new();
        for (row, key) in keys.iter().enumerate() {
            let (at, found) = (timed.times[row], found[row]);
            let next = next[row].filter(|_| found).into_iter().chain(changes[row]).min();
            let holds = found && held.holds[row];
            // The row has had its present values since `since`, which is capped at the round's time. Events are read
            // ahead of the time: if `since` is unknown, a key that did not change in this round may have changed in the
            // one before.
            let since = values_since[row].map_or(round.t, |since| since.min(round.t));
            // A row that is known only from later on waits for that, once also past this round.
            let since = since.max(known_since[row]);
            if let Pass::OnlyArm = timed.pass {
                next.into_iter().for_each(|next| self.watch.arm(key, next.max(since)));
                if !self.watch.is_settled(key, holds, next, round.t) {
                    self.unsettled.push((*key).clone());
                }
                // A key that has ceased since and begins again before now is another alert.
                let begins_again = !holds && next.is_some_and(|next| next <= round.t) && self.watch.open().contains_key(*key);
                if !begins_again {
                    continue;
                }
            }
            if self.watch.postpone(key, since, (at, round.t)) {
                continue;
            }
            let transition = self.watch.observe(key, at, holds, next);
            let transition = transition.filter(|transition| !self.is_missed_repeat(transition, round.t));
            happened.extend(transition.map(|transition| (row as u32, transition)));
        }
        match happened.is_empty() {
            true => Ok(Vec::new()),
            false => self.transitions(&round.loaded.live, timed, happened),
        }
    }

    /// Whether this is one of several missed repeats, of which only the last is sent.
    fn is_missed_repeat(&self, transition: &Transition<EncodedKey>, until: Micros) -> bool {
        let next = self.repeat.map_or(Micros::MAX, |repeat| transition.at.saturating_add(repeat));
        transition.kind == TransitionKind::Repeated && next <= until
    }
}

async fn put(outbox: &mut Outbox<'_>, made: Vec<AlertTransition>, round: &Round<'_>) -> Result<()> {
    if let Some(at) = made.iter().map(|transition| transition.at).max() {
        outbox.put(made, round.position, at.min(round.t), TransitionOrigin::Round).await?;
    }
    note_progress(outbox).await
}

/// Lets others have the thread: a chunk takes some milliseconds, and a part of all keys more.
async fn note_progress(outbox: &Outbox<'_>) -> Result<()> {
    outbox.held.note_progress()?;
    tokio::task::yield_now().await;
    Ok(())
}

/// What one round reads.
struct Round<'a> {
    read_view: &'a ReadView,
    loaded: &'a LoadedView,
    position: &'a Vector,
    /// The keys that have changed since the round before; `None` if any may have.
    changed: Option<&'a BTreeSet<EncodedKey>>,
    t: Micros,
}

/// One row for each of some keys, and the time at which it is evaluated.
struct TimedRows {
    times: Vec<Micros>,
    watched: WatchedRows,
    pass: Pass,
}

/// Whether the condition is evaluated and transitions are put out, or only the timers of keys are set.
#[derive(Clone, Copy)]
enum Pass {
    Evaluate,
    OnlyArm,
}

/// Groups keys whose windows have the same edges, each group with one of their times: their rows are the same at all of
/// them.
fn group_by_spans(plan: &AlertPlan, keys: &[(EncodedKey, Micros)]) -> Vec<(Micros, Vec<(EncodedKey, Micros)>)> {
    let mut groups: Vec<(Micros, Vec<(EncodedKey, Micros)>)> = Vec::new();
    let mut known: HashMap<Vec<Span>, usize> = HashMap::new();
    for (key, t) in keys {
        let spans = plan.ranges().iter().map(|range| RowTime::up_to(*t).span(range)).collect();
        let group = *known.entry(spans).or_insert(groups.len());
        if group == groups.len() {
            groups.push((*t, Vec::new()));
        }
        groups[group].1.push((key.clone(), *t));
    }
    groups
}
