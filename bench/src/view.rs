//! The measured view, as its users write it and as plain SQL for the peers.

use types::tiles::Micros;

/// The view's name.
pub const VIEW: &str = "device_links";

const HOUR: Micros = 3_600_000_000;
const DAY: Micros = 24 * HOUR;

/// Files of the project, as (path, text).
pub const DEFINITIONS: [(&str, &str); 3] = [
    (
        "streams/create_account.sql",
        "CREATE STREAM create_account (event_id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device_id TEXT)\n\
         WITH (topic = 'create_account', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '10m', key = 'user_id',\n\
         keep_raw = false);\n",
    ),
    (
        "streams/login.sql",
        "CREATE STREAM login (event_id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, user_id TEXT, device_id TEXT)\n\
         WITH (topic = 'login', format = 'json', event_time = 'ts', id = 'event_id', dedup_within = '10m', key = 'user_id',\n\
         keep_raw = false);\n",
    ),
    (
        "views/device_links.sql",
        "CREATE VIEW device_links WITH (windows = '7d, 30d', max_degree = 10000) AS\n\
         SELECT c.device_id,\n\
         \x20      count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id) AS linked_devices,\n\
         \x20      count(DISTINCT c.user_id) AS users,\n\
         \x20      count(DISTINCT l.device_id) FILTER (WHERE within(c.ts, '365d') AND within(l.ts, '30d')) AS linked_to_old_accounts\n\
         FROM create_account c JOIN login l ON c.user_id = l.user_id\n\
         GROUP BY c.device_id;\n",
    ),
];

/// The view's value columns, in their order.
pub const VALUES: [&str; 5] = ["linked_devices_7d", "linked_devices_30d", "users_7d", "users_30d", "linked_to_old_accounts"];

/// The starts of the view's windows at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    pub week: Micros,
    pub month: Micros,
    pub year: Micros,
}

impl Windows {
    /// Uses hops of one hour, and of a day for the longest window.
    pub fn at(t: Micros) -> Windows {
        let floor = |time: Micros, hop| time.div_euclid(hop) * hop;
        Windows { week: floor(t - 7 * DAY, HOUR), month: floor(t - 30 * DAY, HOUR), year: floor(t - 365 * DAY, DAY) }
    }
}

/// How an engine writes a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    DuckDb,
    DataFusion,
}

impl Dialect {
    pub fn time(self, micros: Micros) -> String {
        match self {
            Dialect::DuckDb => format!("make_timestamptz({micros})"),
            Dialect::DataFusion => format!("arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"),
        }
    }
}

/// The view as it is written without views: one SELECT over the raw events, with the windows at a time.
pub fn plain_select(windows: &Windows, dialect: Dialect) -> String {
    let time = |micros: Micros| dialect.time(micros);
    let (week, month, year) = (time(windows.week), time(windows.month), time(windows.year));
    format!(
        "SELECT c.device_id,
           count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id AND c.ts >= {week} AND l.ts >= {week}) AS linked_devices_7d,
           count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id AND c.ts >= {month} AND l.ts >= {month}) AS linked_devices_30d,
           count(DISTINCT c.user_id) FILTER (WHERE c.ts >= {week} AND l.ts >= {week}) AS users_7d,
           count(DISTINCT c.user_id) FILTER (WHERE c.ts >= {month} AND l.ts >= {month}) AS users_30d,
           count(DISTINCT l.device_id) FILTER (WHERE c.ts >= {year} AND l.ts >= {month}) AS linked_to_old_accounts
         FROM create_account c JOIN login l ON c.user_id = l.user_id
         WHERE c.ts >= {year} AND l.ts >= {month}
         GROUP BY c.device_id"
    )
}

/// The same written by hand, edges first: each side deduplicated to the last time it was seen.
pub fn edges_select(windows: &Windows) -> String {
    let plain = plain_select(windows, Dialect::DuckDb);
    let time = |micros: Micros| Dialect::DuckDb.time(micros);
    let edges = |stream: &str, from| {
        format!("(SELECT device_id, user_id, max(ts) AS ts FROM {stream} WHERE ts >= {} GROUP BY device_id, user_id)", time(from))
    };
    let from = format!("FROM {} c JOIN {} l", edges("create_account", windows.year), edges("login", windows.month));
    plain.replace("FROM create_account c JOIN login l", &from)
}
