use std::sync::{Arc, Mutex};

use types::ErrorKind;

use super::*;

const DRAIN: Duration = Duration::from_secs(5);

type Ends = Arc<Mutex<Vec<&'static str>>>;

fn start(parts: &mut Parts, stage: Stage, name: &'static str, ends: &Ends) {
    let ends = ends.clone();
    parts.start(stage, name, |stop| async move {
        stop.cancelled().await;
        tokio::task::yield_now().await;
        ends.lock().unwrap().push(name);
        Ok(())
    });
}

fn all(ends: &Ends) -> Parts {
    let mut parts = Parts::new(DRAIN);
    let stages =
        [(Stage::Health, "health"), (Stage::Node, "node"), (Stage::Speed, "speed"), (Stage::Jobs, "scheduler"), (Stage::Http, "http")];
    for (stage, name) in stages {
        start(&mut parts, stage, name, ends);
    }
    parts
}

#[tokio::test]
async fn parts_stop_in_the_order_of_their_stages() {
    let ends = Ends::default();
    let stop = CancellationToken::new();
    stop.cancel();
    all(&ends).run(&stop).await.unwrap();
    assert_eq!(*ends.lock().unwrap(), ["http", "speed", "scheduler", "node", "health"]);
}

#[test]
fn clients_have_as_long_as_the_setting_says_and_what_commits_has_no_limit() {
    let drain = Duration::from_secs(40);
    let ask_for_health = Duration::from_secs(1);
    assert_eq!(ORDER.map(|stage| stage.patience(drain)), [drain, Duration::MAX, Duration::MAX, Duration::MAX, ask_for_health]);
}

#[tokio::test]
async fn a_client_that_keeps_its_request_open_is_waited_for_no_longer_than_that() {
    let ends = Ends::default();
    let mut parts = Parts::new(Duration::from_millis(1));
    parts.start(Stage::Http, "http", |_| std::future::pending());
    start(&mut parts, Stage::Speed, "speed", &ends);
    let stop = CancellationToken::new();
    stop.cancel();
    parts.run(&stop).await.unwrap();
    assert_eq!(*ends.lock().unwrap(), ["speed"]);
}

#[tokio::test]
async fn a_failing_part_stops_all_and_its_error_is_the_outcome() {
    let ends = Ends::default();
    let mut parts = all(&ends);
    parts.start(Stage::Speed, "second worker", |_| async { Err(Error::corrupt("the log is shorter than the catalog")) });
    let error = parts.run(&CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("second worker"), "{error}");
    assert_eq!(ends.lock().unwrap().len(), 5, "the others ended in order");
}

#[tokio::test]
async fn a_panicking_part_stops_all() {
    let ends = Ends::default();
    let mut parts = all(&ends);
    parts.start(Stage::Jobs, "collector", |_| async { panic!("on purpose") });
    let error = parts.run(&CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(ends.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn a_part_that_ends_by_itself_is_an_error() {
    let mut parts = Parts::new(DRAIN);
    parts.start(Stage::Node, "node", |_| async { Ok(()) });
    assert!(parts.run(&CancellationToken::new()).await.is_err());
}

#[tokio::test]
async fn an_error_while_stopping_is_the_outcome() {
    let mut parts = Parts::new(DRAIN);
    parts.start(Stage::Speed, "speed", |stop| async move {
        stop.cancelled().await;
        Err(Error::unavailable("the last checkpoint was not written"))
    });
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(parts.run(&stop).await.unwrap_err().kind(), ErrorKind::Unavailable);
}
