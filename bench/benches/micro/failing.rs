//! Benchmarks of what failing events cost: the states of a micro-batch where an expression of the view fails on none,
//! on some and on half of its events.

use std::sync::Arc;

use definitions::parse::parse_view;
use definitions::{Definitions, StreamDefinition};
use divan::Bencher;
use divan::counter::ItemsCount;
use engine::plan::{Planned, Planner, ViewPlan};
use engine::states::Partial;

use crate::site::{SITE, scaled};

/// The number of events of a micro-batch.
fn events() -> u64 {
    scaled(200, 20_000)
}

/// One event in this many fails; 0: none does.
#[divan::bench(args = [0, 1_000, 10, 2])]
fn partial_states_with_one_failing_in(bencher: Bencher<'_, '_>, one_in: u64) {
    states_of(bencher, &divided(one_in));
}

/// The same sums of an expression that cannot fail.
#[divan::bench]
fn partial_states_that_cannot_fail(bencher: Bencher<'_, '_>) {
    states_of(bencher, "CASE WHEN amount > 500 THEN 100 ELSE 1 END");
}

/// An expression that divides by zero for one amount in `one_in`; for none if that is 0.
fn divided(one_in: u64) -> String {
    match one_in {
        0 => "100 / (CAST(amount * 100 AS BIGINT) % 1000 + 1)".to_owned(),
        many => format!("100 / (CAST(amount * 100 AS BIGINT) % {many})"),
    }
}

fn states_of(bencher: Bencher<'_, '_>, argument: &str) {
    let site = &*SITE;
    let batch = site.events(0, events());
    let plan = planned(argument);
    let stream = plan.streams[0].name.clone();
    let mut partial = Partial::new(plan, &site.session()).expect("a plan");
    bencher.counter(ItemsCount::new(events())).bench_local(|| {
        let states = site.runtime.block_on(partial.states(&stream, std::slice::from_ref(&batch))).expect("states");
        (states, partial.take_failures())
    });
}

fn planned(argument: &str) -> Arc<ViewPlan> {
    let site = &*SITE;
    let stream = &site.view.plan.streams[0];
    let sql = format!("CREATE VIEW shares AS SELECT account_id, sum({argument}) AS a FROM {} GROUP BY account_id", stream.name);
    let view = parse_view(&sql).expect("a view");
    let definitions = Definitions { streams: vec![StreamDefinition::clone(stream)], ..Definitions::default() };
    let functions = site.installed.installation.functions.clone();
    match site.runtime.block_on(Planner::new(&definitions, functions).plan(&view)).expect("a plan") {
        Planned::Stateful(plan) => plan,
        Planned::Staging => panic!("the view aggregates"),
    }
}
