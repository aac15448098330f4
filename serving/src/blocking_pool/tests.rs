use std::time::Duration;

use tokio::sync::oneshot;

use super::*;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn work_whose_future_is_dropped_is_cancelled() {
    let pool = BlockingPool::new(&types::threads::QUERIES);
    let (begun, has_begun) = oneshot::channel();
    let (ended, has_ended) = oneshot::channel();
    let work = pool.run(move |cancelled| {
        begun.send(()).unwrap();
        while cancelled.check().is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        ended.send(()).unwrap();
        Ok(())
    });
    tokio::select! {
        _ = work => panic!("it ends only when nobody waits"),
        begun = has_begun => begun.unwrap(),
    }
    tokio::time::timeout(LONG, has_ended).await.expect("timed out: it goes on").unwrap();
}

#[tokio::test]
async fn more_work_than_there_are_processors_waits_without_a_thread() {
    let pool = BlockingPool::with_size(&types::threads::QUERIES, 1);
    let (cancel_check, may_go_on) = std::sync::mpsc::channel();
    let first = tokio::spawn({
        let pool = pool.clone();
        async move { pool.run(move |_| Ok(may_go_on.recv().is_ok())).await }
    });
    let under_way = async {
        while pool.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, under_way).await.expect("timed out: the work does not begin");
    let mut second = Box::pin(pool.run(|_| Ok(())));
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut second).await.is_err(), "it begins before the first has ended");
    cancel_check.send(()).unwrap();
    assert!(first.await.unwrap().unwrap());
    second.await.unwrap();
}
