use super::*;

#[test]
fn two_neighbours_swapped_are_one_change() {
    assert_eq!(nearest("cuont", ["cot", "count"]), Some("count"));
    assert_eq!(nearest("coutn", ["cot", "count"]), Some("count"));
}

#[test]
fn of_equally_near_words_the_first_is_meant() {
    assert_eq!(nearest("mix", ["min", "max"]), Some("min"));
    assert_eq!(nearest("mix", ["max", "min"]), Some("max"));
}

#[test]
fn a_word_that_ends_where_another_goes_on_means_that_one() {
    assert_eq!(nearest("ordered", ["order_id", "ordered_at"]), Some("ordered_at"));
    assert_eq!(nearest("user", ["user_identifier", "usr"]), Some("usr"), "one change is one change");
    assert_eq!(nearest("Europe", ["Europe/Berlin"]), None, "not every word that begins so is near");
}

#[test]
fn what_is_far_from_all_words_means_none() {
    assert_eq!(nearest("zzz", ["min", "max"]), None);
    assert_eq!(nearest("", ["min"]), None);
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest_and_with_all() {
    assert_eq!(expected("mots", &["limit", "most"], "none"), "did you mean \"most\"? expected one of limit, most");
    assert_eq!(expected("zzz", &["limit", "most"], "none"), "expected one of limit, most");
    assert_eq!(expected("most", &[], "none is defined yet"), "none is defined yet");
}
