//! Generates synthetic payments traffic, and the truth about it. The same seed, start and length give the same records.
//!
//! ```text
//! accounts (created over 95 days, with eight rings) -> steps in time -> logins and payments -> trouble -> records
//! ```
//!
//! The first `history` records are dated within the 95 days before `start`, with increasing density. Then come live
//! records, one every 5 ms. Trouble is what real topics contain: late events, repeats, events dated in the future, and
//! records that are no events.

use std::collections::VecDeque;

use bytes::Bytes;
use event_log::NewRecord;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use types::tiles::Micros;

mod accounts;
mod fields;
mod truth;

pub use accounts::{Ring, Shared};
pub use truth::{DeviceTruth, StreamTruth, Truth};

use accounts::{Account, Accounts};
use fields::Fields;

const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;
const DAY: Micros = 24 * HOUR;

/// How far back the history goes.
pub const HISTORY: Micros = 95 * DAY;
/// Live events per second.
pub(crate) const LIVE_PER_SECOND: i64 = 200;

/// Per thousand logins and payments (repeats: per thousand records).
const LATE: u32 = 20;
const DUPLICATE: u32 = 10;
const FUTURE: u32 = 2;
const BROKEN: u32 = 6;
/// A repeat copies one of this many previous records: well within `dedup_within`.
const REPEATABLE: usize = 64;

/// What to generate.
#[derive(Debug, Clone, Copy)]
pub struct TrafficSettings {
    pub seed: u64,
    /// Where history ends and live traffic begins.
    pub start: Micros,
    /// Records of history.
    pub history: u64,
}

/// The streams of `examples/payments`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficStream {
    CreateAccount,
    Login,
    Transactions,
}

impl TrafficStream {
    pub const ALL: [TrafficStream; 3] = [TrafficStream::CreateAccount, TrafficStream::Login, TrafficStream::Transactions];

    /// The stream's name, which is also its topic's.
    pub fn name(self) -> &'static str {
        match self {
            TrafficStream::CreateAccount => "create_account",
            TrafficStream::Login => "login",
            TrafficStream::Transactions => "transactions",
        }
    }
}

/// What the pipeline must do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedDecision {
    Accepted,
    /// An event with the same id was sent shortly before.
    Duplicate,
    /// Dated two days ahead: a dead letter.
    Future,
    /// Not an event of its stream: a dead letter.
    Broken,
}

/// One record for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficEvent {
    pub stream: TrafficStream,
    /// When it is sent: during history before the traffic's start, afterwards by the wall clock.
    pub at: Micros,
    pub key: String,
    pub id: String,
    /// The JSON text, possibly invalid.
    pub value: String,
    pub outcome: ExpectedDecision,
}

impl TrafficEvent {
    /// Returns the record as our producers append it to the log.
    pub fn record(&self) -> NewRecord {
        NewRecord {
            key: Some(Bytes::from(self.key.clone())),
            value: Some(Bytes::from(self.value.clone())),
            headers: Vec::new(),
            partition_by: Some(Bytes::from(self.id.clone())),
        }
    }
}

/// The endless traffic. The truth about the records generated so far is in [`Traffic::truth`].
#[derive(Debug)]
pub struct Traffic {
    settings: TrafficSettings,
    rng: ChaCha8Rng,
    accounts: Accounts,
    steps: u64,
    recent: VecDeque<TrafficEvent>,
    /// Accounts that were created for other users, who log in from their own devices.
    handed_on: VecDeque<Account>,
    truth: Truth,
}

impl Iterator for Traffic {
    type Item = TrafficEvent;

    fn next(&mut self) -> Option<TrafficEvent> {
        let at = self.time_of(self.steps);
        self.steps += 1;
        let event = self.event_at(at);
        if event.outcome == ExpectedDecision::Accepted {
            if self.recent.len() == REPEATABLE {
                self.recent.pop_front();
            }
            self.recent.push_back(event.clone());
        }
        Some(event)
    }
}

impl Traffic {
    /// Creates the generator of the demo's events. Equal settings generate equal events.
    pub fn new(settings: TrafficSettings) -> Traffic {
        let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
        let accounts = Accounts::new(&mut rng, settings.start, settings.history);
        Traffic { settings, rng, accounts, steps: 0, recent: VecDeque::new(), handed_on: VecDeque::new(), truth: Truth::default() }
    }

    /// What a correct pipeline answers for the records generated so far.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// The fraud rings hidden in the traffic.
    pub(crate) fn rings(&self) -> &[Ring] {
        self.accounts.rings()
    }

    /// How many records were generated so far.
    pub fn sent(&self) -> u64 {
        self.steps
    }

    /// When the next record is to be sent.
    pub(crate) fn next_at(&self) -> Micros {
        self.time_of(self.steps)
    }

    /// A history record's distance to `start` is quadratic in the number of records left: the last hour of 95 days gets
    /// 2 % of the records.
    fn time_of(&self, step: u64) -> Micros {
        let TrafficSettings { start, history, .. } = self.settings;
        match history.checked_sub(step) {
            Some(left) if left > 0 => {
                let (left, all) = (i128::from(left), i128::from(history));
                start - (i128::from(HISTORY) * left * left / (all * all)) as Micros
            }
            _ => start + (step - history) as Micros * SECOND / LIVE_PER_SECOND,
        }
    }

