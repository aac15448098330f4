//! Backtests with less memory than the states of all keys need.

use std::sync::atomic::{AtomicU64, Ordering};

use batch::{Backtest, BacktestProgress, ChangedSink};
use committed::registry::LiveSink;
use definitions::parse::parse_definitions;
use types::ErrorKind;

use super::*;

const KEYS: usize = 30_000;
/// The last events, of a few keys.
const RECENT: usize = 400;
const BEGIN: Micros = 1_700_000_000 * SECOND;
/// Between two events.
const STEP: Micros = 50_000;
/// The first event time of the last events.
const OF_RECENT: Micros = BEGIN + HOUR;
/// The events can be sorted in it, and the states of all keys do not fit.
const TIGHT_MEMORY: usize = 4 << 20;
const ROOM: usize = 256 << 20;
const ALL: (Micros, Micros) = (Micros::MIN, Micros::MAX);
const EACH_WAY: [(Known, BacktestClock); 3] =
    [(Known::Event, BacktestClock::Event), (Known::Log, BacktestClock::Event), (Known::Log, BacktestClock::Wall)];

const BY_U: &str = "CREATE VIEW by_u WITH (windows = '1h') AS SELECT u, count(*) AS n FROM s GROUP BY u";
/// Has few edges.
const NEAR: &str = "CREATE VIEW near AS SELECT a.u, count(DISTINCT b.x) AS linked FROM s a JOIN s b ON a.u = b.u GROUP BY a.u";
/// Has an edge for each key.
const SAME_KEY: &str = "CREATE VIEW same_key AS SELECT a.k, count(DISTINCT b.x) AS linked FROM s a JOIN s b ON a.k = b.k GROUP BY a.k";

const OF_KEY: &str = "CREATE SINK of_key WITH (topic = 'of-key', features = 'inclusive') AS
    SELECT e.id, b.n_1h, b.total_1h, b.last FROM s e LEFT JOIN by_key b ON b.k = e.k";
const OF_ALL: &str = "CREATE SINK of_all WITH (topic = 'of-all', features = 'exclusive') AS
    SELECT e.id, b.n_1h, b.last, p.all_x, p.most, u.n_1h AS of_u, n.linked, CASE WHEN b.n_1h > 0 THEN 'review' ELSE 'allow' END AS decision
    FROM s e LEFT JOIN by_key b ON b.k = e.k LEFT JOIN by_pair p ON p.k = e.k AND p.u = e.u LEFT JOIN by_u u ON u.u = e.u
    LEFT JOIN near n ON n.u = e.u WHERE e.x <> 2";
/// With another version of a view.
const EDITED: &str = "CREATE VIEW by_key WITH (windows = '1h') AS SELECT k, count(*) AS n, max(x) AS most FROM s GROUP BY k;
    CREATE SINK of_all WITH (topic = 'of-all', features = 'inclusive') AS
    SELECT e.id, b.n_1h, b.most_1h, CASE WHEN b.n_1h > 1 THEN 'review' ELSE 'allow' END AS decision
    FROM s e LEFT JOIN by_key b ON b.k = e.k WHERE e.x <> 3;";
const OF_LINKS: &str = "CREATE SINK of_links WITH (topic = 'of-links') AS
    SELECT e.id, l.linked FROM s e LEFT JOIN same_key l ON l.k = e.k";
const OF_BOTH_KINDS: &str = "CREATE SINK of_both_kinds WITH (topic = 'of-both-kinds') AS
    SELECT e.id, b.n_1h, l.linked FROM s e LEFT JOIN by_key b ON b.k = e.k LEFT JOIN same_key l ON l.k = e.k";

struct ManyKeys {
    harness: Harness,
    registry: Registry,
}

/// The scored rows, in their order.
#[derive(Debug, PartialEq)]
struct ScoredRows {
    rows: Vec<String>,
    received_late: Vec<ReceivedLate>,
}

impl ManyKeys {
    async fn new() -> ManyKeys {
        let harness = Harness::new().await.unwrap();
        let (stream, view, sink) = (DefinitionKind::Stream, DefinitionKind::View, DefinitionKind::Sink);
        let views = [("by_key", BY_KEY), ("by_pair", BY_PAIR), ("by_u", BY_U), ("near", NEAR), ("same_key", SAME_KEY)];
        let views = views.map(|(name, sql)| (view, name, sql));
        harness.define(&[vec![(stream, "s", S)], views.to_vec()].concat()).await.unwrap();
        let event = |number: usize| {
            let key = format!("key-{:020}", if number < KEYS { number } else { number % 50 * 7 });
            let key = (number % 1_000 != 999).then_some(key);
            let time = if number < KEYS { BEGIN + number as Micros * STEP } else { OF_RECENT + number as Micros };
            let value = json!({ "id": number.to_string(), "ts": time, "k": key, "u": number % 7, "x": number % 9 });
            (key, value.to_string())
        };
        let events: Vec<_> = (0..KEYS + RECENT).map(event).collect();
        for part in events.chunks(4_000) {
            harness.append("s", PARTITIONS, part.to_vec()).await.unwrap();
        }
        harness.commit_at_once("one", &[("s", "s")]).await.unwrap();
        let sinks = [("of_key", OF_KEY), ("of_all", OF_ALL), ("of_links", OF_LINKS), ("of_both_kinds", OF_BOTH_KINDS)];
        harness.define(&sinks.map(|(name, sql)| (sink, name, sql))).await.unwrap();
        let registry = Registry::load(&harness.catalog.state().await.unwrap(), &harness.functions).await.unwrap();
        ManyKeys { harness, registry }
    }

