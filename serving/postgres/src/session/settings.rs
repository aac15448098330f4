//! Which settings a session has, what each may be, and which defaults they have.

use std::collections::BTreeMap;
use std::time::Duration;

use serving::parse_as_of;

use crate::problem::{INVALID_PARAMETER_VALUE, NOT_SUPPORTED, SqlProblem, UNDEFINED_OBJECT};
use crate::rows::Zone;
use crate::{SERVER_VERSION, names};

pub(crate) const SEARCH_PATH: &str = "search_path";
/// The setting that is the name of the client's user.
pub(super) const SESSION_USER: &str = "session_authorization";
const INFORMATION_SCHEMA: &str = "information_schema";

/// A setting: its name in lower case, as clients get it, its default, and whether clients hear of each change.
pub(super) struct KnownSetting {
    pub(super) name: &'static str,
    pub(super) shown: &'static str,
    pub(super) default: &'static str,
    pub(super) reported: bool,
    pub(super) check: SettingCheck,
}

/// What a setting may be.
#[derive(Clone, Copy)]
pub(super) enum SettingCheck {
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

const fn known(name: &'static str, shown: &'static str, default: &'static str, reported: bool, check: SettingCheck) -> KnownSetting {
    KnownSetting { name, shown, default, reported, check }
}

/// What clients ask for on connecting, and `as_of`. What changes nothing here may be anything.
pub(super) const KNOWN: [KnownSetting; 45] = [
    known("application_name", "application_name", "", true, SettingCheck::Any),
    known("as_of", "as_of", "", false, SettingCheck::Time),
    known("bytea_output", "bytea_output", "hex", false, SettingCheck::OneOf(&["hex"])),
    known("check_function_bodies", "check_function_bodies", "on", false, SettingCheck::Any),
    known("client_encoding", "client_encoding", "UTF8", true, SettingCheck::OneOf(UTF8)),
    known("client_min_messages", "client_min_messages", "notice", false, SettingCheck::Any),
    known("datestyle", "DateStyle", "ISO, MDY", true, SettingCheck::DateStyle),
    known("default_text_search_config", "default_text_search_config", "pg_catalog.simple", false, SettingCheck::Any),
    known("default_transaction_isolation", "default_transaction_isolation", "repeatable read", false, SettingCheck::Any),
    known("default_transaction_read_only", "default_transaction_read_only", "on", true, SettingCheck::Any),
    known("enable_hashjoin", "enable_hashjoin", "on", false, SettingCheck::Any),
    known("enable_nestloop", "enable_nestloop", "on", false, SettingCheck::Any),
    known("enable_seqscan", "enable_seqscan", "on", false, SettingCheck::Any),
    known("escape_string_warning", "escape_string_warning", "on", false, SettingCheck::Any),
    known("extra_float_digits", "extra_float_digits", "1", false, SettingCheck::Any),
    known("geqo", "geqo", "on", false, SettingCheck::Any),
    known("idle_in_transaction_session_timeout", "idle_in_transaction_session_timeout", "0", false, SettingCheck::Duration),
    known("idle_session_timeout", "idle_session_timeout", "0", false, SettingCheck::Any),
    known("in_hot_standby", "in_hot_standby", "off", true, SettingCheck::Fixed),
    known("integer_datetimes", "integer_datetimes", "on", true, SettingCheck::Fixed),
    known("intervalstyle", "IntervalStyle", "postgres", true, SettingCheck::OneOf(&["postgres"])),
    known("is_superuser", "is_superuser", "off", true, SettingCheck::Fixed),
    known("jit", "jit", "off", false, SettingCheck::Any),
    known("lc_collate", "lc_collate", "C.UTF-8", false, SettingCheck::Fixed),
    known("lc_ctype", "lc_ctype", "C.UTF-8", false, SettingCheck::Fixed),
    known("lc_monetary", "lc_monetary", "C", false, SettingCheck::Any),
    known("lc_numeric", "lc_numeric", "C", false, SettingCheck::Any),
    known("lock_timeout", "lock_timeout", "0", false, SettingCheck::Any),
    known("max_identifier_length", "max_identifier_length", "63", false, SettingCheck::Fixed),
    known("max_index_keys", "max_index_keys", "32", false, SettingCheck::Fixed),
    known("row_security", "row_security", "on", false, SettingCheck::Any),
    known(SEARCH_PATH, SEARCH_PATH, "\"$user\", public", false, SettingCheck::SearchPath),
    known("server_encoding", "server_encoding", "UTF8", true, SettingCheck::Fixed),
    known("server_version", "server_version", SERVER_VERSION, true, SettingCheck::Fixed),
    known("server_version_num", "server_version_num", "150000", false, SettingCheck::Fixed),
    known(SESSION_USER, SESSION_USER, "", true, SettingCheck::Any),
    known("standard_conforming_strings", "standard_conforming_strings", "on", true, SettingCheck::OneOf(ON)),
    known("statement_timeout", "statement_timeout", "0", false, SettingCheck::Duration),
    known("synchronize_seqscans", "synchronize_seqscans", "on", false, SettingCheck::Any),
    known("timezone", "TimeZone", "UTC", true, SettingCheck::Zone),
    known("transaction_isolation", "transaction_isolation", "repeatable read", false, SettingCheck::Any),
    known("transaction_read_only", "transaction_read_only", "on", false, SettingCheck::OneOf(ON)),
    known("transaction_deferrable", "transaction_deferrable", "off", false, SettingCheck::OneOf(OFF)),
    known("work_mem", "work_mem", "4MB", false, SettingCheck::Any),
    known("xmloption", "xmloption", "content", false, SettingCheck::Any),
];

/// The settings that differ from their defaults.
pub(super) type Changed = BTreeMap<String, String>;

/// Every setting as clients get its name, with its default.
pub(crate) fn defaults() -> impl Iterator<Item = (&'static str, &'static str)> {
    KNOWN.iter().map(|known| (known.shown, known.default))
}

pub(super) fn find(name: &str) -> Option<&'static KnownSetting> {
    KNOWN.iter().find(|known| known.name == name)
}

