//! Generates known records: ordinary, late, repeated, dated ahead, and broken in every way that the rules name.

use bytes::Bytes;
use engine::events::format_timestamp;
use event_log::NewRecord;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::json;

const DEVICES: u32 = 40;
const USERS: u32 = 120;
/// How many records back a repeat may come from.
const REMEMBERED: usize = 400;

/// Generates records; the same seed and times give the same records.
pub struct Maker {
    random: StdRng,
    made: u64,
    name: String,
    recent: Vec<NewRecord>,
}

impl Maker {
    /// `name` distinguishes its ids from those of other makers.
    pub fn new(name: &str, random: StdRng) -> Maker {
        Maker { random, made: 0, name: name.to_owned(), recent: Vec::new() }
    }

    pub fn payments(&mut self, count: usize, now_ms: i64) -> Vec<NewRecord> {
        (0..count).map(|_| self.payment(now_ms)).collect()
    }

    pub fn clicks(&mut self, count: usize, now_ms: i64) -> Vec<NewRecord> {
        (0..count).map(|_| self.click(now_ms)).collect()
    }

    /// A line of a file for `ingest`: an event that the stream accepts.
    pub fn payment_line(&mut self, now_ms: i64) -> (String, String) {
        let (id, _, text) = self.plain_payment(now_ms);
        (id, text)
    }

    fn payment(&mut self, now_ms: i64) -> NewRecord {
        match self.random.random_range(0..100) {
            0..8 if !self.recent.is_empty() => self.repeat(),
            8..12 => self.broken(now_ms),
            _ => {
                let (id, device, text) = self.plain_payment(now_ms);
                let record = record(device, Some(id), Some(text.into_bytes()));
                if self.recent.len() >= REMEMBERED {
                    self.recent.swap_remove(0);
                }
                self.recent.push(record.clone());
                record
            }
        }
    }

    fn plain_payment(&mut self, now_ms: i64) -> (String, Option<String>, String) {
        self.made += 1;
        let id = format!("{}-{}", self.name, self.made);
        let device = self.random.random_bool(0.97).then(|| format!("d{}", self.random.random_range(0..DEVICES)));
        let ts = format_timestamp(self.time(now_ms) * 1_000 + self.random.random_range(0..1_000));
        let amount = format!("{}.{:02}", self.random.random_range(-50..1_000), self.random.random_range(0..100));
        let status = if self.random.random_bool(0.8) { "ok" } else { "declined" };
        let event = json!({"event_id": id, "ts": ts, "device_id": device, "user_id": self.user(), "amount": amount, "status": status});
        (id, device, event.to_string())
    }

    /// Returns the same record again, or its event under another key. The latter may reach another partition, where it
    /// is no duplicate.
    fn repeat(&mut self) -> NewRecord {
        let again = self.recent.choose(&mut self.random).cloned().unwrap_or_default();
        match self.random.random_bool(0.85) {
            true => again,
            false => NewRecord { key: Some(Bytes::from(format!("k{}", self.random.random_range(0..9)))), ..again },
        }
    }

    fn broken(&mut self, now_ms: i64) -> NewRecord {
        let (id, device, text) = self.plain_payment(now_ms);
        let ahead = format_timestamp((now_ms + 3_600_000) * 1_000);
        let value: Option<Vec<u8>> = match self.random.random_range(0..7) {
            0 => None,
            1 => Some(text.as_bytes()[..text.len() / 2].to_vec()),
            2 => Some(text.replace("\"amount\":\"", "\"amount\":\"0.00").into_bytes()),
            3 => Some(text.replace("\"user_id\"", "\"user\"").into_bytes()),
            4 => {
                Some(json!({"event_id": id, "ts": "yesterday", "user_id": "u1", "amount": "1.00", "status": "ok"}).to_string().into_bytes())
            }
            5 => Some(b"\xff\xfe{}".to_vec()),
            _ => Some(json!({"event_id": id, "ts": ahead, "user_id": "u1", "amount": "1.00", "status": "ok"}).to_string().into_bytes()),
        };
        record(device, Some(id), value)
    }

    fn click(&mut self, now_ms: i64) -> NewRecord {
        let user = self.user();
        let page: i64 = self.random.random_range(0..1_000);
        let value = match self.random.random_range(0..50) {
            0 => json!({"at": self.time(now_ms), "user_id": user, "page": "first"}),
            1 => json!({"at": now_ms + 3_600_000, "user_id": user, "page": page}),
            // Ties: many events of one user in one millisecond.
            2..20 => json!({"at": now_ms, "user_id": user, "page": page}),
            _ => json!({"at": self.time(now_ms), "user_id": user, "page": page}),
        };
        record(Some(user), None, Some(value.to_string().into_bytes()))
    }

    /// Mostly `now_ms`; some are late, some a little ahead.
    fn time(&mut self, now_ms: i64) -> i64 {
        match self.random.random_range(0..100) {
            0..6 => now_ms - self.random.random_range(0..7_200_000),
            6..9 => now_ms + self.random.random_range(0..3_000),
            _ => now_ms - self.random.random_range(0..2_000),
        }
    }

    fn user(&mut self) -> String {
        match self.random.random_range(0..USERS) {
            0 => "\u{96ea} \u{1f98a} \"x\"".to_owned(),
            user => format!("u{user}"),
        }
    }
}

fn record(key: Option<String>, id: Option<String>, value: Option<Vec<u8>>) -> NewRecord {
    let bytes = |text: String| Bytes::from(text.into_bytes());
    NewRecord { key: key.map(bytes), value: value.map(Bytes::from), headers: Vec::new(), partition_by: id.map(bytes) }
}
