//! The records of the benchmarks, in the form that bench/src/payments and bench/src/purchases write.

use bytes::Bytes;

use crate::product::{Column, ColumnType, StreamDefinition};
use crate::events::format_timestamp;
use crate::product::record::Record;
use crate::product::vector::Offset;

/// 2026-02-01T00:00:00Z.
const FIRST: i64 = 1_769_904_000_000_000;

/// Records of one stream, and the stream.
pub struct Records {
    pub stream: StreamDefinition,
    pub records: Vec<Record>,
    pub bytes: usize,
}

impl Records {
    fn generate(name: &str, columns: &[(&str, bool)], count: u64, json: fn(u64) -> String) -> Self {
        let column_type = |name: &str| match name {
            "ts" => ColumnType::TimestampTz,
            "amount" => ColumnType::Decimal { precision: 18, scale: 2 },
            _ => ColumnType::Text,
        };
        let column = |&(name, nullable): &(&str, bool)| {
            let (path, column_type) = (vec![name.to_owned()], column_type(name));
            Column { name: name.to_owned(), column_type, nullable, path, unit: None }
        };
        let stream = StreamDefinition {
            name: name.into(),
            columns: columns.iter().map(column).collect(),
            event_time: "ts".into(),
            id: Some("event_id".into()),
            key: Some("account_id".into()),
            keep_raw: false,
        };
        let record = |number: u64| {
            let value = Some(Bytes::from(json(number)));
            Record { offset: Offset(number as i64), timestamp: number as i64, key: None, value, headers: Vec::new() }
        };
        let records: Vec<Record> = (0..count).map(record).collect();
        let bytes = records.iter().map(|record| value(record).len()).sum();
        Self { stream, records, bytes }
    }

    /// One purchase, as it is written to the log.
    pub fn one(json: &[u8]) -> Self {
        let mut one = Self::purchases(1);
        one.records[0].value = Some(Bytes::copy_from_slice(json));
        one
    }

    /// About 260 bytes and 11 columns.
    pub fn payments(count: u64) -> Self {
        let required = ["event_id", "ts", "account_id", "amount", "currency", "status", "channel"].map(|name| (name, false));
        let nullable = ["country", "card_country", "merchant_id", "device_id"].map(|name| (name, true));
        Self::generate("payments", &[&required[..], &nullable[..]].concat(), count, payment)
    }

    /// About 120 bytes and 5 columns.
    pub fn purchases(count: u64) -> Self {
        let columns = [("event_id", false), ("ts", false), ("account_id", true), ("merchant_id", true), ("amount", false)];
        Self::generate("purchases", &columns, count, purchase)
    }
}

pub fn value(record: &Record) -> &[u8] {
    record.value.as_deref().unwrap_or_default()
}

fn payment(number: u64) -> String {
    const COUNTRIES: [&str; 6] = ["DE", "FR", "NL", "PL", "ES", "IT"];
    let hash = mix(11, number);
    let (random, cents) = (mix(13, hash), 100 + hash % 50_000);
    let pick = |salt: u64, of: u64| mix(salt, hash) % of;
    format!(
        r#"{{"event_id":"{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}","ts":"{}","account_id":"a{:08}","amount":{}.{:02},"currency":"EUR","status":"{}","channel":"{}","country":"{}","card_country":"{}","merchant_id":"m{:06}","device_id":"d{:08}"}}"#,
        random >> 32,
        (random >> 16) & 0xffff,
        random & 0xfff,
        (random >> 12) & 0xfff,
        number,
        format_timestamp(FIRST + number as i64 * 50),
        pick(12, 100_000),
        cents / 100,
        cents % 100,
        if pick(14, 10) == 0 { "declined" } else { "ok" },
        ["card", "online", "transfer"][pick(15, 3) as usize],
        COUNTRIES[pick(16, 6) as usize],
        COUNTRIES[pick(17, 6) as usize],
        pick(18, 100_000),
        pick(19, 10_000_000),
    )
}

fn purchase(number: u64) -> String {
    let hash = mix(7, number);
    let cents = 1 + hash % 100_000;
    format!(
        r#"{{"event_id":"a7-{number}","ts":"{}","account_id":"a{:08}","merchant_id":"m{:06}","amount":{}.{:02}}}"#,
        format_timestamp(FIRST + number as i64),
        mix(3, hash) % 100_000,
        mix(5, hash) % 10_000,
        cents / 100,
        cents % 100
    )
}

/// splitmix64 (Steele, Lea and Flood 2014).
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
