//! Alerts: transitions have consecutive numbers under the lease, open alerts follow from them, and what is old goes.

use types::TransitionKind;
use types::vector::{Offset, Vector};

use super::*;

on_every_engine!(
    open_alerts_follow_from_the_transitions,
    a_sequence_number_is_given_once,
    transitions_of_all_alerts_are_in_one_order,
    what_is_not_in_the_topic_stays,
    a_dropped_version_goes_in_parts,
);

fn transition(alert: &str, seq: i64, kind: TransitionKind, key: &str) -> AlertTransition {
    AlertTransition {
        alert: alert.into(),
        version: 1,
        seq,
        id: format!("{alert}@1:{key}:5"),
        kind,
        keys: format!("{{\"k\":\"{key}\"}}"),
        since: 5,
        at: 5 + seq,
        record: (kind != TransitionKind::Resolved).then(|| format!("{{\"k\":\"{key}\",\"n\":{seq}}}")),
        record_key: Some(key.to_owned()),
    }
}

async fn add(place: &Place, transitions: &[AlertTransition]) -> Revision {
    let adds_of = transitions.iter().map(|transition| Add::AlertTransition(Box::new(transition.clone())));
    place.catalog.commit(adds(adds_of.collect())).await.unwrap()
}

async fn open_keys(place: &Place, alert: Option<&str>) -> Vec<(String, i64)> {
    let open = place.another().await.open_alerts(alert, None, 100).await.unwrap();
    open.into_iter().map(|open| (format!("{}{}", open.alert, open.keys), open.seq)).collect()
}

async fn open_alerts_follow_from_the_transitions(place: &Place) {
    use TransitionKind::{Began, Repeated, Resolved};
    add(place, &[transition("a", 0, Began, "x"), transition("a", 1, Began, "y"), transition("b", 0, Began, "x")]).await;
    add(place, &[transition("a", 2, Resolved, "x"), transition("a", 3, Repeated, "y")]).await;
    assert_eq!(open_keys(place, Some("a")).await, [("a{\"k\":\"y\"}".to_owned(), 3)]);
    assert_eq!(open_keys(place, None).await, [("a{\"k\":\"y\"}".to_owned(), 3), ("b{\"k\":\"x\"}".to_owned(), 0)]);
    let first = place.catalog.open_alerts(None, None, 1).await.unwrap();
    assert_eq!((first[0].since, first[0].last_put_out, &*first[0].record), (5, 8, "{\"k\":\"y\",\"n\":3}"));
    let next = place.catalog.open_alerts(None, first.first(), 1).await.unwrap();
    assert_eq!(&*next[0].alert, "b");
    assert_eq!(place.catalog.open_alerts(Some("a"), first.first(), 1).await.unwrap(), []);
}

async fn a_sequence_number_is_given_once(place: &Place) {
    let first = transition("a", 0, TransitionKind::Began, "x");
    add(place, std::slice::from_ref(&first)).await;
    for seq in [0, 2] {
        let again = adds(vec![Add::AlertTransition(Box::new(AlertTransition { seq, ..first.clone() }))]);
        assert_eq!(place.catalog.commit(again).await.unwrap_err().kind(), ErrorKind::Conflict);
    }
    let expect = |next| vec![Expect::AlertSequence { alert: "a".into(), version: 1, next }];
    place.catalog.commit(Commit { expect: expect(1), ..Commit::default() }).await.unwrap();
    let behind = place.catalog.commit(Commit { expect: expect(0), ..Commit::default() }).await.unwrap_err();
    assert_eq!(behind.kind(), ErrorKind::Conflict);
    let mut position = Vector::new();
    position.set(partition(0), Offset(7));
    let made_from = Add::AlertPosition { alert: "a".into(), version: 1, position: position.clone(), at: 9 };
    let published = Add::AlertPublished { alert: "a".into(), version: 1, before: 1 };
    place.catalog.commit(adds(vec![made_from, published])).await.unwrap();
    let expected = AlertProgress { alert: "a".into(), version: 1, next_seq: 1, published: 1, position, at: 9 };
    assert_eq!(place.another().await.alert_progress().await.unwrap(), [expected]);
}

async fn transitions_of_all_alerts_are_in_one_order(place: &Place) {
    use TransitionKind::Began;
    let (b, a) = (transition("b", 0, Began, "x"), [transition("a", 0, Began, "x"), transition("a", 1, Began, "y")]);
    add(place, std::slice::from_ref(&b)).await;
    let revision = add(place, &a).await;
    let all = place.catalog.transitions_after((0, "", 0, 0), 10).await.unwrap();
    assert_eq!(all.iter().map(|committed| committed.transition.clone()).collect::<Vec<_>>(), [b, a[0].clone(), a[1].clone()]);
    let rest = place.catalog.transitions_after((revision, "a", 1, 0), 10).await.unwrap();
    assert_eq!(rest, all[2..]);
    assert_eq!(place.catalog.alert_transitions("a", 1, 1, 10).await.unwrap(), [a[1].clone()]);
}

async fn what_is_not_in_the_topic_stays(place: &Place) {
    let made: Vec<AlertTransition> = (0..5).map(|seq| transition("a", seq, TransitionKind::Began, &format!("k{seq}"))).collect();
    add(place, &made).await;
    let published = Add::AlertPublished { alert: "a".into(), version: 1, before: 4 };
    place.catalog.commit(adds(vec![published])).await.unwrap();
    let forget = |before, most| async move {
        let remove = vec![Remove::AlertTransitions { alert: "a".into(), version: 1, before, most }];
        place.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
        place.catalog.alert_transitions("a", 1, 0, 10).await.unwrap().first().map(|transition| transition.seq)
    };
    assert_eq!(forget(i64::MAX, 2).await, Some(2));
    assert_eq!(forget(8, 10).await, Some(3), "the one at 8 is not older than that");
    assert_eq!(forget(i64::MAX, 10).await, Some(4), "it is not in the topic yet");
    assert_eq!(open_keys(place, Some("a")).await.len(), 5);
}

async fn a_dropped_version_goes_in_parts(place: &Place) {
    let made: Vec<AlertTransition> = (0..5).map(|seq| transition("a", seq, TransitionKind::Began, &format!("k{seq}"))).collect();
    add(place, &made).await;
    add(place, &[transition("b", 0, TransitionKind::Began, "x")]).await;
    for expected in [3, 1, 0, 0] {
        assert!(place.catalog.alert_progress().await.unwrap().iter().any(|progress| &*progress.alert == "a"));
        let remove = vec![Remove::Alert { alert: "a".into(), version: 1, most: 2 }];
        place.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
        assert_eq!(open_keys(place, Some("a")).await.len(), expected);
    }
    let left = place.catalog.alert_progress().await.unwrap();
    assert_eq!(left.iter().map(|progress| &*progress.alert).collect::<Vec<_>>(), ["b"]);
}
