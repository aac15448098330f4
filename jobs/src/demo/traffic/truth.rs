//! What the generator knows and the pipeline must find.

use std::collections::{BTreeMap, BTreeSet};

use super::{ExpectedDecision, TrafficStream};

/// The correct answers for all records generated so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Truth {
    pub streams: BTreeMap<TrafficStream, StreamTruth>,
    /// By device id.
    pub devices: BTreeMap<String, DeviceTruth>,
    /// By address: the users that logged in from it.
    pub ips: BTreeMap<String, BTreeSet<String>>,
    /// By user: the devices they logged in from.
    pub logins: BTreeMap<String, BTreeSet<String>>,
    /// Accepted events that arrived minutes to days late.
    pub late: i64,
}

/// The outcomes of a stream's records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamTruth {
    pub accepted: i64,
    pub duplicates: i64,
    pub future: i64,
    pub broken: i64,
}

impl StreamTruth {
    /// The number of records in the log.
    pub fn records(&self) -> i64 {
        self.accepted + self.duplicates + self.dead_letters()
    }

    /// The number of records that have to become dead letters.
    pub fn dead_letters(&self) -> i64 {
        self.future + self.broken
    }
}

/// One device's accepted events, of all time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceTruth {
    pub payments: i64,
    pub declined: i64,
    pub ok_payments: i64,
    pub ok_cents: i64,
    /// The accounts that were created on it.
    pub accounts: BTreeSet<String>,
}

impl Truth {
    /// Returns the counts of a stream.
    pub fn stream(&self, stream: TrafficStream) -> StreamTruth {
        self.streams.get(&stream).copied().unwrap_or_default()
    }

    /// Returns how many users that were created on this device logged in at all, and from how many other devices.
    pub fn links(&self, device: &str) -> (i64, i64) {
        let accounts = self.devices.get(device).into_iter().flat_map(|known| &known.accounts);
        let logins: Vec<&BTreeSet<String>> = accounts.filter_map(|user| self.logins.get(user)).collect();
        let linked: BTreeSet<&String> = logins.iter().copied().flatten().filter(|linked| *linked != device).collect();
        (logins.len() as i64, linked.len() as i64)
    }

    pub(super) fn count(&mut self, stream: TrafficStream, outcome: ExpectedDecision) {
        let counts = self.streams.entry(stream).or_default();
        match outcome {
            ExpectedDecision::Accepted => counts.accepted += 1,
            ExpectedDecision::Duplicate => counts.duplicates += 1,
            ExpectedDecision::Future => counts.future += 1,
            ExpectedDecision::Broken => counts.broken += 1,
        }
    }

    pub(super) fn paid(&mut self, device: &str, cents: i64, is_ok: bool) {
        let known = self.devices.entry(device.to_owned()).or_default();
        known.payments += 1;
        if is_ok {
            known.ok_payments += 1;
            known.ok_cents += cents;
        } else {
            known.declined += 1;
        }
    }

    pub(super) fn created(&mut self, device: &str, user: &str) {
        self.devices.entry(device.to_owned()).or_default().accounts.insert(user.to_owned());
    }

    pub(super) fn logged_in(&mut self, ip: &str, user: &str, device: &str) {
        self.ips.entry(ip.to_owned()).or_default().insert(user.to_owned());
        self.logins.entry(user.to_owned()).or_default().insert(device.to_owned());
    }
}
