use catalog::{Add, AlertTransition, Commit};
use types::TransitionKind;
use uuid::Uuid;

use super::*;

fn began(seq: i64) -> AlertTransition {
    AlertTransition {
        alert: "silent".into(),
        version: 1,
        seq,
        id: format!("silent@1:{seq}"),
        kind: TransitionKind::Began,
        keys: format!("{{\"k\":{}}}", 10 + seq),
        since: seq,
        at: seq,
        record: None,
        record_key: None,
    }
}

async fn catalog_with(open: i64) -> Catalog {
    let catalog = Catalog::open("sqlite::memory:").await.unwrap();
    let add = (0..open).map(|seq| Add::AlertTransition(Box::new(began(seq)))).collect();
    catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    catalog
}

fn pages_of(catalog: &Catalog) -> OpenPages {
    OpenPages::read(catalog.clone(), AlertVersion { name: "silent".into(), version: 1 }, 3)
}

#[tokio::test]
async fn each_open_key_is_on_one_page() {
    for count in 0..8 {
        let catalog = catalog_with(count).await;
        let (mut pages, mut found) = (pages_of(&catalog), Vec::new());
        while let Some(page) = pages.next().await.unwrap() {
            found.extend(page.into_iter().map(|open| open.since));
        }
        assert_eq!(found, (0..count).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn keys_that_cannot_be_read_are_an_error_and_not_the_end() {
    let catalog = catalog_with(7).await;
    catalog.close().await;
    assert!(pages_of(&catalog).next().await.is_err());
}
