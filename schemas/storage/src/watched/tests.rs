use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use tokio::sync::oneshot;

use super::*;

fn watched() -> Watched {
    Watched { patience: Duration::from_millis(1), ..Watched::new(Arc::new(InMemory::new())) }
}

fn is_reported(watched: &Watched) -> bool {
    watched.silence.0.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_request_without_an_answer_is_reported_while_it_waits() {
    let watched = watched();
    let (answer, waits) = oneshot::channel::<Result<()>>();
    let mut request = std::pin::pin!(watched.watch("GET", 0, async { waits.await.unwrap() }));
    while !is_reported(&watched) {
        tokio::select! {
            biased;
            _ = request.as_mut() => panic!("nothing was answered"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    answer.send(Ok(())).unwrap();
    request.await.unwrap();
    assert!(!is_reported(&watched), "it answers again");
}

#[tokio::test]
async fn a_store_that_gives_up_is_reported_and_one_that_has_no_such_object_has_answered() {
    let watched = watched();
    let broken = async { Err::<(), _>(Error::Generic { store: "S3", source: "connection refused".into() }) };
    watched.watch("PUT", 0, broken).await.unwrap_err();
    assert!(is_reported(&watched));
    let error = watched.get(&Path::from("nothing")).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }) && !is_reported(&watched), "{error}");
}
