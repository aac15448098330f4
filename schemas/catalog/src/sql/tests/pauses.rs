//! Pauses, and from which event on which version of a sink makes the records.

use types::vector::Offset;

use super::*;
use crate::sql::now_us;

on_every_engine!(
    a_pause_lasts_until_it_is_removed,
    switches_are_added_under_the_last_claim_alone,
    a_checkpoint_under_a_claim_that_was_lost_is_refused,
    switches_of_a_partition_go_forward,
    ranges_are_listed_from_the_newest_up_to_a_limit,
    the_newest_thousand_switches_of_a_partition_are_kept,
    a_commit_can_expect_that_no_sink_has_decided_an_event_of_a_stream,
);

fn pause(kind: DefinitionKind, name: &str, since: i64) -> PauseRecord {
    PauseRecord { kind, name: name.into(), since }
}

fn claim(sink: &str, partition: i32, claim: u128) -> SinkClaim {
    SinkClaim { sink: sink.into(), partition: PartitionId::new("s", partition), claim: Uuid::from_u128(claim) }
}

fn switch(sink: &str, partition: i32, from: i64, version: u32) -> SinkSwitch {
    SinkSwitch {
        sink: sink.into(),
        partition: PartitionId::new("s", partition),
        log_identity: "log".into(),
        from: Offset(from),
        version,
        paused: version == 0,
        at: 0,
    }
}

async fn claimed(test: &TestCatalog, claims: &[SinkClaim]) {
    test.catalog.commit(adds(claims.iter().cloned().map(Add::SinkClaim).collect())).await.unwrap();
}

async fn switched(test: &TestCatalog, by: SinkClaim, switch: SinkSwitch) -> Result<Revision> {
    let commit = Commit { expect: vec![Expect::SinkClaims(vec![by])], ..adds(vec![Add::SinkSwitch(switch)]) };
    test.catalog.commit(commit).await
}

/// By sink and partition, and there in their order; without the time, which is that of the commit.
async fn listed(test: &TestCatalog, sink: Option<&str>) -> Vec<(SinkSwitch, Option<i64>)> {
    let ranges = test.another().await.sink_ranges(sink, 100).await.unwrap();
    assert!(ranges.iter().all(|range| range.switch.at > 0));
    let without_time = |range: SinkRange| (SinkSwitch { at: 0, ..range.switch }, range.to.map(|to| to.0));
    let mut listed: Vec<_> = ranges.into_iter().rev().map(without_time).collect();
    // Those of a partition keep their order.
    listed.sort_by(|(a, _), (b, _)| (&a.sink, &a.partition).cmp(&(&b.sink, &b.partition)));
    listed
}

async fn a_pause_lasts_until_it_is_removed(test: &TestCatalog) {
    let (sink, alert) = (pause(DefinitionKind::Sink, "a", 10), pause(DefinitionKind::Alert, "b", 11));
    test.catalog.commit(adds(vec![Add::Pause(sink.clone()), Add::Pause(alert.clone())])).await.unwrap();
    // Another one does not begin it anew.
    test.catalog.commit(adds(vec![Add::Pause(pause(DefinitionKind::Sink, "a", 20))])).await.unwrap();
    let state = test.another().await.state().await.unwrap();
    assert_eq!(state.pauses, [alert, sink.clone()]);
    assert_eq!(state.paused_since(DefinitionKind::Sink, "a"), Some(10));
    assert_eq!(state.paused_since(DefinitionKind::Alert, "a"), None);
    let remove = vec![Remove::Pause { kind: DefinitionKind::Alert, name: "b".into() }];
    test.catalog.commit(Commit { remove, ..Commit::default() }).await.unwrap();
    assert_eq!(test.another().await.state().await.unwrap().pauses, [sink]);
}

async fn switches_are_added_under_the_last_claim_alone(test: &TestCatalog) {
    let before = switched(test, claim("a", 0, 1), switch("a", 0, 0, 1)).await.unwrap_err();
    assert_eq!(before.kind(), ErrorKind::Conflict, "nobody has claimed it: {before}");
    claimed(test, &[claim("a", 0, 1), claim("a", 1, 1), claim("b", 0, 1)]).await;
    switched(test, claim("a", 0, 1), switch("a", 0, 0, 1)).await.unwrap();
    switched(test, claim("b", 0, 1), switch("b", 0, 0, 1)).await.unwrap();
    claimed(test, &[claim("a", 0, 2)]).await;
    let late = switched(test, claim("a", 0, 1), switch("a", 0, 10, 2)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict, "{late}");
    switched(test, claim("a", 0, 2), switch("a", 0, 12, 0)).await.unwrap();
    switched(test, claim("a", 1, 1), switch("a", 1, 5, 1)).await.unwrap();
    let all = [(switch("a", 0, 0, 1), Some(12)), (switch("a", 0, 12, 0), None), (switch("a", 1, 5, 1), None)];
    assert_eq!(listed(test, Some("a")).await, all);
    assert_eq!(listed(test, None).await.len(), 4);
    let lost = test.another().await.newest_sink_switches(&[claim("a", 1, 1), claim("a", 0, 1)]).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Conflict, "{lost}");
    let mut newest = test.another().await.newest_sink_switches(&[claim("a", 1, 1), claim("a", 0, 2)]).await.unwrap();
    newest.iter_mut().for_each(|switch| switch.at = 0);
    newest.sort_by(|a, b| (&a.sink, &a.partition).cmp(&(&b.sink, &b.partition)));
    assert_eq!(newest, [switch("a", 0, 12, 0), switch("a", 1, 5, 1)], "none of a sink that was not claimed");
}

