use proptest::prelude::*;

use super::*;
use storage::BucketFile;

fn tier(bytes: i64) -> Tier {
    Tier { bucket_count: 1, files: vec![BucketFile { bucket: 0, path: String::new(), bytes, crc32: 0, rows: 1 }], pruned_at: None }
}

/// What runs do to the sizes of tiers, where merging saves nothing: the worst case.
struct Grown {
    tiers: Vec<Tier>,
    written: i64,
    added: i64,
    most_tiers: usize,
}

fn grow(base: i64, deltas: impl IntoIterator<Item = i64>) -> Grown {
    let mut grown = Grown { tiers: vec![tier(base)], written: 0, added: 0, most_tiers: 1 };
    for delta in deltas {
        let tiers: Vec<&Tier> = grown.tiers.iter().collect();
        if let Some(first) = first_to_merge(&tiers) {
            let merged = grown.tiers.drain(first..).map(|tier| tier.bytes()).sum();
            grown.tiers.push(tier(merged));
            grown.written += merged;
        }
        grown.tiers.push(tier(delta));
        grown.written += delta;
        grown.added += delta;
        grown.most_tiers = grown.most_tiers.max(grown.tiers.len());
    }
    grown
}

proptest! {
    /// However large a run's delta is, tiers stay few and each byte is written a bounded number of times.
    #[test]
    fn tiers_stay_few_and_bytes_are_written_a_few_times(base in 0i64..1_000_000, deltas in prop::collection::vec(1i64..10_000, 1..300)) {
        let least = deltas.iter().copied().min().unwrap_or(1);
        let grown = grow(base, deltas);
        let all: i64 = base + grown.added;
        let doublings = (all / least).max(2).ilog2() as usize + 1;
        prop_assert!(grown.most_tiers <= doublings + 2, "{} tiers, {doublings} doublings", grown.most_tiers);
        // Once as a delta, once for each doubling, and up to three times for the base, which grows by half.
        let most = grown.added * (doublings as i64 + 5) + base * 2;
        prop_assert!(grown.written <= most, "wrote {} of at most {most}", grown.written);
    }
}

#[test]
fn a_thousand_runs_of_a_thousandth_each_write_what_is_new_seven_times() {
    let grown = grow(1_000, std::iter::repeat_n(1, 1_000));
    assert!(grown.written <= 7 * grown.added, "{} times", grown.written as f64 / grown.added as f64);
    assert!(grown.most_tiers <= 10, "{}", grown.most_tiers);
}

/// What runs do to the tiers of a stream whose rows are kept for as long as `KEPT` runs take, and are never merged.
#[derive(Default)]
struct Aging {
    /// The times of the rows of each tier, and when it was pruned.
    tiers: Vec<(Vec<Micros>, Micros)>,
    written: usize,
    added: usize,
    /// The most rows that have expired and are still stored.
    most_expired: usize,
}

const KEPT: Micros = 1_000;

impl Aging {
    /// A base that was just pruned, with a row of each run.
    fn new() -> Aging {
        Aging { tiers: vec![((1 - KEPT..=0).collect(), 0)], ..Aging::default() }
    }

    /// Makes a run at `t` that adds `new` rows, unless there is nothing to do.
    fn run(&mut self, t: Micros, new: usize) {
        let pruned_at = self.tiers[0].1;
        let is_outlived = is_part_expired(pruned_at, pruned_at - KEPT, t);
        if is_outlived || new > 0 {
            let sizes: Vec<Tier> = self.tiers.iter().map(|(rows, _)| tier(rows.len() as i64)).collect();
            let first = if is_outlived { Some(0) } else { first_to_merge(&sizes.iter().collect::<Vec<_>>()) };
            if let Some(first) = first {
                let merged = self.tiers.drain(first..).flat_map(|(rows, _)| rows);
                let merged: Vec<Micros> = merged.filter(|time| *time > t - KEPT).collect();
                self.written += merged.len();
                self.tiers.push((merged, t));
            }
            self.tiers.push((vec![t; new], t));
            self.written += new;
            self.added += new;
        }
        let expired = self.tiers.iter().flat_map(|(rows, _)| rows).filter(|time| **time <= t - KEPT).count();
        self.most_expired = self.most_expired.max(expired);
    }
}

#[test]
fn a_thousand_runs_whose_rows_expire_write_what_is_new_at_most_eight_times() {
    let mut aging = Aging::new();
    (1..=KEPT).for_each(|t| aging.run(t, 1));
    assert!(aging.written <= 8 * aging.added, "{} times", aging.written as f64 / aging.added as f64);
}

/// Expired rows of the base went when new ones were half as large, or all of them had expired.
#[test]
fn what_has_expired_goes_though_a_stream_slows_down() {
    for every in [2, 10, 100, 10_000] {
        let mut aging = Aging::new();
        (1..=2 * KEPT).for_each(|t| aging.run(t, usize::from(t % every == 0)));
        assert!(aging.most_expired <= KEPT as usize / 3, "{} rows, with a new one every {every} runs", aging.most_expired);
    }
}

#[test]
fn the_base_is_merged_when_the_deltas_are_half_as_large() {
    let first = |bytes: &[i64]| {
        let tiers: Vec<Tier> = bytes.iter().map(|bytes| tier(*bytes)).collect();
        first_to_merge(&tiers.iter().collect::<Vec<_>>())
    };
    assert_eq!(first(&[100]), None);
    assert_eq!(first(&[100, 49]), None);
    assert_eq!(first(&[100, 50]), Some(0));
    assert_eq!(first(&[100, 20, 10, 9]), None);
    assert_eq!(first(&[100, 20, 10, 10]), Some(1));
    assert_eq!(first(&[100, 20, 5, 6]), Some(2));
    assert_eq!(first(&[0, 1]), Some(0));
}
