//! The keys of one alert: which are open, since when, and when each has to be evaluated again.
//!
//! A timer says when a key has to be evaluated next. An event that postpones that time does not move the timer: a
//! device that reports every second leaves it as it is. When the timer is due, the key's row gives the later time, and
//! the timer is set again. So an event costs no timer operation, and each key has one timer in effect. A timer that an
//! earlier one replaced stays in the heap until it is due or until such timers are the larger part of the heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use types::TransitionKind;
use types::tiles::Micros;

/// A key whose row satisfies the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenState {
    /// When it began: no two begins of a key have the same time, see [`KeyWatch::observe`].
    pub since: Micros,
    /// The time of its last record.
    pub last: Micros,
}

/// A change of a key that becomes a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition<K> {
    pub key: K,
    pub kind: TransitionKind,
    /// When the row began to satisfy the condition. With the key, it identifies the alert.
    pub since: Micros,
    pub at: Micros,
}

/// This many timers may be ignored, beside as many as are in effect, before they are removed.
const IGNORED_TIMERS: usize = 1_024;

/// The keys of one alert, with their timers: see the module.
#[derive(Debug, Clone)]
pub struct KeyWatch<K> {
    repeat: Option<Micros>,
    open: HashMap<K, OpenState>,
    /// The keys that have ceased and had begun at the time last observed or later, each with its `since`.
    ceased: HashMap<K, Micros>,
    /// The time last observed.
    observed: Micros,
    /// The timer in effect of each key. Others in `timers` are ignored.
    armed: HashMap<K, Micros>,
    timers: BinaryHeap<Reverse<(Micros, K)>>,
    /// Until when keys were postponed past a round, as long as they have not been observed since.
    postponed: HashMap<K, Micros>,
}

impl<K: Clone + Ord + Hash> KeyWatch<K> {
    /// Continues with what is open. Every key that has a row has to be evaluated once, because timers are not stored.
    pub fn new(repeat: Option<Duration>, open: HashMap<K, OpenState>) -> Self {
        let repeat = repeat.map(|repeat| Micros::try_from(repeat.as_micros()).unwrap_or(Micros::MAX).max(1));
        Self {
            repeat,
            open,
            ceased: HashMap::new(),
            observed: Micros::MIN,
            armed: HashMap::new(),
            timers: BinaryHeap::new(),
            postponed: HashMap::new(),
        }
    }

    /// Continues after `observed`, with the keys that have ceased and had begun at that time or later.
    #[must_use]
    pub fn after(self, observed: Micros, ceased: HashMap<K, Micros>) -> Self {
        Self { ceased, observed, ..self }
    }

    pub fn open(&self) -> &HashMap<K, OpenState> {
        &self.open
    }

    /// Removes the timers that are due first, at `until` at the latest. Returns their time and keys. Each key has to be
    /// evaluated at that time, before anything later is.
    pub fn due(&mut self, until: Micros) -> Option<(Micros, Vec<K>)> {
        let (mut at, mut keys) = (None, Vec::new());
        while let Some(Reverse((time, _))) = self.timers.peek() {
            if *time > until || at.is_some_and(|at| at != *time) {
                break;
            }
            let Some(Reverse((time, key))) = self.timers.pop() else { break };
            // The key may have been armed for an earlier time since, and then again.
            if self.armed.get(&key) == Some(&time) {
                self.armed.remove(&key);
                at = Some(time);
                keys.push(key);
            }
        }
        at.map(|at| (at, keys))
    }

    /// Records whether a key's row satisfies the condition at a time. `next` is the first later time at which that may
    /// change without an event. Times do not decrease, but may repeat. If a key ceases and begins again at the same
    /// time, its new `since` is a microsecond later, because key and `since` identify an alert.
    pub fn observe(&mut self, key: &K, at: Micros, holds: bool, next: Option<Micros>) -> Option<Transition<K>> {
        self.postponed.remove(key);
        if at > self.observed {
            self.observed = at;
            // A key that began a microsecond later than it was observed may still be ahead of the time.
            self.ceased.retain(|_, since| *since >= at);
        }
        let transition = |kind, since| Some(Transition { key: key.clone(), kind, since, at: at.max(since) });
        let found = match (self.open.get_mut(key), holds) {
            (None, false) => None,
            (None, true) => {
                let since = self.ceased.get(key).map_or(at, |ceased| at.max(ceased.saturating_add(1)));
                self.open.insert(key.clone(), OpenState { since, last: at });
                transition(TransitionKind::Began, since)
            }
            (Some(open), true) => match self.repeat {
                Some(repeat) if at.saturating_sub(open.last) >= repeat => {
                    open.last = at;
                    transition(TransitionKind::Repeated, open.since)
                }
                _ => None,
            },
            (Some(open), false) => {
                let since = open.since;
                self.open.remove(key);
                self.ceased.insert(key.clone(), since);
                transition(TransitionKind::Resolved, since)
            }
        };
        let repeats = self.open.get(key).zip(self.repeat).map(|(open, repeat)| open.last.saturating_add(repeat));
        if let Some(time) = next.into_iter().chain(repeats).min() {
            self.arm(key, time);
        }
        found
    }

    /// Sets a key's timer to the time from which its row is known, if that is after `at`. Returns whether it did: if
    /// not, the key has to be observed at `at`. Keys are evaluated up to the time of the `round`.
    ///
    /// A key is postponed past a round once. If its row is not known at the time of the round when the timer is due,
    /// events go on and the next timer would find the same, so the key is observed at the time of that round.
    pub fn postpone(&mut self, key: &K, known_from: Micros, (at, round): (Micros, Micros)) -> bool {
        if known_from <= at {
            return false;
        }
        let time = match known_from > round {
            true => round.max(*self.postponed.entry(key.clone()).or_insert(known_from)),
            false => known_from,
        };
        let is_later = time > at;
        if is_later {
            self.arm(key, time);
        }
        is_later
    }

    /// Sets a key's timer, unless it is set to an earlier time.
    pub fn arm(&mut self, key: &K, time: Micros) {
        if self.armed.get(key).is_none_or(|armed| *armed > time) {
            self.armed.insert(key.clone(), time);
            self.timers.push(Reverse((time, key.clone())));
            self.remove_ignored_timers();
        }
    }

    /// Whether nothing happens to a key until a time, if its row `holds` or not from now on and may change at `next`:
    /// to observe it then has no effect but to set its timer to `next`.
    pub fn is_settled(&self, key: &K, holds: bool, next: Option<Micros>, until: Micros) -> bool {
        let is_open = self.open.contains_key(key);
        let repeats = is_open && self.repeat.is_some();
        holds == is_open && !repeats && next.is_none_or(|next| next > until)
    }

    /// Keeps only the timers in effect if most are ignored: a key whose short window is refilled again and again would
    /// otherwise leave one timer each time for the end of its long one.
    fn remove_ignored_timers(&mut self) {
        if self.timers.len() > 2 * self.armed.len() + IGNORED_TIMERS {
            self.timers = self.armed.iter().map(|(key, time)| Reverse((*time, key.clone()))).collect();
        }
    }
}

#[cfg(test)]
mod tests;
