//! All versions of all definitions. There are more from year to year, and few of them are live: what processes look at
//! with each commit are these.

use std::ops::RangeInclusive;
use std::sync::Arc;

use immutable_chunkmap::map::Map;

use crate::records::{DefinitionKind, DefinitionRecord};

/// Versions per chunk: what is copied at least for one change.
const CHUNK: usize = 16;

/// The versions of definitions, ordered by the word for their kind, name and version. A state shares with the one
/// before it all that no commit has changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DefinitionVersions {
    all: Versions,
    live: Versions,
}

type Versions = Map<VersionKey, Arc<DefinitionRecord>, CHUNK>;
type VersionKey = (&'static str, Arc<str>, u32);

impl DefinitionVersions {
    /// Returns all versions of all definitions.
    pub fn iter(&self) -> impl Iterator<Item = &DefinitionRecord> {
        self.all.into_iter().map(|(_, record)| &**record)
    }

    /// Returns the versions that the speed layer processes.
    pub fn live(&self) -> impl Iterator<Item = &DefinitionRecord> {
        self.live.into_iter().map(|(_, record)| &**record)
    }

    /// Returns the versions of one definition, the oldest first.
    pub fn versions(&self, kind: DefinitionKind, name: &str) -> impl Iterator<Item = &DefinitionRecord> {
        self.all.range(keys(kind, name)).map(|(_, record)| &**record)
    }

    /// Returns the versions of one definition that the speed layer processes, the oldest first.
    pub fn live_versions(&self, kind: DefinitionKind, name: &str) -> impl Iterator<Item = &DefinitionRecord> {
        self.live.range(keys(kind, name)).map(|(_, record)| &**record)
    }

    /// Returns one version of a definition.
    pub fn get(&self, kind: DefinitionKind, name: &str, version: u32) -> Option<&DefinitionRecord> {
        self.all.get(&(kind.word(), name.into(), version)).map(|record| &**record)
    }

    /// Changes the list as a whole, which copies all of it.
    pub fn rewrite(&mut self, change: impl FnOnce(&mut Vec<DefinitionRecord>)) {
        let mut records = self.iter().cloned().collect();
        change(&mut records);
        *self = records.into_iter().collect();
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn keys(kind: DefinitionKind, name: &str) -> RangeInclusive<VersionKey> {
    let name: Arc<str> = name.into();
    (kind.word(), name.clone(), 0)..=(kind.word(), name, u32::MAX)
}

/// A record replaces the one of the same version.
impl Extend<DefinitionRecord> for DefinitionVersions {
    fn extend<I: IntoIterator<Item = DefinitionRecord>>(&mut self, records: I) {
        for record in records {
            let key = (record.kind.word(), record.name.clone(), record.version);
            let record = Arc::new(record);
            self.live = match record.status.is_live() {
                true => self.live.insert(key.clone(), record.clone()).0,
                false => self.live.remove(&key).0,
            };
            self.all = self.all.insert(key, record).0;
        }
    }
}

impl FromIterator<DefinitionRecord> for DefinitionVersions {
    fn from_iter<I: IntoIterator<Item = DefinitionRecord>>(records: I) -> Self {
        let mut all = DefinitionVersions::default();
        all.extend(records);
        all
    }
}

#[cfg(test)]
mod tests;
