use super::*;

#[test]
fn boxes_stand_side_by_side_with_arrows_between() {
    let text = boxes(&[("log", vec!["12 records".into()]), ("speed", vec!["9 in".into(), "3 out".into()])]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("+-log "), "{text}");
    assert!(lines[1].contains(" |->| "), "{text}");
    let width = lines[0].len();
    assert!(lines.iter().all(|line| line.len() == width), "{text}");
}

#[test]
fn thousands_are_separated() {
    assert_eq!([0, 7, 999, 1_000, 1_234_567, -12_345].map(thousands), ["0", "7", "999", "1,000", "1,234,567", "-12,345"]);
    assert_eq!([1, 1_000].map(|count| thousands_of(count, "row")), ["1 row", "1,000 rows"]);
}
