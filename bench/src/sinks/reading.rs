//! Reads the sink's topic as it grows.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use event_log::{Log, TopicPartition};
use event_sinks::source_of;
use types::record::Record;
use types::vector::Offset;
use types::{Error, Result};

use super::sending::Sent;
use super::{Latencies, STALLED};
use crate::payments::PARTITIONS;

const AT_ONCE: usize = 20_000;
/// How often it looks for new records.
const POLL: Duration = Duration::from_millis(2);

pub(super) struct Reader {
    log: Arc<dyn Log>,
    topic: Arc<str>,
    sent: Sent,
    next: Vec<Offset>,
    /// The events that have a record.
    events: HashSet<(i32, i64)>,
    twice: u64,
    /// The last event of each partition of the events, in each partition of the sink's topic.
    last: BTreeMap<(i32, i32), i64>,
    disordered: u64,
    /// Records that came before their event was known to be appended.
    early: Vec<(i32, i64)>,
}

impl Reader {
    pub(super) fn new(log: Arc<dyn Log>, topic: &str, sent: Sent) -> Reader {
        let (events, last, early) = (HashSet::new(), BTreeMap::new(), Vec::new());
        let next = vec![Offset::ZERO; PARTITIONS as usize];
        Reader { log, topic: topic.into(), sent, next, events, twice: 0, last, disordered: 0, early }
    }

    /// The number of events that have a record.
    pub(super) fn records(&self) -> u64 {
        self.events.len() as u64
    }

    /// Reads for a while; returns how long after their events the records could be read.
    pub(super) async fn read_for(&mut self, duration: Duration) -> Result<Latencies> {
        let (began, mut latencies) = (Instant::now(), Latencies::begin()?);
        while began.elapsed() < duration {
            self.read(&mut latencies).await?;
            tokio::time::sleep(POLL).await;
        }
        Ok(latencies)
    }

    /// Reads until this many events have a record.
    pub(super) async fn read_until(&mut self, expected: u64) -> Result<()> {
        let (mut latencies, mut moved, mut records) = (Latencies::begin()?, Instant::now(), self.records());
        while self.records() < expected {
            self.read(&mut latencies).await?;
            if self.records() > records {
                (moved, records) = (Instant::now(), self.records());
            }
            if moved.elapsed() > STALLED {
                return Err(Error::unavailable("not every event has a record").with("found", records).with("expected", expected));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Errors if an event had two records, or if records were not in the order of their events.
    pub(super) fn check(&self) -> Result<()> {
        if self.twice == 0 && self.disordered == 0 {
            return Ok(());
        }
        Err(Error::internal("the records of a sink are wrong").with("twice", self.twice).with("out of order", self.disordered))
    }

    async fn read(&mut self, latencies: &mut Latencies) -> Result<()> {
        for partition in 0..PARTITIONS as i32 {
            let source = TopicPartition { topic: self.topic.clone(), partition };
            let fetched = self.log.read(&source, self.next[partition as usize], AT_ONCE).await?;
            let now = Instant::now();
            fetched.records.iter().try_for_each(|record| self.take(partition, record, now, latencies))?;
            self.next[partition as usize] = fetched.position;
        }
        let (sent, now) = (self.sent.clone(), Instant::now());
        let mut sent = sent.lock();
        self.early.retain(|event| match sent.remove(event) {
            Some(at) => {
                latencies.add(now - at);
                false
            }
            None => true,
        });
        Ok(())
    }

    fn take(&mut self, partition: i32, record: &Record, now: Instant, latencies: &mut Latencies) -> Result<()> {
        let (source, offset) = source_of(&record.headers).ok_or_else(|| Error::internal("a record does not say which event it is of"))?;
        let event = (source.partition, offset.0);
        self.twice += u64::from(!self.events.insert(event));
        let last = self.last.insert((source.partition, partition), offset.0);
        self.disordered += u64::from(last.is_some_and(|last| last >= offset.0));
        match self.sent.lock().remove(&event) {
            Some(at) => latencies.add(now - at),
            None => self.early.push(event),
        }
        Ok(())
    }
}
