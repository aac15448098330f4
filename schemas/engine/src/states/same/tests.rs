use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::states::testing::{events, planned, session};
use crate::states::{KeyCodec, Partial, StateRows, sort_and_merge};
use types::tiles::Micros;

const VIEW: &str = "CREATE VIEW v AS SELECT k, count(*) AS n, count(x) AS xs, sum(x) AS s, avg(CAST(x AS DOUBLE)) AS a, min(x) AS least, \
    max(x) AS most, count(DISTINCT x) AS d, median(x) AS m, stddev(x) AS sd, approx_distinct(x) AS about, approx_median(x) AS am, \
    top_k(x, 3) AS top, array_agg(x ORDER BY ts) AS listed, last_value(x ORDER BY ts) AS newest, last_n(x, 2) AS last, \
    sum(CAST(x AS DOUBLE) / 7) AS f, covar_samp(CAST(x AS DOUBLE), CAST(x AS DOUBLE) * 3) AS c FROM s GROUP BY k";

static PLAN: LazyLock<std::sync::Arc<ViewPlan>> = LazyLock::new(|| std::sync::Arc::new(planned(VIEW)));

type Event = (String, i64, Micros);

/// The states of these events, which come in parts that are merged in the order of their indices.
fn merged(events_of: &[Event], part_of: &[usize], order: &[usize]) -> StateRows {
    let all = events(events_of);
    let codec = KeyCodec::for_plan(&PLAN).unwrap();
    let mut partial = Partial::new(PLAN.clone(), &session()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut states = Vec::new();
    for part in order {
        let of_part: Vec<RecordBatch> =
            (0..events_of.len()).filter(|row| part_of.get(*row).unwrap_or(&0) == part).map(|row| all.slice(row, 1)).collect();
        states.extend(runtime.block_on(partial.states("s", &of_part)).unwrap());
    }
    sort_and_merge(&PLAN, &codec, &states).unwrap()
}

fn differing_states(a: &StateRows, b: &StateRows) -> Vec<String> {
    assert_eq!(a.keys(), b.keys());
    let found = differing(&PLAN, a.batch(), b.batch(), |_| true).unwrap();
    // Rows are compared alike whether they are slices or not.
    let row_by_row = (0..a.len()).flat_map(|row| {
        let found = differing(&PLAN, &a.batch().slice(row, 1), &b.batch().slice(row, 1), |_| true).unwrap();
        found.into_iter().map(move |differing| Differing { row, ..differing })
    });
    assert_eq!(row_by_row.collect::<Vec<_>>(), found);
    found.into_iter().map(|differing| PLAN.state(differing.state).sql.clone()).collect()
}

fn some_events() -> impl Strategy<Value = Vec<Event>> {
    vec((prop::sample::select(vec!["", "a", "b"]), -40i64..40, 0i64..1_000_000), 1..30)
        .prop_map(|events| events.into_iter().map(|(k, x, at)| (k.to_owned(), x, at)).collect())
}

proptest! {
    /// However the events are split, and in which order their states are merged.
    #[test]
    fn states_of_the_same_events_are_the_same(events in some_events(), part_of in vec(0usize..3, 30), order in Just(vec![0, 1, 2]).prop_shuffle()) {
        let (once, again) = (merged(&events, &[], &[0]), merged(&events, &part_of, &order));
        prop_assert_eq!(differing_states(&once, &again), Vec::<String>::new());
    }

    #[test]
    fn states_that_lack_an_event_differ(events in some_events(), lost in any::<prop::sample::Index>(), part_of in vec(0usize..3, 30)) {
        let lost = lost.index(events.len());
        let of_key: Vec<Event> = events.iter().filter(|event| event.0 == events[lost].0).cloned().collect();
        prop_assume!(of_key.len() > 1);
        let all = merged(&of_key, &part_of, &[2, 0, 1]);
        let place = of_key.iter().position(|event| *event == events[lost]).unwrap();
        let less: Vec<Event> = of_key.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, event)| event.clone()).collect();
        let found = differing_states(&all, &merged(&less, &[], &[0]));
        prop_assert!(found.iter().any(|sql| sql.starts_with("count(x")), "{found:?}");
        prop_assert!(found.iter().any(|sql| sql.starts_with("median(")) && found.iter().any(|sql| sql.starts_with("array_agg(")), "{found:?}");
    }

    /// The number of events is the same: only what depends on the value can show it.
    #[test]
    fn a_value_that_was_changed_is_found_in_every_state_that_depends_on_it(x in -1_000i64..1_000, change in 1i64..1_000) {
        let of = |x: i64| vec![("a".to_owned(), 5_000, 1), ("a".to_owned(), x, 2)];
        let found = differing_states(&merged(&of(x), &[0, 1], &[1, 0]), &merged(&of(x + change), &[], &[0]));
        for state in ["sum(", "avg(", "min(", "count(DISTINCT", "median(", "stddev(", "array_agg(", "last_value(", "last_n(", "top_k(", "covar_samp("] {
            prop_assert!(found.iter().any(|sql| sql.to_lowercase().starts_with(&state.to_lowercase())), "{state} {found:?}");
        }
        prop_assert!(!found.iter().any(|sql| sql.starts_with("count(x") || sql.starts_with("max(")), "{found:?}");
    }
}

#[test]
fn what_is_not_compared_does_not_differ() {
    let of = |x: i64| merged(&[("a".to_owned(), x, 1)], &[], &[0]);
    assert_eq!(differing(&PLAN, of(1).batch(), of(2).batch(), |_| false).unwrap(), vec![]);
}
