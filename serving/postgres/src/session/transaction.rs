//! A transaction of a client: what its queries read, and its savepoints.

use std::collections::VecDeque;
use std::sync::Arc;

use serving::ReadView;

use super::settings::Changed;
use crate::problem::{SqlProblem, UNDEFINED_SAVEPOINT};

/// A transaction knows this many savepoints: some drivers set one before each statement, and release none.
pub(super) const MAX_SAVEPOINTS: usize = 10_000;
/// Of their names; PostgreSQL has names of 63 bytes.
const SAVEPOINT_NAME_CHARS: usize = 63;
/// The settings that savepoints go back to have this many bytes: past it, the oldest savepoints are forgotten.
pub(super) const MAX_SAVED_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) failed: bool,
    /// The settings when it began: a rollback goes back to them.
    pub(super) before: Changed,
    /// What its first query read: all of them read it.
    pub(super) read_view: Option<ReadView>,
    pub(super) savepoints: VecDeque<Savepoint>,
    /// Whether there were more: the oldest are forgotten, and no name is known to be wrong then.
    forgot_savepoints: bool,
}

#[derive(Debug)]
pub(super) struct Savepoint {
    name: String,
    /// How many portals the connection had made before.
    portals_made: u64,
    settings: Arc<SavedSettings>,
}

/// The settings when a savepoint was set, which others have with it as long as none changes.
#[derive(Debug)]
pub(super) struct SavedSettings {
    pub(super) current: Changed,
    pub(super) lasting: Changed,
    /// How often the session's settings had changed.
    pub(super) changes: u64,
}

impl SavedSettings {
    fn bytes(&self) -> usize {
        self.current.iter().chain(&self.lasting).map(|(name, value)| name.len() + value.len()).sum()
    }
}

impl Transaction {
    pub(super) fn begin(before: Changed) -> Self {
        Self { failed: false, before, read_view: None, savepoints: VecDeque::new(), forgot_savepoints: false }
    }

    /// The settings of the last savepoint.
    pub(super) fn last_saved(&self) -> Option<&Arc<SavedSettings>> {
        self.savepoints.back().map(|savepoint| &savepoint.settings)
    }

    pub(super) fn set_savepoint(&mut self, name: &str, portals_made: u64, settings: Arc<SavedSettings>) {
        let is_shared = self.last_saved().is_some_and(|last| Arc::ptr_eq(last, &settings));
        if self.savepoints.len() == MAX_SAVEPOINTS {
            self.forget_oldest_savepoint();
        }
        let name = name.chars().take(SAVEPOINT_NAME_CHARS).collect();
        self.savepoints.push_back(Savepoint { name, portals_made, settings });
        while !is_shared && self.savepoints.len() > 1 && self.saved_bytes() > MAX_SAVED_BYTES {
            self.forget_oldest_savepoint();
        }
    }

    /// Errors: there is no savepoint of this name.
    pub(super) fn release_savepoint(&mut self, name: &str) -> Result<(), SqlProblem> {
        if let Some(place) = self.place(name)? {
            self.savepoints.truncate(place);
        }
        Ok(())
    }

    /// Forgets the savepoints after this one. Returns how many portals the connection had made when it was set, and its
    /// settings; `None` for one that may be among those that were forgotten.
    ///
    /// Errors: there is no savepoint of this name.
    pub(super) fn go_on_from_savepoint(&mut self, name: &str) -> Result<Option<(u64, Arc<SavedSettings>)>, SqlProblem> {
        let place = self.place(name)?;
        self.failed = false;
        Ok(place.map(|place| {
            self.savepoints.truncate(place + 1);
            let Savepoint { portals_made, settings, .. } = &self.savepoints[place];
            (*portals_made, settings.clone())
        }))
    }

    /// The place of the latest savepoint of this name; `None` for one that may be among those that were forgotten.
    fn place(&self, name: &str) -> Result<Option<usize>, SqlProblem> {
        let place = self.savepoints.iter().rposition(|savepoint| savepoint.name.chars().eq(name.chars().take(SAVEPOINT_NAME_CHARS)));
        match place {
            None if !self.forgot_savepoints => Err(SqlProblem::new(UNDEFINED_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))),
            place => Ok(place),
        }
    }

    pub(super) fn saved_bytes(&self) -> usize {
        let mut saved: Vec<&Arc<SavedSettings>> = self.savepoints.iter().map(|savepoint| &savepoint.settings).collect();
        saved.dedup_by(|one, other| Arc::ptr_eq(one, other));
        saved.iter().map(|settings| settings.bytes()).sum()
    }

    fn forget_oldest_savepoint(&mut self) {
        self.savepoints.pop_front();
        self.forgot_savepoints = true;
    }
}
