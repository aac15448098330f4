use super::*;

#[test]
fn passwords_in_urls_are_hidden_however_they_are_written() {
    assert_eq!(redacted_url("postgres://u:p@h:5432/db"), "postgres://u:***@h:5432/db");
    assert_eq!(redacted_url("postgres://u:p@ss/w?rd@h/db"), "postgres://u:***@h/db");
    assert_eq!(redacted_url("postgres://u@h/db?password=p&a=b"), "postgres://u@h/db?password=***&a=b");
    assert_eq!(redacted_url("postgres://u:p@h/db?options=a@b&password=p"), "postgres://u:***@b&password=***");
    assert_eq!(redacted_url("kafka://a:9092,b:9092"), "kafka://a:9092,b:9092");
    assert_eq!(redacted_url("file:///a:b@c"), "file:///a:b@c");
    assert_eq!(redacted_url("sqlite::memory:"), "sqlite::memory:");
}

#[test]
fn urls_in_the_texts_of_others_are_hidden_too() {
    let text = "GET \"http://key:hush@host/b?x=1\" failed (s3://a:hush@b): 403, see http://host/path";
    assert_eq!(redacted_text(text), "GET \"http://key:***@host/b?x=1\" failed (s3://a:***@b): 403, see http://host/path");
    assert_eq!(redacted_text("no url: a@b, \ttabs  and\nlines "), "no url: a@b, \ttabs  and\nlines ");
}
