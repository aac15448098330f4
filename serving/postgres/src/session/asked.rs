//! What queries see of the settings of their session, and what they set by `set_config`.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::settings::{Changed, SEARCH_PATH, SESSION_USER, checked, is_known, unknown, value_of};
use crate::names;
use crate::problem::SqlProblem;

/// The schemas where tables are found by their names alone. No user has one of its own, as `"$user"` would be.
const SEARCHED_SCHEMAS: [&str; 3] = ["public", "system", "pg_catalog"];

/// The settings of a session at one moment, for the functions that ask for them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionValues {
    pub(super) current: Changed,
    pub(super) defaults: Changed,
}

/// What a query sets by `set_config`. The session has it once rows of the query are sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskedSettings(Arc<Mutex<AskedSoFar>>);

#[derive(Debug, Default)]
struct AskedSoFar {
    settings: Vec<AskedSetting>,
    /// The first that cannot be set.
    problem: Option<SqlProblem>,
}

/// A setting that a query asks to be set; without a value to its default.
#[derive(Debug)]
pub(super) struct AskedSetting {
    pub(super) name: String,
    pub(super) value: Option<String>,
    pub(super) is_local: bool,
}

impl SessionValues {
    /// As SHOW has it; `None` for a setting that is not known.
    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        value_of(&self.current, name)
    }

    /// Who logged in.
    pub(crate) fn user(&self) -> String {
        self.default_of(SESSION_USER).unwrap_or_default()
    }

    /// What RESET would make of it.
    fn default_of(&self, name: &str) -> Option<String> {
        value_of(&self.defaults, name)
    }

    /// The schemas of the search path that are there, each once.
    pub(crate) fn schemas(&self) -> Vec<String> {
        let mut schemas = names::listed(&self.setting(SEARCH_PATH).unwrap_or_default()).unwrap_or_default();
        schemas.retain(|name| SEARCHED_SCHEMAS.contains(&name.as_str()));
        let mut seen = BTreeSet::new();
        schemas.retain(|name| seen.insert(name.clone()));
        schemas
    }
}

impl AskedSettings {
    /// Asks for a setting; without a value for its default. Returns what SHOW will have.
    pub(crate) fn ask(&self, values: &SessionValues, name: Option<&str>, value: Option<&str>, is_local: bool) -> Option<String> {
        let name = name.unwrap_or_default().to_lowercase();
        let checked = match value {
            Some(value) => checked(&name, value).map(Some),
            None if is_known(&name) => Ok(None),
            None => Err(unknown(&name)),
        };
        let mut asked = self.lock();
        match checked {
            Ok(value) => {
                let shown = value.clone().or_else(|| values.default_of(&name));
                asked.settings.push(AskedSetting { name, value, is_local });
                shown
            }
            Err(problem) => {
                asked.problem.get_or_insert(problem);
                None
            }
        }
    }

    /// Fails with the first that cannot be set.
    pub(crate) fn check(&self) -> Result<(), SqlProblem> {
        match &self.lock().problem {
            Some(problem) => Err(problem.clone()),
            None => Ok(()),
        }
    }

    pub(super) fn take(&self) -> Vec<AskedSetting> {
        std::mem::take(&mut self.lock().settings)
    }

    fn lock(&self) -> MutexGuard<'_, AskedSoFar> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Functions are compared by what they ask into.
impl PartialEq for AskedSettings {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for AskedSettings {}

impl Hash for AskedSettings {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}
