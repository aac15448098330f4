//! Compares the expected side of `verify` with a loop over all pairs: two independent ways to answer a linked view.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use definitions::{Definitions, parse};
use engine::events::plan_schema;
use engine::functions::Functions;
use engine::plan::planning_session;
use jobs::verify::plain::{self, Moment, Plain, plain};
use proptest::prelude::*;

use super::events::{BASE, DAY, Event, HOUR, Placed, STREAMS, batch, event};
use super::grammar::{STAGING, View, view};
use super::pairs::{self, Cell};
use crate::compare::{rows_of, same};

/// The definitions with a view named `v`.
pub fn definitions(view_sql: &str) -> Definitions {
    let views = [view_sql].into_iter().chain(STAGING.iter().map(|(_, sql)| *sql));
    Definitions {
        streams: STREAMS.iter().map(|sql| parse::parse_stream(sql).unwrap()).collect(),
        views: views.map(|sql| parse::parse_view(sql).unwrap()).collect(),
        ..Definitions::default()
    }
}

/// A view named `v` as plain SQL, and a session with its streams' events.
pub fn plain_query(view_sql: &str, events: &[&Placed], moment: Moment) -> (Plain, SessionContext) {
    let definitions = definitions(view_sql);
    let session = planning_session(&Functions::standard()).unwrap();
    plain::register(&session);
    for (index, stream) in definitions.streams.iter().enumerate() {
        let of_stream: Vec<&Placed> = events.iter().copied().filter(|placed| placed.stream == index).collect();
        let batch = batch(&stream.name, &of_stream, plan_schema(stream));
        session.register_table(&*stream.name, Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())).unwrap();
    }
    let is_aggregate = |name: &str| session.state().aggregate_functions().contains_key(name);
    let plain = plain(&definitions.views[0], &definitions, &is_aggregate, moment).unwrap_or_else(|error| panic!("{view_sql}: {error}"));
    (plain, session)
}

pub async fn answer(sql: &str, session: &SessionContext) -> Vec<RecordBatch> {
    let frame = session.sql(sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    frame.collect().await.unwrap_or_else(|error| panic!("{error}\n{sql}"))
}

/// The scale of the tolerance for a sum of floats: each right-hand value counts once for each event of the other side.
pub fn scale(events: &[&Placed]) -> f64 {
    events.iter().filter_map(|placed| placed.event.f).map(f64::abs).sum::<f64>() * events.len() as f64
}

async fn holds(view: &View, events: &[Placed], moment: Moment) -> Result<(), TestCaseError> {
    let sql = view.sql("v");
    let all: Vec<&Placed> = events.iter().collect();
    let (plain, session) = plain_query(&sql, &all, moment);
    let found: BTreeMap<_, _> = rows_of(&answer(&plain.sql, &session).await, None, view.group.len());
    let expected = pairs::rows(view, events, moment.t, moment.as_of);
    prop_assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "keys of {}\n{}", sql, plain.sql);
    for (key, columns) in &expected {
        prop_assert_eq!(columns.len(), found[key].len());
        for ((name, expected), (found_name, found)) in columns.iter().zip(&found[key]) {
            prop_assert_eq!(name, found_name);
            let is_same = match expected {
                Cell::Text(expected) => same(found, expected, scale(&all)),
                Cell::Near(count) => found.parse::<i64>().is_ok_and(|found| (found - count).abs() <= 1 + count / 20),
                Cell::NotComputed => true,
            };
            prop_assert!(is_same, "{} of {:?}: plain {}, loop {:?}, {}\n{}", name, key, found, expected, sql, plain.sql);
        }
    }
    let counts = pairs::counts(view, events, moment.t);
    if !moment.as_of {
        let number = |batches: Vec<RecordBatch>, column: usize| batches[0].column(column).as_primitive::<Int64Type>().value(0);
        let found = answer(&plain.counts_sql, &session).await;
        let found = pairs::Counts {
            read: number(answer(&plain.read_sql, &session).await, 0),
            passed: number(found.clone(), 0),
            expired: number(found, 1),
        };
        prop_assert_eq!(found, counts, "{}\n{}\n{}", sql, plain.counts_sql, plain.read_sql);
    }
    Ok(())
}

fn placed(events: Vec<(usize, Event)>) -> Vec<Placed> {
    let place = |(offset, (stream, event))| Placed { stream, partition: 0, offset: offset as i64, event };
    events.into_iter().enumerate().map(place).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("BASESTREAM_LAW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(48), ..ProptestConfig::default() })]
    #[test]
    fn plain_sql_of_a_linked_view_is_a_loop_over_all_pairs(
        view in view(),
        events in prop::collection::vec((0..2usize, event()), 0..60),
        t_after in prop_oneof![Just(0i64), 0..HOUR, 0..40 * DAY, Just(-DAY)],
        as_of in prop::bool::weighted(0.3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(holds(&view, &placed(events), Moment { t: BASE + t_after, as_of }))?;
    }
}
