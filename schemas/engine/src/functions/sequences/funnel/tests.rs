use super::super::tests::event;
use super::*;

/// Events of one letter each at these times, in units of the window. The conditions are the letters of `steps`.
fn level(window: &str, modes: &[&str], steps: &str, of: &[(i64, char)]) -> i64 {
    let funnel = Funnel::new(window, modes, steps.chars().count()).unwrap();
    let mask = |letter: char| steps.chars().enumerate().filter(|(_, step)| *step == letter).map(|(number, _)| 1 << number).sum();
    let events = of.iter().map(|(second, letter)| event(second * 1_000_000, mask(*letter)));
    let kept: Vec<MarkedEvent> = events.filter(|event| funnel.modes().order || event.mask != 0).collect();
    funnel.level(&kept)
}

fn each_second(letters: &str) -> Vec<(i64, char)> {
    letters.chars().enumerate().map(|(second, letter)| (second as i64, letter)).collect()
}

/// The first examples of tests/queries/0_stateless/00632_aggregation_window_funnel in ClickHouse.
#[test]
fn the_level_is_the_longest_chain_within_the_window() {
    let of = each_second("abcdefghi");
    for (steps, wanted) in [("a", 1), ("ab", 2), ("abc", 3), ("abci", 4), ("ia", 1)] {
        assert_eq!(level("10000s", &[], steps, &of), wanted, "{steps}");
    }
    for (window, wanted) in [("2s", 3), ("3s", 4), ("4s", 5)] {
        assert_eq!(level(window, &[], "defgh", &of), wanted, "{window}");
    }
    assert_eq!(level("1s", &[], "a", &of), 1);
    assert_eq!(level("1s", &[], "z", &of), 0);
}

/// `windowFunnel(4)(timestamp, event <= 1007, event >= 1002, event <= 1006, event >= 1004)` is 4 in ClickHouse: an
/// event may hold several conditions of the chain.
#[test]
fn an_event_may_be_several_steps_unless_once() {
    let masks = (1001..=1008).map(|number| [number <= 1007, number >= 1002, number <= 1006, number >= 1004]);
    let mask = |holds: [bool; 4]| holds.iter().enumerate().map(|(place, holds)| u32::from(*holds) << place).sum();
    let events: Vec<MarkedEvent> = masks.enumerate().map(|(second, holds)| event(second as i64 * 1_000_000, mask(holds))).collect();
    assert_eq!(Funnel::new("4s", &[], 4).unwrap().level(&events), 4);
    assert_eq!(level("10000s", &[], "eee", &[(2, 'e')]), 3);
    assert_eq!(level("10000s", &["strict_once"], "eee", &[(2, 'e')]), 1);
    assert_eq!(level("10000s", &["strict_increase"], "eee", &[(2, 'e')]), 1);
}

/// The documentation's example: A->B->D->C stops at D; and the users of ClickHouse's test.
#[test]
fn in_strict_order_another_event_ends_the_search() {
    for (letters, plain, strict, both) in [
        ("abc", 3, 3, 3),
        ("adbc", 3, 1, 1),
        ("aabbcc", 3, 3, 2),
        ("aaaabbcc", 3, 3, 2),
        ("aabbdcc", 3, 2, 2),
        ("ccbbaa", 1, 1, 1),
        ("acb", 2, 1, 1),
        ("abdc", 3, 2, 2),
    ] {
        let of = each_second(letters);
        assert_eq!(level("86400s", &[], "abc", &of), plain, "{letters}");
        assert_eq!(level("86400s", &["strict_order"], "abc", &of), strict, "{letters}");
        assert_eq!(level("86400s", &["strict_deduplication", "strict_order"], "abc", &of), both, "{letters}");
    }
}

#[test]
fn in_strict_deduplication_a_repeated_step_ends_the_search() {
    // The event f at 50 and 51, and github.com/ClickHouse/ClickHouse/issues/27469.
    let of = [(0, 'a'), (10, 'b'), (20, 'c'), (30, 'd'), (40, 'e'), (50, 'f'), (51, 'f'), (60, 'g'), (70, 'h')];
    assert_eq!(level("10000s", &["strict_deduplication"], "abcdefg", &of), 6);
    assert_eq!(level("10000s", &[], "abcdefg", &of), 7);
    assert_eq!(level("86400s", &["strict_deduplication"], "abcd", &each_second("abcbd")), 3);
}

#[test]
fn in_strict_increase_each_step_is_later() {
    let of = [(0, 'a'), (1, 'b'), (1, 'c'), (1, 'd'), (2, 'e')];
    assert_eq!(level("10000s", &[], "abcde", &of), 5);
    assert_eq!(level("10000s", &["strict_increase"], "abcde", &of), 2);
    // Of two first steps the earlier one has a step after it.
    assert_eq!(level("10000s", &["strict_increase"], "ab", &[(1, 'a'), (2, 'a'), (2, 'b')]), 2);
}

/// ClickHouse's test: two failures, then a success, within 200 seconds.
#[test]
fn in_strict_once_an_event_is_one_step() {
    for (of, wanted) in
        [(vec![(180, 'f'), (220, 'f'), (250, 's')], 3), (vec![(100, 'f'), (250, 'f')], 2), (vec![(200, 's'), (210, 'f'), (230, 's')], 1)]
    {
        for modes in [&["strict_once"][..], &["strict_once", "strict_increase"], &["strict_once", "strict_deduplication"]] {
            assert_eq!(level("200s", modes, "ffs", &of), wanted, "{modes:?}: {of:?}");
        }
    }
}

#[test]
fn a_window_or_mode_that_is_none_is_refused() {
    let refusal = |window: &str, modes: &[&str]| Funnel::new(window, modes, 1).unwrap_err().to_string();
    assert!(refusal("1", &[]).contains("has no unit"), "{}", refusal("1", &[]));
    assert!(refusal("1h", &["strict"]).contains("has the mode 'strict': expected 'strict_deduplication', 'strict_order'"));
}
