use types::failures::Failure;
use types::vector::Offset;

use super::*;

#[test]
fn a_head_is_read_as_it_was_sent() {
    let partition = PartitionId::new("näme \"x'", 7);
    let claim = Claim { partition: partition.clone(), epoch: i64::MAX, from: Offset(3) };
    let complete = Complete { partition: partition.clone(), position: Offset(9), time: i64::MIN };
    let mut failures = Failures::default();
    failures.push(Failure { partition: partition.clone(), offset: Offset(4), reason: "division by zero".into() });
    let section = |failures| SectionHead { view: "v".into(), version: u32::MAX, stamp: "s\n".into(), bytes: usize::MAX, failures };
    let vector: Vector = [(partition.clone(), Offset(5))].into_iter().collect();
    let layer = LayerHead {
        owner: u64::MAX,
        start: Vector::new(),
        end: vector.clone(),
        max_event_time: BTreeMap::from([("s".into(), -1)]),
        complete_to: vec![complete.clone()],
        sections: vec![section(None), section(Some(failures))],
        published_at: 11,
    };
    let heads = [
        Head::Snapshot { format: FORMAT, claims: vec![(1, claim.clone())], complete_to: vec![complete.clone()], layers: 3 },
        Head::Layer(layer),
        Head::Compacted { owner: 1, start: Vector::new(), end: vector.clone() },
        Head::TakenOver { owner: 2, claims: vec![claim] },
        Head::Completed { owner: 3, complete_to: vec![complete] },
        Head::Withdrawn { owner: 4, committed: vector, partitions: vec![partition] },
    ];
    for sent in heads {
        let message = message(&sent, Bytes::from_static(b"body")).unwrap();
        assert_eq!((head(&message).unwrap(), &message.data_body[..]), (sent, &b"body"[..]));
    }
}

#[test]
fn a_request_is_sent_in_the_form_that_every_release_reads() {
    let views = vec![ViewVersion::new("velocity", 2), ViewVersion::new("a \"b\"", 1)];
    let request = LayerRequest { format: 1, views, seen: vec![(PartitionId::new("s", 0), 7)] };
    let text = r#"{"format":1,"views":[["velocity",2],["a \"b\"",1]],"seen":[[{"stream":"s","partition":0},7]]}"#;
    assert_eq!(serde_json::to_string(&request).unwrap(), text);
    assert_eq!(serde_json::from_str::<LayerRequest>(text).unwrap(), request);
}

#[test]
fn what_is_said_about_an_event_is_read_as_it_was_said() {
    let request = DecisionRequest { sink: "s \"1\"".into(), topic: "t".into(), partition: 3, offset: Offset(i64::MAX) };
    let made = |record: Option<&'static [u8]>| DecidingSink {
        version: 2,
        parameters: [("max".into(), 7)].into(),
        from: Some(Offset(4)),
        record: record.map(Bytes::from_static),
    };
    let decision = |by| EventDecision { identity: "log".into(), is_dead_letter: false, timestamp: Some(i64::MIN), ids_since: Some(5), by };
    for said in [
        Exchange::Listen { format: FORMAT, topic: "t".into() },
        Exchange::Listening { partitions: [0, 7].into() },
        Exchange::Appended(request),
        Exchange::Decided(decision(Some(made(Some(b"{\"a\":1.50}"))))),
        Exchange::Decided(decision(Some(made(None)))),
        Exchange::Decided(EventDecision { is_dead_letter: true, timestamp: None, ids_since: None, ..decision(None) }),
    ] {
        assert_eq!(exchange(&exchange_message(&said).unwrap()).unwrap(), said);
    }
}

#[test]
fn a_message_of_another_kind_is_refused_and_says_so() {
    for text in ["", "{}", "{\"kind\": \"later\"}", "\u{0}"] {
        let message = FlightData { app_metadata: text.as_bytes().to_vec().into(), ..FlightData::default() };
        let error = head(&message).unwrap_err();
        assert_eq!(error.kind(), types::ErrorKind::Corrupt, "{text}");
    }
}
