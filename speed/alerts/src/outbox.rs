//! The outbox of one alert: transitions are committed to the catalog, and then put out. A process that dies in between
//! leaves them to the next one.

use std::sync::Arc;
use std::time::Duration;

use catalog::{Add, AlertProgress, AlertTransition, AlertVersion, Catalog, Commit, Remove};
use event_log::{LogOutput, NewRecord, OutputAppender, TakenOutput, TopicPartition};
use tracing::warn;
use types::tiles::Micros;
use types::vector::{Offset, Vector};
use types::{Result, failpoint};
use uuid::Uuid;

use crate::Alerts;
use crate::decide::{first_left, parts_to_forget, published_commit, transitions_commit};
use crate::lease::HeldLease;
use crate::record::new_record;

/// One commit adds at most this many transitions.
const MOST_ADDED: usize = 1_000;
/// How long transitions that are in the topic stay in the catalog.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// One commit deletes at most this many rows.
const MOST_REMOVED: u32 = 10_000;

/// Where transitions come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransitionOrigin {
    /// The alert was evaluated.
    Round,
    /// The view does not have the keys any more of which the process before left alerts open.
    TakeOver,
}

pub(crate) struct Outbox<'a> {
    output: AlertOutput<'a>,
    pub(crate) held: HeldLease,
    next_seq: i64,
    /// The latest time that is committed.
    at: Micros,
    /// The value of [`Outbox::next_seq`] when old transitions were last removed.
    forgot_at: i64,
}

impl<'a> Outbox<'a> {
    /// Takes over from the process that ran the alert before, and puts out the transitions that it left. `progress`
    /// comes from the catalog.
    pub(crate) async fn take_over(
        alerts: &'a Alerts,
        alert: AlertVersion,
        topic: &'a str,
        held: HeldLease,
        progress: &AlertProgress,
    ) -> Result<Self> {
        let AlertProgress { next_seq, published, at, .. } = *progress;
        let (output, taken) = AlertOutput::take_over(alerts, alert, topic).await?;
        let from = first_left(published, taken);
        if from > next_seq {
            let AlertVersion { name: alert, version } = &output.alert;
            warn!(%alert, version, in_topic = from, known = next_seq, "the catalog is an earlier copy: the alert continues after its topic");
        }
        // The log would ignore a transition with an earlier number, as one that it already has.
        let next = next_seq.max(from);
        let outbox = Outbox { output, held, next_seq: next, at, forgot_at: next };
        outbox.output.publish_from(from, next_seq, || outbox.held.note_progress()).await?;
        if published < outbox.next_seq {
            outbox.note_published().await?;
        }
        Ok(outbox)
    }

    /// Commits transitions that were made from a position of the view's streams at a time, and puts them out. Their
    /// sequence numbers are set here. If they come from a round, the commit also notes that the alert was evaluated for
    /// that time: a process that takes over before the lease is renewed continues from there.
    ///
    /// Of two keys that are due in one stretch, one may begin later than the other ceases. The committed time does not
    /// go back: otherwise the next process would evaluate the first key at a time at which it had not begun, resolve
    /// it, and begin it again.
    pub(crate) async fn put(
        &mut self,
        mut made: Vec<AlertTransition>,
        position: &Vector,
        at: Micros,
        origin: TransitionOrigin,
    ) -> Result<()> {
        self.at = at.max(self.at);
        for (seq, transition) in (self.next_seq..).zip(&mut made) {
            transition.seq = seq;
        }
        for made in made.chunks(MOST_ADDED) {
            self.held.note_progress()?;
            let (lease, alert) = (self.held.expect(), self.output.alert.clone());
            let mut commit = transitions_commit(Uuid::now_v7(), lease, alert, made, position.clone(), self.at);
            let runner = self.held.runner_evaluated(self.at).filter(|_| origin == TransitionOrigin::Round);
            commit.add.extend(runner.map(Add::AlertRunner));
            self.catalog().commit_with_retry(commit).await?;
            self.next_seq += made.len() as i64;
            failpoint::hit("alert.after_commit")?;
            self.output.publish(made).await?;
            failpoint::hit("alert.after_append")?;
            self.note_published().await?;
            for transition in made {
                let (alert, kind) = (transition.alert.to_string(), transition.kind.word());
                metrics::counter!("basestream_speed_alert_transitions_total", "alert" => alert, "kind" => kind).increment(1);
            }
        }
        Ok(())
    }

