use std::collections::BTreeMap;

use super::*;
use crate::testing::{source, subscription};

/// The client has delivered no record yet, and so has no position.
#[test]
fn an_offset_that_the_log_lacks_is_reported_before_the_first_record() {
    let settings = KafkaSettings::new("127.0.0.1:1", &BTreeMap::new()).unwrap();
    let (events, _receiver) = mpsc::channel(1);
    let client = client_of(&settings, Arc::new(|| 0), &subscription("a", &["events"]), events, CancellationToken::new()).unwrap();
    lock(&client.context().held).start(source("events", 0), Offset(7));
    let (reporter, reported) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let group = client.context().clone();
        reporter.send(group.out_of_range(&client, KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset)))
    });
    let error = reported.recv_timeout(Duration::from_secs(120)).expect("the consumer waits for a lock that it holds");
    assert!(error.to_string().contains("consuming the log"), "{error}");
}
