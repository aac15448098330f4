//! The state of a client's session: its settings and its transaction. Nothing here reads data or waits.
//!
//! ```text
//! settings         which there are, what each may be, and its default
//! startup_options  those that a client names when it connects
//! asked            what queries see of them, and what they set by `set_config`
//! transaction      what the queries of a transaction read, and its savepoints
//! ```

use std::sync::Arc;
use std::time::Duration;

use pgwire::messages::response::TransactionStatus;
use serving::{ReadView, SearchPath, parse_as_of};
use types::tiles::Micros;

use crate::names;
use crate::problem::{CONFIGURATION_LIMIT, SqlProblem};
use crate::rows::Zone;

mod asked;
mod settings;
mod startup_options;
mod transaction;

use asked::AskedSetting;
use settings::{Changed, KNOWN, KnownSetting, SESSION_USER, change, checked, duration, find, is_known, unknown, value_of};
use startup_options::startup_options;
use transaction::{SavedSettings, Transaction};

pub(crate) use asked::{AskedSettings, SessionValues};
pub(crate) use settings::{SEARCH_PATH, defaults};

/// A transaction that does nothing keeps the files of its read view, and a suspended portal those of its query: after
/// this time their session ends, unless the setting says so earlier.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(600);
/// A client may set what the server does not know, under names with a dot: names and values of this many bytes.
const MAX_CUSTOM_BYTES: usize = 1 << 20;

/// One client's.
#[derive(Debug, Default)]
pub(crate) struct ClientSession {
    /// What the client connected with, which RESET goes back to.
    defaults: Changed,
    current: Changed,
    /// The same without what SET LOCAL changed.
    lasting: Changed,
    transaction: Option<Transaction>,
    /// How often settings may have changed.
    changes: u64,
    /// The settings that every statement asks for, as they are now.
    zone: Zone,
    search_path: SearchPath,
    statement_timeout: Option<Duration>,
}

impl ClientSession {
    /// The session of a client that connected with these parameters. What it does not know is left out.
    pub(crate) fn begin(user: &str, parameters: &[(String, String)]) -> Result<ClientSession, SqlProblem> {
        let mut session = ClientSession::default();
        session.current.insert(SESSION_USER.into(), user.to_owned());
        for (name, value) in parameters {
            let name = name.to_lowercase();
            if is_known(&name) {
                // Some clients quote what is none of SQL.
                session.current.insert(name.clone(), checked(&name, value.trim_matches('\''))?);
            }
        }
        // Unlike a parameter, an option is meant for the server: one that it does not know is a mistake.
        let options = parameters.iter().filter(|(name, _)| name.eq_ignore_ascii_case("options"));
        for (name, value) in options.map(|(_, options)| startup_options(options)).collect::<Result<Vec<_>, _>>()?.concat() {
            session.current.insert(name.clone(), checked(&name, &value)?);
        }
        session.defaults = session.current.clone();
        session.lasting = session.current.clone();
        session.read_settings();
        Ok(session)
    }

