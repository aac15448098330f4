use std::sync::atomic::{AtomicI64, Ordering};

use types::clocks::CLOCK_WENT_BACK;

use super::*;
use crate::harness::{Harness, NOW};

#[tokio::test(flavor = "multi_thread")]
async fn answers_for_a_time_ahead_of_the_clock_are_an_outage_until_the_clock_is_there() {
    const SECOND: Micros = 1_000_000;
    let harness = Harness::new().await;
    let wall = Arc::new(AtomicI64::new(NOW));
    let clock = wall.clone();
    let follower = harness.follower_with_clock(Arc::new(move || clock.load(Ordering::Relaxed)));
    let at = |time: Micros| {
        wall.store(time, Ordering::Relaxed);
        (follower.now(), follower.outages().into_iter().map(|outage| (outage.what, outage.error)).collect::<Vec<_>>())
    };
    assert_eq!(at(NOW), (NOW, vec![]));
    let jumped = NOW + 3_600 * SECOND;
    assert_eq!(at(jumped), (jumped, vec![]));
    let outage = (CLOCK_WENT_BACK, "answers are for a time 3599 s ahead of it".to_owned());
    assert_eq!(at(NOW + SECOND), (jumped, vec![outage]));
    assert_eq!(at(jumped - 5 * SECOND), (jumped, vec![]));
    assert_eq!(at(jumped + SECOND), (jumped + SECOND, vec![]));
}
