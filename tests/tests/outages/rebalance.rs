//! A consumer group whose workers join, leave and die while records arrive and checkpoints are in progress.

use std::time::{Duration, Instant};

use basestream_tests::Worker;
use basestream_tests::patience::PATIENCE;
use basestream_tests::services::{engines, needed};
use types::timed_out;

use crate::feed::Feed;
use crate::front::Front;
use crate::harness::{Engines, Routes};
use crate::{SERVICES, show_logs};

/// The changes to the group, in order.
const STEPS: [Step; 10] = [
    Step::Join("two"),
    Step::Leave("one"),
    Step::Join("three"),
    Step::Die("two"),
    Step::Join("four"),
    Step::Die("three"),
    Step::Join("five"),
    Step::Leave("four"),
    Step::Join("six"),
    Step::Leave("five"),
];
/// What leads from their end to their beginning.
const ONCE_MORE: [Step; 2] = [Step::Join("one"), Step::Leave("six")];
/// On a slow machine a worker may leave before it has committed anything: the changes are repeated until so much was
/// seen.
const INSIDE_A_CHECKPOINT: u32 = 8;
const COMMITTED: usize = 5;
const HANDOVERS: usize = 12;

#[derive(Debug, Clone, Copy)]
enum Step {
    Join(&'static str),
    /// The worker is stopped: it checkpoints and releases its partitions.
    Leave(&'static str),
    /// The worker's task ends where it is, as a panic would end it: nothing is committed or released.
    Die(&'static str),
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-outages"]
async fn workers_that_join_leave_and_die_in_the_middle_of_checkpoints_lose_nothing_and_double_nothing() {
    show_logs();
    let _shared = SERVICES.read().await;
    let urls = engines("rebalance").await;
    let [s3] = needed(["AWS_ENDPOINT"]);
    // Uploads are slow, so that a checkpoint is in progress most of the time.
    let (front, address) = Front::before(s3.trim_start_matches("http://")).await;
    let engines = Engines::open(urls, 6, Routes { s3: Some(address), ..Routes::default() }).await;
    front.delay_puts(Duration::from_millis(120));
    let feed = Feed::start(engines.direct_log().await, &engines.topic, 100, Duration::from_millis(20));
    let interval = Duration::from_millis(200);
    let mut workers: Vec<(&str, Worker)> = vec![("one", engines.worker("one", interval, None))];
    tokio::time::sleep(Duration::from_secs(2)).await;

    let (mut inside_a_checkpoint, mut steps, began) = (0, STEPS.to_vec(), Instant::now());
    loop {
        for step in &steps {
            inside_a_checkpoint += u32::from(uploads(&front).await);
            match *step {
                Step::Join(name) => workers.push((name, engines.worker(name, interval, None))),
                Step::Leave(name) => take(&mut workers, name).finish().await.unwrap(),
                Step::Die(name) => {
                    let worker = take(&mut workers, name);
                    worker.task.abort();
                    let _ = worker.task.await;
                }
            }
            tokio::time::sleep(Duration::from_millis(1_300)).await;
        }
        // The last worker commits what it took over.
        let (mut committed, mut handovers) = (0, 0);
        for _ in 0..30 {
            (committed, handovers) = (engines.commits_by_worker().await.len(), engines.handovers().await);
            if committed >= COMMITTED && handovers >= HANDOVERS {
                break;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if inside_a_checkpoint >= INSIDE_A_CHECKPOINT && committed >= COMMITTED && handovers >= HANDOVERS {
            break;
        }
        let seen = format!("{inside_a_checkpoint} changes inside a checkpoint, {committed} workers that committed, {handovers} handovers");
        if began.elapsed() >= PATIENCE {
            timed_out::fail(seen);
        }
        println!("once more, after {seen}");
        steps = [&ONCE_MORE[..], &STEPS].concat();
    }
    let fed = feed.finish().await;
    front.delay_puts(Duration::ZERO);
    engines.holds_once(0..fed.events).await;
    for (_, worker) in workers {
        worker.finish().await.unwrap();
    }

    let commits = engines.commits_by_worker().await;
    println!("{} events, {inside_a_checkpoint} changes inside a checkpoint, {commits:?}", fed.events);
}

/// Waits for the next checkpoint's upload; false if there is none for a while.
async fn uploads(front: &Front) -> bool {
    let began = Instant::now();
    while front.puts() == 0 && began.elapsed() < Duration::from_secs(8) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    front.puts() > 0
}

fn take(workers: &mut Vec<(&str, Worker)>, name: &str) -> Worker {
    let at = workers.iter().position(|(known, _)| *known == name).unwrap();
    workers.remove(at).1
}
