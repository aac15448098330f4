//! Computes the greatest number of tiles that an answer over a range merges, over all moments of a query.

use std::cmp::{max, min};

use super::{Level, Micros, TimeRange};

/// Returns the greatest number of tiles in [`cover`](super::cover) of this range, over all moments. Tiles that begin
/// after the moment of the answer are empty and do not count; a range without a beginning counts as one tile.
///
/// At each level only the distance from the left edge to the next coarser tile depends on the moment, and every
/// distance occurs at some moment, whatever the distances at the other levels. So the levels are tried in turn, each
/// with every distance: at most two remainders a level, whatever the length of the range.
pub fn most_tiles(range: &TimeRange, levels: &[Level]) -> usize {
    let lengths: Vec<Micros> = levels.iter().filter(|level| **level >= range.hop).filter_map(|level| level.length_us()).collect();
    let Some(hop) = lengths.first() else { return 1 };
    let back = |duration: std::time::Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    let most = match (range.window.map(back), range.until.map(back)) {
        (None, None) => 1,
        (None, Some(_)) => 1 + lengths.windows(2).map(|pair| pair[1] / pair[0] - 1).sum::<Micros>(),
        (Some(window), None) => roundings(window, *hop).map(|hops| most_begun(&lengths, hops + 1)).fold(0, max),
        (Some(window), Some(until)) => roundings((window - until).max(0), *hop).map(|hops| most_between(&lengths, hops)).fold(0, max),
    };
    most as usize
}

/// Returns how many hops apart two edges can be after rounding to hops. This depends on the moment if the hop does not
/// divide their distance.
fn roundings(distance: Micros, hop: Micros) -> std::ops::RangeInclusive<Micros> {
    distance / hop..=distance / hop + Micros::from(distance % hop != 0)
}

/// `begun` tiles of the finest level begin in the range: those before the next coarser tile are merged singly, the rest
/// in coarser tiles.
fn most_begun(lengths: &[Micros], begun: Micros) -> Micros {
    let Some(ratio) = ratio_to_coarser(lengths) else { return begun };
    let most = |before: Micros| match begun - before {
        rest if rest <= 0 => begun,
        rest => before + most_begun(&lengths[1..], (rest - 1) / ratio + 1),
    };
    (0..ratio).map(most).fold(0, max)
}

/// `whole` tiles of the finest level are in the range: those on both sides of its whole coarser tiles are merged
/// singly.
fn most_between(lengths: &[Micros], whole: Micros) -> Micros {
    let Some(ratio) = ratio_to_coarser(lengths) else { return whole };
    let most = |before: Micros| match (whole - min(before, whole)) / ratio {
        0 => whole,
        coarser => whole - coarser * ratio + most_between(&lengths[1..], coarser),
    };
    (0..ratio).map(most).fold(0, max)
}

fn ratio_to_coarser(lengths: &[Micros]) -> Option<Micros> {
    Some(lengths.get(1)? / lengths[0])
}
