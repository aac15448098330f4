//! The features of a schedule: a disk that runs full, compaction, an alert, a sink, trimming of the log. They follow
//! from the seed, chosen so that any two of them occur together within a few schedules.

use std::collections::BTreeSet;

use crate::outputs::Guard;

// One schedule in this many has the feature. No two of the numbers have a common divisor; otherwise two features would
// always occur together, or never.
const SINKS: u64 = 3;
const COMPACTING: u64 = 4;
const ALERTS: u64 = 5;
const SMALL_DISKS: u64 = 7;
const TRIMMING: u64 = 11;

#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// Its disk runs full at times.
    pub small_disk: bool,
    /// It is made for compaction.
    pub compacts: bool,
    pub has_alert: bool,
    pub alert_guard: Guard,
    /// What ceases is put out too.
    pub resolves: bool,
    pub has_sink: bool,
    pub sink_guard: Guard,
    /// The log is trimmed, and replayed.
    pub trims: bool,
}

impl Features {
    pub fn from_seed(seed: u64) -> Features {
        const GUARDS: [Guard; 3] = [Guard::Owner, Guard::Numbers, Guard::OwnerAndNumbers];
        Features {
            small_disk: seed.is_multiple_of(SMALL_DISKS),
            compacts: seed % COMPACTING == 1,
            has_alert: seed.is_multiple_of(ALERTS),
            alert_guard: GUARDS[(seed / (ALERTS * SINKS) % 3) as usize],
            resolves: !(seed / (ALERTS * COMPACTING)).is_multiple_of(4),
            has_sink: seed.is_multiple_of(SINKS),
            sink_guard: if (seed / (ALERTS * SINKS * 3)).is_multiple_of(3) { Guard::OwnerAndNumbers } else { Guard::Owner },
            trims: seed.is_multiple_of(TRIMMING),
        }
    }

    /// What it has, each with its kind: two of one kind exclude each other.
    fn list(self) -> Vec<(&'static str, String)> {
        let mut list = Vec::new();
        if self.small_disk {
            list.push(("disk", "small".to_owned()));
        }
        if self.compacts {
            list.push(("compaction", "on".to_owned()));
        }
        if self.has_alert {
            list.push(("alert's guard", format!("{:?}", self.alert_guard)));
            list.push(("alert resolves", self.resolves.to_string()));
        }
        if self.has_sink {
            list.push(("sink's guard", format!("{:?}", self.sink_guard)));
        }
        if self.trims {
            list.push(("trimming", "on".to_owned()));
        }
        list
    }
}

#[test]
fn each_feature_meets_each_other_within_few_schedules() {
    const FEW: u64 = 200;
    let mut met = BTreeSet::new();
    for seed in 0..FEW {
        let list = Features::from_seed(seed).list();
        met.extend(list.iter().flat_map(|one| list.iter().map(move |other| (one.clone(), other.clone()))));
    }
    let all: BTreeSet<_> = met.iter().map(|(one, _)| one.clone()).collect();
    assert_eq!(all.len(), 10, "{all:?}");
    let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (one.clone(), other.clone())));
    let missing: Vec<_> = pairs.filter(|(one, other)| one.0 != other.0 && !met.contains(&(one.clone(), other.clone()))).collect();
    assert!(missing.is_empty(), "these never meet: {missing:?}");
}