    fn event_at(&mut self, at: Micros) -> TrafficEvent {
        if self.per_mille(DUPLICATE)
            && let Some(event) = self.repeat(at)
        {
            return event;
        }
        if let Some(account) = self.accounts.create_next(at) {
            let event = self.create_account(&account, at);
            if account.is_handed_on() {
                self.handed_on.push_back(account);
            }
            return event;
        }
        if let Some(account) = self.handed_on.pop_front() {
            let device = account.elsewhere.clone().unwrap_or_default();
            return self.login(&account, &device, at);
        }
        if self.rng.random_range(0..10) < 3 {
            let (account, _) = self.accounts.choose(&mut self.rng, at);
            let device = account.login_device(&mut self.rng).to_owned();
            return self.login(&account, &device, at);
        }
        self.payment(at)
    }

    fn repeat(&mut self, at: Micros) -> Option<TrafficEvent> {
        let index = self.rng.random_range(0..self.recent.len().max(1));
        let event = self.recent.get(index)?.clone();
        self.truth.count(event.stream, ExpectedDecision::Duplicate);
        Some(TrafficEvent { at, outcome: ExpectedDecision::Duplicate, ..event })
    }

    fn create_account(&mut self, account: &Account, at: Micros) -> TrafficEvent {
        self.truth.count(TrafficStream::CreateAccount, ExpectedDecision::Accepted);
        self.truth.created(&account.device, &account.user);
        let id = self.id('a');
        let value = Fields::new(&id, account.created_at, &account.user, &account.device, &account.ip).json();
        TrafficEvent {
            stream: TrafficStream::CreateAccount,
            at,
            key: account.device.clone(),
            id,
            value,
            outcome: ExpectedDecision::Accepted,
        }
    }

    fn login(&mut self, account: &Account, device: &str, at: Micros) -> TrafficEvent {
        let id = self.id('l');
        let (ts, outcome) = self.dated(at);
        let mut fields = Fields::new(&id, ts, &account.user, device, &account.ip);
        let value = if outcome == ExpectedDecision::Broken { self.broken(&mut fields) } else { fields.json() };
        self.truth.count(TrafficStream::Login, outcome);
        if outcome == ExpectedDecision::Accepted {
            self.truth.logged_in(&account.ip, &account.user, device);
        }
        TrafficEvent { stream: TrafficStream::Login, at, key: account.ip.clone(), id, value, outcome }
    }

    fn payment(&mut self, at: Micros) -> TrafficEvent {
        let (account, stage) = self.accounts.choose(&mut self.rng, at);
        let id = self.id('t');
        let (ts, outcome) = self.dated(at);
        let cents = stage.amount_cents(&mut self.rng);
        let is_ok = !self.per_mille(stage.declined_per_mille());
        let currency = ["EUR", "EUR", "EUR", "USD", "GBP"][self.rng.random_range(0..5)];
        let mut fields = Fields::new(&id, ts, &account.user, &account.device, &account.ip);
        fields.payment = Some((cents, currency, if is_ok { "ok" } else { "declined" }));
        let value = if outcome == ExpectedDecision::Broken { self.broken(&mut fields) } else { fields.json() };
        self.truth.count(TrafficStream::Transactions, outcome);
        if outcome == ExpectedDecision::Accepted {
            self.truth.paid(&account.device, cents, is_ok);
        }
        TrafficEvent { stream: TrafficStream::Transactions, at, key: account.device, id, value, outcome }
    }

    /// Chooses the event time of a login or payment sent at `at`, and its outcome.
    fn dated(&mut self, at: Micros) -> (Micros, ExpectedDecision) {
        let roll = self.rng.random_range(0..1000);
        if roll < FUTURE {
            (at.max(self.settings.start) + 2 * DAY, ExpectedDecision::Future)
        } else if roll < FUTURE + BROKEN {
            (at, ExpectedDecision::Broken)
        } else if roll < FUTURE + BROKEN + LATE {
            let delay =
                if self.rng.random_bool(0.5) { self.rng.random_range(2..180) * MINUTE } else { self.rng.random_range(3..96) * HOUR };
            self.truth.late += 1;
            (at - delay, ExpectedDecision::Accepted)
        } else {
            (at, ExpectedDecision::Accepted)
        }
    }

    /// Returns one of three kinds of invalid record: truncated, with a wrong type, or without a required value.
    fn broken(&mut self, fields: &mut Fields<'_>) -> String {
        match self.rng.random_range(0..3) {
            0 => {
                let mut text = fields.json();
                text.truncate(text.len() / 2);
                text
            }
            1 => {
                fields.ts = "\"the day before yesterday\"".into();
                fields.json()
            }
            _ => {
                fields.user = None;
                fields.json()
            }
        }
    }

    fn id(&self, kind: char) -> String {
        format!("{kind}{:08}", self.steps)
    }

    fn per_mille(&mut self, chance: u32) -> bool {
        self.rng.random_range(0..1000) < chance
    }
}

#[cfg(test)]
mod tests;
