use access::Keyring;
use catalog::{DefinitionRecord, DefinitionStatus};

use super::*;

const DAY: Micros = 24 * 3_600 * 1_000_000;

async fn catalog() -> Catalog {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let definition = |kind, name: &str| {
        Add::Definition(DefinitionRecord {
            kind,
            name: name.into(),
            version: 1,
            sql: String::new(),
            status: DefinitionStatus::Active,
            created_at: 0,
            since: 0,
            kept_until: None,
            rolled_back: false,
        })
    };
    let add = vec![definition(DefinitionKind::View, "velocity"), definition(DefinitionKind::Stream, "payments")];
    catalog.commit(Commit { id: Uuid::new_v4(), add, ..Commit::default() }).await.unwrap();
    catalog
}

fn asked(name: &str) -> AskedToken {
    let views = vec!["velocity".to_owned()];
    AskedToken { name: name.to_owned(), role: Role::Reader, views, streams: Vec::new(), expires: Some("90d".to_owned()) }
}

#[tokio::test]
async fn a_token_is_created_listed_and_revoked() {
    let catalog = catalog().await;
    let created = create(&catalog, asked("grafana"), 0).await.unwrap();
    let keyring = Keyring::open(&catalog).await.unwrap();
    assert_eq!(&*keyring.principal(&created.token, 90 * DAY - 1).unwrap().name, "grafana");
    assert!(keyring.principal(&created.token, 90 * DAY).is_err());
    let state = async |now| list(&catalog, now).await.unwrap()[0].state;
    assert_eq!((state(0).await, state(90 * DAY).await), ("valid", "expired"));
    assert_eq!(list(&catalog, 0).await.unwrap(), [created.shown]);

    revoke(&catalog, "grafana", 5).await.unwrap();
    assert_eq!((state(6).await, state(90 * DAY).await), ("revoked", "revoked"));
    assert!(Keyring::open(&catalog).await.unwrap().principal(&created.token, 6).is_err());
}

#[tokio::test]
async fn what_cannot_be_created_or_revoked_is_said_with_what_there_is() {
    let catalog = catalog().await;
    create(&catalog, asked("grafana"), 0).await.unwrap();
    let wrong = [
        (asked("grafana"), ErrorKind::Conflict, "basestream token revoke"),
        (AskedToken { views: vec!["velocty".to_owned()], ..asked("a") }, ErrorKind::Input, "expected: one of velocity"),
        (AskedToken { streams: vec!["velocity".to_owned()], ..asked("a") }, ErrorKind::Input, "expected: one of payments"),
        (AskedToken { expires: Some("90".to_owned()), ..asked("a") }, ErrorKind::Input, "--expires"),
        (AskedToken { role: Role::Admin, ..asked("a") }, ErrorKind::Input, "admin is not limited"),
        (AskedToken { role: Role::Writer, ..asked("a") }, ErrorKind::Input, "`--streams` limits a writer"),
        (AskedToken { role: Role::Writer, views: vec!["v".to_owned()], ..asked("a") }, ErrorKind::Input, "`--streams` limits"),
    ];
    for (asked, kind, message) in wrong {
        let error = create(&catalog, asked, 0).await.err().unwrap();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    let unknown = revoke(&catalog, "grafanna", 0).await.unwrap_err();
    assert!(unknown.to_string().contains("expected: one of grafana"), "{unknown}");
    assert_eq!(list(&catalog, 0).await.unwrap().len(), 1);
}
