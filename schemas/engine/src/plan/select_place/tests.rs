use datafusion::common::Location;
use proptest::prelude::*;

use super::*;

/// The position after a text, counted from 1.
fn position_after(text: &str) -> (usize, usize) {
    let last = text.rsplit('\n').next().unwrap_or_default();
    (text.matches('\n').count() + 1, last.len() + 1)
}

proptest! {
    #[test]
    fn position_in_a_select_is_that_of_its_character_in_the_file(before in "[a\n]{0,12}", select in "[b\n]{1,12}") {
        let (line, column) = position_after(&before);
        let place = SelectPlace { line, column };
        prop_assert_eq!(place.at_span(None), (line, column));
        for at in 0..select.len() {
            let (line, column) = position_after(&select[..at]);
            let start = Location { line: line as u64, column: column as u64 };
            let expected = position_after(&format!("{before}{}", &select[..at]));
            prop_assert_eq!(place.at_span(Some(Span { start, end: start })), expected);
        }
    }
}