async fn a_checkpoint_under_a_claim_that_was_lost_is_refused(test: &TestCatalog) {
    claimed(test, &[claim("a", 0, 1), claim("a", 1, 1)]).await;
    let commit = |claims: Vec<SinkClaim>| Commit { expect: vec![Expect::SinkClaims(claims)], ..Commit::default() };
    let both = || vec![claim("a", 0, 1), claim("a", 1, 1)];
    test.catalog.commit(commit(both())).await.unwrap();
    claimed(test, &[claim("a", 1, 2)]).await;
    let refused = test.catalog.commit(commit(both())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    test.catalog.commit(commit(vec![claim("a", 0, 1), claim("a", 1, 2)])).await.unwrap();
}

async fn switches_of_a_partition_go_forward(test: &TestCatalog) {
    claimed(test, &[claim("a", 0, 1)]).await;
    switched(test, claim("a", 0, 1), switch("a", 0, 10, 1)).await.unwrap();
    assert!(switched(test, claim("a", 0, 1), switch("a", 0, 9, 2)).await.is_err());
    // Two at one position: the later one holds. In another log, offsets begin anew.
    switched(test, claim("a", 0, 1), switch("a", 0, 10, 2)).await.unwrap();
    let other = SinkSwitch { log_identity: "another".into(), ..switch("a", 0, 3, 2) };
    switched(test, claim("a", 0, 1), other.clone()).await.unwrap();
    assert_eq!(listed(test, Some("a")).await, [(switch("a", 0, 10, 2), None), (other, None)]);
}

async fn ranges_are_listed_from_the_newest_up_to_a_limit(test: &TestCatalog) {
    claimed(test, &[claim("a", 0, 1), claim("b", 0, 1)]).await;
    for (sink, from, version) in [("a", 0, 1), ("b", 0, 1), ("a", 7, 0), ("a", 7, 2), ("a", 9, 0)] {
        switched(test, claim(sink, 0, 1), switch(sink, 0, from, version)).await.unwrap();
        // The next one is recorded later, however coarse the clock is.
        let recorded_at = test.catalog.sink_ranges(None, 1).await.unwrap()[0].switch.at;
        while now_us() <= recorded_at {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
    let shown = async |sink, limit| {
        let ranges = test.another().await.sink_ranges(sink, limit).await.unwrap();
        let shown = |range: SinkRange| (range.switch.sink.to_string(), range.switch.from.0, range.to.map(|to| to.0));
        ranges.into_iter().map(shown).collect::<Vec<_>>()
    };
    let range = |sink: &str, from: i64, to: Option<i64>| (sink.to_owned(), from, to);
    let newest = [range("a", 9, None), range("a", 7, Some(9)), range("b", 0, None), range("a", 0, Some(7))];
    assert_eq!(shown(None, 100).await, newest, "without the pause that had no event");
    assert_eq!(shown(None, 3).await, newest[..3]);
    assert_eq!(shown(Some("a"), 2).await, newest[..2]);
    assert_eq!(shown(Some("b"), 100).await, newest[2..3]);
}

/// The last one stays, also of a partition that has no new ones.
async fn the_newest_thousand_switches_of_a_partition_are_kept(test: &TestCatalog) {
    let claims = [claim("a", 0, 1), claim("a", 1, 1)];
    claimed(test, &claims).await;
    switched(test, claim("a", 1, 1), switch("a", 1, 3, 1)).await.unwrap();
    let many = (0..1_003).map(|number| Add::SinkSwitch(switch("a", 0, number * 10, (number % 2) as u32)));
    let commit = Commit { expect: vec![Expect::SinkClaims(claims.to_vec())], ..adds(many.collect()) };
    test.catalog.commit(commit).await.unwrap();
    let ranges = test.catalog.sink_ranges(Some("a"), 5_000).await.unwrap();
    let of_first: Vec<i64> = ranges.iter().filter(|range| range.switch.partition.partition == 0).map(|range| range.switch.from.0).collect();
    assert_eq!((of_first.len(), of_first.first(), of_first.last()), (1_000, Some(&10_020), Some(&30)));
    let mut newest = test.another().await.newest_sink_switches(&claims).await.unwrap();
    newest.sort_by_key(|switch| switch.partition.partition);
    assert_eq!(newest.iter().map(|switch| switch.from.0).collect::<Vec<_>>(), [10_020, 3]);
}

async fn a_commit_can_expect_that_no_sink_has_decided_an_event_of_a_stream(test: &TestCatalog) {
    let of = |stream: &str| Commit { expect: vec![Expect::NotSwitched { stream: stream.into() }], ..Commit::default() };
    claimed(test, &[claim("b", 0, 1)]).await;
    assert_eq!(test.another().await.switched_sink("s").await.unwrap(), None);
    test.catalog.commit(of("s")).await.unwrap();
    test.catalog.commit(adds(vec![Add::SinkSwitch(switch("b", 0, 3, 1)), Add::SinkSwitch(switch("a", 1, 3, 1))])).await.unwrap();
    assert_eq!(test.another().await.switched_sink("s").await.unwrap().as_deref(), Some("a"));
    assert!(conflict(test.catalog.commit(of("s")).await).contains("a sink has decided events of the stream"));
    test.catalog.commit(of("other")).await.unwrap();
}
