use super::*;

#[test]
fn a_damaged_file_is_reported_with_what_to_do_once() {
    let damaged = with_help(with_help(Error::corrupt("damaged").with("file", "a.parquet")));
    assert_eq!(damaged.to_string(), "damaged (file: a.parquet, help: `basestream repair` rebuilds what is damaged)");
    for other in [Error::corrupt("a local copy is damaged"), Error::unavailable("no answer").with("file", "a.parquet")] {
        assert_eq!(with_help(other.copied()).to_string(), other.to_string());
    }
}
