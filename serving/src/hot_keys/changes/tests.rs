use serde_json::value::RawValue;

use super::*;

fn hot(key: &str, window: &'static str) -> HotKey {
    let key = RawValue::from_string(format!("{{\"k\":\"{key}\"}}")).unwrap();
    HotKey { view: "v".into(), key, seen_in: SeenIn::Lookups, window, share: 0.5, per_second: 100.0, seen_at: 0 }
}

/// What changed, a letter each: a key that becomes hot, or `-` and one that ceases.
fn said(changes: &[HotKeyChange]) -> Vec<String> {
    let name = |hot: &HotKey| format!("{} {}", hot.key.get(), hot.window);
    let said = |change: &HotKeyChange| match change {
        HotKeyChange::Hot(hot) => name(hot),
        HotKeyChange::Ceased(hot) => format!("- {}", name(hot)),
    };
    changes.iter().map(said).collect()
}

#[test]
fn a_key_is_named_once_when_it_becomes_hot_and_once_when_it_has_ceased() {
    let (mut changes, begin) = (KnownHotKeys::default(), Instant::now());
    let after = |ms: u64| begin + Duration::from_millis(ms);
    let (a, b) = (hot("a", "1s"), hot("b", "1s"));
    assert_eq!(said(&changes.take([&a, &b], after(0))), [r#"{"k":"a"} 1s"#, r#"{"k":"b"} 1s"#]);
    assert!(changes.take([&a, &b], after(500)).is_empty());
    assert!(changes.take([&a], after(1_000)).is_empty(), "it may be hot again soon");
    assert!(changes.take([&a, &b], after(1_400)).is_empty());
    assert!(changes.take([&a], after(2_300)).is_empty());
    assert_eq!(said(&changes.take([&a], after(2_400))), [r#"- {"k":"b"} 1s"#]);
    assert!(changes.take([&a], after(9_000)).is_empty());
    assert_eq!(said(&changes.take([&a, &b], after(9_500))), [r#"{"k":"b"} 1s"#]);
}

#[test]
fn windows_and_what_is_counted_are_apart() {
    let (mut changes, at) = (KnownHotKeys::default(), Instant::now());
    let of_events = HotKey { seen_in: SeenIn::Events, ..hot("a", "1s") };
    assert_eq!(changes.take([&hot("a", "1s"), &hot("a", "10s"), &of_events], at).len(), 3);
}
