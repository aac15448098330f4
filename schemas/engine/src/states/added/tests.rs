//! What an event sees of the events before it in its batch is what a batch of those alone has.

use std::sync::Arc;

use proptest::prelude::*;

use types::tiles::Micros;

use super::*;
use crate::states::testing::{events, planned, session};
use crate::states::{Partial, Pieces, StateRows, answer};

const HOUR: Micros = 3_600_000_000;
const VIEWS: [&str; 4] = [
    "CREATE VIEW v WITH (windows = '1h, 1d') AS SELECT k, count(*) AS n, sum(x) AS total, min(x) AS least FROM s WHERE x <> 3 GROUP BY k",
    "CREATE VIEW v AS SELECT count(*) AS n, count(DISTINCT x) AS different FROM s",
    "CREATE VIEW v WITH (windows = '1h') AS SELECT k, last_n(x, 2 ORDER BY ts) AS last FROM s GROUP BY k",
    "CREATE VIEW v AS SELECT k, sum(10 / x) AS total FROM s GROUP BY k",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn each_event_sees_what_came_before_it(
        view in 0..VIEWS.len(),
        rows in prop::collection::vec((0..3_u8, 0..6_i64, 0..4 * HOUR), 1..20),
    ) {
        let plan = Arc::new(planned(VIEWS[view]));
        let rows: Vec<(String, i64, Micros)> = rows.into_iter().map(|(key, x, time)| (format!("k{key}"), x, 10 * HOUR + time)).collect();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(check(plan, &rows));
    }
}

async fn check(plan: Arc<ViewPlan>, rows: &[(String, i64, Micros)]) {
    let codec = Arc::new(KeyCodec::for_plan(&plan).unwrap());
    let batch = events(rows);
    let mut states = PerEventStates::new(plan.clone(), codec.clone(), "s", &session()).unwrap().unwrap();
    let added = states.compute(&batch).await.unwrap();
    assert_eq!(added.rows().len(), added.events.len());
    // Again, as for the next micro-batch.
    assert_eq!(states.compute(&batch).await.unwrap().events, added.events);
    let wanted: Vec<usize> = (0..plan.columns.len()).collect();
    let t = 14 * HOUR;
    for event in 0..=rows.len() {
        let mut partial = Partial::new(plan.clone(), &session()).unwrap();
        let before = partial.states("s", &[batch.slice(0, event)]).await.unwrap();
        let before = StateRows::sort(&plan, &codec, &before).unwrap();
        for key in ["k0", "k1", "k2"] {
            let columns = [Arc::new(arrow::array::StringArray::from(vec![key])) as arrow::array::ArrayRef];
            let encoded = codec.encode(&columns, 1).unwrap();
            let (mut expected, mut found) = (Pieces::default(), Pieces::default());
            expected.add_fresh(before.batch(), before.find(encoded.value(0)), 0);
            for row in added.before(&added.of_key(encoded.value(0)), event as u32) {
                found.add_fresh(added.rows().batch(), row..row + 1, 0);
            }
            let answered = |pieces: &Pieces<'_>| answer(&plan, &codec, &[encoded.value(0)], pieces, t, &wanted).unwrap().rows;
            assert_eq!(answered(&found), answered(&expected), "before event {event}");
        }
    }
}
