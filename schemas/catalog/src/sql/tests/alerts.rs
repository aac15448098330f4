//! Alerts: transitions have consecutive numbers under the lease, open alerts follow from them, and what is old goes.

use types::TransitionKind;
use types::vector::{Offset, Vector};

use super::*;

on_every_engine!(
    open_alerts_follow_from_the_transitions,
    a_sequence_number_is_given_once,
    transitions_of_all_alerts_are_in_one_order,
    numbers_go_on_after_what_is_in_the_topic,
    what_is_not_in_the_topic_stays,
    what_ceased_at_the_time_of_the_last_look_stays,
    a_dropped_version_goes_in_parts,
    a_place_before_what_is_forgotten_is_not_kept,
    open_alerts_of_versions_come_in_pages,
    a_runner_says_one_thing_of_an_alert,
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

async fn add(test: &TestCatalog, transitions: &[AlertTransition]) -> Revision {
    let adds_of = transitions.iter().map(|transition| Add::AlertTransition(Box::new(transition.clone())));
    test.catalog.commit(adds(adds_of.collect())).await.unwrap()
}

async fn open_keys(test: &TestCatalog, alert: Option<&str>) -> Vec<(String, i64)> {
    let open = test.another().await.open_alerts(alert, None, 100).await.unwrap();
    open.into_iter().map(|open| (format!("{}{}", open.alert, open.keys), open.seq)).collect()
}

async fn open_alerts_follow_from_the_transitions(test: &TestCatalog) {
    use TransitionKind::{Began, Repeated, Resolved};
    add(test, &[transition("a", 0, Began, "x"), transition("a", 1, Began, "y")]).await;
    add(test, &[transition("b", 0, Began, "x")]).await;
    add(test, &[transition("a", 2, Resolved, "x"), transition("a", 3, Repeated, "y")]).await;
    assert_eq!(open_keys(test, Some("a")).await, [("a{\"k\":\"y\"}".to_owned(), 3)]);
    assert_eq!(open_keys(test, None).await, [("a{\"k\":\"y\"}".to_owned(), 3), ("b{\"k\":\"x\"}".to_owned(), 0)]);
    let first = test.catalog.open_alerts(None, None, 1).await.unwrap();
    assert_eq!((first[0].since, first[0].last_put_out, &*first[0].record), (5, 8, "{\"k\":\"y\",\"n\":3}"));
    let next = test.catalog.open_alerts(None, first.first(), 1).await.unwrap();
    assert_eq!(&*next[0].alert, "b");
    assert_eq!(test.catalog.open_alerts(Some("a"), first.first(), 1).await.unwrap(), []);
}

async fn a_sequence_number_is_given_once(test: &TestCatalog) {
    let first = transition("a", 0, TransitionKind::Began, "x");
    add(test, std::slice::from_ref(&first)).await;
    for seq in [0, 2] {
        let again = adds(vec![Add::AlertTransition(Box::new(AlertTransition { seq, ..first.clone() }))]);
        assert_eq!(test.catalog.commit(again).await.unwrap_err().kind(), ErrorKind::Conflict);
    }
    let expect = |next| vec![Expect::AlertSequence { alert: "a".into(), version: 1, next }];
    test.catalog.commit(Commit { expect: expect(1), ..Commit::default() }).await.unwrap();
    let behind = test.catalog.commit(Commit { expect: expect(0), ..Commit::default() }).await.unwrap_err();
    assert_eq!(behind.kind(), ErrorKind::Conflict);
    let mut position = Vector::new();
    position.set(partition(0), Offset(7));
    let made_from = Add::AlertPosition { alert: "a".into(), version: 1, position: position.clone(), at: 9 };
    let published = Add::AlertPublished { alert: "a".into(), version: 1, before: 1 };
    test.catalog.commit(adds(vec![made_from, published])).await.unwrap();
    let expected = AlertProgress { alert: "a".into(), version: 1, next_seq: 1, published: 1, position, at: 9 };
    assert_eq!(test.another().await.alert_progress().await.unwrap(), [expected]);
}

async fn transitions_of_all_alerts_are_in_one_order(test: &TestCatalog) {
    use TransitionKind::Began;
    let (b, a) = (transition("b", 0, Began, "x"), [transition("a", 0, Began, "x"), transition("a", 1, Began, "y")]);
    add(test, std::slice::from_ref(&b)).await;
    let revision = add(test, &a).await;
    let all = test.catalog.transitions_after(TransitionPlace::after(0), 10).await.unwrap();
    let of_all: Vec<AlertTransition> = all.transitions.iter().map(|committed| committed.transition.clone()).collect();
    assert_eq!((of_all, all.revision), (vec![b.clone(), a[0].clone(), a[1].clone()], revision));
    // After each of them, and after all of a revision, comes the rest; as far as it is asked for.
    for (count, committed) in (1..).zip(&all.transitions) {
        let rest = test.catalog.transitions_after(committed.place(), 10).await.unwrap();
        assert_eq!(rest.transitions, all.transitions[count..]);
        assert_eq!(committed.place().to_string().parse::<TransitionPlace>().unwrap(), committed.place());
    }
    for (after, expected) in [(revision - 1, &all.transitions[1..]), (revision, &[])] {
        assert_eq!(test.catalog.transitions_after(TransitionPlace::after(after), 10).await.unwrap().transitions, expected);
    }
    assert_eq!(test.catalog.transitions_after(TransitionPlace::after(0), 2).await.unwrap().transitions, all.transitions[..2]);
    assert_eq!(test.catalog.alert_transitions("a", 1, 1, 10).await.unwrap(), [a[1].clone()]);
    // Two alerts in one commit would have no order.
    let two = [transition("a", 2, Began, "z"), transition("b", 1, Began, "z")].map(|of| Add::AlertTransition(Box::new(of)));
    assert_eq!(test.catalog.commit(adds(two.into())).await.unwrap_err().kind(), ErrorKind::Internal);
}

async fn a_place_before_what_is_forgotten_is_not_kept(test: &TestCatalog) {
    use TransitionKind::Began;
    let first = add(test, &[transition("a", 0, Began, "x"), transition("a", 1, Began, "y")]).await;
    let second = add(test, &[transition("b", 0, Began, "x")]).await;
    let forgotten = async || test.catalog.transitions_after(TransitionPlace::after(0), 10).await.unwrap().forgotten;
    assert_eq!(forgotten().await, 0);
    test.catalog.commit(adds(vec![Add::AlertPublished { alert: "a".into(), version: 1, before: 2 }])).await.unwrap();
    let remove = vec![Remove::AlertTransitions { alert: "a".into(), version: 1, before: i64::MAX, most: 1 }];
    test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
    assert_eq!(forgotten().await, first);
    let kept = |seq| TransitionPlace { revision: first, seq }.is_kept(first);
    assert!(!kept(0) && !kept(1) && !TransitionPlace::after(first - 1).is_kept(first), "the one at 0 is gone");
    assert!(TransitionPlace::after(first).is_kept(first) && TransitionPlace { revision: second, seq: 0 }.is_kept(first));
    // Subscribers still hold keys of a removed version as open, so they have to begin again.
    let removed = async || {
        let remove = vec![Remove::Alert { alert: "b".into(), version: 1, most: 10 }];
        test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap()
    };
    removed().await;
    assert_eq!(forgotten().await, second);
    let last = removed().await;
    assert_eq!(forgotten().await, last);
}

async fn open_alerts_of_versions_come_in_pages(test: &TestCatalog) {
    use TransitionKind::Began;
    for (alert, count) in [("a", 3), ("b", 2), ("c", 2)] {
        let made: Vec<AlertTransition> = (0..count).map(|seq| transition(alert, seq, Began, &format!("k{seq}"))).collect();
        add(test, &made).await;
    }
    let asked = [("a", 1), ("b", 2), ("c", 1), ("d", 1)].map(|(name, version)| AlertVersion { name: name.into(), version });
    for limit in 1..7 {
        let (mut found, mut after): (Vec<String>, Option<OpenAlert>) = (Vec::new(), None);
        loop {
            let last = after.as_ref().map(OpenAlertName::new);
            let (revision, page) = test.catalog.open_alerts_of(&asked, last.as_ref(), limit).await.unwrap();
            assert_eq!(revision, test.catalog.revision().await.unwrap());
            found.extend(page.iter().map(|open| format!("{}{}", open.alert, open.keys)));
            if page.len() < limit as usize {
                break;
            }
            after = page.into_iter().last();
        }
        assert_eq!(found, ["a{\"k\":\"k0\"}", "a{\"k\":\"k1\"}", "a{\"k\":\"k2\"}", "c{\"k\":\"k0\"}", "c{\"k\":\"k1\"}"], "{limit}");
    }
    let of_version = AlertVersion { name: "a".into(), version: 1 };
    for limit in 1..5 {
        let (mut found, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
        loop {
            let page = test.catalog.open_keys(&of_version, after.as_deref(), limit).await.unwrap();
            assert!(page.iter().all(|open| open.since == 5 && open.last_put_out >= 5));
            found.extend(page.iter().map(|open| open.keys.clone()));
            if page.len() < limit as usize {
                break;
            }
            after = page.into_iter().last().map(|open| open.keys);
        }
        assert_eq!(found, ["{\"k\":\"k0\"}", "{\"k\":\"k1\"}", "{\"k\":\"k2\"}"], "{limit}");
    }
    let counts = test.catalog.open_alert_counts().await.unwrap();
    let expected = [("a", 3), ("b", 2), ("c", 2)].map(|(alert, keys)| OpenAlertCount { alert: alert.into(), version: 1, keys });
    assert_eq!(counts, expected);
}

async fn a_runner_says_one_thing_of_an_alert(test: &TestCatalog) {
    let runner = AlertRunner { alert: "a".into(), version: 1, owner: "w".into(), evaluated_at: None, at: None, waits: None };
    let later = AlertRunner { evaluated_at: Some(7), at: Some(5), waits: Some("the log is another".into()), ..runner.clone() };
    for runner in [runner, later] {
        test.catalog.commit(adds(vec![Add::AlertRunner(runner.clone())])).await.unwrap();
        assert_eq!(test.another().await.alert_runners().await.unwrap(), [runner]);
    }
    // Its time does not go back, unless it is of another version.
    for (version, at, expected) in [(1, None, 5), (1, Some(4), 5), (1, Some(6), 6), (2, Some(3), 3), (1, Some(1), 1)] {
        let runner = AlertRunner { alert: "a".into(), version, owner: "w".into(), evaluated_at: at, at, waits: None };
        test.catalog.commit(adds(vec![Add::AlertRunner(runner.clone())])).await.unwrap();
        assert_eq!(test.another().await.alert_runners().await.unwrap(), [AlertRunner { at: Some(expected), ..runner }]);
    }
    for version in [2, 1] {
        assert_eq!(test.catalog.alert_runners().await.unwrap().len(), 1);
        let remove = vec![Remove::Alert { alert: "a".into(), version, most: 10 }];
        test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
    }
    assert_eq!(test.catalog.alert_runners().await.unwrap(), []);
}

async fn numbers_go_on_after_what_is_in_the_topic(test: &TestCatalog) {
    let published = async |before| {
        test.catalog.commit(adds(vec![Add::AlertPublished { alert: "a".into(), version: 1, before }])).await.unwrap();
        let progress = test.another().await.alert_progress().await.unwrap();
        (progress[0].next_seq, progress[0].published)
    };
    let began = |seq| [transition("a", seq, TransitionKind::Began, "x")];
    assert_eq!(published(3).await, (3, 3));
    add(test, &began(3)).await;
    assert_eq!(published(2).await, (4, 3));
    assert_eq!(published(4).await, (4, 4));
    assert_eq!(published(7).await, (7, 7));
    add(test, &began(7)).await;
}

async fn what_is_not_in_the_topic_stays(test: &TestCatalog) {
    let made: Vec<AlertTransition> = (0..5).map(|seq| transition("a", seq, TransitionKind::Began, &format!("k{seq}"))).collect();
    add(test, &made).await;
    let published = Add::AlertPublished { alert: "a".into(), version: 1, before: 4 };
    test.catalog.commit(adds(vec![published])).await.unwrap();
    let forget = |before, most| async move {
        let remove = vec![Remove::AlertTransitions { alert: "a".into(), version: 1, before, most }];
        test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
        test.catalog.alert_transitions("a", 1, 0, 10).await.unwrap().first().map(|transition| transition.seq)
    };
    assert_eq!(forget(i64::MAX, 2).await, Some(2));
    assert_eq!(forget(8, 10).await, Some(3), "the one at 8 is not older than that");
    assert_eq!(forget(i64::MAX, 10).await, Some(4), "it is not in the topic yet");
    assert_eq!(open_keys(test, Some("a")).await.len(), 5);
}

async fn what_ceased_at_the_time_of_the_last_look_stays(test: &TestCatalog) {
    use TransitionKind::{Began, Resolved};
    let at_once = |seq, kind| AlertTransition { at: 5, ..transition("a", seq, kind, "x") };
    add(test, &[at_once(0, Began), at_once(1, Resolved)]).await;
    test.catalog.commit(adds(vec![Add::AlertPublished { alert: "a".into(), version: 1, before: 2 }])).await.unwrap();
    let left_at = async |at: i64| {
        let looked = Add::AlertPosition { alert: "a".into(), version: 1, position: Vector::new(), at };
        test.catalog.commit(adds(vec![looked])).await.unwrap();
        let remove = vec![Remove::AlertTransitions { alert: "a".into(), version: 1, before: i64::MAX, most: 10 }];
        test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
        test.catalog.alert_transitions("a", 1, 0, 10).await.unwrap().iter().map(|left| left.seq).collect::<Vec<_>>()
    };
    assert_eq!(left_at(5).await, [1]);
    assert_eq!(left_at(6).await, [0i64; 0], "a later begin has another id");
}

async fn a_dropped_version_goes_in_parts(test: &TestCatalog) {
    let made: Vec<AlertTransition> = (0..5).map(|seq| transition("a", seq, TransitionKind::Began, &format!("k{seq}"))).collect();
    add(test, &made).await;
    add(test, &[transition("b", 0, TransitionKind::Began, "x")]).await;
    for expected in [3, 1, 0, 0] {
        assert!(test.catalog.alert_progress().await.unwrap().iter().any(|progress| &*progress.alert == "a"));
        let remove = vec![Remove::Alert { alert: "a".into(), version: 1, most: 2 }];
        test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
        assert_eq!(open_keys(test, Some("a")).await.len(), expected);
    }
    let left = test.catalog.alert_progress().await.unwrap();
    assert_eq!(left.iter().map(|progress| &*progress.alert).collect::<Vec<_>>(), ["b"]);
}
