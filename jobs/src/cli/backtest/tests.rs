//! The verdicts of two definitions as text.

use super::*;

fn difference(pairs: impl IntoIterator<Item = (String, String)>) -> VerdictDifference {
    let cell = |(live, changed)| Cell { live, changed, events: 7, amount: Some("2.50".into()) };
    VerdictDifference {
        verdict: "points".to_owned(),
        amount: Some("amount".to_owned()),
        different: 7,
        cells: pairs.into_iter().map(cell).collect(),
        examples: Vec::new(),
    }
}

#[test]
fn verdicts_that_are_numbers_are_sorted_by_value_in_the_matrix() {
    let text = compared(&difference([("2", "10"), ("10", "9")].map(|(live, changed)| (live.to_owned(), changed.to_owned()))), 14);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = "points: 7 of 14 events are decided differently (rows: live, columns: changed)";
    assert_eq!(text.lines().next(), Some(head));
    assert_eq!(lines[2..5], [vec!["9", "10"], vec!["2", "0", "7"], vec!["10", "7", "0"]], "{text}");
    assert_eq!(lines[8..11], [vec!["9", "10"], vec!["2", "0", "2.50"], vec!["10", "2.50", "0"]], "{text}");
}

#[test]
fn a_matrix_that_would_be_too_wide_is_a_list_of_pairs() {
    let text = compared(&difference((0..40).map(|number| (number.to_string(), (number + 1).to_string()))), 280);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(text.lines().next(), Some("points: 7 of 280 events are decided differently"));
    assert_eq!(lines[2], ["live", "changed", "events", "sum", "of", "amount"], "{text}");
    assert_eq!(lines[3], ["0", "1", "7", "2.50"], "{text}");
    assert_eq!(lines[42], ["39", "40", "7", "2.50"], "{text}");
    assert_eq!(lines.len(), 43);
    assert!(text.lines().all(|line| line.len() <= WIDEST), "{text}");
}
