use std::collections::BTreeMap;

use bytes::Bytes;

use crate::record::{partition_for, random_of};
use crate::{NewRecord, open};
use types::ErrorKind;

fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[tokio::test]
async fn an_unknown_url_is_refused_with_what_is_expected() {
    for url in ["redis://x", "/var/lib", "", "kafka://", "kafka://host", "kafka://host:x", "kafka://a:1,,b:2", "file://host/x?"] {
        let error = open(url, &properties(&[])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{url}: {error}");
    }
}

#[tokio::test]
async fn a_property_that_correctness_rests_on_is_refused_by_name() {
    for (name, value) in [("enable.auto.commit", "true"), ("acks", "1"), ("group.id", "x"), ("auto.offset.reset", "earliest")] {
        let error = open("kafka://127.0.0.1:9", &properties(&[(name, value)])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[tokio::test]
async fn a_property_that_librdkafka_does_not_know_is_refused_without_its_value() {
    let error = open("kafka://127.0.0.1:9", &properties(&[("sasl.pass", "hunter2")])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("sasl.pass") && !error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn good_properties_are_taken() {
    let good = [("security.protocol", "SASL_SSL"), ("sasl.mechanism", "SCRAM-SHA-512"), ("sasl.username", "u"), ("sasl.password", "p")];
    open("kafka://a:9092,b:9092/", &properties(&good)).await.unwrap();
    open("kafka://a:9092", &properties(&[("compression.type", "zstd"), ("enable.auto.commit", "false")])).await.unwrap();
}

#[test]
fn a_record_goes_by_its_key_then_by_its_id_then_anywhere() {
    let keyed = |key: Option<&'static str>, id: Option<&'static str>| NewRecord {
        key: key.map(Bytes::from),
        partition_by: id.map(Bytes::from),
        ..NewRecord::default()
    };
    assert_eq!(partition_for(&keyed(Some("k"), Some("1")), 7, 0), partition_for(&keyed(Some("k"), Some("2")), 7, 9));
    assert_eq!(partition_for(&keyed(None, Some("k")), 7, 0), partition_for(&keyed(Some("k"), None), 7, 9));
    let spread: std::collections::BTreeSet<i32> = (0..200).map(|i| partition_for(&keyed(None, None), 7, random_of(42, i))).collect();
    assert_eq!(spread.len(), 7);
}
