use std::pin::pin;

use super::*;

#[tokio::test]
async fn a_consumer_waits_for_appends_to_its_own_topics_alone() {
    let (sender, receiver) = watch::channel(Appends::default());
    let mut seen = SeenAppends::new(receiver, vec!["in".into(), "also".into()]);
    seen.look();
    {
        let mut waiting = pin!(seen.wait());
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        sender.send_modify(|appends| appends.note("out"));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        sender.send_modify(|appends| appends.note("in"));
        assert!(waiting.await);
    }
    seen.look();
    sender.send_modify(|appends| appends.note("also"));
    assert!(seen.wait().await, "an append between the look and the wait is not missed");
    seen.look();
    drop(sender);
    assert!(!seen.wait().await);
}
