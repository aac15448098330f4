//! Records are those of a model that looks at every key at every time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A key is silent when its last report is longer ago than this, and given up when it is longer ago than that.
const SILENCE: Micros = 10;
const GIVEN_UP: Micros = 40;

#[derive(Debug, Clone)]
enum Step {
    /// Keys report after some time.
    Report(Micros, Vec<u8>),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let report = (0i64..25, prop::collection::vec(0u8..4, 0..4)).prop_map(|(after, keys)| Step::Report(after, keys));
    prop::collection::vec(prop_oneof![8 => report, 1 => Just(Step::Restart)], 1..40)
}

/// The model: whether a key is silent at a time, and when that changes by itself.
fn silent(last: Option<&Micros>, at: Micros) -> (bool, Option<Micros>) {
    match last {
        None => (false, None),
        Some(last) => {
            let changes = [last + SILENCE + 1, last + GIVEN_UP + 1].into_iter().find(|time| *time > at);
            (at - last > SILENCE && at - last <= GIVEN_UP, changes)
        }
    }
}

#[derive(Default)]
struct Model {
    open: HashMap<u8, OpenState>,
    records: Vec<Transition<u8>>,
}

impl Model {
    fn observe(&mut self, reports: &BTreeMap<u8, Micros>, at: Micros, repeat: Option<Micros>) {
        for key in 0u8..4 {
            let (holds, _) = silent(reports.get(&key), at);
            let (kind, since) = match self.open.get(&key).copied() {
                None if holds => (TransitionKind::Began, at),
                Some(open) if !holds => (TransitionKind::Resolved, open.since),
                Some(open) if repeat.is_some_and(|repeat| at - open.last >= repeat) => (TransitionKind::Repeated, open.since),
                _ => continue,
            };
            match kind {
                TransitionKind::Resolved => drop(self.open.remove(&key)),
                _ => drop(self.open.insert(key, OpenState { since, last: at })),
            }
            self.records.push(Transition { key, kind, since, at });
        }
    }
}

proptest! {
    #[test]
    fn a_key_that_is_settled_need_not_be_observed(
        since in prop::option::of(0i64..10),
        repeat in prop::option::of(1i64..30),
        holds in any::<bool>(),
        next in prop::option::of(11i64..30),
        until in 10i64..30,
    ) {
        let open: HashMap<u8, OpenState> = since.map(|since| (0, OpenState { since, last: since })).into_iter().collect();
        let mut watch = KeyWatch::new(repeat.map(|repeat| Duration::from_micros(repeat as u64)), open);
        next.into_iter().for_each(|next| watch.arm(&0, next));
        let (mut observed, is_settled) = (watch.clone(), watch.is_settled(&0, holds, next, until));
        let happened = observed.observe(&0, until, holds, next);
        let changes = next.is_some_and(|next| next <= until);
        let repeats = since.is_some() && repeat.is_some();
        prop_assert_eq!(is_settled, happened.is_none() && !changes && !repeats);
        if is_settled {
            prop_assert_eq!(watch.open(), observed.open());
            prop_assert_eq!(watch.due(Micros::MAX), observed.due(Micros::MAX));
        }
    }

    #[test]
    fn the_records_are_those_of_looking_at_every_key_at_every_time(steps in steps(), repeat in prop::option::of(1i64..30)) {
        let duration = repeat.map(|repeat| Duration::from_micros(repeat as u64));
        let (mut watch, mut model, mut records) = (KeyWatch::new(duration, HashMap::new()), Model::default(), Vec::new());
        let (mut reports, mut now) = (BTreeMap::new(), 0i64);
        for step in steps {
            match step {
                Step::Restart => {
                    watch = KeyWatch::new(duration, watch.open().clone());
                    for key in reports.keys() {
                        let (holds, next) = silent(reports.get(key), now);
                        records.extend(watch.observe(key, now, holds, next));
                    }
                }
                Step::Report(after, keys) => {
                    for time in now + 1..=now + after {
                        model.observe(&reports, time, repeat);
                    }
                    now += after;
                    while let Some((at, mut due)) = watch.due(now) {
                        due.sort();
                        for key in due {
                            let (holds, next) = silent(reports.get(&key), at);
                            records.extend(watch.observe(&key, at, holds, next));
                        }
                    }
                    let keys: std::collections::BTreeSet<u8> = keys.into_iter().collect();
                    reports.extend(keys.iter().map(|key| (*key, now)));
                    model.observe(&reports, now, repeat);
                    for key in &keys {
                        let (holds, next) = silent(reports.get(key), now);
                        records.extend(watch.observe(key, now, holds, next));
                    }
                }
            }
            prop_assert_eq!(&records, &model.records);
            prop_assert_eq!(watch.open(), &model.open);
        }
    }
}

