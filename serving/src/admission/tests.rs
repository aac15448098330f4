use std::time::Duration;

use types::ErrorKind;

use super::*;

fn limits() -> ServingLimits {
    ServingLimits {
        concurrent_queries: 3,
        concurrent_queries_per_principal: 2,
        queued_queries: 2,
        queued_queries_per_principal: 1,
        queue_wait: Duration::from_secs(30),
        ..ServingLimits::default()
    }
}

fn named(name: &str) -> Arc<Principal> {
    Arc::new(Principal::new(name, Vec::new()))
}

/// Lets those who wait come to their place in the line.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn asks(admission: &Admission, name: &str) -> tokio::task::JoinHandle<Result<Place>> {
    let (admission, principal) = (admission.clone(), named(name));
    tokio::spawn(async move { admission.place(&principal).await })
}

#[tokio::test]
async fn a_principal_has_its_share_and_leaves_the_rest_to_others() {
    let admission = Admission::new(&limits());
    let first = admission.place(&named("a")).await.unwrap();
    let _second = admission.place(&named("a")).await.unwrap();
    let third = asks(&admission, "a");
    settle().await;
    assert!(!third.is_finished(), "two of one principal run at a time");
    let refused = admission.place(&named("a")).await.unwrap_err();
    assert_eq!((refused.kind(), refused.fact("limit")), (ErrorKind::Busy, Some("serving.limits.queued_queries_per_principal")));

    let _of_another = admission.place(&named("b")).await.unwrap();
    drop(first);
    third.await.unwrap().unwrap();
}

#[tokio::test]
async fn of_all_no_more_run_or_wait_than_may_and_they_come_in_their_order() {
    let admission = Admission::new(&limits());
    let mut running = Vec::new();
    for name in ["a", "b", "c"] {
        running.push(admission.place(&named(name)).await.unwrap());
    }
    let next = asks(&admission, "d");
    settle().await;
    let last = asks(&admission, "e");
    settle().await;
    let refused = admission.place(&named("f")).await.unwrap_err();
    assert_eq!((refused.kind(), refused.fact("limit")), (ErrorKind::Busy, Some("serving.limits.queued_queries")));
    running.pop();
    let place = next.await.unwrap().unwrap();
    settle().await;
    assert!(!last.is_finished(), "one place became free");
    drop((place, running));
    drop(last.await.unwrap().unwrap());
    assert_eq!(admission.principals(), 0, "nothing is kept of principals that ask nothing");
}

#[tokio::test]
async fn who_waits_too_long_is_refused_and_leaves_the_line() {
    let admission = Admission::new(&ServingLimits { concurrent_queries: 1, queue_wait: Duration::from_millis(30), ..limits() });
    let running = admission.place(&named("a")).await.unwrap();
    let refused = admission.place(&named("b")).await.unwrap_err();
    assert_eq!((refused.kind(), refused.fact("limit")), (ErrorKind::Busy, Some("serving.limits.queue_wait")));
    assert!(refused.message().contains("30ms"), "{refused}");
    drop(running);
    drop(admission.place(&named("b")).await.unwrap());
    assert_eq!(admission.principals(), 0);
}
