use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use types::{Error, ErrorKind};

use super::*;

fn planners() -> Planners {
    Planners::new(&ServingLimits { concurrent_queries: 2, concurrent_queries_per_principal: 1, ..ServingLimits::default() })
}

fn named(name: &str) -> Principal {
    Principal::new(name, Vec::new())
}

/// A planning that nothing ends before what is returned is dropped, and that then notes its end.
fn stuck(ended: Sender<()>) -> (Sender<()>, impl Future<Output = Result<()>> + Send + 'static) {
    let (release, released) = channel::<()>();
    let planning = async move {
        let _ = released.recv();
        let _ = ended.send(());
        Ok(())
    };
    (release, planning)
}

#[tokio::test]
async fn who_leaves_a_long_planning_is_free_at_once_and_its_place_is_not() {
    let (planners, (ended, ends)) = (planners(), channel());
    let (release, long) = stuck(ended);
    let left = tokio::time::timeout(Duration::from_millis(50), planners.plan(&named("a"), long)).await;
    assert!(left.is_err(), "the caller has left");

    let principal = named("a");
    let mut next = Box::pin(planners.plan(&principal, async { Ok(1) }));
    assert!(futures::poll!(&mut next).is_pending(), "this principal's one place is taken");
    assert_eq!(planners.plan(&named("b"), async { Ok(2) }).await.unwrap(), 2, "another's is not");

    drop(release);
    assert_eq!(next.await.unwrap(), 1);
    ends.recv().unwrap();
}

#[tokio::test]
async fn a_planning_that_waits_has_no_place_meanwhile_and_goes_on() {
    let (planners, principal) = (planners(), named("a"));
    let (send, wait) = tokio::sync::oneshot::channel();
    let waiting = planners.plan(&principal, async move { wait.await.map_err(|_| Error::internal("nothing came")) });
    let other = async {
        // Both have the one place in turn.
        assert_eq!(planners.plan(&principal, async { Ok(1) }).await.unwrap(), 1);
        send.send(2).unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, other);
    assert_eq!(waited.unwrap(), 2);
}

#[tokio::test]
async fn a_planning_that_waits_ends_when_nobody_waits_for_it() {
    let planners = planners();
    let left = tokio::time::timeout(Duration::from_millis(50), planners.plan(&named("a"), std::future::pending::<Result<()>>())).await;
    assert!(left.is_err());
    assert_eq!(planners.plan(&named("a"), async { Ok(1) }).await.unwrap(), 1, "its place is free");
}

#[tokio::test]
async fn a_mistake_of_a_plan_is_its_callers() {
    let refused = planners().plan(&named("a"), async { Err::<(), _>(Error::input("no query")) }).await.unwrap_err();
    assert_eq!((refused.kind(), refused.to_string().as_str()), (ErrorKind::Input, "no query"));
}
