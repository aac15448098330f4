//! The state of a client's session: its settings and its transaction. Nothing here reads data or waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pgwire::messages::response::TransactionStatus;
use serving::{ReadView, SearchPath, parse_as_of};
use types::tiles::Micros;

use crate::problem::{CONFIGURATION_LIMIT, INVALID_PARAMETER_VALUE, NOT_SUPPORTED, SqlProblem, UNDEFINED_OBJECT, UNDEFINED_SAVEPOINT};
use crate::rows::Zone;
use crate::{SERVER_VERSION, names};

/// A transaction that does nothing keeps the files of its read view, and a suspended portal those of its query: after
/// this time their session ends, unless the setting says so earlier.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(600);

/// A transaction knows this many savepoints: some drivers set one before each statement, and release none.
const MAX_SAVEPOINTS: usize = 10_000;
/// Of their names; PostgreSQL has names of 63 bytes.
const SAVEPOINT_NAME_CHARS: usize = 63;
/// The settings that savepoints go back to have this many bytes: past it, the oldest savepoints are forgotten.
const MAX_SAVED_BYTES: usize = 16 << 20;

pub(crate) const SEARCH_PATH: &str = "search_path";
/// The setting that is the name of the client's user.
const SESSION_USER: &str = "session_authorization";
/// The schemas where tables are found by their names alone. No user has one of its own, as `"$user"` would be.
const SEARCHED_SCHEMAS: [&str; 3] = ["public", "system", "pg_catalog"];
const INFORMATION_SCHEMA: &str = "information_schema";
/// A client may set what the server does not know, under names with a dot: names and values of this many bytes.
const MAX_CUSTOM_BYTES: usize = 1 << 20;

/// A setting: its name in lower case, as clients get it, its default, and whether clients hear of each change.
struct Known {
    name: &'static str,
    shown: &'static str,
    default: &'static str,
    reported: bool,
    check: Check,
}

/// What a setting may be.
#[derive(Clone, Copy)]
enum Check {
    Any,
    /// One of these, whatever the case; the first is how it is kept.
    OneOf(&'static [&'static str]),
    Time,
    Zone,
    DateStyle,
    Duration,
    SearchPath,
    /// It cannot be set.
    Fixed,
}

const ON: &[&str] = &["on", "true", "1", "yes"];
const OFF: &[&str] = &["off", "false", "0", "no"];
const UTF8: &[&str] = &["UTF8", "UTF-8", "UNICODE"];

const fn known(name: &'static str, shown: &'static str, default: &'static str, reported: bool, check: Check) -> Known {
    Known { name, shown, default, reported, check }
}