/// Time stands still while late events come.
#[test]
fn no_two_begins_of_a_key_are_of_one_time() {
    let mut watch = KeyWatch::new(None, HashMap::new());
    let since = |watch: &mut KeyWatch<u8>, at, holds| watch.observe(&1, at, holds, None).map(|transition| transition.since);
    assert_eq!([since(&mut watch, 5, true), since(&mut watch, 5, false), since(&mut watch, 5, true)], [Some(5), Some(5), Some(6)]);
    assert_eq!([since(&mut watch, 5, false), since(&mut watch, 5, true), since(&mut watch, 6, false)], [Some(6), Some(7), Some(7)]);
    // Time goes on, and comes to where the last begin was put.
    assert_eq!([since(&mut watch, 7, true), since(&mut watch, 7, false), since(&mut watch, 9, true)], [Some(8), Some(8), Some(9)]);
    let mut watch = KeyWatch::new(None, HashMap::new()).after(6, HashMap::from([(1, 7)]));
    assert_eq!([since(&mut watch, 6, true), since(&mut watch, 9, false), since(&mut watch, 10, true)], [Some(8), Some(8), Some(10)]);
}

/// Before each round, newer events are read than those of its time.
#[test]
fn a_key_that_is_never_known_at_the_time_of_a_round_is_postponed_past_one_round() {
    let mut watch = KeyWatch::new(None, HashMap::new());
    assert!(watch.postpone(&1, 15, (10, 10)));
    assert!(watch.postpone(&1, 17, (12, 12)), "its first timer is not due yet");
    assert_eq!(watch.due(14), None);
    assert_eq!(watch.due(20), Some((15, vec![1])));
    assert!(watch.postpone(&1, 25, (15, 20)), "it is observed at the time of the round");
    assert_eq!(watch.due(20), Some((20, vec![1])));
    assert!(!watch.postpone(&1, 25, (20, 20)));
    assert!(watch.observe(&1, 20, true, None).is_some());
    assert!(watch.postpone(&1, 35, (30, 30)), "it was observed since");
}

#[test]
fn a_key_that_is_known_within_a_round_is_observed_from_then_on() {
    let mut watch = KeyWatch::new(None, HashMap::new());
    assert!(watch.postpone(&1, 15, (10, 10)));
    assert_eq!(watch.due(20), Some((15, vec![1])));
    assert!(watch.postpone(&1, 18, (15, 20)));
    assert_eq!(watch.due(20), Some((18, vec![1])));
    assert!(!watch.postpone(&1, 18, (18, 20)));
}

#[test]
fn a_million_reports_arm_one_timer_a_key() {
    let mut watch = KeyWatch::new(None, HashMap::new());
    for report in 0..1_000_000i64 {
        let key = report % 1_000;
        assert_eq!(watch.observe(&key, report, false, Some(report + 30_000_000)), None);
    }
    assert_eq!(watch.timers.len(), 1_000);
}

/// The row has windows of an hour and of a week. Each burst is an hour after the one before has left the short window.
#[test]
fn bursts_of_a_short_window_leave_no_timers_of_the_long_one_behind() {
    const HOUR: Micros = 3_600_000_000;
    const KEYS: u32 = 100;
    let next = |last: Micros, at: Micros| [last + HOUR, last + 7 * 24 * HOUR].into_iter().find(|time| *time > at);
    let mut watch = KeyWatch::<u32>::new(None, HashMap::new());
    let mut most = 0;
    for burst in 0..7 * 12 {
        let last = burst * 2 * HOUR;
        let due: Vec<_> = std::iter::from_fn(|| watch.due(last)).collect();
        let expected = if burst == 0 { Vec::new() } else { vec![last - HOUR] };
        assert_eq!(due.iter().map(|(at, _)| *at).collect::<Vec<_>>(), expected, "the short window ends, the long one does not");
        for (at, keys) in due {
            assert_eq!(keys.len() as u32, KEYS);
            for key in keys {
                watch.observe(&key, at, false, next(last - 2 * HOUR, at));
            }
        }
        for key in 0..KEYS {
            watch.observe(&key, last, false, next(last, last));
        }
        most = most.max(watch.timers.len());
    }
    assert!(most <= 2 * KEYS as usize + IGNORED_TIMERS, "{most} timers of {KEYS} keys");
    let kept = std::iter::from_fn(|| watch.due(Micros::MAX)).map(|(_, keys)| keys.len() as u32).sum::<u32>();
    assert_eq!(kept, KEYS, "each key has one timer in effect");
}
