use catalog::{Add, Commit, Remove};
use types::files::{FileRecord, ObjectName};
use types::vector::Vector;
use uuid::Uuid;

use crate::verify::tests::{filled, world::state_of};

#[tokio::test]
async fn a_line_balances_when_every_offset_has_its_row() {
    let world = filled(&[]).await;
    let lines = super::partitions(&world.verifier.storage, &*state_of(&world).await, &Vector::new()).await.unwrap();
    assert_eq!(lines.len(), 8);
    for line in &lines {
        assert!(line.is_balanced(), "{line:#?}");
        assert_eq!((line.archived, line.dead_lettered, line.duplicate, line.absent), (40, 1, 1, 0));
    }
    let since = "payments/0:126,payments/1:42".parse().unwrap();
    let newer = super::partitions(&world.verifier.storage, &*state_of(&world).await, &since).await.unwrap();
    assert_eq!(newer.len(), 4);
    assert!(newer.iter().all(super::PartitionLine::is_balanced), "{newer:#?}");
}

#[tokio::test]
async fn a_lost_file_and_a_file_that_is_counted_twice_show() {
    let world = filled(&[]).await;
    let mut state = (*state_of(&world).await).clone();
    let file = state.files.iter().find(|file| file.kind == super::FileKind::Archive).unwrap().clone();
    state.files.rewrite(|files| files.retain(|known| *known != file));
    let lines = super::partitions(&world.verifier.storage, &state, &Vector::new()).await.unwrap();
    let wrong: Vec<_> = lines.iter().filter(|line| !line.is_balanced()).collect();
    assert_eq!(wrong.len(), 1);
    assert!(wrong[0].mismatch.as_ref().unwrap().contains("recorded 40"), "{wrong:#?}");
    let again = ObjectName::Archive { stream: "payments".into(), checkpoint: Uuid::now_v7() };
    world.verifier.storage.put_new(&again, world.verifier.storage.get(&file.path).await.unwrap()).await.unwrap();
    state.files.extend([file.clone(), FileRecord { path: again.to_string(), ..file }]);
    let lines = super::partitions(&world.verifier.storage, &state, &Vector::new()).await.unwrap();
    assert_eq!(lines.iter().filter(|line| line.archived == 80).count(), 1);
}

#[tokio::test]
async fn a_missing_checkpoint_shows_as_a_break_and_as_rows_of_no_range() {
    let world = filled(&[]).await;
    let mut state = (*state_of(&world).await).clone();
    state.checkpoints.rewrite(|checkpoints| drop(checkpoints.remove(2)));
    let lines = super::partitions(&world.verifier.storage, &state, &Vector::new()).await.unwrap();
    let found: Vec<&str> = lines.iter().filter_map(|line| line.mismatch.as_deref()).collect();
    assert_eq!(found, ["the range ends at 42, and what follows begins at 84; 41 rows from offset 42 on are in no checkpoint's range"]);
}

#[tokio::test]
async fn a_views_events_are_what_where_lets_through() {
    let staging = "CREATE VIEW clean AS SELECT device, ts FROM payments WHERE amount > 5";
    let view = "CREATE VIEW v WITH (windows = '1h, 7d', every = '1h') AS SELECT device, count(*) AS n FROM clean WHERE device = 'a' GROUP BY device";
    let world = filled(&[staging, view]).await;
    let state = state_of(&world).await;
    let registry = committed::registry::Registry::load(&state, &world.verifier.functions).await.unwrap();
    let live = registry.served("v").unwrap();
    let line = crate::ledger::view(&world.verifier, &state, live, crate::verify::tests::NOW).await.unwrap();
    assert!(line.balanced, "{line:#?}");
    assert_eq!(line.archived, 320);
    assert!(line.filtered > 0 && line.expired > 0 && line.events > 0, "{line:#?}");
    // The ledger notices events missing from the states: here only the catalog's record of a checkpoint is removed.
    let lost = state.checkpoints.first().unwrap().id;
    let commit = Commit { id: Uuid::new_v4(), remove: vec![Remove::Checkpoint(lost)], add: Vec::<Add>::new(), ..Commit::default() };
    world.verifier.catalog.commit(commit).await.unwrap();
    let line = crate::ledger::view(&world.verifier, &*state_of(&world).await, live, crate::verify::tests::NOW).await.unwrap();
    assert!(!line.balanced, "{line:#?}");
}
