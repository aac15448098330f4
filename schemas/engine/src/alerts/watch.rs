//! The keys of one alert: which are open, since when, and when each has to be looked at again.
//!
//! A timer says when a key has to be looked at next. An event that postpones that time does not move the timer: a device
//! that reports each second leaves it as it is. When the timer is due, the key's row gives the later time, and the timer is
//! set again. So an event costs no timer operation, and each key has one timer in effect.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use types::TransitionKind;
use types::tiles::Micros;

/// A key whose row satisfies the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    pub since: Micros,
    /// The time of its last record.
    pub last: Micros,
}

/// What becomes a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition<K> {
    pub key: K,
    pub kind: TransitionKind,
    /// When the row began to satisfy the condition. With the key, it identifies the alert.
    pub since: Micros,
    pub at: Micros,
}

#[derive(Debug, Clone)]
pub struct Watch<K> {
    repeat: Option<Micros>,
    open: BTreeMap<K, Open>,
    /// The timer in effect of each key. Others in `timers` are ignored.
    armed: HashMap<K, Micros>,
    timers: BinaryHeap<Reverse<(Micros, K)>>,
}

impl<K: Clone + Ord + Hash> Watch<K> {
    /// Goes on with what is open. Every key that has a row has to be looked at once: timers are not stored.
    pub fn new(repeat: Option<Duration>, open: BTreeMap<K, Open>) -> Self {
        let repeat = repeat.map(|repeat| Micros::try_from(repeat.as_micros()).unwrap_or(Micros::MAX).max(1));
        Self { repeat, open, armed: HashMap::new(), timers: BinaryHeap::new() }
    }

    pub fn open(&self) -> &BTreeMap<K, Open> {
        &self.open
    }

    /// The number of timers, those that are ignored included.
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Takes out the keys whose timers are due first, at `until` at the latest, and that time. Each has to be looked at for
    /// that time, before anything that happened later is.
    pub fn due(&mut self, until: Micros) -> Option<(Micros, Vec<K>)> {
        let (mut at, mut keys) = (None, Vec::new());
        while let Some(Reverse((time, _))) = self.timers.peek() {
            if *time > until || at.is_some_and(|at| at != *time) {
                break;
            }
            let Some(Reverse((time, key))) = self.timers.pop() else { break };
            // It may have been armed for an earlier time since, and then again.
            if self.armed.get(&key) == Some(&time) {
                self.armed.remove(&key);
                at = Some(time);
                keys.push(key);
            }
        }
        at.map(|at| (at, keys))
    }

    /// Takes note of a key's row at a time: whether it satisfies the condition, and the first time after that at which it
    /// may be otherwise though no event comes. Times never go back.
    pub fn look(&mut self, key: &K, at: Micros, holds: bool, next: Option<Micros>) -> Option<Transition<K>> {
        let transition = |kind, since| Some(Transition { key: key.clone(), kind, since, at });
        let found = match (self.open.get_mut(key), holds) {
            (None, false) => None,
            (None, true) => {
                self.open.insert(key.clone(), Open { since: at, last: at });
                transition(TransitionKind::Began, at)
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
                transition(TransitionKind::Resolved, since)
            }
        };
        let repeats = self.open.get(key).zip(self.repeat).map(|(open, repeat)| open.last.saturating_add(repeat));
        if let Some(time) = next.into_iter().chain(repeats).min() {
            self.arm(key, time);
        }
        found
    }

    /// A timer that is due before is left where it is.
    fn arm(&mut self, key: &K, time: Micros) {
        if self.armed.get(key).is_none_or(|armed| *armed > time) {
            self.armed.insert(key.clone(), time);
            self.timers.push(Reverse((time, key.clone())));
        }
    }
}

#[cfg(test)]
mod tests;
