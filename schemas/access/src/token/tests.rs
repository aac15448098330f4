use types::ErrorKind;

use super::*;

fn new(name: &str, role: Role) -> NewToken {
    NewToken { name: name.to_owned(), role, views: Vec::new(), streams: Vec::new(), created_by: "ann".to_owned(), expires_at: None }
}

#[test]
fn a_token_is_random_recognisable_and_not_in_its_record() {
    let (text, record) = new_token(new("grafana", Role::Reader), 7).unwrap();
    let (other, _) = new_token(new("grafana", Role::Reader), 7).unwrap();
    assert_ne!(text, other);
    assert!(text.starts_with("bst_") && text.len() == 4 + 43, "{text}");
    assert_eq!(record.hash, BASE64_STANDARD.encode(hash(&text)));
    let kept = [&record.hash, &record.scram.salt, &record.scram.stored_key, &record.scram.server_key];
    let secret = BASE64_URL_SAFE_NO_PAD.decode(&text[4..]).unwrap();
    assert!(kept.iter().all(|kept| !kept.contains(&text[4..]) && BASE64_STANDARD.decode(kept).unwrap() != secret));
    assert!(!format!("{record:?}").contains(&record.hash));
    assert_eq!(record.only, None);
}

#[test]
fn what_a_token_cannot_be_is_refused() {
    let limited = |role, views: &[&str]| NewToken { views: views.iter().map(|view| (*view).to_owned()).collect(), ..new("a", role) };
    let wrong = [
        (new("", Role::Reader), "is not a valid name of a token"),
        (new("two words", Role::Reader), "\"two words\" is not a valid name of a token: expected 1 to 63 letters"),
        (new(&"a".repeat(64), Role::Reader), "is not a valid name of a token"),
        (limited(Role::Admin, &["v"]), "the role admin is not limited"),
        (limited(Role::Writer, &["v"]), "reads no view"),
    ];
    for (new, message) in wrong {
        let error = new_token(new, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains(message), "{error}");
    }
}
