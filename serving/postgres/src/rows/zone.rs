//! The zone of a session, in which times are written as text and read from it.

use std::fmt;

use chrono::{DateTime, Offset, TimeZone, Utc};

/// The names of UTC in the IANA database, each also after `Etc/`. pgjdbc sends that of the JVM's zone.
const NAMES_OF_UTC: [&str; 9] = ["UTC", "UCT", "Universal", "Zulu", "GMT", "GMT0", "GMT+0", "GMT-0", "Greenwich"];

/// A zone of the IANA database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Zone(chrono_tz::Tz);

impl Zone {
    pub(crate) fn named(name: &str) -> Option<Zone> {
        let name = name.trim();
        // In the spelling that settings keep, which is looked for with each answer, it is found at once.
        let in_any_case = || chrono_tz::TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(name)).copied();
        name.parse().ok().or_else(in_any_case).map(Zone)
    }

    /// Its name, if it is another zone than UTC.
    pub(crate) fn other_than_utc(self) -> Option<&'static str> {
        let name = self.0.name();
        (!NAMES_OF_UTC.contains(&name.strip_prefix("Etc/").unwrap_or(name))).then_some(name)
    }

    /// How many seconds its clocks are ahead of UTC at this time.
    pub(super) fn offset_seconds(self, at: DateTime<Utc>) -> i32 {
        self.0.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc()
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self(chrono_tz::Tz::UTC)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

#[cfg(test)]
mod tests;
