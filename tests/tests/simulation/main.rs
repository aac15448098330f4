//! Deterministic simulation: workers, runs, the scheduler's closing of dead runs, the collector, serving nodes, a sink,
//! an alert, the trimming of the log, a replay, a log, a store and a group, with faults at every step. It drives the
//! product's own decisions (partitions, checkpoint commits, leases, publications, collection, trimming, layers, fresh
//! chains, the claims and switches of sinks, the outbox of alerts) and the real catalog's SQL on SQLite in memory. A
//! schedule is a function of its seed.
//!
//! `BASESTREAM_SCHEDULES=100000` runs more schedules, `BASESTREAM_SEED=17` repeats one and prints its trace.

#![allow(clippy::unwrap_used)]

mod actor;
mod alerter;
mod beside;
mod collector;
mod compactor;
mod features;
mod group;
mod lease;
mod links;
mod log;
mod outputs;
mod reader;
mod replayer;
mod runner;
mod sabotage;
mod schedule;
mod sinks;
mod trimmer;
mod views;
mod worker;
mod world;

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use sabotage::Sabotage;
use schedule::{Outcome, play};
use world::{FAULTS, Fault, Fired};

const SCHEDULES: u64 = 400;
/// In this many schedules an actor is killed at every existing step.
const EVERY_STEP_FROM: u64 = 1_500;
/// A missing check has to show within this many schedules.
const SCHEDULES_PER_SABOTAGE: u64 = 3_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is {text}: expected a number")))
}

fn played(seed: u64, sabotage: Option<Sabotage>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, play(seed, sabotage))
}

/// Runs seeds on every core until one is violated; returns that one, and how often each fault fired.
fn play_all(seeds: std::ops::Range<u64>, sabotage: Option<Sabotage>) -> (Option<(u64, Outcome)>, Fired) {
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let play_some = || {
        let (mut found, mut fired): (Option<(u64, Outcome)>, Fired) = (None, Fired::default());
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let outcome = played(seed, sabotage);
            fired.add(&outcome.fired);
            if outcome.violation.is_some() {
                stop.store(true, Ordering::Relaxed);
                found = Some((seed, outcome));
            }
        }
        (found, fired)
    };
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let results: Vec<_> = std::thread::scope(|scope| {
        let players: Vec<_> = (0..threads).map(|_| scope.spawn(play_some)).collect();
        players.into_iter().map(|player| player.join().unwrap()).collect()
    });
    let mut all = Fired::default();
    let mut first: Option<(u64, Outcome)> = None;
    for (found, fired) in results {
        all.add(&fired);
        if let Some(found) = found
            && first.as_ref().is_none_or(|(seed, _)| found.0 < *seed)
        {
            first = Some(found);
        }
    }
    (first, all)
}

#[test]
fn schedules_lose_nothing_and_count_nothing_twice() {
    if let Some(seed) = number("BASESTREAM_SEED") {
        let outcome = played(seed, None);
        println!("{}", outcome.trace.join("\n"));
        assert_eq!(outcome.violation, None, "seed {seed}");
        return;
    }
    let schedules = number("BASESTREAM_SCHEDULES").unwrap_or(SCHEDULES);
    let first = number("BASESTREAM_FIRST_SEED").unwrap_or(0);
    let began = Instant::now();
    let (found, fired) = play_all(first..first + schedules, None);
    if let Some((seed, outcome)) = found {
        panic!("seed {seed}: {}\n{}", outcome.violation.unwrap_or_default(), outcome.trace.join("\n"));
    }
    let reported = format!(
        "simulation: {schedules} schedules in {:.0} s: {:?}, and crashes {:?}",
        began.elapsed().as_secs_f64(),
        fired.faults,
        fired.crashes
    );
    let _ = writeln!(std::io::stderr(), "{reported}");
    let missing: Vec<&Fault> = FAULTS.iter().filter(|fault| !fired.faults.contains_key(fault)).collect();
    assert!(missing.is_empty(), "these faults never fired: {missing:?}");
    if schedules < EVERY_STEP_FROM {
        return;
    }
    let spared: Vec<_> = fired.crashes.iter().filter(|(_, times)| **times == 0).map(|(at, _)| at).collect();
    assert!(spared.is_empty(), "nobody was ever killed at these steps: {spared:?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..8 {
        let (one, two) = (played(seed, None), played(seed, None));
        assert_eq!(one.trace, two.trace, "seed {seed}");
    }
}

fn is_noticed(sabotage: Sabotage) {
    let (found, _) = play_all(0..SCHEDULES_PER_SABOTAGE, Some(sabotage));
    let (seed, outcome) = found.unwrap_or_else(|| panic!("{sabotage:?} was not noticed in {SCHEDULES_PER_SABOTAGE} schedules"));
    println!("{sabotage:?}: seed {seed}: {}", outcome.violation.unwrap_or_default());
    assert_eq!(played(seed, None).violation, None, "the seed {seed} fails with the check in its place too");
}

