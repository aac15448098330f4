//! How far a chain of conditions is passed within a window: `window_funnel`.
//!
//! The rules are those of ClickHouse's `windowFunnel`. Of each length of chain, the one that began last is kept:
//! whatever may follow within the window, follows it too. An event that holds several conditions is taken for the first
//! of them first.

use datafusion::common::{Result, plan_err};
use definitions::durations::parse_duration;
use types::tiles::micros;

use super::WINDOW_FUNNEL;
use super::event::MarkedEvent;

/// What a funnel asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Funnel {
    window_us: i64,
    conditions: usize,
    modes: Modes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Modes {
    /// A condition that was reached ends the search when it holds again, except the first.
    deduplication: bool,
    /// An event that holds no condition, or one whose turn has not come, ends the search once it has begun.
    pub(super) order: bool,
    /// Each event of a chain is later than the one before.
    increase: bool,
    /// An event counts once in a chain.
    once: bool,
}

impl Funnel {
    pub(super) fn new(window: &str, modes: &[&str], conditions: usize) -> Result<Self> {
        let window = match parse_duration(window) {
            Ok(window) => window,
            Err(error) => return plan_err!("the first argument of {WINDOW_FUNNEL}: {error}"),
        };
        let mut chosen = Modes::default();
        for mode in modes {
            match *mode {
                "strict_deduplication" => chosen.deduplication = true,
                "strict_order" => chosen.order = true,
                "strict_increase" => chosen.increase = true,
                "strict_once" => chosen.once = true,
                other => {
                    return plan_err!(
                        "{WINDOW_FUNNEL} has the mode '{other}': expected 'strict_deduplication', 'strict_order', \
                         'strict_increase' or 'strict_once'"
                    );
                }
            }
        }
        Ok(Self { window_us: micros(window), conditions, modes: chosen })
    }

    /// Whether events that hold no condition matter.
    pub(super) fn modes(&self) -> Modes {
        self.modes
    }

    /// The greatest number of conditions that a chain of these events passes.
    pub(super) fn level(&self, events: &[MarkedEvent]) -> i64 {
        let mut chains = Chains::new(self);
        for event in events {
            if chains.take(event) == After::Ends {
                break;
            }
        }
        chains.reached() as i64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    GoesOn,
    Ends,
}

/// The chains so far, by how many conditions they passed: when the one began that began last.
struct Chains<'f> {
    funnel: &'f Funnel,
    began: Vec<Option<i64>>,
    /// The same without what the next event must not follow: itself, or events of the same time.
    began_before: Vec<Option<i64>>,
    time: Option<i64>,
}

impl<'f> Chains<'f> {
    fn new(funnel: &'f Funnel) -> Self {
        let none = vec![None; funnel.conditions];
        Self { funnel, began: none.clone(), began_before: none, time: None }
    }

    fn reached(&self) -> usize {
        self.began.iter().take_while(|began| began.is_some()).count()
    }

    fn take(&mut self, event: &MarkedEvent) -> After {
        let modes = self.funnel.modes;
        if modes.order && event.mask == 0 && self.began[0].is_some() {
            return After::Ends;
        }
        let later = self.time.is_none_or(|time| time < event.time);
        if if modes.increase { later } else { modes.once } {
            self.began_before.clone_from(&self.began);
        }
        self.time = Some(event.time);
        for condition in (0..self.funnel.conditions).filter(|condition| event.mask & (1 << condition) != 0) {
            if condition == 0 {
                self.began[0] = Some(event.time);
                continue;
            }
            let repeats = modes.deduplication && self.began[condition].is_some();
            let is_early = modes.order && self.began[0].is_some() && self.began[condition - 1].is_none();
            if repeats || is_early {
                return After::Ends;
            }
            let follows = if modes.increase || modes.once { &self.began_before } else { &self.began };
            let in_window = |began: &i64| i128::from(event.time) - i128::from(*began) <= i128::from(self.funnel.window_us);
            if let Some(began) = follows[condition - 1].filter(in_window) {
                self.began[condition] = self.began[condition].max(Some(began));
            }
        }
        if self.reached() == self.funnel.conditions { After::Ends } else { After::GoesOn }
    }
}

#[cfg(test)]
mod tests;
