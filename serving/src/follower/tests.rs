use std::sync::atomic::{AtomicI64, Ordering};

use catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus};
use types::clocks::CLOCK_WENT_BACK;
use uuid::Uuid;

use super::*;
use crate::harness::{Harness, NOW, PAYMENTS};

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

#[tokio::test(flavor = "multi_thread")]
async fn how_far_a_topic_was_complete_that_a_stream_has_left_says_nothing_of_the_new_one() {
    let harness = Harness::with_settings(|settings| settings).await;
    let complete_to = || {
        let read_view = harness.node.read_view().unwrap();
        read_view.complete_to_of(read_view.live("totals").unwrap())
    };
    harness.complete(0, NOW);
    assert_eq!(complete_to(), Some(NOW));
    let state = harness.catalog.state().await.unwrap();
    let first = state.definitions.get(DefinitionKind::Stream, "payments", 1).unwrap();
    let before = DefinitionRecord { status: DefinitionStatus::Redecoded, ..first.clone() };
    let anew = DefinitionRecord { version: 2, sql: PAYMENTS.replace("WITH (", "WITH (topic = 'orders', "), ..first.clone() };
    let add = vec![Add::Definition(before), Add::Definition(anew)];
    harness.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    harness.node.refresh().await.unwrap();
    assert_eq!(complete_to(), None);
}
