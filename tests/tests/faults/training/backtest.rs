//! A backtest of a sink whose views read another stream too, and link its events: each event sees what was known at it.

use batch::{BacktestClock, ReceivedLate};

use super::*;
use crate::sinks::backtest::scored_in;

mod memory;

const SCORED: &str = "CREATE SINK scored WITH (topic = 'scored', features = 'inclusive') AS
    SELECT b.n_1h, l.linked, l.recent, m.met_10m
    FROM s e LEFT JOIN of_both b ON b.k = e.k LEFT JOIN links l ON l.k = e.k LEFT JOIN met m ON m.k = e.k";

/// For which time an event of `s` is read.
fn read_at(site: &Site, event: &Event, by: (Known, BacktestClock)) -> Micros {
    let is_before = |other: &&Event| other.stream == "s" && other.place.0 == event.place.0 && other.place <= event.place;
    match by {
        (Known::Event, _) => event.time,
        (Known::Log, BacktestClock::Wall) => event.clock,
        (Known::Log, BacktestClock::Event) => site.events.iter().filter(is_before).map(|other| other.time).max().unwrap(),
    }
}

fn floor(time: Micros, hop: Micros) -> Micros {
    time.div_euclid(hop) * hop
}

/// How many events of `s` lie before the longest window of each view.
fn received_late(site: &Site, by: (Known, BacktestClock)) -> Vec<ReceivedLate> {
    let late = |view: &str, window: Micros, hop: Micros| {
        let events = site.events.iter().filter(|event| event.stream == "s");
        let rows = events.filter(|event| event.time < floor(read_at(site, event, by) - window, hop)).count() as u64;
        ReceivedLate { view: view.into(), rows }
    };
    vec![late("links", HOUR, MINUTE), late("met", 10 * MINUTE, 10 * SECOND), late("of_both", HOUR, MINUTE)]
}

/// What an event of `s` sees, computed from all events. Of what became known at the same time, the events of `s` come
/// first.
fn expected(site: &Site, event: &Event, known: Known) -> Value {
    let at = |event: &Event| if known == Known::Log { event.clock } else { event.time };
    let order = |event: &Event| (at(event), event.stream == "o", event.place);
    let seen = |stream: &'static str| site.events.iter().filter(move |other| other.stream == stream && order(other) <= order(event));
    let is_of_key = |other: &&Event| event.k.is_some() && other.k == event.k;
    let t = read_at(site, event, (known, BacktestClock::Event));
    let (hour, ten_minutes) = (floor(t - HOUR, MINUTE), floor(t - 10 * MINUTE, 10 * SECOND));
    let near: Vec<&Event> = seen("s").filter(is_of_key).collect();
    let pairs: Vec<(&Event, &Event)> =
        near.iter().flat_map(|a| seen("o").filter(|b| (a.u, a.x) == (b.u, b.x)).map(move |b| (*a, b))).collect();
    let met = pairs.iter().filter(|(a, b)| a.time >= ten_minutes && b.time >= ten_minutes).map(|(_, b)| b.x);
    json!({
        "n_1h": seen("s").chain(seen("o")).filter(is_of_key).filter(|other| other.time >= hour).count(),
        "linked": pairs.iter().map(|(_, b)| b.x).collect::<BTreeSet<_>>().len(),
        "recent": pairs.iter().filter(|(a, b)| a.time >= hour && b.time >= ten_minutes).count(),
        "met_10m": met.collect::<BTreeSet<_>>().len(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backtest_follows_links_and_other_streams() {
    let seed = rand::random();
    let site = Site::new(seed).await;
    site.harness.define(&[(DefinitionKind::Sink, "scored", SCORED)]).await.unwrap();
    let registry = Registry::load(&site.harness.catalog.state().await.unwrap(), &site.harness.functions).await.unwrap();
    for (known, memory) in [(Known::Event, 256 << 20), (Known::Event, LITTLE_MEMORY), (Known::Log, LITTLE_MEMORY)] {
        let (range, by) = ((0, Micros::MAX), (known, BacktestClock::Event));
        let (found, late) = scored_in(memory, &site.harness, &registry, "scored", range, by).await;
        assert_eq!(late, received_late(&site, by), "seed {seed}, {known:?}");
        let events: Vec<&Event> = site.events.iter().filter(|event| event.stream == "s").collect();
        assert_eq!(found.len(), events.len());
        for event in events {
            assert_eq!(found[&event.place], expected(&site, event, known), "seed {seed}, {known:?}, {memory} bytes, {event:?}");
        }
        let linked = found.values().filter(|row| row["recent"] != json!(0)).count();
        assert!(linked > 50, "seed {seed}: {linked} rows have recent links");
    }
    let by_wall = (Known::Log, BacktestClock::Wall);
    let (_, late) = scored_in(LITTLE_MEMORY, &site.harness, &registry, "scored", (0, Micros::MAX), by_wall).await;
    assert_eq!(late, received_late(&site, by_wall), "seed {seed}");
    assert!(late.iter().all(|late| late.rows > 50), "seed {seed}: {late:?}");
}
