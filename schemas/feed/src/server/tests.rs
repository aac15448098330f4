use std::pin::pin;

use tokio::io::AsyncReadExt;

use super::*;

/// None of the messages waits for the time at which it is looked.
#[tokio::test]
async fn no_message_is_sent_to_a_node_that_may_not_go_on() {
    let looks = AtomicUsize::new(0);
    let allowed = move || match looks.fetch_add(1, Ordering::Relaxed) {
        0..3 => Ok(()),
        _ => Err(Error::unauthenticated("revoked")),
    };
    let sent: Vec<_> = while_allowed(stream::repeat_with(|| Ok(FlightData::new())), allowed).collect().await;
    assert!(matches!(&sent[..], [Ok(_), Ok(_), Ok(_), Err(error)] if error.kind() == ErrorKind::Unauthenticated), "{sent:?}");
}

#[tokio::test]
async fn a_connection_without_a_place_is_closed_and_one_that_ends_leaves_its_place() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut accepted = pin!(connections(listener, None, 1));
    let _client = TcpStream::connect(address).await.unwrap();
    let first = accepted.next().await.unwrap().unwrap();
    let others = async {
        let mut without_place = TcpStream::connect(address).await.unwrap();
        let read = without_place.read(&mut [0]).await;
        drop(first);
        (read, TcpStream::connect(address).await.unwrap())
    };
    let both = async { tokio::join!(others, accepted.next()) };
    let ((read, _client), third) = tokio::time::timeout(Duration::from_secs(60), both).await.expect("timed out: it is not closed");
    assert!(!matches!(read, Ok(1..)), "{read:?}");
    assert!(third.is_some_and(|connection| connection.is_ok()));
}
