use super::*;

#[test]
fn the_tables_never_go_back_to_those_of_an_older_read_view() {
    let table = |name: &str| {
        let columns = Arc::new(Schema::empty());
        vec![TableDescription { schema: PUBLIC, name: name.to_owned(), columns, text_types: Vec::new(), is_view: true }]
    };
    let recency = |revision, now| Recency { revision, now };
    let tables = Tables::default();
    let name = || tables.now()[0].name.clone();
    assert!(!tables.are_newer_than(recency(0, i64::MIN)), "there are none yet");
    assert!(tables.renew(recency(5, 20), table("newer")));
    assert!(!tables.renew(recency(4, 30), table("older")), "of an older revision, though it was read later");
    assert!(!tables.renew(recency(5, 10), table("older")), "of the same revision, when fewer views were loaded");
    assert_eq!(name(), "newer");
    assert!(tables.are_newer_than(recency(5, 10)) && !tables.are_newer_than(recency(5, 20)));
    assert!(tables.renew(recency(5, 20), table("same")) && tables.renew(recency(6, 0), table("newest")));
    assert_eq!(name(), "newest");
}
