use std::collections::BTreeMap;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use catalog::DefinitionKind;

use super::*;
use crate::harness::{Harness, NOW, PAYMENTS, event};

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_every_layer_count() {
    let harness = Harness::filled().await;
    let read_view = harness.node.read_view().unwrap();
    let [with_snapshot, without] = ["velocity", "pairs"].map(|view| read_view.view(view).unwrap());
    assert!(with_snapshot.snapshot.is_some() && without.snapshot.is_none());
    let of_layers = |view: &LoadedView| view.layers.iter().map(|layer| layer.run.rows()).sum::<usize>();
    assert!(of_layers(with_snapshot) > 0 && state_rows(&read_view, with_snapshot) > of_layers(with_snapshot));
    assert!(of_layers(without) > 0 && state_rows(&read_view, without) == of_layers(without));
    let before = ["velocity", "pairs"].map(|view| state_rows(&read_view, read_view.view(view).unwrap()));
    harness.fresh(0, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    let read_view = harness.node.read_view().unwrap();
    let after = ["velocity", "pairs"].map(|view| state_rows(&read_view, read_view.view(view).unwrap()));
    assert_eq!(after, before.map(|rows| rows + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_parts_of_any_number_each_key_has_its_row_once() {
    let harness = Harness::filled().await;
    harness.fresh(0, &[event("9", "2026-03-02T11:59:00Z", "z", "1.00", "ok")]).await;
    let read_view = harness.node.read_view().unwrap();
    for view in ["velocity", "pairs", "totals"] {
        let loaded = read_view.view(view).unwrap();
        if let Some(snapshot) = &loaded.snapshot {
            snapshot.fetch_all().await.unwrap();
        }
        let whole = |part, parts| KeyPart { part, parts, range: KeyRange::default() };
        let expected = rows_in_parts(&read_view, loaded, &[whole(0, 1)]);
        assert!(!expected.is_empty());
        for count in [2, 3, 6, 7, 24] {
            let parts: Vec<KeyPart> = (0..count).map(|part| whole(part, count)).collect();
            assert_eq!(rows_in_parts(&read_view, loaded, &parts), expected, "{view} in {count} parts");
        }
        let mut counts = BTreeSet::new();
        for part_rows in [1, 2, 3, 5, 1_000] {
            let parts = parts_of_about(part_rows, &read_view, loaded).unwrap();
            assert_eq!(rows_in_parts(&read_view, loaded, &parts), expected, "{view} in {parts:?}");
            counts.insert(parts.len());
        }
        assert!(counts.len() > 1 || expected.len() == 1, "{view} in {counts:?} parts");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_has_few_rows_beside_those_of_one_key() {
    let harness = Harness::filled().await;
    let read_view = harness.node.read_view().unwrap();
    let loaded = read_view.view("pairs").unwrap();
    let rows_of = |part: &KeyPart| -> usize {
        let source = StateSource::new(&read_view, loaded, None);
        let grouped = grouped(&loaded.live).unwrap();
        let (_, pieces) = grouped.pieces_of_part(&source, part).unwrap();
        pieces.rows().map(|(_, rows)| rows.len()).sum()
    };
    let all = state_rows(&read_view, loaded);
    let of_one_key = parts_of_about(1, &read_view, loaded).unwrap().iter().map(rows_of).max().unwrap();
    assert!(of_one_key < all, "there are several keys");
    for part_rows in 1..=all {
        let parts = parts_of_about(part_rows, &read_view, loaded).unwrap();
        assert_eq!(parts.iter().map(rows_of).sum::<usize>(), all);
        for part in &parts {
            assert!(rows_of(part) < part_rows + of_one_key, "{} rows in {part:?} of {parts:?}", rows_of(part));
        }
    }
}

/// The hop of half an hour is ten seconds, that of a day five minutes.
const OF_A_DAY: &str = "CREATE VIEW of_a_day WITH (windows = '30m, 1d') AS SELECT device, count(*) AS n FROM payments GROUP BY device";
const OF_ALL_TIME: &str = "CREATE VIEW of_all_time WITH (windows = '30m') AS SELECT device, count(*) AS n, \
    max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen FROM payments GROUP BY device";

/// At noon, each device has an event of 12:03:20 that is read already. `new` has no other, and that of `back` is older
/// than a day.
#[tokio::test(flavor = "multi_thread")]
async fn no_row_exists_by_an_event_that_is_later_than_the_hop_of_its_time() {
    const COMES: Micros = NOW + 200_000_000;
    const GOES: Micros = COMES + 10_000_000 + 1_800_000_000;
    let earlier = [event("1", "2026-03-01T11:40:00Z", "back", "1.00", "ok"), event("2", "2026-03-02T11:10:00Z", "known", "1.00", "ok")];
    let later = ["back", "known", "new"].map(|device| event(device, "2026-03-02T12:03:20Z", device, "1.00", "ok"));
    let events = earlier.iter().chain(&later).cloned().collect::<Vec<_>>();
    for layer in ["fresh layer", "segment", "snapshot"] {
        let harness =
            Harness::with_definitions(PAYMENTS, &[("of_a_day", OF_A_DAY), ("of_all_time", OF_ALL_TIME)], |settings| settings).await;
        match layer {
            "fresh layer" => harness.fresh(0, &events).await,
            _ => harness.checkpoint(0, &events).await,
        }
        harness.node.refresh().await.unwrap();
        for (view, is_back) in [("of_a_day", false), ("of_all_time", true)] {
            let alert = format!("CREATE ALERT idle_{view} WITH (topic = 'idle') AS SELECT device, n_30m FROM {view} WHERE n_30m = 0");
            harness.define(DefinitionKind::Alert, &format!("idle_{view}"), &alert).await;
            if layer == "snapshot" {
                harness.snapshot(view).await;
                harness.node.read_view().unwrap().view(view).unwrap().snapshot.as_ref().unwrap().fetch_all().await.unwrap();
            }
            let row = |device: &str, found: bool, n: i64, changes: Micros| (device.to_owned(), (found, n, Some(changes)));
            let expected = [row("back", is_back, 0, COMES), row("known", true, 0, COMES), row("new", false, 0, COMES)];
            assert_eq!(watched_devices(&harness, view, NOW), BTreeMap::from(expected), "{view}, {layer}");
            let expected = [row("back", true, 1, GOES), row("known", true, 1, GOES), row("new", true, 1, GOES)];
            assert_eq!(watched_devices(&harness, view, COMES), BTreeMap::from(expected), "{view}, {layer}");
        }
    }
}

/// Whether each device has a row at a time, its events of half an hour, and when it changes.
fn watched_devices(harness: &Harness, view: &str, t: Micros) -> BTreeMap<String, (bool, i64, Option<Micros>)> {
    let read_view = harness.node.read_view().unwrap();
    let loaded = read_view.view(view).unwrap();
    assert!(loaded.keeps(t));
    let alerts = &read_view.loaded.registry.alerts;
    let plan = alerts.iter().find(|alert| *alert.name == *format!("idle_{view}")).unwrap().plan.clone().unwrap();
    let mut devices = BTreeMap::new();
    for part in watched_parts(&read_view, loaded).unwrap() {
        let (_, WatchedRows { rows, found, changes, .. }) = rows_of_part(&read_view, loaded, &plan, &part, t).unwrap();
        let (names, counts) = (rows.column(0).as_string::<i32>(), rows.column(1).as_primitive::<Int64Type>());
        devices.extend((0..rows.num_rows()).map(|row| (names.value(row).to_owned(), (found[row], counts.value(row), changes[row]))));
    }
    devices
}

fn rows_in_parts(read_view: &ReadView, loaded: &LoadedView, parts: &[KeyPart]) -> BTreeMap<Vec<u8>, (bool, RecordBatch)> {
    let (plan, codec) = (&loaded.live.plan, &loaded.live.codec);
    let wanted: Vec<usize> = (0..plan.columns.len()).collect();
    let source = StateSource::new(read_view, loaded, None);
    let grouped = grouped(&loaded.live).unwrap();
    let mut found_in_parts = BTreeMap::new();
    for part in parts {
        let (keys, pieces) = grouped.pieces_of_part(&source, part).unwrap();
        let Answered { rows, found, .. } = answer(plan, codec, &keys, &pieces, NOW, &wanted).unwrap();
        for (index, key) in keys.iter().enumerate() {
            let row = (found[index], rows.slice(index, 1));
            assert!(found_in_parts.insert(key.to_vec(), row).is_none(), "a key is in two of {parts:?}");
        }
    }
    found_in_parts
}
