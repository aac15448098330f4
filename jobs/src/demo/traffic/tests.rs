use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// 2026-06-01T00:00:00Z.
const START: Micros = 1_780_272_000_000_000;

fn traffic(seed: u64, history: u64) -> Traffic {
    Traffic::new(TrafficSettings { seed, start: START, history })
}

#[test]
fn the_same_seed_gives_the_same_records_and_truth() {
    let (mut a, mut b) = (traffic(7, 3_000), traffic(7, 3_000));
    let (first, second): (Vec<_>, Vec<_>) = (a.by_ref().take(4_000).collect(), b.by_ref().take(4_000).collect());
    assert_eq!(first, second);
    assert_eq!(a.truth(), b.truth());
    let other: Vec<_> = traffic(8, 3_000).take(4_000).collect();
    assert_ne!(first, other);
}

#[test]
fn history_is_sent_in_the_order_of_time_and_ends_where_live_traffic_begins() {
    let sent: Vec<_> = traffic(1, 2_000).take(2_400).map(|event| event.at).collect();
    assert!(sent.is_sorted());
    assert_eq!(sent[0], START - HISTORY);
    assert!(sent[1_999] < START && sent[2_000] == START);
    assert_eq!(sent[2_200] - sent[2_000], SECOND, "200 events a second");
}

#[test]
fn trouble_is_about_as_frequent_as_documented() {
    let mut traffic = traffic(3, 40_000);
    traffic.by_ref().take(40_000).for_each(drop);
    let truth = traffic.truth();
    let sum = |of: fn(&StreamTruth) -> i64| truth.streams.values().map(of).sum::<i64>();
    assert!((300..500).contains(&sum(|s| s.duplicates)), "{truth:?}");
    assert!((40..120).contains(&sum(|s| s.future)));
    assert!((170..310).contains(&sum(|s| s.broken)));
    assert!((600..950).contains(&truth.late));
    assert_eq!(sum(|s| s.records()), 40_000);
    let loads: BTreeSet<i64> = truth.devices.values().map(|device| device.payments).collect();
    assert!(loads.last() > Some(&100), "activity is skewed: {loads:?}");
}

#[test]
fn every_ring_opens_its_accounts_in_a_burst_and_is_declined_more_often() {
    let mut traffic = traffic(5, 40_000);
    traffic.by_ref().take(40_000).for_each(drop);
    let (mut of_device, mut of_ip) = (0, 0);
    for ring in traffic.rings() {
        assert!((20..=40).contains(&ring.accounts));
        match &ring.shares {
            Shared::Ip(_) => of_ip += 1,
            Shared::Device(device) => {
                of_device += 1;
                let known = &traffic.truth().devices[device];
                assert!(known.accounts.len() >= 20, "{device}: {known:?}");
                assert!(known.declined * 5 > known.payments, "{device}: {known:?}");
                let (users, linked) = traffic.truth().links(device);
                assert!(users >= 18 && linked >= 18, "{device}: {users} users logged in from {linked} other devices");
            }
        }
    }
    assert_eq!((of_device, of_ip), (6, 2));
}

#[test]
fn broken_records_are_no_events_and_accepted_ones_are() {
    let mut broken = 0;
    for event in traffic(11, 5_000).take(6_000) {
        let parsed: Option<BTreeMap<String, Value>> = serde_json::from_str(&event.value).ok();
        let is_event = parsed.is_some_and(|fields| {
            fields.contains_key("user_id") && fields["ts"].as_str().is_some_and(|ts| engine::events::parse_timestamp(ts).is_ok())
        });
        assert_eq!(is_event, event.outcome != ExpectedDecision::Broken, "{}", event.value);
        broken += usize::from(!is_event);
    }
    assert!((1..6_000).contains(&broken), "{broken} broken records");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn the_truth_is_what_a_reader_of_the_records_finds(seed: u64, history in 0_u64..3_000, live in 0_usize..500) {
        let mut traffic = traffic(seed, history);
        let mut ids = HashSet::new();
        let mut found: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for event in traffic.by_ref().take(history as usize + live) {
            let Ok(fields) = serde_json::from_str::<Value>(&event.value) else { continue };
            let is_event = event.outcome != ExpectedDecision::Broken && event.outcome != ExpectedDecision::Future;
            if event.stream != TrafficStream::Transactions || !is_event || !ids.insert(event.id) || fields["status"] != "ok" {
                continue;
            }
            let known = found.entry(fields["device_id"].as_str().unwrap().to_owned()).or_default();
            known.0 += 1;
            known.1 += fields["amount"].to_string().parse::<f64>().map(|euros| (euros * 100.0).round() as i64).unwrap();
        }
        let truth = traffic.truth().devices.iter().filter(|(_, d)| d.ok_payments > 0);
        let truth: BTreeMap<String, (i64, i64)> = truth.map(|(name, d)| (name.clone(), (d.ok_payments, d.ok_cents))).collect();
        prop_assert_eq!(truth, found);
    }
}
