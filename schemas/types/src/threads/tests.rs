use std::sync::mpsc;
use std::time::Duration;

use super::*;

/// A test fails after this time instead of waiting for ever.
const LONG: Duration = Duration::from_secs(60);

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn niceness() -> i32 {
    // SAFETY: reads a number of the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn each_group_is_as_nice_as_it_says_and_the_others_keep_theirs() {
    let of_process = niceness();
    // The last one first: a thread inherits the niceness of the one that starts it.
    for group in ALL.into_iter().rev() {
        let expected = (of_process + group.niceness).min(19);
        assert_eq!(group.spawn(async { niceness() }).await.unwrap(), expected, "{}", group.name);
        assert_eq!(group.spawn_blocking(niceness).await.unwrap(), expected, "{}", group.name);
        let from_its_own = group.spawn(async { tokio::task::spawn_blocking(niceness).await.unwrap() });
        assert_eq!(from_its_own.await.unwrap(), expected, "{}", group.name);
        let from_the_nicest = RUNS.spawn(async move { group.spawn(async { niceness() }).await.unwrap() });
        assert_eq!(from_the_nicest.await.unwrap(), expected, "{}", group.name);
    }
    assert_eq!(niceness(), of_process);
}

/// Linux has slices of a thread's own from 6.12 on.
#[cfg(target_os = "linux")]
fn has_slices() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn each_group_has_the_slice_that_it_says() {
    let slice = || scheduling().unwrap().sched_runtime;
    let default = slice();
    for group in ALL {
        let expected = if has_slices() && group.slice == SHORT { SHORT.as_nanos() as u64 } else { default };
        assert_eq!(group.spawn(async move { slice() }).await.unwrap(), expected, "{}", group.name);
        let from_queries = QUERIES.spawn(async move { group.spawn_blocking(slice).await.unwrap() });
        assert_eq!(from_queries.await.unwrap(), expected, "{}", group.name);
    }
}

/// As when every thread that answers queries, and every one of a run, is busy.
#[tokio::test]
async fn a_group_works_while_all_threads_of_the_others_are_busy() {
    let mut held = Vec::new();
    for _ in 0..2 * available_parallelism().map_or(2, NonZero::get) {
        for group in [&QUERIES, &SCANS, &RUNS, &CHECKPOINTS, &SPEED, &LOG] {
            let (until, busy) = mpsc::channel::<()>();
            held.push(until);
            drop(group.spawn(async move { busy.recv().is_ok() }));
        }
    }
    let renewed = LEASES.spawn(async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        true
    });
    assert!(tokio::time::timeout(LONG, renewed).await.expect("timed out: it waits for the others").unwrap());
    drop(held);
}

#[tokio::test]
async fn what_blocking_work_spawns_stays_in_its_group() {
    let name = || std::thread::current().name().unwrap_or_default().to_owned();
    let spawned = RUNS.spawn_blocking(move || Handle::current().block_on(async move { tokio::spawn(async move { name() }).await }));
    assert_eq!(spawned.await.unwrap().unwrap(), "runs");
}
