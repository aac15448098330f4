//! Backtests with less memory than the states of all keys need.

use batch::{Backtest, ChangedSink};
use committed::registry::LiveSink;

use super::*;

const KEYS: usize = 40_000;
/// The last events, of a few keys.
const RECENT: usize = 400;
const BEGIN: Micros = 1_700_000_000 * SECOND;
/// The first event time of the last events.
const OF_RECENT: Micros = BEGIN + HOUR;
/// The events can be sorted in it, and the states of all keys do not fit.
const TIGHT_MEMORY: usize = 3 << 20;
const ROOM: usize = 256 << 20;
const ALL: (Micros, Micros) = (Micros::MIN, Micros::MAX);
const EACH_WAY: [(Known, BacktestClock); 3] =
    [(Known::Event, BacktestClock::Event), (Known::Log, BacktestClock::Event), (Known::Log, BacktestClock::Wall)];

const OF_KEY: &str = "CREATE SINK of_key WITH (topic = 'of-key', features = 'inclusive') AS
    SELECT e.id, b.n_1h, b.total_1h, b.last FROM s e LEFT JOIN by_key b ON b.k = e.k";

struct ManyKeys {
    harness: Harness,
    registry: Registry,
}

impl ManyKeys {
    async fn new() -> ManyKeys {
        let harness = Harness::new().await.unwrap();
        let (stream, view, sink) = (DefinitionKind::Stream, DefinitionKind::View, DefinitionKind::Sink);
        harness.define(&[(stream, "s", S), (view, "by_key", BY_KEY)]).await.unwrap();
        let event = |number: usize| {
            let key = format!("key-{:020}", if number < KEYS { number } else { number % 50 * 7 });
            let time = if number < KEYS { BEGIN + number as Micros * 50_000 } else { OF_RECENT + number as Micros };
            let value = json!({ "id": number.to_string(), "ts": time, "k": key, "u": number % 7, "x": number % 9 });
            (Some(key), value.to_string())
        };
        let events: Vec<_> = (0..KEYS + RECENT).map(event).collect();
        for part in events.chunks(4_000) {
            harness.append("s", PARTITIONS, part.to_vec()).await.unwrap();
        }
        harness.commit_at_once("one", &[("s", "s")]).await.unwrap();
        harness.define(&[(sink, "of_key", OF_KEY)]).await.unwrap();
        let registry = Registry::load(&harness.catalog.state().await.unwrap(), &harness.functions).await.unwrap();
        ManyKeys { harness, registry }
    }

    fn sink(&self, name: &str) -> &LiveSink {
        self.registry.sinks.iter().find(|sink| &*sink.name == name).unwrap()
    }

    /// The scored rows, in their order.
    async fn scored(
        &self,
        memory: usize,
        sink: &LiveSink,
        changed: Option<ChangedSink<'_>>,
        (from, to): (Micros, Micros),
        (known, clock): (Known, BacktestClock),
    ) -> Result<Vec<String>> {
        let state = self.harness.catalog.state().await?;
        let backtest = Backtest { registry: &self.registry, sink, changed, from, to, known, clock };
        let mut found = Vec::new();
        let mut take = |rows: &RecordBatch| {
            found.extend(serving::json::rows(rows)?.iter().map(|row| row.get().to_owned()));
            Ok(())
        };
        let done = self.harness.batch_layer(memory).backtest(&state, &backtest, &mut take, &|_| ()).await?;
        assert_eq!(done.rows, found.len() as u64);
        Ok(found)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_no_event_of_the_range_has_take_no_memory() {
    let site = ManyKeys::new().await;
    for by in EACH_WAY {
        let recent = (OF_RECENT, Micros::MAX);
        let expected = site.scored(ROOM, site.sink("of_key"), None, recent, by).await.unwrap();
        assert_eq!(expected.len(), RECENT);
        assert_eq!(site.scored(TIGHT_MEMORY, site.sink("of_key"), None, recent, by).await.unwrap(), expected, "{by:?}");
    }
}
