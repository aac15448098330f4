use std::num::NonZeroU32;

use catalog::{Add, Commit, Expect, Remove, Role};
use types::ErrorKind;
use uuid::Uuid;

use super::*;
use crate::{NewToken, new_token, proof_of_client, salted};

fn token(name: &str, expires_at: Option<Micros>) -> (String, TokenRecord) {
    let new = NewToken {
        name: name.to_owned(),
        role: Role::Reader,
        views: vec!["velocity".to_owned()],
        streams: Vec::new(),
        created_by: "ann".to_owned(),
        expires_at,
    };
    new_token(new, 0).unwrap()
}

fn keyring(records: &[&TokenRecord]) -> Keyring {
    let keyring = Keyring::new().unwrap();
    keyring.set(records.iter().map(|record| (*record).clone()).collect());
    keyring
}

#[test]
fn a_token_is_its_principal_until_it_expires_and_no_other_text_is() {
    let ((text, record), (other, _)) = (token("grafana", Some(10)), token("other", None));
    let keyring = keyring(&[&record]);
    assert_eq!(&*keyring.principal(&text, 9).unwrap().name, "grafana");
    let padded = format!("{text} ");
    for (wrong, now) in [(&*text, 10), (&*other, 0), (&text[..46], 0), (&*padded, 0), ("", 0), (&*record.hash, 0)] {
        assert_eq!(keyring.principal(wrong, now).unwrap_err().kind(), ErrorKind::Unauthenticated, "{wrong}");
    }
}

/// As a scanner would ask: two hashes that begin alike must not pass for each other.
#[test]
fn a_hash_that_only_begins_like_a_known_one_is_refused() {
    let (text, mut record) = token("grafana", None);
    let mut other = hash(&text);
    other[31] ^= 1;
    record.hash = BASE64_STANDARD.encode(other);
    assert_eq!(keyring(&[&record]).principal(&text, 0).unwrap_err().kind(), ErrorKind::Unauthenticated);
}

#[test]
fn a_login_by_scram_needs_the_token_and_does_not_tell_whether_a_name_has_one() {
    let (text, record) = token("grafana", Some(10));
    let keyring = keyring(&[&record]);
    let proof = |login: &ScramLogin, password: &str| {
        proof_of_client(&salted(password.as_bytes(), &login.salt, NonZeroU32::new(login.iterations).unwrap()), b"message")
    };
    let login = keyring.scram("grafana", 9);
    assert_eq!(&*login.finish(b"message", &proof(&login, &text)).unwrap().1.name, "grafana");
    let wrong = login.finish(b"message", &proof(&login, "pencil")).unwrap_err();
    let nobody = keyring.scram("nobody", 9);
    let unknown = nobody.finish(b"message", &proof(&nobody, &text)).unwrap_err();
    assert_eq!((wrong.kind(), wrong.to_string()), (unknown.kind(), unknown.to_string()));
    assert_eq!((nobody.salt.len(), nobody.iterations), (login.salt.len(), login.iterations));
    assert_eq!(nobody.salt, keyring.scram("nobody", 9).salt);
    assert_ne!(nobody.salt, keyring.scram("nobody2", 9).salt);
    // The same is computed for it: a proof that fits made-up keys opens nothing either.
    let made_up = keyring.0.nobody.clone();
    assert!(nobody.keys.signature(b"message", &[7; 32]).is_none() && made_up.salt.is_empty() && login.keys.salt == login.salt);
    // Past its end it is as if it were not there.
    let expired = keyring.scram("grafana", 10);
    assert!(expired.finish(b"message", &proof(&expired, &text)).is_err());
}

#[test]
fn two_processes_do_not_tell_names_apart_by_their_salts() {
    let ((_, mut first), (_, later)) = (token("grafana", None), token("ann", None));
    let salts = |keyring: &Keyring| ["grafana", "nobody"].map(|name| keyring.scram(name, 0).salt);
    let of_one = salts(&keyring(&[&first]));
    assert_eq!(of_one, salts(&keyring(&[&first])));
    let later = TokenRecord { created_at: 1, ..later };
    assert_eq!(of_one, salts(&keyring(&[&later, &first])), "another token was made");
    first.revoked_at = Some(2);
    assert_eq!(of_one[1], salts(&keyring(&[&later, &first]))[1], "the first token was revoked");
}

#[tokio::test]
async fn what_the_catalog_creates_and_revokes_is_known_at_the_next_look() {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let keyring = Keyring::open(&catalog).await.unwrap();
    let (text, record) = token("grafana", None);
    let mut seen = None;
    keyring.refresh(&catalog, &mut seen).await.unwrap();
    assert!(keyring.principal(&text, 0).is_err() && !keyring.has_any(0));

    let expect = vec![Expect::TokenFree { name: "grafana".to_owned() }];
    let create = Commit { id: Uuid::new_v4(), expect, add: vec![Add::Token(record)], ..Commit::default() };
    catalog.commit(create).await.unwrap();
    keyring.refresh(&catalog, &mut seen).await.unwrap();
    let principal = keyring.principal(&text, 0).unwrap();
    assert!(keyring.is_still_valid(&principal, 0) && keyring.has_any(0));

    let revoke = Commit { id: Uuid::new_v4(), remove: vec![Remove::Token { name: "grafana".to_owned(), at: 1 }], ..Commit::default() };
    catalog.commit(revoke).await.unwrap();
    keyring.refresh(&catalog, &mut seen).await.unwrap();
    assert!(keyring.principal(&text, 0).is_err() && !keyring.is_still_valid(&principal, 0));
    assert!(keyring.scram("grafana", 0).token.is_none());
}

#[test]
fn a_record_that_cannot_be_read_opens_nothing_and_hides_no_other() {
    let ((text, record), (broken, mut unreadable)) = (token("a", None), token("b", None));
    unreadable.scram.stored_key = "AAAA".to_owned();
    let keyring = keyring(&[&unreadable, &record]);
    assert!(keyring.principal(&text, 0).is_ok() && keyring.principal(&broken, 0).is_err());
}
