//! Generates two streams: users open accounts on devices, and log in from devices.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use bytes::Bytes;
use engine::events::format_timestamp;
use event_log::NewRecord;
use types::tiles::Micros;

use crate::events::{DAY, END, Events, mix, skewed, times};
use crate::view::DEFINITIONS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Account,
    Login,
}

/// One account opened, or one login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub ts: Micros,
    pub user: u64,
    pub device: u64,
}

/// The sizes of a graph, and how its users and devices are connected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Graph {
    pub seed: u64,
    pub users: u64,
    pub devices: u64,
    pub accounts: u64,
    pub logins: u64,
    /// 1 is uniform; with a greater value the first users and devices have more of the events.
    pub skew: f64,
    /// How many devices each user logs in from; 0: from any device each time.
    pub devices_per_user: u64,
    /// How many days before [`END`] the first account and the first login are.
    pub account_days: i64,
    pub login_days: i64,
}

impl Stream {
    pub const BOTH: [Stream; 2] = [Stream::Account, Stream::Login];

    /// The name of the stream, its topic and its table.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Account => "create_account",
            Stream::Login => "login",
        }
    }

    fn named(name: &str) -> Stream {
        if name == Stream::Account.name() { Stream::Account } else { Stream::Login }
    }
}

impl Event {
    /// The record as a producer sends it. Events with different ids are different events.
    pub fn record(&self, id: &str) -> NewRecord {
        let (ts, user, device) = (format_timestamp(self.ts), user_text(self.user), device_text(self.device));
        let value = format!(r#"{{"event_id":"{id}","ts":"{ts}","user_id":"{user}","device_id":"{device}"}}"#);
        NewRecord { key: Some(Bytes::from(user)), value: Some(Bytes::from(value)), headers: Vec::new(), partition_by: None }
    }
}

impl Graph {
    /// A graph with as many events of each kind as give every device `degree` accounts, and every user logins from
    /// `degree` devices, on average.
    pub fn of_degree(degree: u64, devices: u64) -> Graph {
        let events = devices * degree;
        Graph {
            seed: degree,
            users: devices,
            devices,
            accounts: events,
            logins: events,
            skew: 1.0,
            devices_per_user: 0,
            account_days: 29,
            login_days: 29,
        }
    }

    pub fn count(&self, stream: Stream) -> u64 {
        match stream {
            Stream::Account => self.accounts,
            Stream::Login => self.logins,
        }
    }

    /// The event with this number, in time order.
    pub fn event(&self, stream: Stream, number: u64) -> Event {
        let (tag, days) = match stream {
            Stream::Account => (1, self.account_days),
            Stream::Login => (2, self.login_days),
        };
        let hash = mix(mix(self.seed, tag), number);
        let user = self.skewed(self.users, hash);
        let device = match stream {
            Stream::Login if self.devices_per_user > 0 => {
                let own = mix(hash, 3) % self.devices_per_user;
                self.skewed(self.devices, mix(mix(self.seed, 4), user * self.devices_per_user + own))
            }
            _ => self.skewed(self.devices, mix(hash, 5)),
        };
        let span = i128::from(days * DAY);
        let into = span * i128::from(number) / i128::from(self.count(stream).max(1));
        Event { ts: END - (span - into) as Micros, user, device }
    }

    /// A key to look up, uniformly chosen among the devices.
    pub fn device(&self, nth: u64) -> u64 {
        self.pick(nth, self.devices)
    }

    /// Returns a number below `of`, uniformly chosen.
    pub fn pick(&self, nth: u64, of: u64) -> u64 {
        mix(self.seed ^ 0x5eed, nth) % of.max(1)
    }

    fn skewed(&self, of: u64, hash: u64) -> u64 {
        skewed(of, hash, self.skew)
    }
}

impl Events for Graph {
    fn files(&self) -> Vec<(String, String)> {
        DEFINITIONS.map(|(path, text)| (path.to_owned(), text.to_owned())).to_vec()
    }

    fn streams(&self) -> Vec<(&'static str, u64)> {
        Stream::BOTH.map(|stream| (stream.name(), self.count(stream))).to_vec()
    }

    fn time(&self, stream: &str, number: u64) -> Micros {
        self.event(Stream::named(stream), number).ts
    }

    fn column(&self, stream: &str, name: &str, numbers: &[u64]) -> Option<ArrayRef> {
        let of = Stream::named(stream);
        let rows = numbers.iter().map(|number| self.event(of, *number));
        Some(match name {
            "event_id" => Arc::new(StringArray::from_iter_values(numbers.iter().map(|number| format!("{}{number:09}", &stream[..1])))),
            "ts" => times(rows.map(|row| row.ts)),
            "user_id" => Arc::new(StringArray::from_iter_values(rows.map(|row| user_text(row.user)))),
            "device_id" => Arc::new(StringArray::from_iter_values(rows.map(|row| device_text(row.device)))),
            _ => return None,
        })
    }
}

pub fn user_text(user: u64) -> String {
    format!("u{user:08}")
}

pub fn device_text(device: u64) -> String {
    format!("d{device:08}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_each_time_in_order_and_before_the_end() {
        let graph = Graph::of_degree(3, 100);
        let times: Vec<Micros> = (0..graph.logins).map(|number| graph.event(Stream::Login, number).ts).collect();
        assert!(times.is_sorted() && times.iter().all(|ts| *ts < END) && times.last() == Some(&graph.newest()));
        assert_eq!(graph.event(Stream::Account, 7), graph.event(Stream::Account, 7));
        assert_ne!(graph.event(Stream::Account, 7).user, graph.event(Stream::Login, 7).user);
    }

    #[test]
    fn users_log_in_from_so_many_devices_of_their_own() {
        let graph = Graph { devices_per_user: 2, ..Graph::of_degree(30, 50) };
        let of_first = (0..graph.logins).map(|number| graph.event(Stream::Login, number)).filter(|event| event.user == 1);
        let devices: std::collections::BTreeSet<u64> = of_first.map(|event| event.device).collect();
        assert!((1..=2).contains(&devices.len()), "{devices:?}");
    }
}
