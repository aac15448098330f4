//! Reports whether a scheduler can look for due runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::Result;

/// The outcome of the last check for due runs. Clones share it.
#[derive(Debug, Clone)]
pub struct DueCheck(Arc<Mutex<Option<String>>>);

impl Default for DueCheck {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some("due runs were not looked for yet".to_owned()))))
    }
}

impl DueCheck {
    /// Returns why the scheduler does not know what is due; `None` if it does.
    pub fn hindrance(&self) -> Option<String> {
        self.lock().clone()
    }

    pub(super) fn note<T>(&self, checked: &Result<T>) {
        *self.lock() = checked.as_ref().err().map(|error| format!("due runs cannot be looked for: {error}"));
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
