//! Reads the records of events as they come.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use types::{Error, Result};

use super::STALLED;
use super::sending::Sent;
use super::tail::{Arrived, Origin, Tail};
use crate::latencies::Latencies;

/// How often it looks for new records.
const POLL: Duration = Duration::from_millis(2);

pub(super) struct Reader {
    tail: Tail,
    sent: Sent,
    /// The events that have a record.
    events: HashSet<(i32, i64)>,
    twice: u64,
    /// The last event of each partition of the events, in each partition of the records.
    last: BTreeMap<(i32, i32), i64>,
    disordered: u64,
    /// Records that came before their event was known to be appended.
    early: Vec<(i32, i64)>,
}

impl Reader {
    pub(super) fn new(tail: Tail, sent: Sent) -> Reader {
        Reader { tail, sent, events: HashSet::new(), twice: 0, last: BTreeMap::new(), disordered: 0, early: Vec::new() }
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

    /// Errors if an event had two records, or if records were not in the order of their events. Flink's need not be:
    /// between its windows the records of a partition take several ways.
    pub(super) fn check(&self) -> Result<()> {
        let is_ordered = self.disordered == 0 || self.tail.origin == Origin::Columns;
        if self.twice == 0 && is_ordered {
            return Ok(());
        }
        Err(Error::internal("the records of a sink are wrong").with("twice", self.twice).with("out of order", self.disordered))
    }

    async fn read(&mut self, latencies: &mut Latencies) -> Result<()> {
        for arrived in self.tail.read().await? {
            self.take(&arrived, latencies);
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

    fn take(&mut self, arrived: &Arrived, latencies: &mut Latencies) {
        let (source, offset) = arrived.event;
        self.twice += u64::from(!self.events.insert(arrived.event));
        let last = self.last.insert((source, arrived.partition), offset);
        self.disordered += u64::from(last.is_some_and(|last| last >= offset));
        match self.sent.lock().remove(&arrived.event) {
            Some(at) => latencies.add(arrived.at - at),
            None => self.early.push(arrived.event),
        }
    }
}