/// What clients ask for on connecting, and `as_of`. What changes nothing here may be anything.
const KNOWN: [Known; 45] = [
    known("application_name", "application_name", "", true, Check::Any),
    known("as_of", "as_of", "", false, Check::Time),
    known("bytea_output", "bytea_output", "hex", false, Check::OneOf(&["hex"])),
    known("check_function_bodies", "check_function_bodies", "on", false, Check::Any),
    known("client_encoding", "client_encoding", "UTF8", true, Check::OneOf(UTF8)),
    known("client_min_messages", "client_min_messages", "notice", false, Check::Any),
    known("datestyle", "DateStyle", "ISO, MDY", true, Check::DateStyle),
    known("default_text_search_config", "default_text_search_config", "pg_catalog.simple", false, Check::Any),
    known("default_transaction_isolation", "default_transaction_isolation", "repeatable read", false, Check::Any),
    known("default_transaction_read_only", "default_transaction_read_only", "on", true, Check::Any),
    known("enable_hashjoin", "enable_hashjoin", "on", false, Check::Any),
    known("enable_nestloop", "enable_nestloop", "on", false, Check::Any),
    known("enable_seqscan", "enable_seqscan", "on", false, Check::Any),
    known("escape_string_warning", "escape_string_warning", "on", false, Check::Any),
    known("extra_float_digits", "extra_float_digits", "1", false, Check::Any),
    known("geqo", "geqo", "on", false, Check::Any),
    known("idle_in_transaction_session_timeout", "idle_in_transaction_session_timeout", "0", false, Check::Duration),
    known("idle_session_timeout", "idle_session_timeout", "0", false, Check::Any),
    known("in_hot_standby", "in_hot_standby", "off", true, Check::Fixed),
    known("integer_datetimes", "integer_datetimes", "on", true, Check::Fixed),
    known("intervalstyle", "IntervalStyle", "postgres", true, Check::OneOf(&["postgres"])),
    known("is_superuser", "is_superuser", "off", true, Check::Fixed),
    known("jit", "jit", "off", false, Check::Any),
    known("lc_collate", "lc_collate", "C.UTF-8", false, Check::Fixed),
    known("lc_ctype", "lc_ctype", "C.UTF-8", false, Check::Fixed),
    known("lc_monetary", "lc_monetary", "C", false, Check::Any),
    known("lc_numeric", "lc_numeric", "C", false, Check::Any),
    known("lock_timeout", "lock_timeout", "0", false, Check::Any),
    known("max_identifier_length", "max_identifier_length", "63", false, Check::Fixed),
    known("max_index_keys", "max_index_keys", "32", false, Check::Fixed),
    known("row_security", "row_security", "on", false, Check::Any),
    known(SEARCH_PATH, SEARCH_PATH, "\"$user\", public", false, Check::SearchPath),
    known("server_encoding", "server_encoding", "UTF8", true, Check::Fixed),
    known("server_version", "server_version", SERVER_VERSION, true, Check::Fixed),
    known("server_version_num", "server_version_num", "150000", false, Check::Fixed),
    known(SESSION_USER, SESSION_USER, "", true, Check::Any),
    known("standard_conforming_strings", "standard_conforming_strings", "on", true, Check::OneOf(ON)),
    known("statement_timeout", "statement_timeout", "0", false, Check::Duration),
    known("synchronize_seqscans", "synchronize_seqscans", "on", false, Check::Any),
    known("timezone", "TimeZone", "UTC", true, Check::Zone),
    known("transaction_isolation", "transaction_isolation", "repeatable read", false, Check::Any),
    known("transaction_read_only", "transaction_read_only", "on", false, Check::OneOf(ON)),
    known("transaction_deferrable", "transaction_deferrable", "off", false, Check::OneOf(OFF)),
    known("work_mem", "work_mem", "4MB", false, Check::Any),
    known("xmloption", "xmloption", "content", false, Check::Any),
];

/// The settings that differ from their defaults.
type Changed = BTreeMap<String, String>;

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

/// The settings of a session at one moment, for the functions that ask for them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionValues {
    current: Changed,
    defaults: Changed,
}

/// What a query sets by `set_config`. The session has it once rows of the query are sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskedSettings(Arc<Mutex<AskedSoFar>>);

#[derive(Debug, Default)]
struct AskedSoFar {
    settings: Vec<AskedSetting>,
    /// The first that cannot be set, or is not known.
    problem: Option<SqlProblem>,
}

#[derive(Debug)]
struct AskedSetting {
    name: String,
    value: Option<String>,
    is_local: bool,
}

#[derive(Debug)]
struct Transaction {
    failed: bool,
    /// The settings when it began: a rollback goes back to them.
    before: Changed,
    /// What its first query read: all of them read it.
    read_view: Option<ReadView>,
    savepoints: VecDeque<Savepoint>,
    /// Whether there were more: the oldest are forgotten, and no name is known to be wrong then.
    forgot_savepoints: bool,
}

#[derive(Debug)]
struct Savepoint {
    name: String,
    /// How many portals the connection had made before.
    portals_made: u64,
    settings: Arc<SavedSettings>,
}

/// The settings when a savepoint was set, which others have with it as long as none changes.
#[derive(Debug)]
struct SavedSettings {
    current: Changed,
    lasting: Changed,
    changes: u64,
    bytes: usize,
}

impl Transaction {
    fn saved_bytes(&self) -> usize {
        let mut saved: Vec<&Arc<SavedSettings>> = self.savepoints.iter().map(|savepoint| &savepoint.settings).collect();
        saved.dedup_by(|one, other| Arc::ptr_eq(one, other));
        saved.iter().map(|settings| settings.bytes).sum()
    }

