//! Appends payments at a rate, and measures how soon their records can be read.

use std::time::{Duration, Instant};

use types::Result;

use super::reading::Reader;
use super::sending::{Sender, Sent};
use super::tail::Tail;
use crate::child::Used;
use crate::latencies::Latencies;
use crate::payments::{Payments, Topic};

/// What was measured at one rate.
pub(super) struct AtRate {
    pub(super) rate: u64,
    pub(super) stretches: Vec<Latencies>,
    pub(super) arrived_per_second: f64,
    pub(super) used: Used,
    pub(super) seconds: f64,
}

/// How long is measured, and how many times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) warm_up: Duration,
    pub(super) stretch: Duration,
    pub(super) repeats: usize,
}

/// How long to wait, after the warm-up, for the records to catch up with the events. A program that is still behind
/// then cannot keep up with the rate.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Measures a process that reads an empty topic, until there are as many records as are `accepted` of the appended
/// payments. Returns these payments, too.
pub(super) async fn send_and_read(
    topic: &Topic,
    tail: Tail,
    (rate, timing): (u64, Timing),
    accepted: fn(&Payments) -> u64,
    used: impl Fn() -> Used,
) -> Result<(AtRate, Payments)> {
    let sent = Sent::default();
    let sender = Sender::start(topic, sent.clone(), rate).await?;
    let mut reader = Reader::new(tail, sent);
    reader.read_for(timing.warm_up).await?;
    let (catching_up, events_in_half_a_second) = (Instant::now(), rate.div_ceil(2));
    let accepted_so_far = || accepted(&Payments { records: sender.appended(), ..topic.payments });
    while accepted_so_far() > reader.records() + events_in_half_a_second && catching_up.elapsed() < CATCHES_UP_WITHIN {
        reader.read_for(LOOK_EVERY).await?;
    }
    let (used_before, began, arrived) = (used(), Instant::now(), sender.appended());
    let mut stretches = Vec::with_capacity(timing.repeats);
    for _ in 0..timing.repeats {
        stretches.push(reader.read_for(timing.stretch).await?);
    }
    let (seconds, used) = (began.elapsed().as_secs_f64(), used().since(used_before));
    let arrived_per_second = (sender.appended() - arrived) as f64 / seconds;
    let payments = Payments { records: sender.stop().await?, ..topic.payments };
    reader.read_until(accepted(&payments)).await?;
    reader.check()?;
    Ok((AtRate { rate, stretches, arrived_per_second, used, seconds }, payments))
}
