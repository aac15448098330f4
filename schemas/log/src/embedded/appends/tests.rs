use std::pin::pin;

use super::*;
use crate::Log;
use crate::embedded::EmbeddedLog;
use crate::testing::numbered;

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

#[tokio::test(flavor = "multi_thread")]
async fn an_append_to_the_log_counts_for_its_topic() {
    let folder = tempfile::tempdir().unwrap();
    let log = EmbeddedLog::open(folder.path(), &BTreeMap::new()).await.unwrap();
    log.create_topic("in", 1).await.unwrap();
    let seen = |topic: &str| SeenAppends::new(log.appends.clone(), vec![topic.into()]);
    let (mut of_topic, mut of_another) = (seen("in"), seen("out"));
    log.append("in", numbered(0, 1)).await.unwrap();
    assert!(futures::poll!(pin!(of_topic.wait())).is_ready());
    assert!(futures::poll!(pin!(of_another.wait())).is_pending());
}
