//! The accounts of the traffic: ordinary ones with skewed activity, and those of fraud rings.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use types::tiles::Micros;

use super::{DAY, HISTORY, HOUR, MINUTE};

/// The number with a long enough history; a short one has fewer.
const ACCOUNTS: u64 = 2_000;
const RINGS: usize = 8;

/// One account and where it acts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub user: String,
    pub device: String,
    pub ip: String,
    /// A second device it logs in from, if any. Each account of a ring that shares a device has one.
    pub elsewhere: Option<String>,
    pub created_at: Micros,
    /// How often it acts, relative to others.
    weight: u64,
    ring: Option<usize>,
}

/// Accounts of one owner: created in a burst, on one device or behind one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    pub shares: Shared,
    pub accounts: usize,
    pub begins: Micros,
    /// Small, frequent payments before this time, large ones after.
    large_from: Micros,
    ends: Micros,
}

/// What the accounts of a ring have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shared {
    Device(String),
    Ip(String),
}

/// How an account pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentPattern {
    Ordinary,
    /// A ring tests its cards.
    Small,
    /// A ring takes as much as it can.
    Large,
}

impl PaymentPattern {
    /// Draws an amount.
    pub fn amount_cents(self, rng: &mut ChaCha8Rng) -> i64 {
        match self {
            PaymentPattern::Small => rng.random_range(50..300),
            PaymentPattern::Large => rng.random_range(20_000..90_000),
            PaymentPattern::Ordinary if rng.random_range(0..10) == 0 => rng.random_range(5_000..40_000),
            PaymentPattern::Ordinary => rng.random_range(199..6_000),
        }
    }

    /// How many of a thousand payments are declined.
    pub fn declined_per_mille(self) -> u32 {
        match self {
            PaymentPattern::Ordinary => 30,
            PaymentPattern::Small => 250,
            PaymentPattern::Large => 400,
        }
    }
}

/// All accounts, in the order of their creation.
#[derive(Debug)]
pub struct Accounts {
    list: Vec<Account>,
    rings: Vec<Ring>,
    created: usize,
    /// The created ordinary accounts, with the running sum of their weights.
    ordinary: Vec<(u64, usize)>,
    /// The created accounts of each ring.
    of_ring: Vec<Vec<usize>>,
}

impl Accounts {
    /// Draws the accounts of a history of this many payments.
    pub fn new(rng: &mut ChaCha8Rng, start: Micros, history: u64) -> Accounts {
        let count = (history / 25).clamp(60, ACCOUNTS);
        let rings: Vec<Ring> = (0..RINGS).map(|index| ring(rng, index, start)).collect();
        let mut list: Vec<Account> = (0..count).map(|index| ordinary(rng, index, count, start)).collect();
        for (index, ring) in rings.iter().enumerate() {
            list.extend((0..ring.accounts).map(|_| member(rng, index, ring)));
        }
        list.sort_by_key(|account| account.created_at);
        for (index, account) in list.iter_mut().enumerate() {
            account.user = format!("user-{index:04}");
        }
        let of_ring = vec![Vec::new(); RINGS];
        Accounts { list, rings, created: 0, ordinary: Vec::new(), of_ring }
    }

    pub fn rings(&self) -> &[Ring] {
        &self.rings
    }

    /// Returns the next account to be created by `at`. The first one is always due.
    pub fn create_next(&mut self, at: Micros) -> Option<Account> {
        let index = self.created;
        let account = self.list.get(index)?;
        if account.created_at > at && !self.ordinary.is_empty() {
            return None;
        }
        self.created += 1;
        match account.ring {
            Some(ring) => self.of_ring[ring].push(index),
            None => {
                let before = self.ordinary.last().map_or(0, |(sum, _)| *sum);
                self.ordinary.push((before + account.weight, index));
            }
        }
        Some(account.clone())
    }