    /// The place of the latest savepoint of this name; `None` for one that may be among those that were forgotten.
    ///
    /// Errors: there was no savepoint of this name.
    fn savepoint(&self, name: &str) -> Result<Option<usize>, SqlProblem> {
        let place = self.savepoints.iter().rposition(|savepoint| savepoint.name.chars().eq(name.chars().take(SAVEPOINT_NAME_CHARS)));
        match place {
            None if !self.forgot_savepoints => Err(SqlProblem::new(UNDEFINED_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))),
            place => Ok(place),
        }
    }

    fn forget_oldest_savepoint(&mut self) {
        self.savepoints.pop_front();
        self.forgot_savepoints = true;
    }
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

    fn value(&self, known: &Known) -> String {
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
        self.transaction = Some(Transaction {
            failed: false,
            before: self.lasting.clone(),
            read_view: None,
            savepoints: VecDeque::new(),
            forgot_savepoints: false,
        });
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
        if transaction.savepoints.len() == MAX_SAVEPOINTS {
            transaction.forget_oldest_savepoint();
        }
        let name = name.chars().take(SAVEPOINT_NAME_CHARS).collect();
        let last = transaction.savepoints.back().map(|savepoint| &savepoint.settings).filter(|settings| settings.changes == self.changes);
        let is_known = last.is_some();
        let settings = last.cloned().unwrap_or_else(|| {
            let bytes = self.current.iter().chain(&self.lasting).map(|(name, value)| name.len() + value.len()).sum();
            Arc::new(SavedSettings { current: self.current.clone(), lasting: self.lasting.clone(), changes: self.changes, bytes })
        });
        transaction.savepoints.push_back(Savepoint { name, portals_made, settings });
        if !is_known {
            while transaction.savepoints.len() > 1 && transaction.saved_bytes() > MAX_SAVED_BYTES {
                transaction.forget_oldest_savepoint();
            }
        }
    }

    /// Errors: the transaction has no savepoint of this name.
    pub(crate) fn release_savepoint(&mut self, name: &str) -> Result<(), SqlProblem> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        if let Some(place) = transaction.savepoint(name)? {
            transaction.savepoints.truncate(place);
        }
        Ok(())
    }

    /// A failed transaction goes on from its savepoint, with the settings that it had there: nothing that it read has
    /// to be undone. Returns how many portals the connection had made when it was set: any number, for one that was
    /// forgotten. `None` without a transaction.
    ///
    /// Errors: the transaction has no savepoint of this name.
    pub(crate) fn go_on_from_savepoint(&mut self, name: &str) -> Result<Option<u64>, SqlProblem> {
        let Some(transaction) = &mut self.transaction else { return Ok(None) };
        let place = transaction.savepoint(name)?;
        transaction.failed = false;
        let Some(place) = place else { return Ok(Some(u64::MAX)) };
        transaction.savepoints.truncate(place + 1);
        let Savepoint { portals_made, settings, .. } = &transaction.savepoints[place];
        let (portals_made, settings) = (*portals_made, settings.clone());
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

    fn take(&self) -> Vec<AskedSetting> {
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

/// The settings of the startup parameter `options`, as on the command line of PostgreSQL's server: `-c name=value` and
/// `--name=value`, with a backslash before a space that ends nothing.
fn startup_options(text: &str) -> Result<Vec<(String, String)>, SqlProblem> {
    let wrong = |found: &str| {
        let message = format!("invalid command-line argument in options: found \"{found}\", expected -c name=value or --name=value");
        SqlProblem::new(INVALID_PARAMETER_VALUE, message)
    };
    let words = words(text);
    let mut words = words.iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--") {
            Some(setting) => setting,
            None => match word.strip_prefix("-c").ok_or_else(|| wrong(word))? {
                "" => words.next().map(String::as_str).ok_or_else(|| wrong(word))?,
                setting => setting,
            },
        };
        let (name, value) = setting.split_once('=').ok_or_else(|| wrong(setting))?;
        settings.push((name.trim().replace('-', "_").to_lowercase(), value.to_owned()));
    }
    Ok(settings)
}

