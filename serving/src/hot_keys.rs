//! The keys that are hot, per view and over the last second and ten seconds: those that lookups ask this node for most,
//! and those that most events are of. `system.hot_keys` and `GET /v1/hot-keys` list them; clients may cache what they
//! read of them.
//!
//! A lookup counts its keys, and a fresh layer the events of its keys, in two sketches of their view ([`sliding`]);
//! nothing else is done until somebody asks. Layers are those of this process's workers and of those that the node
//! follows.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::{BinaryArray, RecordBatch};
use committed::registry::{LiveView, Registry};
use engine::fresh::{FreshLayer, ViewVersion};
use engine::states::{BusyKeys, busy_keys};
use serde_json::value::RawValue;
use types::Result;
use types::tiles::Micros;

use crate::json;

use counts::Counts;

pub(crate) mod changes;
mod counts;
mod sliding;

/// A lookup of more keys reads in bulk and is not counted: that would take long.
pub(crate) const MAX_COUNTED_KEYS: usize = 64;
/// Entries of a sketch of lookups. An estimate is above the truth by at most 3.5 in this many of all that was counted.
const LOOKUP_ENTRIES: usize = 128;
/// Entries of a sketch of events.
const EVENT_ENTRIES: usize = 256;
/// A key with less than one in this many events of a micro-batch is not counted there.
const EVENT_PARTS: u64 = 1_000;
/// For those who watch, the list is made this often.
const LISTED_FOR: Duration = Duration::from_millis(250);

/// A key is hot from either of these on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HotFrom {
    /// The part of its view's events, or lookups, that are of the key.
    pub share: f64,
    pub per_second: f64,
}

/// Which keys are hot, and what is kept of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HotKeySettings {
    pub events: HotFrom,
    pub lookups: HotFrom,
    /// Memory for finished rows of keys that lookups ask for often; 0: none are kept.
    pub row_cache_bytes: usize,
}

impl Default for HotKeySettings {
    fn default() -> Self {
        let from = |per_second| HotFrom { share: 0.1, per_second };
        Self { events: from(10_000.0), lookups: from(1_000.0), row_cache_bytes: 64 << 20 }
    }
}

/// The frequent keys of a node.
pub(crate) struct HotKeys {
    events: Counts,
    lookups: Counts,
    listed: Mutex<Option<(Instant, Arc<Vec<HotKey>>)>>,
}

/// What was counted of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SeenIn {
    Events,
    Lookups,
}

impl SeenIn {
    pub(crate) fn name(self) -> &'static str {
        match self {
            SeenIn::Events => "events",
            SeenIn::Lookups => "lookups",
        }
    }
}

/// A hot key of a view that is served.
#[derive(Debug, Clone)]
pub(crate) struct HotKey {
    pub(crate) view: Arc<str>,
    /// An object of the view's keys.
    pub(crate) key: Box<RawValue>,
    pub(crate) seen_in: SeenIn,
    pub(crate) window: &'static str,
    /// Of the view's events, or lookups, in the window.
    pub(crate) share: f64,
    pub(crate) per_second: f64,
    /// When the view had its last event, or lookup.
    pub(crate) seen_at: Micros,
}

impl HotKeys {
    pub(crate) fn new(settings: &HotKeySettings) -> Self {
        let (events, lookups) = (Counts::new(settings.events, EVENT_ENTRIES), Counts::new(settings.lookups, LOOKUP_ENTRIES));
        Self { events, lookups, listed: Mutex::default() }
    }

    /// Counts the keys of a lookup of few, as they are encoded. Returns whether it asks for one key and that is hot.
    pub(crate) fn count_lookup(&self, view: &ViewVersion, keys: &BinaryArray, now: Micros) -> Result<bool> {
        let counted: Vec<(&[u8], u64)> = keys.iter().flatten().map(|key| (key, 1)).collect();
        let asked = counted.first().filter(|_| counted.len() == 1).map(|(key, _)| *key);
        self.lookups.count(view, counted.len() as u64, &counted, asked, now)
    }

    /// Counts the events of a layer, view by view.
    pub(crate) fn count_layer(&self, layer: &FreshLayer, registry: &Registry, now: Micros) -> Result<()> {
        for (version, rows) in layer.states.iter().filter(|(_, rows)| !rows.is_empty()) {
            let Some(live) = registry.view(&version.name, version.version) else { continue };
            let BusyKeys { events, keys } = busy_keys(&live.plan, &live.codec, rows, EVENT_PARTS)?;
            let keys: Vec<(&[u8], u64)> = keys.iter().map(|(key, events)| (&**key, *events)).collect();
            self.events.count(version, events, &keys, None, now)?;
        }
        Ok(())
    }

    /// The hot keys of the views that are served: those of events, then those of lookups, each by view, then by window,
    /// the most frequent first.
    pub(crate) fn list(&self, registry: &Registry, now: Micros) -> Result<Vec<HotKey>> {
        let mut listed = Vec::new();
        for (seen_in, counts) in [(SeenIn::Events, &self.events), (SeenIn::Lookups, &self.lookups)] {
            for found in counts.frequent(now)? {
                let ViewVersion { name, version } = &found.view;
                let Some(live) = registry.served(name).filter(|live| live.version == *version) else { continue };
                for frequent in found.keys {
                    let Some(key) = key_json(live, &frequent.key)? else { continue };
                    let (share, per_second) = (frequent.share, frequent.per_second);
                    listed.push(HotKey {
                        view: name.clone(),
                        key,
                        seen_in,
                        window: found.window,
                        share,
                        per_second,
                        seen_at: found.seen_at,
                    });
                }
            }
        }
        Ok(listed)
    }

    /// The same, made anew four times a second at the most, however many ask.
    pub(crate) fn recent(&self, registry: &Registry, now: Micros) -> Result<Arc<Vec<HotKey>>> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, recent)) = listed.as_ref().filter(|(at, _)| at.elapsed() < LISTED_FOR) {
            return Ok(recent.clone());
        }
        let recent = Arc::new(self.list(registry, now)?);
        *listed = Some((Instant::now(), recent.clone()));
        Ok(recent)
    }
}

fn key_json(live: &LiveView, encoded: &[u8]) -> Result<Option<Box<RawValue>>> {
    let columns = live.plan.answer_keys().iter().zip(live.decoded_keys(&[encoded])?).map(|(field, value)| (field.name(), value, true));
    let rows = json::rows(&RecordBatch::try_from_iter_with_nullable(columns)?)?;
    Ok(rows.into_iter().next())
}

impl fmt::Debug for HotKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HotKeys({} views by events, {} by lookups)", self.events.views(), self.lookups.views())
    }
}

#[cfg(test)]
mod tests;
