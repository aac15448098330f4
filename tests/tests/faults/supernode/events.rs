//! A device on which a million users opened accounts, a few ordinary ones, and the answers of plain SQL for them.

use std::ops::Range;

use types::tiles::Micros;

use super::Answers;

pub const ACCOUNTS: &str = "create_account";
pub const LOGINS: &str = "login";
pub const VIEW: &str = "device_links";
pub const ACCOUNTS_SQL: &str = "CREATE STREAM create_account (ts TIMESTAMPTZ NOT NULL, user_id TEXT, device_id TEXT) \
    WITH (format = 'json', event_time = 'ts', keep_raw = false)";
pub const LOGINS_SQL: &str = "CREATE STREAM login (ts TIMESTAMPTZ NOT NULL, user_id TEXT, device_id TEXT) \
    WITH (format = 'json', event_time = 'ts', keep_raw = false)";
pub const VIEW_SQL: &str = "CREATE VIEW device_links WITH (windows = '30d', max_degree = 10000) AS \
    SELECT c.device_id, \
           count(DISTINCT l.device_id) FILTER (WHERE l.device_id <> c.device_id) AS linked_devices, \
           count(DISTINCT c.user_id) AS users \
    FROM create_account c JOIN login l ON c.user_id = l.user_id GROUP BY c.device_id";
const MAX_DEGREE: usize = 10_000;

pub const HUB: &str = "hub";
pub const USERS: usize = 1_000_000;
/// Every tenth user of the hub logs in, once, from one of these devices.
pub const LOGGED_IN: usize = 100_000;
const DEVICES: usize = 1_000;
/// The number of ordinary devices: on the nth, n + 1 users opened accounts.
pub const SMALL: usize = 20;

const BASE: Micros = 1_772_366_400_000_000;
/// Both streams span ten thousand seconds.
const SPAN: Micros = 10_000_000_000;

/// The time, the user and the device.
pub type Event = (Micros, String, String);

pub fn hub_accounts(users: Range<usize>) -> impl Iterator<Item = Event> {
    users.map(|user| (BASE + user as Micros * (SPAN / USERS as Micros), format!("u{user}"), HUB.to_owned()))
}

pub fn hub_logins(logins: Range<usize>) -> impl Iterator<Item = Event> {
    logins.map(|login| {
        let (user, device) = (login * (USERS / LOGGED_IN), login % DEVICES);
        (BASE + login as Micros * (SPAN / LOGGED_IN as Micros), format!("u{user}"), format!("d{device}"))
    })
}

pub fn small(device: usize) -> String {
    format!("small{device}")
}

pub fn small_accounts() -> impl Iterator<Item = Event> {
    small_users().map(|(device, user)| (BASE, user_of(device, user), small(device)))
}

/// Each user logs in from two of the hub's devices, one of which the next user shares, and from the small device
/// itself.
pub fn small_logins() -> impl Iterator<Item = Event> {
    small_users().flat_map(|(device, user)| {
        [format!("d{user}"), format!("d{}", user + 1), small(device)].map(|from| (BASE, user_of(device, user), from))
    })
}

fn small_users() -> impl Iterator<Item = (usize, usize)> {
    (0..SMALL).flat_map(|device| (0..=device).map(move |user| (device, user)))
}

fn user_of(device: usize, user: usize) -> String {
    format!("s{device}-{user}")
}

/// The hub's answer is an estimate within five standard errors of the plain SQL answer (docs/internals/linked-views.md,
/// Hot nodes). The answers of ordinary devices are exact and not flagged.
pub fn check(answers: &Answers) {
    let (devices, users, estimated) = answers[HUB];
    assert!(estimated, "the hub's answer is an estimate, and said to be");
    let followed = MAX_DEGREE as f64 / USERS as f64;
    close(users, LOGGED_IN, ((1.0 - followed) / (followed * LOGGED_IN as f64)).sqrt());
    close(devices, DEVICES, error_of_devices(followed));
    for device in 0..SMALL {
        assert_eq!(answers[&small(device)], (device as i64 + 2, device as i64 + 1, false), "{}", small(device));
    }
    assert_eq!(answers.len(), SMALL + 1);
}

fn close(found: i64, truth: usize, relative_error: f64) {
    let off = (found as f64 / truth as f64 - 1.0).abs();
    assert!(off < 5.0 * relative_error, "found {found} for {truth}, with a relative standard error of {relative_error}");
}

/// The relative standard error of an estimate of distinct end points. Each device has a hundred users, of whom a
/// Poisson-distributed number is followed.
fn error_of_devices(followed: f64) -> f64 {
    let seen = followed * LOGGED_IN as f64 / DEVICES as f64;
    let through_one = DEVICES as f64 * seen * (-seen).exp();
    let through_two = through_one * seen / 2.0;
    let odds = followed / (1.0 - followed);
    let b = 2.0 * through_two + through_one * odds;
    let added = through_one * through_one / b;
    let of_one = through_one * (2.0 * through_one - added * odds).powi(2) / (b * b);
    let of_two = 4.0 * through_two * (added / b).powi(2);
    (of_one + of_two).sqrt() / DEVICES as f64
}
