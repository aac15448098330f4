use super::*;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn each_failure_doubles_the_wait_up_to_an_hour() {
    let waits: Vec<u64> = (0..9).map(|failures| wait(MINUTE, failures).as_secs() / 60).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert_eq!(wait(MINUTE, u32::MAX), LONGEST_WAIT);
    assert_eq!(wait(24 * LONGEST_WAIT, 3), 24 * LONGEST_WAIT, "rounds that are a day apart stay so");
}
