//! The keys that lookups ask for most, per view and over the last second and ten seconds: `system.hot_keys` and
//! `GET /v1/hot-keys`. Clients may cache what they read of them.
//!
//! A lookup counts its keys in two sketches of its view ([`sliding`]); nothing else is done until somebody asks.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use committed::registry::{LiveView, Registry};
use datafusion::common::ScalarValue;
use serde_json::value::RawValue;
use types::Result;
use types::tiles::Micros;

use crate::json;

use sliding::{Frequent, Sliding};

mod sliding;

/// A hot key has at least this share of its view's lookups,
const HOT_SHARE: f64 = 0.1;
/// and is asked at least this many times a second: a quiet node has no hot keys.
const HOT_PER_SECOND: f64 = 10.0;
/// A lookup of more keys reads in bulk and is not counted: that would take long.
const MAX_COUNTED_KEYS: usize = 64;
/// Longer keys are not counted: sketches keep them.
const MAX_KEY_BYTES: usize = 1024;

/// The frequent keys of a node's lookups.
#[derive(Default)]
pub(crate) struct HotKeys(Mutex<HashMap<Arc<str>, Windows>>);

/// What was asked of one view.
struct Windows {
    second: Sliding,
    ten_seconds: Sliding,
    /// When its newest lookup was.
    seen_at: Micros,
}

/// The frequent keys of a view in one window.
struct FrequentOfView {
    view: Arc<str>,
    window: &'static str,
    keys: Vec<Frequent>,
    seen_at: Micros,
}

/// A key that lookups ask for often, of a view that is served.
#[derive(Debug, Clone)]
pub(crate) struct HotKey {
    pub(crate) view: Arc<str>,
    /// An object of the view's keys.
    pub(crate) key: Box<RawValue>,
    pub(crate) window: &'static str,
    /// Of the view's lookups in the window.
    pub(crate) share: f64,
    pub(crate) per_second: f64,
    /// When the view was asked last.
    pub(crate) seen_at: Micros,
}

impl HotKeys {
    /// Counts the keys of a lookup.
    pub(crate) fn count(&self, view: &Arc<str>, keys: &[Vec<ScalarValue>], now: Micros) -> Result<()> {
        if keys.len() > MAX_COUNTED_KEYS {
            return Ok(());
        }
        let is_counted = |key: &&Vec<ScalarValue>| !key.is_empty() && key.iter().map(ScalarValue::size).sum::<usize>() <= MAX_KEY_BYTES;
        let mut views = self.lock();
        if !views.contains_key(view) {
            views.insert(view.clone(), Windows::new());
        }
        let Some(windows) = views.get_mut(view) else { return Ok(()) };
        for key in keys.iter().filter(is_counted) {
            windows.second.count(key, now)?;
            windows.ten_seconds.count(key, now)?;
        }
        windows.seen_at = windows.seen_at.max(now);
        Ok(())
    }

    /// The hot keys of the views that are served: by view, then by window, the most frequent first.
    pub(crate) fn list(&self, registry: &Registry, now: Micros) -> Result<Vec<HotKey>> {
        let mut listed = Vec::new();
        for FrequentOfView { view, window, keys, seen_at } in self.frequent(now)? {
            let Some(live) = registry.served(&view) else { continue };
            for Frequent { key, share, per_second } in keys {
                if let Some(key) = key_json(live, &key)? {
                    listed.push(HotKey { view: view.clone(), key, window, share, per_second, seen_at });
                }
            }
        }
        Ok(listed)
    }

    /// Forgets the views that nobody asked in the last ten seconds.
    fn frequent(&self, now: Micros) -> Result<Vec<FrequentOfView>> {
        let mut views = self.lock();
        views.retain(|_, windows| !windows.ten_seconds.is_empty(now));
        let mut found = Vec::new();
        for (view, windows) in &*views {
            for (window, sliding) in [("1s", &windows.second), ("10s", &windows.ten_seconds)] {
                let mut keys = sliding.frequent(HOT_SHARE, HOT_PER_SECOND, now)?;
                keys.sort_by(|a, b| b.share.total_cmp(&a.share));
                found.push(FrequentOfView { view: view.clone(), window, keys, seen_at: windows.seen_at });
            }
        }
        drop(views);
        found.sort_by(|a, b| a.view.cmp(&b.view));
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Windows>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Windows {
    fn new() -> Self {
        Self { second: Sliding::new(250_000, 4), ten_seconds: Sliding::new(1_000_000, 10), seen_at: 0 }
    }
}

/// `None` for a key of another version of the view, which has other keys.
fn key_json(live: &LiveView, key: &[ScalarValue]) -> Result<Option<Box<RawValue>>> {
    let fields = live.plan.answer_keys();
    let is_of_view = fields.len() == key.len() && fields.iter().zip(key).all(|(field, value)| *field.data_type() == value.data_type());
    if !is_of_view {
        return Ok(None);
    }
    let mut columns = Vec::with_capacity(key.len());
    for (field, value) in fields.iter().zip(key) {
        columns.push((field.name(), value.to_array()?, true));
    }
    let rows = json::rows(&RecordBatch::try_from_iter_with_nullable(columns)?)?;
    Ok(rows.into_iter().next())
}

impl fmt::Debug for HotKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HotKeys({} views)", self.lock().len())
    }
}

#[cfg(test)]
mod tests;
