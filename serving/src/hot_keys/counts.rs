//! The counts of each view version, in both windows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use engine::fresh::ViewVersion;
use types::Result;
use types::tiles::Micros;

use super::HotFrom;
use super::sliding::{Frequent, Sliding};

/// Longer keys are not counted: sketches keep them.
const MAX_KEY_BYTES: usize = 1024;

/// Either the events of keys or the lookups.
pub(super) struct Counts {
    from: HotFrom,
    /// Entries of each sketch.
    entries: usize,
    /// Each view has a lock of its own: a lookup does not wait for those of other views. That of a view is taken while
    /// this one is held, never the other way round.
    views: RwLock<HashMap<ViewVersion, Arc<Mutex<Windows>>>>,
}

struct Windows {
    second: Sliding,
    ten_seconds: Sliding,
    /// When something was counted last.
    seen_at: Micros,
}

/// The frequent keys of a view version in one window.
pub(super) struct FrequentOfView {
    pub(super) view: ViewVersion,
    pub(super) window: &'static str,
    pub(super) keys: Vec<Frequent>,
    pub(super) seen_at: Micros,
}

impl Counts {
    pub(super) fn new(from: HotFrom, entries: usize) -> Self {
        Self { from, entries, views: RwLock::default() }
    }

    /// Counts these keys among `all`, and returns whether `asked` is hot in the last second then.
    pub(super) fn count(&self, view: &ViewVersion, all: u64, keys: &[(&[u8], u64)], asked: Option<&[u8]>, now: Micros) -> Result<bool> {
        let keys = || keys.iter().copied().filter(|(key, _)| !key.is_empty() && key.len() <= MAX_KEY_BYTES);
        let windows = self.windows_of(view, now);
        let mut windows = lock(&windows);
        windows.second.count(all, keys(), now)?;
        windows.ten_seconds.count(all, keys(), now)?;
        windows.seen_at = windows.seen_at.max(now);
        Ok(asked.is_some_and(|key| windows.second.is_hot(key, &self.from, now)))
    }

    /// By view, then by window, the most frequent first. Forgets the views of which nothing was counted in the last ten
    /// seconds.
    pub(super) fn frequent(&self, now: Micros) -> Result<Vec<FrequentOfView>> {
        let mut views: Vec<(ViewVersion, Arc<Mutex<Windows>>)> = {
            let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
            forget_unused(&mut views, now);
            views.iter().map(|(view, windows)| (view.clone(), windows.clone())).collect()
        };
        views.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut found = Vec::new();
        for (view, windows) in views {
            let windows = lock(&windows);
            for (window, sliding) in [("1s", &windows.second), ("10s", &windows.ten_seconds)] {
                let mut keys = sliding.frequent(&self.from, now)?;
                keys.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.key.cmp(&b.key)));
                found.push(FrequentOfView { view: view.clone(), window, keys, seen_at: windows.seen_at });
            }
        }
        Ok(found)
    }

    pub(super) fn views(&self) -> usize {
        self.views.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn windows_of(&self, view: &ViewVersion, now: Micros) -> Arc<Mutex<Windows>> {
        let known = self.views.read().unwrap_or_else(PoisonError::into_inner).get(view).cloned();
        if let Some(windows) = known {
            return windows;
        }
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        // Versions that are no longer served are forgotten here too: perhaps nobody ever asks which keys are hot.
        forget_unused(&mut views, now);
        views.entry(view.clone()).or_insert_with(|| Arc::new(Mutex::new(Windows::new(self.entries)))).clone()
    }
}

/// Keeps the views of which something was counted in the last ten seconds, or is being counted now.
fn forget_unused(views: &mut HashMap<ViewVersion, Arc<Mutex<Windows>>>, now: Micros) {
    views.retain(|_, windows| Arc::strong_count(windows) > 1 || !lock(windows).ten_seconds.is_empty(now));
}

fn lock(windows: &Mutex<Windows>) -> MutexGuard<'_, Windows> {
    windows.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Windows {
    fn new(entries: usize) -> Self {
        Self { second: Sliding::new(250_000, 4, entries), ten_seconds: Sliding::new(1_000_000, 10, entries), seen_at: 0 }
    }
}
