use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::Int64Type;
use proptest::prelude::*;
use types::tiles::{Micros, TimeRange};

use super::EdgeTimes;
use crate::walk::Walk;
use crate::walk::tests::World;

const MINUTE: Micros = 60_000_000;
const HOUR: Micros = 60 * MINUTE;
/// A full hour.
const START: Micros = 1_772_452_800_000_000;

/// A user, a device, and when it was, in seconds from the start.
type Seen = (u8, u8, i64);

fn seen() -> impl Strategy<Value = Vec<Seen>> {
    prop::collection::vec((0u8..3, 0u8..3, 0i64..3 * 3_600), 1..12)
}

async fn world((windows, aggregate): (&str, &str), created: &[Seen], login: &[Seen]) -> World {
    let sql = format!(
        "CREATE VIEW links WITH (windows = '{windows}') AS SELECT c.device, {aggregate} AS n \
         FROM created c JOIN login l ON c.user_id = l.user_id GROUP BY c.device"
    );
    let events = |seen: &[Seen]| {
        let event = |(user, device, at): &Seen| ((format!("u{user}"), format!("d{device}")), START + at * 1_000_000);
        seen.iter().map(event).collect::<Vec<_>>()
    };
    World::at(&sql, events(created).into_iter(), events(login).into_iter()).await
}

impl World {
    /// Whether a device has a row at a time, its value, and the times of its edges.
    fn known_at(&self, device: u8, t: Micros) -> ((bool, i64), EdgeTimes) {
        self.known_by(&[window()], device, t)
    }

    /// The same of an alert with these ranges.
    fn known_by(&self, ranges: &[TimeRange], device: u8, t: Micros) -> ((bool, i64), EdgeTimes) {
        let links = self.plan.links().cloned().unwrap();
        let groups: [ArrayRef; 1] = [Arc::new(StringArray::from(vec![format!("d{device}")]))];
        let walk = Walk::new(&self.plan, &self.codec, &links, &self.run, t).up_to_its_time();
        let walked = walk.rows(&groups, 1, &[1]).unwrap();
        let times = walk.edge_times(&groups, 1, ranges, Micros::MAX).unwrap();
        ((walked.found[0], walked.rows.column(0).as_primitive::<Int64Type>().value(0)), times[0])
    }
}

/// Its hop is a minute.
fn window() -> TimeRange {
    TimeRange::trailing(Duration::from_secs(3_600), None)
}

fn minute(time: Micros) -> Micros {
    time - time.rem_euclid(MINUTE)
}

/// The same by the events themselves, those after the hop of the time left out.
fn expected(created: &[Seen], login: &[Seen], device: u8, t: Micros, is_counted: bool) -> (bool, i64) {
    let counts = |at: i64| (minute(t - HOUR)..minute(t) + MINUTE).contains(&(START + at * 1_000_000));
    let mut ends: Vec<u8> = Vec::new();
    for (user, _, _) in created.iter().filter(|(_, of, at)| *of == device && counts(*at)) {
        ends.extend(login.iter().filter(|(of, _, at)| of == user && counts(*at)).map(|(_, device, _)| *device));
    }
    let count = if is_counted { ends.len() } else { ends.iter().collect::<BTreeSet<_>>().len() };
    (!ends.is_empty(), count as i64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// From the hop of the last event on, which edges without tiles need, a row is what the events say. It stays so
    /// until the time at which it may change.
    #[test]
    fn a_row_is_known_from_a_time_on_and_stays_until_it_may_change(
        is_counted in any::<bool>(),
        created in seen(),
        login in seen(),
        looked_at in 0i64..5 * 3_600,
        shares in prop::collection::vec(0.0f64..1.0, 4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let aggregate = if is_counted { "count(*)" } else { "count(DISTINCT l.device)" };
        let world = runtime.block_on(world(("1h", aggregate), &created, &login));
        let t = START + looked_at * 1_000_000;
        for device in 0..3 {
            let (row, times) = world.known_at(device, t);
            if is_counted {
                prop_assert_eq!(times.last_seen, None, "tiles say what was there at any time");
            }
            if times.last_seen.is_some_and(|seen| minute(seen) > t) {
                continue;
            }
            let end = times.changes.unwrap_or(t + 5 * HOUR);
            prop_assert!(end > t);
            let within = shares.iter().map(|share| t + ((end - 1 - t) as f64 * share) as Micros);
            for at in within.chain([t, end - 1]) {
                prop_assert_eq!(row, expected(&created, &login, device, at, is_counted), "d{} at {} of {}..{}", device, at, t, end);
            }
        }
    }
}

#[tokio::test]
async fn a_later_event_hides_an_earlier_one_of_its_edge_until_its_own_time() {
    let login = [(0, 1, 600), (0, 1, 7_200)];
    let world = world(("1h", "count(DISTINCT l.device)"), &[(0, 0, 600)], &login).await;
    let (_, times) = world.known_at(0, START + 700 * 1_000_000);
    assert_eq!(times.last_seen, Some(START + 7_200 * 1_000_000));
    let ((found, devices), times) = world.known_at(0, START + 7_200 * 1_000_000);
    assert_eq!((found, devices, times.last_seen), (false, 0, Some(START + 600 * 1_000_000)));
}

/// The hop of half an hour is ten seconds, that of a day five minutes.
#[tokio::test]
async fn a_row_that_exists_by_a_long_hop_is_not_known_before_its_last_event() {
    let world = world(("30m, 1d", "count(*)"), &[(0, 0, 200)], &[(0, 1, 210)]).await;
    let ranges = [1_800, 86_400].map(|seconds| TimeRange::trailing(Duration::from_secs(seconds), None));
    let ((found, pairs), times) = world.known_by(&ranges, 0, START);
    assert_eq!((found, pairs, times.last_seen), (true, 0, Some(START + 210 * 1_000_000)));
    let ((found, pairs), times) = world.known_by(&ranges, 0, START + 210 * 1_000_000);
    assert_eq!((found, pairs, times.last_seen), (true, 1, None));
    let ((found, _), times) = world.known_by(&ranges, 0, START - 1);
    assert_eq!((found, times.last_seen), (false, None));
}
