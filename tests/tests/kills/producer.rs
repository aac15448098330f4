//! Continuously produces known records directly to the log, and remembers what the log acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use basestream_tests::records_of;
use bytes::Bytes;
use event_log::{Log, NewRecord};
use rand::SeedableRng;
use rand::rngs::StdRng;
use types::vector::Offset;
use types::{Error, Result};

use crate::records::Maker;
use crate::site::{STREAMS, Site};

/// The first interval between two appends to one stream. It grows with the number of records, because every record is
/// checked at the end: a machine that needs three times as long for all steps has less than twice as much to check.
const EVERY: Duration = Duration::from_millis(40);
const RECORDS: usize = 30;
/// The number of records of a stream at which the interval has doubled.
const DOUBLED_AT: f64 = 8_000.0;

/// The acknowledged values, by stream, partition and offset.
pub type Acknowledged = BTreeMap<(&'static str, i32, Offset), Option<Bytes>>;

/// Produces to both streams until `stop`; returns what was acknowledged. An append without a reply is not recorded:
/// only the log shows whether it succeeded.
pub async fn produce(site: &Site, log: Arc<dyn Log>, seed: u64, stop: Arc<AtomicBool>) -> Acknowledged {
    let streams = STREAMS.map(|stream| {
        let (log, topic, stop) = (log.clone(), site.topic_of(stream), stop.clone());
        tokio::spawn(async move {
            let mut maker = Maker::new("p", StdRng::seed_from_u64(seed ^ stream.len() as u64));
            let (mut acknowledged, mut made) = (Acknowledged::new(), 0.0);
            while !stop.load(Ordering::Relaxed) {
                let now_ms = chrono::Utc::now().timestamp_millis();
                let records: Vec<NewRecord> =
                    if stream == "payments" { maker.payments(RECORDS, now_ms) } else { maker.clicks(RECORDS, now_ms) };
                if let Ok(places) = log.append(&topic, records.clone()).await {
                    let places = places.into_iter().map(|(partition, offset)| (stream, partition, offset));
                    acknowledged.extend(places.zip(records.into_iter().map(|record| record.value)));
                }
                made += RECORDS as f64;
                tokio::time::sleep(EVERY.mul_f64(1.0 + made / DOUBLED_AT)).await;
            }
            acknowledged
        })
    });
    let mut all = Acknowledged::new();
    for stream in streams {
        all.append(&mut stream.await.unwrap());
    }
    all
}

/// A record in the form that the oracle reads.
pub struct LoggedRecord {
    pub stream: &'static str,
    pub partition: i32,
    pub offset: Offset,
    pub timestamp: i64,
    pub value: Option<Bytes>,
}

/// Reads the whole log. Checks that everything acknowledged is in it, at its place, as it was sent.
pub async fn read_back(site: &Site, log: &dyn Log, mut acknowledged: Acknowledged) -> Result<Vec<LoggedRecord>> {
    let mut all = Vec::new();
    for stream in STREAMS {
        let topic = site.topic_of(stream);
        for (source, record) in records_of(log, &topic).await? {
            let (partition, offset) = (source.partition, record.offset);
            if let Some(sent) = acknowledged.remove(&(stream, partition, offset))
                && sent != record.value
            {
                return Err(Error::corrupt("an acknowledged record changed").with("partition", &source).with("offset", offset));
            }
            all.push(LoggedRecord { stream, partition, offset, timestamp: record.timestamp, value: record.value });
        }
    }
    match acknowledged.first_key_value() {
        Some((place, _)) => Err(Error::corrupt("acknowledged records are not in the log")
            .with("count", acknowledged.len())
            .with("first", format!("{place:?}"))),
        None => Ok(all),
    }
}
