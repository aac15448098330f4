use tokio::sync::mpsc::unbounded_channel;

use super::*;

#[tokio::test]
async fn a_stop_reports_every_few_seconds_what_it_waits_for() {
    let (reports, mut reported) = unbounded_channel();
    // It ends with the third report, and would never end without.
    let end = async {
        for _ in 0..3 {
            reported.recv().await.unwrap();
        }
        "ended"
    };
    let mut waiting = StopWait::reporting(Duration::from_millis(1));
    assert_eq!(waiting.until_reporting(end, || reports.send(()).unwrap()).await, "ended");
}

#[tokio::test]
async fn what_ends_at_once_is_not_reported() {
    let mut waiting = StopWait::reporting(Duration::ZERO);
    waiting.until_reporting(std::future::ready(()), || panic!("reported")).await;
}
