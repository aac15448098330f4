use catalog::{Add, Commit, DefinitionKind, DefinitionRecord};
use types::ErrorKind;
use uuid::Uuid;

use super::*;
use crate::follower::Follower;
use crate::harness::{Harness, VELOCITY, definition, event};
use crate::value_errors::OnValueError;

const CHANGED: &str = "CREATE VIEW velocity WITH (windows = '1h, 7d') AS SELECT device, count(*) AS n, max(amount) AS most FROM payments \
    WHERE status <> 'no' GROUP BY device";
const NEWER: &str = "CREATE VIEW newer AS SELECT device, count(*) AS n FROM payments GROUP BY device";

fn version(version: u32, sql: &str, status: DefinitionStatus) -> Add {
    let Add::Definition(record) = definition(DefinitionKind::View, "velocity", sql) else { panic!("a definition is added") };
    Add::Definition(DefinitionRecord { version, status, ..record })
}

async fn commit(harness: &Harness, add: Vec<Add>) {
    harness.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
}

/// A node that has loaded version 2 before a worker had: the worker's layer, up to this position, lacks its states.
struct Changed {
    harness: Harness,
    follower: Follower,
    /// Before the node saw the change.
    before: Instant,
}

const UNCOMMITTED: &str = "payments/0:6,payments/1:1";

fn uncommitted() -> Vec<String> {
    vec![event("9", "2026-03-02T11:59:00Z", "a", "1.00", "ok")]
}

impl Changed {
    async fn new() -> Changed {
        let harness = Harness::filled().await;
        let follower = harness.follower_with_fresh();
        follower.refresh().await.unwrap();
        harness.fresh(0, &uncommitted()).await;
        commit(&harness, vec![version(2, CHANGED, DefinitionStatus::Building)]).await;
        follower.refresh().await.unwrap();
        let changed = Changed { harness, follower, before: Instant::now() };
        assert_eq!(changed.answered_at(changed.before), (1, UNCOMMITTED.into()), "version 2 is not served yet");
        changed.commit(vec![version(1, VELOCITY, DefinitionStatus::Kept), version(2, CHANGED, DefinitionStatus::Active)]).await;
        changed
    }

    async fn commit(&self, add: Vec<Add>) {
        commit(&self.harness, add).await;
        self.follower.refresh().await.unwrap();
    }

    fn read_view_at(&self, now: Instant) -> ReadView {
        self.follower.read_view_at(now).unwrap().0
    }

    /// The version that answers at this moment, and the answer's position.
    fn answered_at(&self, now: Instant) -> (u32, String) {
        let read_view = self.read_view_at(now);
        (read_view.view("velocity").unwrap().live.version, read_view.vector.to_string())
    }

