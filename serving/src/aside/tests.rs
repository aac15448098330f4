use std::time::Duration;

use tokio::sync::oneshot;

use super::*;

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn work_that_nobody_waits_for_any_more_is_told_so() {
    let aside = Aside::new();
    let (begun, has_begun) = oneshot::channel();
    let (ended, has_ended) = oneshot::channel();
    let work = aside.run(move |waiting| {
        begun.send(()).unwrap();
        while waiting.check().is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        ended.send(()).unwrap();
        Ok(())
    });
    tokio::select! {
        _ = work => panic!("it ends only when nobody waits"),
        begun = has_begun => begun.unwrap(),
    }
    tokio::time::timeout(LONG, has_ended).await.expect("it goes on").unwrap();
}

#[tokio::test]
async fn more_work_than_there_are_processors_waits_without_a_thread() {
    let aside = Aside(Arc::new(Semaphore::new(1)));
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    let first = tokio::spawn({
        let aside = aside.clone();
        async move { aside.run(move |_| Ok(may_go_on.recv().is_ok())).await }
    });
    while aside.0.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let mut second = Box::pin(aside.run(|_| Ok(())));
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut second).await.is_err(), "it begins before the first has ended");
    go_on.send(()).unwrap();
    assert!(first.await.unwrap().unwrap());
    second.await.unwrap();
}