/// The words of a text, cut at spaces that have no backslash before them.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut is_inside, mut chars) = (false, text.chars());
    while let Some(char) = chars.next() {
        let char = match char {
            '\\' => chars.next().unwrap_or(char),
            space if space.is_whitespace() => {
                is_inside = false;
                continue;
            }
            other => other,
        };
        if !std::mem::replace(&mut is_inside, true) {
            words.push(String::new());
        }
        words.last_mut().into_iter().for_each(|word| word.push(char));
    }
    words
}

/// Every setting as clients get its name, with its default.
pub(crate) fn defaults() -> impl Iterator<Item = (&'static str, &'static str)> {
    KNOWN.iter().map(|known| (known.shown, known.default))
}

fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name)
}

/// Whether a setting may have this name: clients have their own, which have a point.
fn is_known(name: &str) -> bool {
    find(name).is_some() || name.contains('.')
}

fn value_of(settings: &Changed, name: &str) -> Option<String> {
    let name = name.to_lowercase();
    settings.get(&name).cloned().or_else(|| find(&name).map(|known| known.default.to_owned()))
}

fn change(settings: &mut Changed, name: &str, value: Option<String>) {
    match value {
        Some(value) => settings.insert(name.to_owned(), value),
        None => settings.remove(name),
    };
}

fn unknown(name: &str) -> SqlProblem {
    SqlProblem::new(UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
        .with_hint("SHOW ALL lists the parameters; as_of names the time of every query")
}

/// The value as it is kept.
fn checked(name: &str, value: &str) -> Result<String, SqlProblem> {
    let Some(known) = find(name) else {
        return if name.contains('.') { Ok(value.to_owned()) } else { Err(unknown(name)) };
    };
    let wrong = |expected: &str| {
        SqlProblem::new(
            INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{}\": found \"{value}\", expected {expected}", known.shown),
        )
    };
    match known.check {
        Check::Any => Ok(value.to_owned()),
        Check::OneOf(allowed) => match allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(value)) {
            true => Ok(allowed[0].to_owned()),
            false => Err(wrong(allowed[0])),
        },
        Check::Time if value.trim().is_empty() => Ok(String::new()),
        Check::Time => parse_as_of(value).map(|_| value.trim().to_owned()).map_err(SqlProblem::from),
        Check::Zone => Zone::spelled(value).ok_or_else(|| {
            wrong("a time zone, such as UTC or Europe/Berlin, or whole minutes of less than a day from UTC, such as 2 or INTERVAL '5:30'")
        }),
        // Dates are written in one way; the order is that in which ambiguous dates would be read, and none is.
        Check::DateStyle => {
            let order = ["MDY", "DMY", "YMD"].into_iter().find(|order| value.to_uppercase().split([',', ' ']).any(|part| part == *order));
            let is_iso = value.to_uppercase().split([',', ' ']).all(|part| ["", "ISO", "MDY", "DMY", "YMD"].contains(&part));
            if is_iso { Ok(format!("ISO, {}", order.unwrap_or("MDY"))) } else { Err(wrong("ISO")) }
        }
        Check::SearchPath => match names::listed(value) {
            None => Err(wrong("a list of schemas, such as system, public")),
            Some(schemas) if schemas.iter().any(|schema| schema == INFORMATION_SCHEMA) => {
                let expected = "expected its tables to be named with it, such as information_schema.tables";
                Err(SqlProblem::new(NOT_SUPPORTED, format!("information_schema in search_path is not supported: {expected}")))
            }
            Some(_) => Ok(value.to_owned()),
        },
        Check::Duration => duration(value).map(|_| value.to_owned()).ok_or_else(|| wrong("a time, such as 500, '30s' or '5min'")),
        Check::Fixed => Err(SqlProblem::new("55P02", format!("parameter \"{}\" cannot be changed", known.shown))),
    }
}

/// Milliseconds without a unit.
fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().ok()?;
    let millis = match unit.trim() {
        "" | "ms" => 1,
        "us" => return Some(Duration::from_micros(number)),
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

#[cfg(test)]
mod tests;
