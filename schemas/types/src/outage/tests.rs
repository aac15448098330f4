use super::*;
use crate::Error;

fn failed() -> Result<()> {
    Err(Error::unavailable("no space left on device"))
}

#[test]
fn an_outage_begins_with_the_first_failure_and_ends_with_the_next_success() {
    let attempts = Attempts::new("the catalog cannot be written");
    let seconds = |count| Duration::from_secs(count);
    let begun = Instant::now();
    assert_eq!(attempts.outage_at(begun), None);
    attempts.note_at(&failed(), begun);
    attempts.note_at(&failed(), begun + seconds(20));
    let outage = attempts.clone().outage_at(begun + seconds(21)).unwrap();
    assert_eq!((outage.what, outage.lasting), ("the catalog cannot be written", seconds(21)));
    assert_eq!(outage.error, "no space left on device");
    attempts.note_at(&Ok(()), begun + seconds(22));
    assert_eq!(attempts.outage_at(begun + seconds(22)), None);
}

#[test]
fn an_outage_without_further_attempts_ends_by_itself() {
    let attempts = Attempts::new("the log takes no records");
    let begun = Instant::now();
    attempts.note_at(&failed(), begun);
    assert!(attempts.outage_at(begun + LASTS / 2).is_some());
    assert_eq!(attempts.outage_at(begun + LASTS), None);
    attempts.note_at(&failed(), begun + 2 * LASTS);
    assert_eq!(attempts.outage_at(begun + 2 * LASTS).unwrap().lasting, Duration::ZERO, "another one");
}

#[test]
fn an_error_that_is_an_answer_is_no_outage() {
    let attempts = Attempts::new("the catalog cannot be written");
    attempts.note(&failed());
    attempts.note::<()>(&Err(Error::conflict("another worker was faster")));
    assert_eq!(attempts.outage(), None);
}
