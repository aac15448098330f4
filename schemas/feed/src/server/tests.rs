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