    fn sink(&self, name: &str) -> &LiveSink {
        self.registry.sinks.iter().find(|sink| &*sink.name == name).unwrap()
    }

    /// Returns also in how many parts the keys were.
    async fn scored(
        &self,
        memory: usize,
        (sink, changed): (&LiveSink, Option<ChangedSink<'_>>),
        (from, to): (Micros, Micros),
        (known, clock): (Known, BacktestClock),
    ) -> Result<(ScoredRows, u64)> {
        let state = self.harness.catalog.state().await?;
        let backtest = Backtest { registry: &self.registry, sink, changed, from, to, known, clock };
        let mut rows = Vec::new();
        let mut take = |scored: &RecordBatch| {
            rows.extend(serving::json::rows(scored)?.iter().map(|row| row.get().to_owned()));
            Ok(())
        };
        let most_parts = AtomicU64::new(1);
        let on_progress = |progress: BacktestProgress| {
            if let BacktestProgress::ReadingPart { parts, .. } = progress {
                most_parts.fetch_max(parts, Ordering::Relaxed);
            }
        };
        let done = self.harness.batch_layer_of(memory, 1).backtest(&state, &backtest, &mut take, &on_progress).await?;
        assert_eq!(done.rows, rows.len() as u64);
        Ok((ScoredRows { rows, received_late: done.received_late }, most_parts.into_inner()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_no_event_of_the_range_has_take_no_memory() {
    let site = ManyKeys::new().await;
    let (sink, recent) = ((site.sink("of_key"), None), (OF_RECENT, Micros::MAX));
    for by in EACH_WAY {
        let (expected, _) = site.scored(ROOM, sink, recent, by).await.unwrap();
        assert_eq!(expected.rows.len(), RECENT);
        let (found, parts) = site.scored(TIGHT_MEMORY, sink, recent, by).await.unwrap();
        assert_eq!(parts, 1, "{by:?}");
        assert!(found == expected, "{by:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backtest_in_parts_of_the_keys_is_the_one_with_all_keys_in_memory() {
    let site = ManyKeys::new().await;
    let (edited, mistakes) = parse_definitions(&[(None, EDITED.to_owned())]);
    mistakes.into_result().unwrap();
    let functions = &site.harness.functions;
    let registry = site.registry.with_unapplied(&edited.views, &[], functions).await.unwrap();
    let edited = registry.sink_of(Arc::new(edited.sinks[0].clone()), 1, functions).await;
    let changed = ChangedSink { registry: &registry, sink: &edited, verdict: "decision" };
    let second_half = (BEGIN + (KEYS / 2) as Micros * STEP, Micros::MAX);
    let of_all = ((Known::Log, BacktestClock::Event), (site.sink("of_all"), Some(changed)), second_half, KEYS / 2 + RECENT);
    let of_key = EACH_WAY.map(|by| (by, (site.sink("of_key"), None), ALL, KEYS + RECENT));
    for (by, sink, range, count) in of_key.into_iter().chain([of_all]) {
        let (expected, parts) = site.scored(ROOM, sink, range, by).await.unwrap();
        assert_eq!((expected.rows.len(), parts), (count, 1));
        let (found, parts) = site.scored(TIGHT_MEMORY, sink, range, by).await.unwrap();
        assert!(parts > 1, "{by:?}");
        let differing = found.rows.iter().zip(&expected.rows).find(|(found, expected)| found != expected);
        assert_eq!(differing, None, "{by:?}");
        assert!(found == expected, "{} rows, {by:?}", found.rows.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_linked_view_with_more_edges_than_fit_into_memory_is_refused() {
    let site = ManyKeys::new().await;
    for (by, sink) in EACH_WAY.into_iter().flat_map(|by| ["of_links", "of_both_kinds"].map(|sink| (by, sink))) {
        let refused = site.scored(TIGHT_MEMORY, (site.sink(sink), None), ALL, by).await.unwrap_err();
        assert_eq!((refused.kind(), refused.fact("setting")), (ErrorKind::Unavailable, Some("batch.memory_limit")), "{by:?}: {refused}");
    }
}
