use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// How much work has begun and not ended, and the most of it at a time.
#[derive(Default)]
struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Busy {
    fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn no_more_partitions_are_worked_on_than_a_run_has_threads() {
    for (partitions, threads, most) in [(7, 2, 2), (6, 3, 3), (2, 4, 2), (3, 1, 1), (0, 2, 0)] {
        let busy = Arc::new(Busy::default());
        let work = |partition: usize| {
            // It is opened before its task begins.
            busy.begin();
            let busy = busy.clone();
            Ok(async move {
                // Later ones end first.
                for _ in partition..10 {
                    tokio::task::yield_now().await;
                }
                busy.end();
                Ok::<_, Error>(partition)
            })
        };
        let mut done = each_partition(partitions, threads, work).await.unwrap();
        done.sort_unstable();
        assert_eq!(done, (0..partitions).collect::<Vec<_>>());
        assert_eq!(busy.most.load(Ordering::SeqCst), most, "{partitions} partitions, {threads} threads");
    }
}

#[tokio::test]
async fn the_first_partition_that_fails_ends_the_others() {
    let begun = AtomicUsize::new(0);
    let work = |partition: usize| {
        begun.fetch_add(1, Ordering::SeqCst);
        Ok(async move {
            match partition {
                1 => Err(Error::internal("it failed")),
                _ => std::future::pending::<Result<()>>().await,
            }
        })
    };
    assert!(each_partition(5, 2, work).await.unwrap_err().to_string().contains("it failed"));
    assert_eq!(begun.load(Ordering::SeqCst), 2);
}
