//! What events see that are walked together is what each sees alone.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, StringArray};
use engine::states::{PerEventStates, SeenBy};
use proptest::prelude::*;
use types::tiles::Micros;

use crate::answerer::{StateSource, answerer};
use crate::harness::{Harness, NOW, event};

const MINUTE: Micros = 60_000_000;
const VIEWS: [(&str, &str); 2] = [
    (
        "alike",
        "CREATE VIEW alike WITH (windows = '1h, 7d') AS SELECT mine.device, count(DISTINCT theirs.device) AS devices, \
         max(theirs.ts) AS last FROM payments mine JOIN payments theirs ON mine.status = theirs.status GROUP BY mine.device",
    ),
    // One with counts of pairs, and nodes with more neighbours than are followed.
    (
        "pairs_alike",
        "CREATE VIEW pairs_alike WITH (windows = '1h', max_degree = 3) AS SELECT mine.device, count(*) AS pairs, \
         count(DISTINCT theirs.id) AS payments FROM payments mine JOIN payments theirs ON mine.status = theirs.status GROUP BY mine.device",
    ),
];

/// Device, status, and how many minutes before now.
type Payment = (u8, u8, u8);

fn payments(first: usize, of: &[Payment]) -> Vec<String> {
    let payment = |(at, (device, status, minutes)): (usize, &Payment)| {
        let device = if *device == 0 { String::new() } else { format!("d{device}") };
        let ts = engine::events::format_timestamp(NOW - Micros::from(*minutes) * MINUTE);
        event(&(first + at).to_string(), &ts, &device, "1.00", &format!("s{status}"))
    };
    of.iter().enumerate().map(payment).collect()
}

fn some(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Payment>> {
    prop::collection::vec((0..9_u8, 0..12_u8, 0..90_u8), count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn events_walked_together_see_what_each_sees_alone(
        (before, fresh, batch) in (some(0..20), some(0..10), some(2..60)),
        itself in 0..2_u32,
        later in prop::collection::vec(0..40_u8, 60),
    ) {
        tokio::runtime::Runtime::new().unwrap().block_on(check(&before, &fresh, &batch, itself, &later));
    }
}

async fn check(before: &[Payment], fresh: &[Payment], batch: &[Payment], itself: u32, later: &[u8]) {
    let harness = Harness::new().await;
    for (name, sql) in VIEWS {
        harness.define_view(name, sql).await;
    }
    if !before.is_empty() {
        harness.checkpoint(0, &payments(0, before)).await;
        harness.node.refresh().await.unwrap();
    }
    if !fresh.is_empty() {
        harness.fresh(0, &payments(1_000, fresh)).await;
    }
    let (_, events) = harness.batch(0, &payments(2_000, batch));
    let read_view = harness.node.read_view().unwrap();
    let devices: ArrayRef = Arc::new(batch.iter().map(|(device, ..)| (*device > 0).then(|| format!("d{device}"))).collect::<StringArray>());
    let has_key: BooleanArray = batch.iter().map(|(device, ..)| Some(*device > 0)).collect();
    // Minutes pass now and then.
    let t: Vec<Micros> = later.iter().take(batch.len()).map(|later| NOW + Micros::from(*later / 39) * MINUTE).collect();
    let counted: Vec<u32> = (0..batch.len() as u32).map(|event| event + itself).collect();
    for (name, _) in VIEWS {
        let loaded = read_view.view(name).unwrap();
        let live = &loaded.live;
        let mut states = PerEventStates::new(live.plan.clone(), live.codec.clone(), "payments", harness.node.session()).unwrap().unwrap();
        let added = states.compute(&events).await.unwrap();
        let (keys, wanted) = (std::slice::from_ref(&devices), (0..live.plan.columns.len()).collect::<Vec<_>>());
        let seen = SeenBy { keys, has_key: &has_key, t: &t, before: &[], added: Some(&added), counted: &counted, wanted: &wanted };
        let source = StateSource::new(&read_view, loaded, None);
        let together = answerer(live).rows_seen(&source, &seen).unwrap();
        assert_eq!(together.num_rows(), batch.len());
        for event in 0..batch.len() {
            let alone = SeenBy {
                keys: &[devices.slice(event, 1)],
                has_key: &has_key.slice(event, 1),
                t: &t[event..=event],
                counted: &counted[event..=event],
                ..seen
            };
            let alone = answerer(live).rows_seen(&source, &alone).unwrap();
            assert_eq!(together.slice(event, 1), alone, "{name}, event {event}");
        }
    }
}
