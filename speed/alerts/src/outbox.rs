//! The outbox of one alert: transitions are committed to the catalog, and then put out. A process that dies in between
//! leaves them to the next one.

use std::time::Duration;

use catalog::{Add, AlertTransition, Catalog, Commit, Expect, Remove};
use event_log::{NewRecord, Output, TopicPartition};
use types::Result;
use types::tiles::Micros;
use types::vector::{Offset, Vector};
use uuid::Uuid;

use crate::lease::Held;
use crate::record::new_record;
use crate::{AlertVersion, Alerts};

/// Transitions that one commit adds.
const MOST_ADDED: usize = 1_000;
/// How long transitions that are in the topic stay in the catalog.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Rows that one commit deletes.
const MOST_REMOVED: u32 = 10_000;

pub(crate) struct Outbox<'a> {
    alerts: &'a Alerts,
    alert: AlertVersion,
    topic: &'a str,
    output: Output,
    pub(crate) held: Held,
    next_seq: i64,
}

impl<'a> Outbox<'a> {
    /// Takes over from the process that ran the alert before, and puts out the transitions that it left. `next_seq` and
    /// `published` come from the catalog.
    pub(crate) async fn take_over(
        alerts: &'a Alerts,
        alert: AlertVersion,
        topic: &'a str,
        held: Held,
        (next_seq, published): (i64, i64),
    ) -> Result<Self> {
        // The versions of an alert count for themselves.
        let name = format!("alert/{}@{}", alert.0, alert.1);
        let source = TopicPartition { topic: name.as_str().into(), partition: 0 };
        let identity = alerts.node.catalog().identity().to_owned();
        let output = Output { group: alerts.group.clone(), sink: name.into(), source, identity };
        alerts.log.create_topic(topic, alerts.partitions).await?;
        let taken = alerts.log.take_output(&output).await?;
        let mut outbox = Outbox { alerts, alert, topic, output, held, next_seq };
        let mut from = taken.map_or(published, |next| next.0.max(published));
        while from < next_seq {
            let left = outbox.catalog().alert_transitions(&outbox.alert.0, outbox.alert.1, from, MOST_ADDED as u32).await?;
            let Some(last) = left.last() else { break };
            from = last.seq + 1;
            outbox.held.keep().await?;
            outbox.publish(&left).await?;
        }
        if published < next_seq {
            outbox.note_published().await?;
        }
        Ok(outbox)
    }

    /// Commits transitions, which are made from a position of the view's streams for a time, and puts them out. Their
    /// sequence numbers are set here.
    pub(crate) async fn put(&mut self, mut made: Vec<AlertTransition>, position: &Vector, at: Micros) -> Result<()> {
        for (seq, transition) in (self.next_seq..).zip(&mut made) {
            transition.seq = seq;
        }
        for made in made.chunks(MOST_ADDED) {
            self.held.keep().await?;
            let (alert, version) = self.alert.clone();
            let mut commit = self.commit();
            commit.expect.push(Expect::AlertSequence { alert: alert.clone(), version, next: self.next_seq });
            commit.add.extend(made.iter().map(|transition| Add::AlertTransition(Box::new(transition.clone()))));
            commit.add.push(Add::AlertPosition { alert, version, position: position.clone(), at });
            self.catalog().commit_with_retry(commit).await?;
            self.next_seq += made.len() as i64;
            self.publish(made).await?;
            self.note_published().await?;
            for transition in made {
                let (alert, kind) = (transition.alert.to_string(), transition.kind.word());
                metrics::counter!("basestream_speed_alert_transitions_total", "alert" => alert, "kind" => kind).increment(1);
            }
        }
        Ok(())
    }

    /// Removes transitions that are in the topic and old.
    pub(crate) async fn forget(&mut self) -> Result<()> {
        let before = (self.alerts.clock)().saturating_sub(KEPT.as_micros() as Micros);
        let (alert, version) = self.alert.clone();
        let mut commit = self.commit();
        commit.remove.push(Remove::AlertTransitions { alert, version, before, most: MOST_REMOVED });
        self.catalog().commit_with_retry(commit).await.map(drop)
    }

    /// Lets another process take over at once.
    pub(crate) async fn let_go(self) -> Result<()> {
        self.alerts.log.let_go_outputs(&self.output.source);
        self.held.release().await
    }

    async fn publish(&self, transitions: &[AlertTransition]) -> Result<()> {
        let records = transitions.iter().filter_map(|transition| Some((Offset(transition.seq), new_record(transition)?)));
        let records: Vec<(Offset, NewRecord)> = records.collect();
        match records.is_empty() {
            true => Ok(()),
            false => self.alerts.log.append_output(self.topic, &self.output, records).await,
        }
    }

    async fn note_published(&self) -> Result<()> {
        let (alert, version) = self.alert.clone();
        let mut commit = self.commit();
        commit.add.push(Add::AlertPublished { alert, version, before: self.next_seq });
        self.catalog().commit_with_retry(commit).await.map(drop)
    }

    fn commit(&self) -> Commit {
        Commit { id: Uuid::now_v7(), expect: vec![self.held.expect()], ..Commit::default() }
    }

    fn catalog(&self) -> &Catalog {
        self.alerts.node.catalog()
    }
}
