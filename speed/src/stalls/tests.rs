use super::*;

fn stall(stream: &str) -> Stall {
    Stall { stream: stream.into(), sink: "scored".into(), error: "no right".into() }
}

fn left_out(stalls: &Stalls, now: Instant) -> Vec<String> {
    stalls.left_out(now).iter().map(|stream| stream.to_string()).collect()
}

#[test]
fn a_stream_that_fails_again_is_left_out_for_longer_and_longer_and_the_others_are_not() {
    let (mut stalls, begin) = (Stalls::default(), Instant::now());
    stalls.failed(stall("s"), begin);
    assert!(left_out(&stalls, begin).is_empty() && stalls.outage(begin).is_none(), "a first failure may be of the moment");
    assert!(stalls.is_trial(begin));
    let mut now = begin;
    let mut pauses = Vec::new();
    for _ in 0..10 {
        stalls.failed(stall("s"), now);
        assert_eq!(left_out(&stalls, now), ["s"]);
        let from = now;
        while !left_out(&stalls, now).is_empty() {
            now += Duration::from_millis(50);
        }
        pauses.push(now - from);
    }
    assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]) && pauses[9] == LONGEST_PAUSE, "{pauses:?}");
    let outage = stalls.outage(now).unwrap();
    assert_eq!((outage.what, outage.lasting), (SINK_STALLED, now - begin));
    assert!(outage.error.contains("\"scored\" over the stream \"s\"") && outage.error.contains("no right"), "{}", outage.error);
    stalls.passed("s");
    assert!(stalls.outage(now).is_none() && !stalls.is_trial(now));
}

#[test]
fn a_stream_that_is_read_again_without_a_failure_begins_anew() {
    let (mut stalls, now) = (Stalls::default(), Instant::now());
    stalls.failed(stall("s"), now);
    stalls.failed(stall("s"), now);
    let later = now + FIRST_PAUSE + TRIAL;
    assert!(stalls.outage(later).is_none(), "no event came that could show it");
    stalls.failed(stall("s"), later);
    assert!(left_out(&stalls, later).is_empty());
}
