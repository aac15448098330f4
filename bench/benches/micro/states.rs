//! Benchmarks of building states from accepted events, merging them and rolling them up.

use divan::Bencher;
use divan::counter::ItemsCount;
use engine::states::{Partial, StateRows, merge_sets, rollup, sort_and_merge};

use crate::site::{SITE, scaled};

/// The number of events of a layer.
fn layer() -> u64 {
    scaled(200, 20_000)
}

const LAYERS: u64 = 8;

/// The states of one micro-batch.
#[divan::bench]
fn partial_states(bencher: Bencher<'_, '_>) {
    let site = &*SITE;
    let events = site.events(0, layer());
    let stream = site.view.plan.streams[0].name.clone();
    let mut partial = Partial::new(site.view.plan.clone(), &site.session()).expect("a plan");
    bencher.counter(ItemsCount::new(layer())).bench_local(|| {
        let states = site.runtime.block_on(partial.states(&stream, std::slice::from_ref(&events))).expect("states");
        assert!(states.iter().any(|batch| batch.num_rows() > 0));
        states
    });
}

/// One layer per part of the events, as the speed layer builds them.
fn layers() -> Vec<StateRows> {
    let site = &*SITE;
    let stream = site.view.plan.streams[0].name.clone();
    let mut partial = Partial::new(site.view.plan.clone(), &site.session()).expect("a plan");
    let layer_of = |nth: u64| {
        let events = site.events(site.purchases.events / LAYERS * nth, layer());
        let states = site.runtime.block_on(partial.states(&stream, &[events])).expect("states");
        sort_and_merge(&site.view.plan, &site.view.codec, &states).expect("rows")
    };
    (0..LAYERS).map(layer_of).collect()
}

fn rows_of(layers: &[StateRows]) -> usize {
    layers.iter().map(StateRows::len).sum()
}

/// Merges sorted layers into one.
#[divan::bench]
fn merge_of_8_layers(bencher: Bencher<'_, '_>) {
    let (view, layers) = (&SITE.view, layers());
    let sets: Vec<&StateRows> = layers.iter().collect();
    bencher.counter(ItemsCount::new(rows_of(&layers))).bench_local(|| {
        let merged = merge_sets(&view.plan, &view.codec, &sets).expect("rows");
        assert!(merged.len() <= rows_of(&layers) && !merged.is_empty());
        merged
    });
}

/// Rolls the finest tiles up into the coarser ones.
#[divan::bench]
fn rollup_of_tiles(bencher: Bencher<'_, '_>) {
    let (view, layers) = (&SITE.view, layers());
    let finest = merge_sets(&view.plan, &view.codec, &layers.iter().collect::<Vec<_>>()).expect("rows");
    let floors = view.plan.floors(SITE.newest());
    bencher.counter(ItemsCount::new(finest.len())).bench_local(|| {
        let rolled_up = rollup(&view.plan, &finest, &floors).expect("rows");
        assert!(!rolled_up.is_empty());
        rolled_up
    });
}