    /// Chooses who acts at `at`: in one of four cases an active ring, if there is one.
    pub fn choose(&self, rng: &mut ChaCha8Rng, at: Micros) -> (Account, PaymentPattern) {
        let at_work: Vec<usize> =
            (0..RINGS).filter(|index| self.rings[*index].is_at_work(at) && !self.of_ring[*index].is_empty()).collect();
        if !at_work.is_empty() && rng.random_range(0..4) == 0 {
            let ring = at_work[rng.random_range(0..at_work.len())];
            let members = &self.of_ring[ring];
            let account = self.list[members[rng.random_range(0..members.len())]].clone();
            return (account, if at < self.rings[ring].large_from { PaymentPattern::Small } else { PaymentPattern::Large });
        }
        let total = self.ordinary.last().map_or(1, |(sum, _)| *sum);
        let point = rng.random_range(0..total);
        let index = self.ordinary.partition_point(|(sum, _)| *sum <= point);
        (self.list[self.ordinary[index].1].clone(), PaymentPattern::Ordinary)
    }
}

impl Account {
    /// Whether it was created on a device that it shares with others, to be used from a device of its own.
    pub fn is_handed_on(&self) -> bool {
        self.ring.is_some() && self.elsewhere.is_some()
    }

    /// Chooses the device of its next login.
    pub fn login_device(&self, rng: &mut ChaCha8Rng) -> &str {
        match &self.elsewhere {
            Some(elsewhere) if rng.random_bool(0.5) => elsewhere,
            _ => &self.device,
        }
    }
}

impl Ring {
    /// Returns the device on which all of its accounts were created, if they share one.
    pub fn device(&self) -> Option<&str> {
        match &self.shares {
            Shared::Device(device) => Some(device),
            Shared::Ip(_) => None,
        }
    }

    fn is_at_work(&self, at: Micros) -> bool {
        (self.begins..self.ends).contains(&at)
    }
}

/// Seven rings were active in the last month, for three days each; the eighth is still active.
fn ring(rng: &mut ChaCha8Rng, index: usize, start: Micros) -> Ring {
    let shares = match index % 3 {
        2 => Shared::Ip(address(rng, 203)),
        _ => Shared::Device(device(rng)),
    };
    let accounts = rng.random_range(20..=40);
    if index + 1 == RINGS {
        return Ring { shares, accounts, begins: start - 4 * HOUR, large_from: start - 2 * HOUR, ends: Micros::MAX };
    }
    let begins = start - (4 + 3 * index as Micros) * DAY - rng.random_range(0..24) * HOUR;
    Ring { shares, accounts, begins, large_from: begins + 36 * HOUR, ends: begins + 3 * DAY }
}

fn ordinary(rng: &mut ChaCha8Rng, index: u64, count: u64, start: Micros) -> Account {
    // Their density follows that of the events; none is created in the last day.
    let left = i128::from(count - index) * 9 / 10 + i128::from(count) / 10;
    let created_at = start - (i128::from(HISTORY) * left * left / (i128::from(count) * i128::from(count))) as Micros;
    // One in fifty acts thirty times as often as most, and about one in eight six times as often.
    let weight = match rng.random_range(0..50) {
        0 => 30,
        1..=6 => 6,
        _ => 1,
    };
    let (device, ip) = (device(rng), address(rng, 100));
    let elsewhere = (rng.random_range(0..6) == 0).then(|| self::device(rng));
    Account { user: String::new(), device, ip, elsewhere, created_at, weight, ring: None }
}

fn member(rng: &mut ChaCha8Rng, index: usize, ring: &Ring) -> Account {
    let (device, ip, elsewhere) = match &ring.shares {
        Shared::Device(shared) => (shared.clone(), address(rng, 100), Some(device(rng))),
        Shared::Ip(shared) => (device(rng), shared.clone(), None),
    };
    let created_at = ring.begins + rng.random_range(0..40 * MINUTE);
    Account { user: String::new(), device, ip, elsewhere, created_at, weight: 1, ring: Some(index) }
}

fn device(rng: &mut ChaCha8Rng) -> String {
    format!("dev-{:06x}", rng.random_range(0..0x100_0000))
}

/// Returns one of so few addresses that households share one.
fn address(rng: &mut ChaCha8Rng, first: u8) -> String {
    format!("{first}.64.{}.{}", rng.random_range(0..16), rng.random_range(1..255))
}
