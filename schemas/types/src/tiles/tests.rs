use super::*;
use proptest::prelude::*;

const DAY_S: u64 = 86_400;

#[test]
fn hops_are_those_of_the_design() {
    let hop = |seconds| Level::hop_of(Duration::from_secs(seconds));
    assert_eq!(hop(10), Level::Second1);
    assert_eq!(hop(3_600), Level::Minute1);
    assert_eq!(hop(DAY_S), Level::Minutes5);
    assert_eq!(hop(7 * DAY_S), Level::Hour1);
    assert_eq!(hop(30 * DAY_S), Level::Hour1);
    assert_eq!(hop(90 * DAY_S), Level::Day1);
}

#[test]
fn tiles_floor_before_1970_too() {
    assert_eq!(Level::Day1.floor(-1), -DAY);
    assert_eq!(Level::Hour1.ceil(-HOUR - 1), -HOUR);
}

#[test]
fn a_window_is_fewer_than_64_tiles() {
    let all: Vec<Level> = Level::LEVELS.into_iter().filter(|level| *level != Level::All).collect();
    for (days, most) in [(1u64, 35), (7, 30), (30, 33), (90, 15), (365, 19), (3000, 60)] {
        assert_eq!(most_tiles(&TimeRange::trailing(Duration::from_secs(days * DAY_S), None), &all), most, "{days}d");
    }
    for window in (1..=60).map(|i| Duration::from_secs(i * i * 3_600)) {
        let most = most_tiles(&TimeRange::trailing(window, None), &all);
        assert!(most < 64, "{window:?}: {most}");
    }
}

#[test]
fn all_time_and_what_has_no_left_edge_holds_an_event_for_ever() {
    assert_eq!(TimeRange::ALL.longest_stay(), None);
    assert_eq!(TimeRange::between(None, Duration::from_secs(DAY_S), None).longest_stay(), None);
    let week = TimeRange::trailing(Duration::from_secs(7 * DAY_S), None);
    assert_eq!(week.longest_stay(), Some(Duration::from_secs(7 * DAY_S + 3_600)));
}

/// Tiles of the cover that begin at or before `t`; a stretch without a beginning is one.
fn tiles_at(range: &TimeRange, levels: &[Level], t: Micros) -> usize {
    let tiles = |run: &TileRun| match (run.level.length_us(), run.from) {
        (Some(length), Some(from)) => {
            let begun = run.level.ceil(t + 1);
            (run.to.map_or(begun, |to| to.min(begun)) - from).max(0) / length
        }
        _ => 1,
    };
    cover(range.at(t), levels).iter().map(tiles).sum::<Micros>() as usize
}

proptest! {
    /// Minutes, five minutes and hours repeat themselves after an hour: all moments can be tried.
    #[test]
    fn the_most_tiles_are_those_of_some_moment_and_of_none_more(
        window in prop::option::of(1i64..200 * 60),
        until in prop::option::of(1i64..200 * 60),
        hop in 2u8..5,
    ) {
        let seconds = |s: i64| Duration::from_secs(s as u64);
        let range = TimeRange { window: window.map(seconds), until: until.map(seconds), hop: Level::from_code(hop).unwrap() };
        prop_assume!(window.zip(until).is_none_or(|(window, until)| until < window));
        let levels = [Level::Minute1, Level::Minutes5, Level::Hour1];
        let moments = (0..3_600).map(|second| 490_000 * HOUR + second * SECOND);
        let most = moments.map(|t| tiles_at(&range, &levels, t)).max().unwrap();
        prop_assert_eq!(most_tiles(&range, &levels), most, "{:?}", range);
    }
}

proptest! {
    /// An event that is past its longest stay is in no range of that window any more, and no shorter stay would do.
    #[test]
    fn an_event_leaves_a_range_at_its_longest_stay_and_not_before(
        t in -4_000_000_000_000_000i64..4_000_000_000_000_000,
        window in 1u64..500 * DAY_S,
        until in prop::option::of(1u64..500 * DAY_S),
        hop in 0u8..6,
        age in 0i64..50_000_000_000_000,
    ) {
        let hop = Level::from_code(hop).unwrap();
        let range = TimeRange { window: Some(Duration::from_secs(window)), until: until.map(Duration::from_secs), hop };
        let stay = range.longest_stay().unwrap().as_micros() as Micros;
        prop_assert!(age < stay || !range.at(t).contains(t - age), "{:?}", range);
        // The moment at which the left edge is rounded down the most.
        let latest = hop.floor(t) + window as Micros * SECOND + hop.length_us().unwrap() - 1;
        prop_assert_eq!(range.at(latest).from, Some(latest - stay + 1), "{:?}", range);
    }
}

proptest! {
    /// The law of the cover: an event is in the span exactly when exactly one of its tiles, over all levels, is in the
    /// cover.
    #[test]
    fn every_instant_of_a_span_is_covered_once(
        t in -4_000_000_000_000_000i64..4_000_000_000_000_000,
        window in prop::option::of(1u64..500 * DAY_S),
        until in prop::option::of(1u64..500 * DAY_S),
        finest in 0u8..6,
        near in prop::collection::vec(-40_000_000_000_000i64..4_000_000_000_000, 1..200),
    ) {
        let finest = Level::from_code(finest).unwrap();
        let range = TimeRange { window: window.map(Duration::from_secs), until: until.map(Duration::from_secs), hop: finest };
        let levels: Vec<Level> = Level::LEVELS.into_iter().filter(|l| *l >= finest).collect();
        let span = range.at(t);
        let runs = cover(span, &levels);
        let edges = [span.from, span.to].into_iter().flatten().flat_map(|edge| [edge - 1, edge, edge + 1]);
        for time in near.into_iter().map(|d| t + d).chain(edges) {
            let hits = levels.iter().filter(|level| runs.iter().any(|run| run.contains(**level, level.floor(time)))).count();
            prop_assert_eq!(hits, usize::from(span.contains(time)), "time {} in {:?} by {:?}", time, span, runs);
        }
    }
}

proptest! {
    #[test]
    fn the_tile_of_a_kept_time_tells_its_level(
        floor in -3 * DAY..3 * DAY,
        ago in prop::collection::vec(0..2 * DAY, 8),
        forever in any::<bool>(),
        time in -9 * DAY..9 * DAY,
        all in any::<bool>(),
    ) {
        let timed = Level::LEVELS.into_iter().filter(|level| *level != Level::All);
        let mut from = floor;
        let mut floors: Floors = timed.zip(ago).map(|(level, ago)| {
            from = level.floor(from - ago);
            (level, Some(from))
        }).collect();
        if forever {
            floors[5].1 = None;
            floors[6].1 = None;
            floors[7].1 = None;
        }
        if all {
            floors.push((Level::All, None));
        }
        let level = finest_kept(&floors, time);
        let tile = level.floor(time);
        prop_assert_eq!(finest_kept(&floors, tile), level);
        let kept = |(of, floor): &(Level, Option<Micros>)| *of != Level::All && floor.is_none_or(|floor| floor <= of.floor(time));
        prop_assert_eq!(floors.iter().find(|floor| kept(floor)).map_or(Level::Days64, |(level, _)| *level), level);
    }
}