    /// Removes old transitions that are in the topic. `now` is the time of the alert, which may be by the clock of
    /// events.
    pub(crate) async fn forget(&mut self, now: Micros) -> Result<()> {
        let before = now.saturating_sub(KEPT.as_micros() as Micros);
        for _ in 0..parts_to_forget(self.next_seq - self.forgot_at, MOST_REMOVED) {
            self.held.note_progress()?;
            let AlertVersion { name: alert, version } = self.output.alert.clone();
            let remove = vec![Remove::AlertTransitions { alert, version, before, most: MOST_REMOVED }];
            let commit = Commit { id: Uuid::now_v7(), expect: vec![self.held.expect()], remove, ..Commit::default() };
            self.catalog().commit_with_retry(commit).await?;
        }
        self.forgot_at = self.next_seq;
        Ok(())
    }

    /// Lets another process take over at once.
    pub(crate) async fn release(self) -> Result<()> {
        let Outbox { output, held, .. } = self;
        drop(output);
        held.release().await
    }

    async fn note_published(&self) -> Result<()> {
        let commit = published_commit(Uuid::now_v7(), self.held.expect(), self.output.alert.clone(), self.next_seq);
        self.catalog().commit_with_retry(commit).await.map(drop)
    }

    fn catalog(&self) -> &Catalog {
        self.output.alerts.node.catalog()
    }
}

/// Puts out the transitions that were left by the processes that ran a version of an alert, which is not live any more.
/// This needs no lease: the log accepts records only from the process that took the output over last, and each of them
/// once.
pub(crate) async fn put_out_left(alerts: &Alerts, gone: AlertVersion, topic: &str, left: &AlertProgress) -> Result<()> {
    let (output, taken) = AlertOutput::take_over(alerts, gone, topic).await?;
    output.publish_from(first_left(left.published, taken), left.next_seq, || Ok(())).await
}

/// The output of one version of an alert, which this process has taken over in the log.
struct AlertOutput<'a> {
    alerts: &'a Alerts,
    alert: AlertVersion,
    topic: &'a str,
    appender: Arc<dyn OutputAppender>,
}

impl<'a> AlertOutput<'a> {
    /// Also returns the number of the transition after the last one that is in the topic.
    async fn take_over(alerts: &'a Alerts, alert: AlertVersion, topic: &'a str) -> Result<(Self, Option<Offset>)> {
        // Each version of an alert counts its own transitions.
        let name = format!("alert/{}@{}", alert.name, alert.version);
        let source = TopicPartition { topic: name.as_str().into(), partition: 0 };
        let identity = alerts.node.catalog().identity().to_owned();
        let output = LogOutput { group: alerts.group.clone(), sink: name.into(), source, identity };
        alerts.log.create_topic(topic, alerts.partitions).await?;
        let TakenOutput { appender, next } = alerts.log.take_over_output(&output).await?;
        Ok((AlertOutput { alerts, alert, topic, appender }, next))
    }

    /// Puts out the catalog's transitions from one number on, and before another.
    async fn publish_from(&self, mut from: i64, end: i64, note_progress: impl Fn() -> Result<()>) -> Result<()> {
        let catalog = self.alerts.node.catalog();
        while from < end {
            let left = catalog.alert_transitions(&self.alert.name, self.alert.version, from, MOST_ADDED as u32).await?;
            let Some(last) = left.last() else { break };
            from = last.seq + 1;
            note_progress()?;
            self.publish(&left).await?;
        }
        Ok(())
    }

    async fn publish(&self, transitions: &[AlertTransition]) -> Result<()> {
        let records = transitions.iter().filter_map(|transition| Some((Offset(transition.seq), new_record(transition)?)));
        let records: Vec<(Offset, NewRecord)> = records.collect();
        let Some((last, _)) = records.last() else { return Ok(()) };
        let next = last.next();
        self.appender.append(self.topic, records, next).await
    }
}
