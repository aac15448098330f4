//! `up` over a catalog as it is after a long time: of thousands of checkpoints.

use catalog::{Add, Catalog, CheckpointRange, CheckpointRecord, Commit};
use types::files::{ObjectName, StoredObject};
use types::vector::PartitionId;
use uuid::Uuid;

use super::*;

const CHECKPOINTS: i64 = 5_000;
const EVENTS_OF_ONE: i64 = 1_000;
const ADDED_AT_ONCE: usize = 500;

#[test]
fn over_a_large_catalog_up_ends_when_it_is_asked_to_and_loses_nothing() {
    let project = Project::with_orders();
    assert_success(&project.run(&["apply"]));
    // The storage belongs to the catalog from then on, which will name files that are not there.
    assert_eq!(project.up().stop(), Some(0));
    add_history(&project);
    let up = project.up();
    assert_success(&project.run(&["ingest", "orders", "../orders.csv"]));
    project.wait_until_committed(60);
    assert_eq!(up.stop(), Some(0));

    // It is asked to end while it reads these, or before it does.
    let more = "order_id,customer_id,ordered_at,revenue\nn1,new,1997-07-10T08:00:00Z,1.25\nn2,new,1997-07-10T09:00:00Z,2.25\n";
    std::fs::write(project.folder.path().join("more.csv"), more).unwrap();
    let up = project.up();
    assert_success(&project.run(&["ingest", "orders", "../more.csv"]));
    assert_eq!(up.stop(), Some(0));

    let up = project.up();
    project.wait_until_committed(62);
    for (customer, orders) in [("c3", 10), ("new", 2)] {
        let found = project.json(&["lookup", "orders_by_customer", &format!("customer_id={customer}")]);
        assert_eq!(found["row"]["events_365d"], orders, "{found:#}");
    }
    assert_eq!(up.stop(), Some(0));
}

/// Adds the checkpoints of a stream that is not defined any more. Nobody reads their files, so there are none.
fn add_history(project: &Project) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("sqlite://{}", project.path().join("data/catalog.db").display());
        let catalog = Catalog::open(&url).await.unwrap();
        let numbers: Vec<i64> = (0..CHECKPOINTS).collect();
        for some in numbers.chunks(ADDED_AT_ONCE) {
            let add = some.iter().flat_map(|number| checkpoint_and_file(*number)).collect();
            catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
        }
        assert_eq!(catalog.state().await.unwrap().checkpoints.len() as i64, CHECKPOINTS);
        catalog.close().await;
    });
}

/// Committed now: it is not compacted yet.
fn checkpoint_and_file(number: i64) -> [Add; 2] {
    let (id, now) = (Uuid::now_v7(), chrono::Utc::now().timestamp_micros());
    let range = CheckpointRange::of_events(PartitionId::new("history", 0), number * EVENTS_OF_ONE, (number + 1) * EVENTS_OF_ONE);
    let file = ObjectName::Archive { stream: "history".into(), checkpoint: id };
    let file = file.record(StoredObject { bytes: 1 << 20, checksum: 1 }, EVENTS_OF_ONE, None);
    [Add::Checkpoint(CheckpointRecord::new(id, "worker", now, vec![range])), Add::File(file)]
}
