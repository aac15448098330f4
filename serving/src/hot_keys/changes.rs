//! Reports changes among the hot keys to a client that watches them: which become hot, and which cease to be.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{HotKey, SeenIn};

/// A key that is not hot for this long has ceased to be: one about the limit does not come and go all the time.
const CEASED_AFTER: Duration = Duration::from_secs(1);

/// A key, in one window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HotKeyName {
    view: Arc<str>,
    key: Box<str>,
    seen_in: SeenIn,
    window: &'static str,
}

/// The keys that are hot, as far as a client knows them.
#[derive(Debug, Default)]
pub(crate) struct KnownHotKeys(HashMap<HotKeyName, Known>);

#[derive(Debug)]
struct Known {
    hot: HotKey,
    /// When it was hot last.
    at: Instant,
}

/// A key that became hot, or that is no longer.
#[derive(Debug)]
pub(crate) enum HotKeyChange {
    Hot(HotKey),
    Ceased(HotKey),
}

impl KnownHotKeys {
    /// Takes the keys that are hot now, and returns what changed.
    pub(crate) fn take<'k>(&mut self, hot: impl IntoIterator<Item = &'k HotKey>, at: Instant) -> Vec<HotKeyChange> {
        let mut changes = Vec::new();
        for hot in hot {
            let name = HotKeyName { view: hot.view.clone(), key: hot.key.get().into(), seen_in: hot.seen_in, window: hot.window };
            if self.0.insert(name, Known { hot: hot.clone(), at }).is_none() {
                changes.push(HotKeyChange::Hot(hot.clone()));
            }
        }
        let ceased = self.0.extract_if(|_, known| at.saturating_duration_since(known.at) >= CEASED_AFTER);
        changes.extend(ceased.map(|(_, known)| HotKeyChange::Ceased(known.hot)));
        changes
    }
}

#[cfg(test)]
mod tests;
