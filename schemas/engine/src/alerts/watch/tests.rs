//! Records are those of a model that looks at every key at every time.

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
    open: BTreeMap<u8, Open>,
    records: Vec<Transition<u8>>,
}

impl Model {
    fn look(&mut self, reports: &BTreeMap<u8, Micros>, at: Micros, repeat: Option<Micros>) {
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
                _ => drop(self.open.insert(key, Open { since, last: at })),
            }
            self.records.push(Transition { key, kind, since, at });
        }
    }
}

proptest! {
    #[test]
    fn the_records_are_those_of_looking_at_every_key_at_every_time(steps in steps(), repeat in prop::option::of(1i64..30)) {
        let duration = repeat.map(|repeat| Duration::from_micros(repeat as u64));
        let (mut watch, mut model, mut records) = (Watch::new(duration, BTreeMap::new()), Model::default(), Vec::new());
        let (mut reports, mut now) = (BTreeMap::new(), 0i64);
        for step in steps {
            match step {
                Step::Restart => {
                    watch = Watch::new(duration, watch.open().clone());
                    for key in reports.keys() {
                        let (holds, next) = silent(reports.get(key), now);
                        records.extend(watch.look(key, now, holds, next));
                    }
                }
                Step::Report(after, keys) => {
                    for time in now + 1..=now + after {
                        model.look(&reports, time, repeat);
                    }
                    now += after;
                    while let Some((at, mut due)) = watch.due(now) {
                        due.sort();
                        for key in due {
                            let (holds, next) = silent(reports.get(&key), at);
                            records.extend(watch.look(&key, at, holds, next));
                        }
                    }
                    let keys: std::collections::BTreeSet<u8> = keys.into_iter().collect();
                    reports.extend(keys.iter().map(|key| (*key, now)));
                    model.look(&reports, now, repeat);
                    for key in &keys {
                        let (holds, next) = silent(reports.get(key), now);
                        records.extend(watch.look(key, now, holds, next));
                    }
                }
            }
            prop_assert_eq!(&records, &model.records);
            prop_assert_eq!(watch.open(), &model.open);
        }
    }
}

#[test]
fn a_million_reports_arm_one_timer_a_key() {
    let mut watch = Watch::new(None, BTreeMap::new());
    for report in 0..1_000_000i64 {
        let key = report % 1_000;
        assert_eq!(watch.look(&key, report, false, Some(report + 30_000_000)), None);
    }
    assert_eq!(watch.timers(), 1_000);
}
