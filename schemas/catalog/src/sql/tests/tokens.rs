//! Tokens: one of a name may be used at a time, and what is read is what was written.

use super::*;

on_every_engine!(
    a_token_is_read_as_it_was_written,
    a_name_has_one_token_that_may_be_used,
    a_token_that_is_not_there_is_not_revoked,
    a_token_that_ended_long_ago_is_forgotten,
);

fn token(name: &str, hash: &str) -> TokenRecord {
    TokenRecord {
        name: name.to_owned(),
        role: Role::Reader,
        only: Some(TokenLimits { views: vec!["a view, \"quoted\"".to_owned()], streams: Vec::new() }),
        hash: hash.to_owned(),
        scram: ScramKeys { salt: "c2FsdA==".into(), iterations: 4096, stored_key: "c3RvcmVk".into(), server_key: "c2VydmVy".into() },
        created_at: 5,
        created_by: "ann".to_owned(),
        expires_at: Some(9),
        revoked_at: None,
    }
}

fn created(token: &TokenRecord) -> Commit {
    let expect = vec![Expect::TokenFree { name: token.name.clone() }];
    Commit { id: Uuid::new_v4(), expect, add: vec![Add::Token(token.clone())], ..Commit::default() }
}

fn revoked(name: &str, at: i64) -> Commit {
    let (expect, remove) = (vec![Expect::TokenInUse { name: name.to_owned() }], vec![Remove::Token { name: name.to_owned(), at }]);
    Commit { id: Uuid::new_v4(), expect, remove, ..Commit::default() }
}

async fn a_token_is_read_as_it_was_written(test: &TestCatalog) {
    let unlimited = TokenRecord { role: Role::Admin, only: None, expires_at: None, ..token("b", "2") };
    for token in [token("c", "3"), unlimited.clone(), token("a", "1")] {
        test.catalog.commit(created(&token)).await.unwrap();
    }
    assert_eq!(test.another().await.tokens().await.unwrap(), [token("a", "1"), unlimited, token("c", "3")]);
}

async fn a_name_has_one_token_that_may_be_used(test: &TestCatalog) {
    test.catalog.commit(created(&token("grafana", "1"))).await.unwrap();
    let error = test.catalog.commit(created(&token("grafana", "2"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(test.catalog.tokens().await.unwrap(), [token("grafana", "1")]);

    test.catalog.commit(revoked("grafana", 7)).await.unwrap();
    let found = test.catalog.tokens().await.unwrap();
    assert_eq!(found, [TokenRecord { revoked_at: Some(7), ..token("grafana", "1") }]);
    assert!(!found[0].is_valid(0));
    assert_eq!(test.catalog.commit(revoked("grafana", 8)).await.unwrap_err().kind(), ErrorKind::Conflict);

    test.catalog.commit(created(&token("grafana", "2"))).await.unwrap();
    assert_eq!(test.catalog.tokens().await.unwrap(), [token("grafana", "2")]);
}

async fn a_token_that_is_not_there_is_not_revoked(test: &TestCatalog) {
    let before = test.catalog.revision().await.unwrap();
    assert_eq!(test.catalog.commit(revoked("nobody", 1)).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(test.catalog.revision().await.unwrap(), before);
}

async fn a_token_that_ended_long_ago_is_forgotten(test: &TestCatalog) {
    let day = 86_400_000_000;
    let now = 1_000 * day;
    let made = |name: &str, expires_at| TokenRecord { expires_at, ..token(name, name) };
    let names = async || test.catalog.tokens().await.unwrap().into_iter().map(|token| token.name).collect::<Vec<_>>();
    let tokens = [made("expired", Some(now - 91 * day)), made("lately", Some(now - 89 * day)), made("again", None), made("valid", None)];
    for token in &tokens {
        test.catalog.commit(created(token)).await.unwrap();
    }
    test.catalog.commit(revoked("again", now - 91 * day)).await.unwrap();
    let forget = forget_tokens_commit(&test.catalog.tokens().await.unwrap(), Uuid::new_v4(), now).unwrap();
    let later = TokenRecord { created_at: 6, ..made("again", None) };
    test.catalog.commit(created(&later)).await.unwrap();
    test.catalog.commit(forget).await.unwrap();
    assert_eq!(names().await, ["again", "lately", "valid"], "one has been made again meanwhile");
    assert_eq!(forget_tokens_commit(&test.catalog.tokens().await.unwrap(), Uuid::new_v4(), now), None);
}