#[test]
fn without_the_compare_and_advance_a_schedule_fails() {
    is_noticed(Sabotage::NoCompareAndAdvance);
}

#[test]
fn without_the_lease_at_publishing_a_schedule_fails() {
    is_noticed(Sabotage::NoLeaseAtPublishing);
}

#[test]
fn a_compaction_across_a_cut_makes_a_schedule_fail() {
    is_noticed(Sabotage::CompactionAcrossACut);
}

#[test]
fn without_files_kept_after_a_compaction_a_schedule_fails() {
    is_noticed(Sabotage::CompactedFilesGoAtOnce);
}

#[test]
fn a_compaction_of_files_that_were_replaced_makes_a_schedule_fail() {
    is_noticed(Sabotage::CompactionOfReplacedFiles);
}

#[test]
fn without_the_lease_of_the_compaction_a_schedule_fails() {
    is_noticed(Sabotage::CompactionWithoutLease);
}

#[test]
fn a_trimming_of_what_a_replay_pins_makes_a_schedule_fail() {
    is_noticed(Sabotage::PinsAreTrimmed);
}

/// Lease and cut are two fences: if leases are not checked, the cut still protects, until it is not checked either.
#[test]
fn without_the_check_of_the_cut_a_schedule_fails() {
    let (found, _) = play_all(0..SCHEDULES / 2, Some(Sabotage::OnlyTheCutCheck));
    assert_eq!(found.map(|(seed, outcome)| (seed, outcome.violation)), None);
    is_noticed(Sabotage::NoCutCheck);
}

#[test]
fn a_run_that_does_not_take_over_carried_files_makes_a_schedule_fail() {
    is_noticed(Sabotage::CarriedFilesKeepTheirRun);
}

#[test]
fn without_the_check_of_marked_names_a_schedule_fails() {
    is_noticed(Sabotage::NoCheckOfMarkedNames);
}

#[test]
fn a_merge_across_a_cut_makes_a_schedule_fail() {
    is_noticed(Sabotage::MergeAcrossACut);
}

#[test]
fn part_of_an_epoch_makes_a_schedule_fail() {
    is_noticed(Sabotage::PartOfAnEpoch);
}

#[test]
fn two_catalog_states_in_one_query_make_a_schedule_fail() {
    is_noticed(Sabotage::TwoStatesPerQuery);
}

#[test]
fn the_sides_of_a_join_of_two_catalog_states_make_a_schedule_fail() {
    is_noticed(Sabotage::SidesOfTwoStates);
}

#[test]
fn without_the_newest_read_view_a_schedule_fails() {
    is_noticed(Sabotage::NewestIsNotKept);
}

#[test]
fn a_rollback_in_two_commits_makes_a_schedule_fail() {
    is_noticed(Sabotage::RollbackInTwoCommits);
}

#[test]
fn an_alert_that_does_not_ask_the_log_what_it_has_makes_a_schedule_fail() {
    is_noticed(Sabotage::LogIsNotAsked);
}

#[test]
fn an_alert_that_notes_what_it_has_not_put_out_makes_a_schedule_fail() {
    is_noticed(Sabotage::NotedBeforePutOut);
}

#[test]
fn an_alert_that_goes_back_makes_a_schedule_fail() {
    is_noticed(Sabotage::AlertGoesBack);
}

#[test]
fn a_worker_that_does_not_ask_what_of_a_sink_is_out_makes_a_schedule_fail() {
    is_noticed(Sabotage::OutputIsNotAsked);
}

#[test]
fn a_worker_that_appends_to_an_output_that_it_lost_makes_a_schedule_fail() {
    is_noticed(Sabotage::OutputHasNoOwner);
}

#[test]
fn a_checkpoint_before_the_records_of_its_events_makes_a_schedule_fail() {
    is_noticed(Sabotage::RecordsAfterTheCheckpoint);
}

#[test]
fn a_switch_of_a_sink_before_what_is_out_makes_a_schedule_fail() {
    is_noticed(Sabotage::SwitchBeforeWhatIsOut);
}

#[test]
fn the_page_of_faults_lists_each_fault_and_each_check_of_the_simulation() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/faults.md")).unwrap();
    let section = |title: &str| page.split(title).nth(1).unwrap().split("\n##").next().unwrap();
    let rows = section("\n### What the simulation does\n").lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let faults: Vec<String> = FAULTS.iter().map(|fault| format!("{fault:?}")).collect();
    assert_eq!(rows.collect::<Vec<_>>(), faults);

    let checks = section("\n### Each check is needed\n");
    let functions = include_str!("main.rs").split("\nfn ");
    let of_sabotages = functions.filter(|function| function.contains(concat!("is_noticed", "(Sabotage::")));
    let tests: Vec<&str> = of_sabotages.filter_map(|function| function.split('(').next()).collect();
    assert!(tests.len() > 20, "the tests were found: {tests:?}");
    let missing: Vec<&&str> = tests.iter().filter(|test| !checks.contains(&format!("`{test}`"))).collect();
    assert!(missing.is_empty(), "the page does not name {missing:?}");
}