    /// Changes a setting; `None` is its default.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>, is_local: bool) -> Result<(), SqlProblem> {
        let value = match value {
            Some(value) => Some(checked(name, value)?),
            None if !is_known(name) => return Err(unknown(name)),
            None => self.defaults.get(name).cloned(),
        };
        // Outside of a transaction, what is local ends with its statement.
        if is_local && self.transaction.is_none() {
            return Ok(());
        }
        if let Some(value) = value.as_deref().filter(|_| find(name).is_none()) {
            self.check_room(name, value)?;
        }
        change(&mut self.current, name, value.clone());
        self.note_change();
        if !is_local {
            change(&mut self.lasting, name, value);
        }
        Ok(())
    }

    /// Sets what a query has asked for since the last time.
    pub(crate) fn set_asked(&mut self, asked: &AskedSettings) -> Result<(), SqlProblem> {
        for AskedSetting { name, value, is_local } in asked.take() {
            self.set(&name, value.as_deref(), is_local)?;
        }
        Ok(())
    }

    /// Whether there is room for a setting that the server does not know.
    fn check_room(&self, name: &str, value: &str) -> Result<(), SqlProblem> {
        let others = |settings: &Changed| {
            let others = settings.iter().filter(|(other, _)| other.as_str() != name && find(other).is_none());
            others.map(|(other, value)| other.len() + value.len()).sum::<usize>()
        };
        let kept = others(&self.current).max(others(&self.lasting));
        if kept + name.len() + value.len() <= MAX_CUSTOM_BYTES {
            return Ok(());
        }
        let message = format!("found more than {MAX_CUSTOM_BYTES} bytes of settings that the server does not know: RESET some");
        Err(SqlProblem::new(CONFIGURATION_LIMIT, message))
    }

    pub(crate) fn reset_all(&mut self) {
        self.current = self.defaults.clone();
        self.lasting = self.defaults.clone();
        self.note_change();
    }

    pub(crate) fn get(&self, name: &str) -> Result<String, SqlProblem> {
        value_of(&self.current, name).ok_or_else(|| unknown(&name.to_lowercase()))
    }

    pub(crate) fn values(&self) -> SessionValues {
        SessionValues { current: self.current.clone(), defaults: self.defaults.clone() }
    }

    /// All settings, as clients get their names.
    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        KNOWN.iter().map(|known| (known.shown, self.value(known))).collect()
    }

    /// Those that clients hear of.
    pub(crate) fn reported(&self) -> Vec<(&'static str, String)> {
        KNOWN.iter().filter(|known| known.reported).map(|known| (known.shown, self.value(known))).collect()
    }

    /// Differs from an earlier one if settings may have changed since.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    fn value(&self, known: &KnownSetting) -> String {
        self.current.get(known.name).cloned().unwrap_or_else(|| known.default.to_owned())
    }

    fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default()
    }

    /// The time that queries without one of their own ask for.
    pub(crate) fn as_of(&self) -> Option<Micros> {
        let text = self.current.get("as_of").filter(|text| !text.is_empty())?;
        parse_as_of(text).ok()
    }

    pub(crate) fn zone(&self) -> Zone {
        self.zone
    }

    /// Where tables are looked for whose schema is not named.
    pub(crate) fn search_path(&self) -> SearchPath {
        self.search_path
    }

    pub(crate) fn statement_timeout(&self) -> Option<Duration> {
        self.statement_timeout
    }

    fn note_change(&mut self) {
        self.changes += 1;
        self.read_settings();
    }

    fn read_settings(&mut self) {
        self.search_path = match self.current.get(SEARCH_PATH) {
            Some(text) => SearchPath::from_names(names::listed(text).unwrap_or_default().iter().map(String::as_str)),
            None => SearchPath::default(),
        };
        self.zone = Zone::named(&self.text("timezone")).unwrap_or_default();
        self.statement_timeout = duration(&self.text("statement_timeout")).filter(|timeout| !timeout.is_zero());
    }

    /// How long the session may wait for its next message. It is limited where it keeps files: in a transaction, and
    /// for a portal with rows that were not asked for yet.
    pub(crate) fn idle_timeout(&self, has_suspended_portal: bool) -> Option<Duration> {
        if !self.in_transaction() && !has_suspended_portal {
            return None;
        }
        let asked = duration(&self.text("idle_in_transaction_session_timeout")).filter(|timeout| !timeout.is_zero());
        Some(asked.map_or(IDLE_IN_TRANSACTION, |asked| asked.min(IDLE_IN_TRANSACTION)))
    }

    /// Returns false if a transaction is under way already.
    pub(crate) fn begin_transaction(&mut self) -> bool {
        if self.transaction.is_some() {
            return false;
        }
        self.transaction = Some(Transaction::begin(self.lasting.clone()));
        true
    }

    /// Ends a transaction; one that failed is rolled back, whatever is asked. Returns whether it was committed, if
    /// there was one.
    pub(crate) fn end_transaction(&mut self, commit: bool) -> Option<bool> {
        let transaction = self.transaction.take()?;
        let committed = commit && !transaction.failed;
        if !committed {
            self.lasting = transaction.before;
        }
        self.current = self.lasting.clone();
        self.note_change();
        Some(committed)
    }

    pub(crate) fn set_savepoint(&mut self, name: &str, portals_made: u64) {
        let Some(transaction) = &mut self.transaction else { return };
        let last = transaction.last_saved().filter(|settings| settings.changes == self.changes).cloned();
        let settings = last.unwrap_or_else(|| {
            Arc::new(SavedSettings { current: self.current.clone(), lasting: self.lasting.clone(), changes: self.changes })
        });
        transaction.set_savepoint(name, portals_made, settings);
    }

    /// Errors: the transaction has no savepoint of this name.
    pub(crate) fn release_savepoint(&mut self, name: &str) -> Result<(), SqlProblem> {
        self.transaction.as_mut().map_or(Ok(()), |transaction| transaction.release_savepoint(name))
    }

    /// A failed transaction goes on from its savepoint, with the settings that it had there: nothing that it read has
    /// to be undone. Returns how many portals the connection had made when it was set: any number, for one that was
    /// forgotten. `None` without a transaction.
    ///
    /// Errors: the transaction has no savepoint of this name.
    pub(crate) fn go_on_from_savepoint(&mut self, name: &str) -> Result<Option<u64>, SqlProblem> {
        let Some(transaction) = &mut self.transaction else { return Ok(None) };
        let Some((portals_made, settings)) = transaction.go_on_from_savepoint(name)? else { return Ok(Some(u64::MAX)) };
        if settings.changes != self.changes {
            self.current.clone_from(&settings.current);
            self.lasting.clone_from(&settings.lasting);
            self.note_change();
        }
        Ok(Some(portals_made))
    }

    pub(crate) fn fail(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.failed = true;
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.failed)
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    pub(crate) fn status(&self) -> TransactionStatus {
        match &self.transaction {
            None => TransactionStatus::Idle,
            Some(Transaction { failed: false, .. }) => TransactionStatus::Transaction,
            Some(_) => TransactionStatus::Error,
        }
    }

    /// What the transaction's queries read: what the first of them read.
    pub(crate) fn read_view(&mut self, fresh: impl FnOnce() -> types::Result<ReadView>) -> types::Result<ReadView> {
        let Some(transaction) = &mut self.transaction else { return fresh() };
        match &transaction.read_view {
            Some(read_view) => Ok(read_view.clone()),
            None => Ok(transaction.read_view.insert(fresh()?).clone()),
        }
    }
}

#[cfg(test)]
mod tests;
