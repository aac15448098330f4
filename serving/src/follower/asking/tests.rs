use super::*;

const SECOND: Micros = 1_000_000;

#[test]
fn requests_are_forgotten_once_another_may_be_made() {
    let requested = RequestedRuns::default();
    let version = |number| ViewVersion::new("a", number);
    for number in 1..=100 {
        requested.note(version(number), i64::from(number) * 300 * SECOND);
    }
    assert_eq!(requested.last(&version(98)), None);
    assert_eq!(requested.last(&version(99)), Some(99 * 300 * SECOND));
    assert_eq!(requested.lock().len(), 2, "a node that runs for months remembers no more");
}

#[test]
fn a_run_is_asked_for_only_when_none_comes_by_itself() {
    let at = |newest, last_asked, now| Asking { newest, since: 0, last_asked, now }.is_due();
    assert!(!at(None, None, 29 * SECOND), "the scheduler may be about to begin one");
    assert!(at(None, None, 30 * SECOND));
    for coming in [RunStatus::Requested, RunStatus::Running, RunStatus::Failed] {
        assert!(!at(Some(coming), None, 3_600 * SECOND), "{coming:?}");
    }
    assert!(at(Some(RunStatus::Succeeded), None, 30 * SECOND), "its snapshot is of no use");
    assert!(!at(Some(RunStatus::Succeeded), Some(30 * SECOND), 629 * SECOND), "two releases do not outdo each other");
    assert!(at(Some(RunStatus::Skipped), Some(30 * SECOND), 630 * SECOND));
}
