//! Remembers parsed texts. Those with parameters are sent again and again.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::PlainLookup;

/// What texts with parameters ask.
#[derive(Debug, Default)]
pub(crate) struct PlainLookups(RwLock<KnownTexts>);

#[derive(Debug, Default)]
struct KnownTexts {
    lookups: HashMap<Box<str>, Arc<PlainLookup>>,
    /// Of the texts.
    bytes: usize,
}

impl PlainLookups {
    /// Applications have fewer. One that has more writes values into its texts, which do not come again.
    const MOST: usize = 256;
    /// The texts take at most this much. What they ask may take some 25 times as much: a constant of a long list has
    /// two bytes in its text.
    const MOST_BYTES: usize = 512 << 10;

    pub(crate) fn get(&self, sql: &str) -> Option<Arc<PlainLookup>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).lookups.get(sql).cloned()
    }

    /// Keeps what a text asks. When there are too many, or they are too long together, it begins anew.
    pub(crate) fn put(&self, sql: &str, lookup: Arc<PlainLookup>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.lookups.contains_key(sql) {
            return;
        }
        if known.lookups.len() >= Self::MOST || known.bytes + sql.len() > Self::MOST_BYTES {
            *known = KnownTexts::default();
        }
        known.bytes += sql.len();
        known.lookups.insert(sql.into(), lookup);
    }
}

#[cfg(test)]
mod tests;