    fn is_refused_at(&self, now: Instant) -> bool {
        let refusal = self.read_view_at(now).view("velocity").map(|_| ()).map_err(|error| (error.kind(), error.message().to_owned()));
        refusal.is_err_and(|(kind, message)| kind == ErrorKind::Unavailable && message.contains("does not keep version 2"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_view_is_answered_by_its_version_before_until_workers_keep_the_new_one() {
    let changed = Changed::new().await;
    let Changed { harness, follower, before } = &changed;
    let (before, later) = (*before, *before + 2 * MOST_AWAITED);
    changed.commit(vec![definition(DefinitionKind::View, "newer", NEWER)]).await;
    assert_eq!(changed.answered_at(before), (1, UNCOMMITTED.into()), "everything that was answered before is counted");
    let read_view = changed.read_view_at(before);
    assert_eq!(read_view.live("newer").unwrap().version, 1, "every other change is used at once");
    assert_eq!(read_view.view("totals").unwrap().live.version, 1);
    assert!(read_view.clone().with_served_versions().view("velocity").is_err(), "sinks and alerts are planned over version 2");

    // The worker learns of version 2: it commits what it has, and keeps the version from then on.
    harness.withdraw(0);
    harness.checkpoint(0, &uncommitted()).await;
    harness.node.refresh().await.unwrap();
    follower.refresh().await.unwrap();
    harness.fresh(1, &[event("10", "2026-03-02T11:59:10Z", "a", "2.00", "ok")]).await;
    let position = "payments/0:6,payments/1:2".to_owned();
    assert_eq!(changed.answered_at(before), (1, position.clone()), "another worker may not have learnt of it");
    assert_eq!(changed.answered_at(later), (2, position));
    assert!(changed.read_view_at(later).versions.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_before_answers_no_longer_than_workers_are_waited_for() {
    let changed = Changed::new().await;
    assert_eq!(changed.answered_at(changed.before + MOST_AWAITED / 2).0, 1);
    assert!(changed.is_refused_at(Instant::now() + MOST_AWAITED));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_dropped_or_returned_to_takes_effect_at_once() {
    let changed = Changed::new().await;
    assert_eq!(changed.answered_at(changed.before).0, 1);
    changed.commit(vec![version(1, VELOCITY, DefinitionStatus::Retired)]).await;
    assert!(changed.is_refused_at(changed.before), "the version before is gone");

    let changed = Changed::new().await;
    changed.commit(vec![version(1, VELOCITY, DefinitionStatus::Active), version(2, CHANGED, DefinitionStatus::Kept)]).await;
    assert_eq!(changed.answered_at(changed.before).0, 1);
    assert!(changed.read_view_at(changed.before).versions.is_empty());
    changed.commit(vec![version(1, VELOCITY, DefinitionStatus::Kept), version(2, CHANGED, DefinitionStatus::Active)]).await;
    assert!(changed.is_refused_at(changed.before), "version 2 was kept");
}

/// As in a quiet stream: nothing has to be waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_view_without_uncommitted_events_is_answered_by_its_new_version_at_once() {
    let harness = Harness::filled().await;
    let follower = harness.follower_with_fresh();
    follower.refresh().await.unwrap();
    commit(&harness, vec![version(1, VELOCITY, DefinitionStatus::Kept), version(2, CHANGED, DefinitionStatus::Active)]).await;
    follower.refresh().await.unwrap();
    assert_eq!(follower.read_view().unwrap().view("velocity").unwrap().live.version, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_new_version_can_answer_is_to_be_asked_again() {
    let changed = Changed::new().await;
    let error_of = async |sql: &str| {
        let answer = changed.harness.node.query_at(changed.read_view_at(changed.before), sql, OnValueError::Fail).await;
        answer.map(|_| ()).expect_err(sql)
    };
    let of_new = error_of("SELECT most_1h FROM velocity").await;
    assert_eq!(of_new.kind(), ErrorKind::Unavailable, "{of_new}");
    assert!(of_new.message().contains("most_1h"), "{of_new}");
    let of_none = error_of("SELECT no_function(n_1h) FROM velocity").await;
    assert_eq!(of_none.kind(), ErrorKind::Input, "{of_none}");
}

#[test]
fn the_version_before_answers_where_the_new_one_cannot_or_may_soon_not() {
    let ages = [Duration::ZERO, WORKERS_LOOK_WITHIN, MOST_AWAITED];
    for (age, bits) in ages.into_iter().flat_map(|age| (0..8).map(move |bits| (age, bits))) {
        let [is_answerable, is_before_answerable, has_lacked] = [1, 2, 4].map(|bit| bits & bit != 0);
        let facts = ChangeFacts { age, is_answerable, is_before_answerable, has_lacked };
        let expected = match (is_before_answerable, is_answerable) {
            (false, _) => false,
            (true, false) => age < MOST_AWAITED,
            (true, true) => has_lacked && age < WORKERS_LOOK_WITHIN,
        };
        assert_eq!(facts.is_answered_by_version_before(), expected, "{facts:?}");
    }
}
