//! Remembers parsed texts, and what follows from them: a text with parameters is sent again and again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use engine::plan::ViewPlan;
use types::Result;

use super::PlainLookup;
use super::answer_columns::AnswerColumns;

/// What a text asks.
#[derive(Debug)]
pub(crate) struct KnownLookup {
    pub(crate) lookup: PlainLookup,
    /// How many parameters it has; `None` where it leaves a number out.
    pub(crate) parameters: Option<usize>,
    /// Its columns, of the plan that it was answered by last.
    columns: Mutex<Option<Arc<AnswerColumns>>>,
}

impl KnownLookup {
    pub(crate) fn new(lookup: PlainLookup) -> Self {
        let named: BTreeSet<usize> = lookup.parameters().collect();
        let parameters = named.iter().copied().eq(1..=named.len()).then_some(named.len());
        Self { lookup, parameters, columns: Mutex::default() }
    }

    /// The columns of its answer by this plan of its view; `None` where one is not there, or is named twice, or shares
    /// its name with another.
    pub(crate) fn columns(&self, plan: &Arc<ViewPlan>) -> Result<Option<Arc<AnswerColumns>>> {
        let mut kept = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|columns| !columns.follow_from(plan)) {
            *kept = AnswerColumns::find(&self.lookup, plan)?.map(Arc::new);
        }
        Ok(kept.clone())
    }
}

/// What texts with parameters ask.
#[derive(Debug, Default)]
pub(crate) struct PlainLookups(RwLock<KnownTexts>);

#[derive(Debug, Default)]
struct KnownTexts {
    lookups: HashMap<Box<str>, Arc<KnownLookup>>,
    /// Of the texts.
    bytes: usize,
}

impl PlainLookups {
    /// This many texts are kept. Applications have fewer; one that has more writes values into its texts, and repeats
    /// none of them.
    const MOST: usize = 256;
    /// The texts take at most this much. What they ask may take some 25 times as much: a constant of a long list has
    /// two bytes in its text.
    const MOST_BYTES: usize = 512 << 10;

    pub(crate) fn get(&self, sql: &str) -> Option<Arc<KnownLookup>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).lookups.get(sql).cloned()
    }

    /// Keeps what a text asks. When there are too many, or they are too long together, all others are dropped.
    pub(crate) fn put(&self, sql: &str, lookup: Arc<KnownLookup>) {
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