/// Whether a setting may have this name: clients have their own, which have a point.
pub(super) fn is_known(name: &str) -> bool {
    find(name).is_some() || name.contains('.')
}

pub(super) fn value_of(settings: &Changed, name: &str) -> Option<String> {
    let name = name.to_lowercase();
    settings.get(&name).cloned().or_else(|| find(&name).map(|known| known.default.to_owned()))
}

pub(super) fn change(settings: &mut Changed, name: &str, value: Option<String>) {
    match value {
        Some(value) => settings.insert(name.to_owned(), value),
        None => settings.remove(name),
    };
}

pub(super) fn unknown(name: &str) -> SqlProblem {
    SqlProblem::new(UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
        .with_hint("SHOW ALL lists the parameters; as_of names the time of every query")
}

/// The value as it is kept.
pub(super) fn checked(name: &str, value: &str) -> Result<String, SqlProblem> {
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
        SettingCheck::Any => Ok(value.to_owned()),
        SettingCheck::OneOf(allowed) => match allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(value)) {
            true => Ok(allowed[0].to_owned()),
            false => Err(wrong(allowed[0])),
        },
        SettingCheck::Time if value.trim().is_empty() => Ok(String::new()),
        SettingCheck::Time => parse_as_of(value).map(|_| value.trim().to_owned()).map_err(SqlProblem::from),
        SettingCheck::Zone => Zone::spelled(value).ok_or_else(|| {
            wrong("a time zone, such as UTC or Europe/Berlin, or whole minutes of less than a day from UTC, such as 2 or INTERVAL '5:30'")
        }),
        // Dates are written in one way; the order is that in which ambiguous dates would be read, and none is.
        SettingCheck::DateStyle => {
            let order = ["MDY", "DMY", "YMD"].into_iter().find(|order| value.to_uppercase().split([',', ' ']).any(|part| part == *order));
            let is_iso = value.to_uppercase().split([',', ' ']).all(|part| ["", "ISO", "MDY", "DMY", "YMD"].contains(&part));
            if is_iso { Ok(format!("ISO, {}", order.unwrap_or("MDY"))) } else { Err(wrong("ISO")) }
        }
        SettingCheck::SearchPath => match names::listed(value) {
            None => Err(wrong("a list of schemas, such as system, public")),
            Some(schemas) if schemas.iter().any(|schema| schema == INFORMATION_SCHEMA) => {
                let expected = "expected its tables to be named with it, such as information_schema.tables";
                Err(SqlProblem::new(NOT_SUPPORTED, format!("information_schema in search_path is not supported: {expected}")))
            }
            Some(_) => Ok(value.to_owned()),
        },
        SettingCheck::Duration => duration(value).map(|_| value.to_owned()).ok_or_else(|| wrong("a time, such as 500, '30s' or '5min'")),
        SettingCheck::Fixed => Err(SqlProblem::new("55P02", format!("parameter \"{}\" cannot be changed", known.shown))),
    }
}

/// Milliseconds without a unit.
pub(super) fn duration(text: &str) -> Option<Duration> {
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
