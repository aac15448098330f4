use super::*;

#[tokio::test]
async fn a_service_that_does_not_answer_is_an_outage_until_it_does() {
    let answers = ServiceAnswers::default();
    // It answers once it was noted that it does not.
    let request = async {
        while answers.log.outage().is_none() {
            tokio::task::yield_now().await;
        }
        let outage = answers.outages().remove(0);
        assert_eq!((outage.what, outage.error.as_str()), ("the log does not answer", "no answer after 1ms"));
        Ok(7)
    };
    let answer = noted_after(Duration::from_millis(1), &answers.log, request);
    let answer = tokio::time::timeout(Duration::from_secs(60), answer).await.expect("timed out: the outage is not noted");
    assert_eq!(answer.unwrap(), 7);
    assert!(answers.outages().is_empty());
}

#[tokio::test]
async fn a_service_that_fails_is_an_outage_with_its_error() {
    let answers = ServiceAnswers::default();
    let refused = std::future::ready(Err::<(), _>(Error::unavailable("connection refused")));
    assert!(noted(&answers.storage, refused).await.is_err());
    let outages = answers.outages();
    assert_eq!((outages[0].what, outages[0].error.as_str()), ("the object storage does not answer", "connection refused"));
}
