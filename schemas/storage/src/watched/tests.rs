use std::future::poll_fn;
use std::net::TcpListener;
use std::task::Poll;

use object_store::ObjectStoreExt;
use object_store::aws::AmazonS3Builder;
use object_store::memory::InMemory;
use tokio::sync::oneshot;

use super::*;

fn watched() -> WatchedStore {
    WatchedStore { patience: Duration::from_millis(1), ..WatchedStore::new(Arc::new(InMemory::new())) }
}

fn is_reported(watched: &WatchedStore) -> bool {
    watched.silence.0.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_request_without_an_answer_is_reported_while_it_waits() {
    let watched = watched();
    let (answer, waits) = oneshot::channel::<Result<()>>();
    let mut request = std::pin::pin!(watched.watch("GET", 0, async { waits.await.unwrap() }));
    let reported = async {
        while !is_reported(&watched) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        _ = request.as_mut() => panic!("nothing was answered"),
        reported = tokio::time::timeout(Duration::from_secs(60), reported) => reported.expect("timed out: it is not reported"),
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

/// The two seconds begin after the request did. Whatever else keeps the machine, its timer ends before them, and it is
/// polled first.
#[tokio::test]
async fn a_bucket_that_takes_connections_and_is_silent_is_warned_of_within_two_seconds() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let bucket = AmazonS3Builder::new()
        .with_bucket_name("bucket")
        .with_region("us-east-1")
        .with_endpoint(format!("http://{}", silent.local_addr().unwrap()))
        .with_allow_http(true)
        .with_access_key_id("nobody")
        .with_secret_access_key("nothing");
    let watched = WatchedStore::new(Arc::new(bucket.build().unwrap()));
    let name = Path::from("an/object");
    let mut request = std::pin::pin!(watched.head(&name));
    assert!(futures::poll!(request.as_mut()).is_pending());
    let two_seconds = tokio::time::sleep(Duration::from_secs(2));
    let warned = poll_fn(|_| if is_reported(&watched) { Poll::Ready(()) } else { Poll::Pending });
    tokio::select! {
        biased;
        answer = request.as_mut() => panic!("nothing was answered: {answer:?}"),
        () = warned => {}
        () = two_seconds => panic!("two seconds without a warning"),
    }
}
