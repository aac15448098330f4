use std::collections::HashMap;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

mod cost;

/// The meaning, without bounds: each id's latest timestamp, for ever.
#[derive(Default)]
struct Plain(HashMap<String, Micros>);

impl Plain {
    fn admit(&mut self, id: &str, timestamp: Micros, clock: Micros, within: Micros) -> bool {
        if self.0.get(id).is_some_and(|latest| clock - latest <= within) {
            return false;
        }
        let latest = self.0.entry(id.to_owned()).or_insert(timestamp);
        *latest = timestamp.max(*latest);
        true
    }
}

fn space(memory_bytes: usize) -> (TempDir, IdSpace) {
    let folder = tempfile::tempdir().unwrap();
    let space = IdSpace::new(DedupSettings { memory_bytes, folder: folder.path().join("dedup") });
    (folder, space)
}

/// Turns every table into a run.
fn flush(ids: &mut RecentIds) {
    let ids = ids.0.as_mut().unwrap();
    let current = std::mem::take(&mut ids.current);
    ids.sealed.push_back(current);
    for table in std::mem::take(&mut ids.sealed).iter().filter(|table| !table.is_empty()) {
        ids.runs.push(Arc::new(write(table, &ids.share).unwrap()));
    }
}

/// Does in the background what is due, to the end.
fn maybe_merge(ids: &mut RecentIds, clock: Micros) {
    let ids = ids.0.as_mut().unwrap();
    for _ in 0..60_000 {
        ids.background.maybe_merge(&mut ids.runs, ids.window, clock, &ids.share).unwrap();
        let ages: Vec<_> = ids.runs.iter().map(|run| (run.level(), run.newest())).collect();
        let is_missing = ids.runs.iter().any(|run| run.filters().missing().next().is_some());
        if ids.background.is_idle() && merge::due(&ages, ids.window).is_none() && !is_missing {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the background did not come to rest");
}

fn runs(ids: &RecentIds) -> usize {
    ids.0.as_ref().unwrap().runs.len()
}

fn files(folder: &TempDir) -> Vec<std::path::PathBuf> {
    let Ok(homes) = std::fs::read_dir(folder.path().join("dedup")) else { return Vec::new() };
    let homes = homes.filter_map(|entry| std::fs::read_dir(entry.unwrap().path()).ok());
    let files = homes.flatten().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "ids")).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Admit {
        id: u16,
        ahead: i64,
    },
    Flush,
    Tend,
    /// Another owner, from the accepted ids.
    TakeOver {
        flushes: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0u16..40, prop_oneof![-30i64..2, Just(0), 5i64..20]).prop_map(|(id, ahead)| Step::Admit { id, ahead: ahead * 100 }),
        2 => Just(Step::Flush),
        1 => Just(Step::Tend),
        1 => any::<bool>().prop_map(|flushes| Step::TakeOver { flushes }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn whatever_is_in_memory_or_in_files_a_duplicate_is_a_duplicate(steps in prop::collection::vec(step(), 1..250), within in 1i64..40) {
        let within = within * 100;
        let (_folder, space) = space(1 << 20);
        let (mut plain, mut ids, mut clock) = (Plain::default(), RecentIds::new(Some(within), &space), 10_000);
        let mut accepted: Vec<(String, Micros)> = Vec::new();
        for step in steps {
            match step {
                Step::Admit { id, ahead } => {
                    let (id, timestamp) = (id.to_string(), clock + ahead);
                    clock = clock.max(timestamp);
                    let fresh = plain.admit(&id, timestamp, clock, within);
                    prop_assert_eq!(ids.admit(&id, timestamp, clock).unwrap(), fresh, "{} at {} by {}", id, timestamp, clock);
                    if fresh {
                        accepted.push((id, timestamp));
                    }
                }
                Step::Flush => flush(&mut ids),
                Step::Tend => maybe_merge(&mut ids, clock),
                Step::TakeOver { flushes } => {
                    ids = RecentIds::new(Some(within), &space);
                    for (id, timestamp) in accepted.iter().filter(|(_, timestamp)| *timestamp >= clock - within) {
                        ids.remember(id, *timestamp, clock).unwrap();
                    }
                    if flushes {
                        flush(&mut ids);
                    }
                }
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn a_table_seals_and_expires_without_being_asked(rows in prop::collection::vec((0u16..2_000, -40i64..60), 1..4_000), within in 50i64..20_000) {
        let (_folder, space) = space(0);
        let (mut plain, mut ids, mut clock) = (Plain::default(), RecentIds::new(Some(within), &space), 0);
        for (id, ahead) in rows {
            let timestamp = clock + ahead;
            clock = clock.max(timestamp);
            let id = id.to_string();
            prop_assert_eq!(ids.admit(&id, timestamp, clock).unwrap(), plain.admit(&id, timestamp, clock, within));
        }
    }
}

#[test]
fn a_million_ids_in_a_mebibyte_are_told_apart() {
    let (folder, space) = space(1 << 20);
    let mut ids = RecentIds::new(Some(Micros::MAX), &space);
    let count = 300_000i64;
    for i in 0..count {
        assert!(ids.admit(&i.to_string(), i, i).unwrap(), "{i}");
    }
    maybe_merge(&mut ids, count);
    assert!(!files(&folder).is_empty());
    assert_eq!(ids.len(), count as usize);
    for i in (0..count).step_by(97) {
        assert!(!ids.admit(&i.to_string(), count, count).unwrap(), "{i}");
        assert!(ids.admit(&format!("other {i}"), count, count).unwrap(), "{i}");
    }
    let tables = ids.0.as_ref().unwrap();
    let bytes = tables.current.bytes() + tables.sealed.iter().map(Table::bytes).sum::<usize>();
    assert!(bytes <= (1 << 20) / 4 + 1_024 * table::BUCKET_BYTES, "{bytes}");
}

#[test]
fn runs_become_fewer_as_they_age_and_leave_with_the_window() {
    let (folder, space) = space(64 << 20);
    let within = 1_000_000;
    let mut ids = RecentIds::new(Some(within), &space);
    let mut most = 0;
    for i in 0..4_000i64 {
        let clock = i * 1_000;
        assert!(ids.admit(&i.to_string(), clock, clock).unwrap());
        if i % 4 == 0 {
            flush(&mut ids);
            maybe_merge(&mut ids, clock);
            most = most.max(runs(&ids));
        }
    }
    // 250 runs of four ids a window, were they not merged.
    assert!(most < 40, "{most}");
    assert!(ids.len() <= 1_000 + 1_000 / 4, "{}", ids.len());
    assert_eq!(files(&folder).len(), runs(&ids));
    assert!(ids.admit("last", 10_000_000, 10_000_000).unwrap());
    assert_eq!((runs(&ids), files(&folder).len()), (0, 0));
}

#[test]
fn a_table_expires_whole_in_memory_and_needs_no_file() {
    let (folder, space) = space(64 << 20);
    let mut ids = RecentIds::new(Some(1_000), &space);
    for i in 0..100_000i64 {
        assert!(ids.admit(&i.to_string(), i, i).unwrap());
        assert!(ids.len() <= 1_252, "{}", ids.len());
    }
    assert!(files(&folder).is_empty());
    assert!(!folder.path().join("dedup").exists());
}

#[test]
fn every_changed_byte_of_a_file_is_an_error_and_no_decision() {
    let (folder, space) = space(1 << 20);
    let mut ids = RecentIds::new(Some(1_000_000), &space);
    let known: Vec<String> = (0..5).map(|i| i.to_string()).collect();
    for id in &known {
        assert!(ids.admit(id, 0, 0).unwrap());
    }
    flush(&mut ids);
    let path = files(&folder).remove(0);
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let error = ids.admit("3", 1, 1).unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains(".ids"), "{error}");
    }
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let error = ids.admit("3", 1, 1).unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
    std::fs::write(&path, &whole).unwrap();
    assert!(known.iter().all(|id| !ids.admit(id, 1, 1).unwrap()));
}

#[test]
fn a_block_of_another_file_is_an_error_and_no_decision() {
    let (folder, space) = space(1 << 20);
    let mut ids = RecentIds::new(Some(1_000_000), &space);
    for id in ["a", "b"] {
        assert!(ids.admit(id, 0, 0).unwrap());
        flush(&mut ids);
    }
    let paths = files(&folder);
    let contents: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    std::fs::write(&paths[0], &contents[1]).unwrap();
    std::fs::write(&paths[1], &contents[0]).unwrap();
    for id in ["a", "b"] {
        let error = ids.admit(id, 1, 1).unwrap_err().to_string();
        assert!(error.contains("damaged") && error.contains(".ids"), "{id}: {error}");
    }
    std::fs::write(&paths[0], &contents[0]).unwrap();
    std::fs::write(&paths[1], &contents[1]).unwrap();
    assert!(["a", "b"].iter().all(|id| !ids.admit(id, 1, 1).unwrap()));
}

#[test]
fn a_disk_that_takes_no_more_is_an_error_that_names_the_setting_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("file");
    std::fs::write(&blocked, "not a folder").unwrap();
    let space = IdSpace::new(DedupSettings { memory_bytes: 0, folder: blocked.join("dedup") });
    let mut ids = RecentIds::new(Some(Micros::MAX), &space);
    let mut i = 0;
    let error = loop {
        match ids.admit(&i.to_string(), i, i) {
            Ok(fresh) => assert!(fresh),
            Err(error) => break error,
        }
        i += 1;
    };
    assert_eq!(error.kind(), types::ErrorKind::Unavailable);
    assert!(error.to_string().contains("dedup_memory") && error.to_string().contains("dedup"), "{error}");
    assert_eq!(error.fact("setting"), Some("serving.cache_dir"), "{error}");
    assert!(i > 800, "{i}");
    assert!((0..i).all(|id| !ids.admit(&id.to_string(), i, i).unwrap()));
    assert!(ids.admit(&i.to_string(), i, i).is_err());
    std::fs::remove_file(&blocked).unwrap();
    assert!(ids.admit(&i.to_string(), i, i).unwrap());
}

/// Each of them was warned of as a file that stays.
#[test]
fn a_file_that_somebody_has_deleted_needs_no_deletion() {
    let folder = tempfile::tempdir().unwrap();
    let (file, missing) = (folder.path().join("0.ids"), folder.path().join("gone").join("0.ids"));
    std::fs::write(&file, "ids").unwrap();
    run::remove_if_there(&file).unwrap();
    assert!(!file.exists());
    run::remove_if_there(&file).unwrap();
    run::remove_if_there(&missing).unwrap();
    assert!(run::remove_if_there(folder.path()).is_err(), "a folder is no such file");
}

#[test]
fn the_files_of_each_worker_are_its_own_and_go_with_it() {
    let (folder, first) = space(0);
    let parent = folder.path().join("dedup");
    let mut ids = RecentIds::new(Some(1_000), &first);
    ids.admit("a", 0, 0).unwrap();
    flush(&mut ids);

    let second = IdSpace::new(DedupSettings { memory_bytes: 0, folder: parent.clone() });
    let mut other = RecentIds::new(Some(1_000), &second);
    other.admit("a", 0, 0).unwrap();
    flush(&mut other);
    assert_eq!(files(&folder).len(), 2);
    assert!(!ids.admit("a", 0, 0).unwrap() && !other.admit("a", 0, 0).unwrap());

    drop((ids, first));
    assert_eq!(files(&folder).len(), 1);
    assert!(!other.admit("a", 0, 0).unwrap());
    drop((other, second));
    assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 0);
}

#[test]
fn ids_of_equal_first_halves_are_told_apart_across_blocks() {
    let (_folder, space) = space(1 << 20);
    let share = space.share();
    let mut writer = RunWriter::create(&share, 0).unwrap();
    let entries = (0..1_000u64).map(|low| block::Entry { id: Id { high: 7, low: low * 2 }, timestamp: low as Micros });
    for entry in entries {
        writer.push(entry).unwrap();
    }
    let run = writer.finish().unwrap();
    for low in 0..1_000u64 {
        assert_eq!(run.find(Id { high: 7, low: low * 2 }).unwrap(), Some(low as Micros));
        assert_eq!(run.find(Id { high: 7, low: low * 2 + 1 }).unwrap(), None);
    }
    assert_eq!(run.find(Id { high: 6, low: 0 }).unwrap(), None);
    assert_eq!(run.find(Id { high: 8, low: 0 }).unwrap(), None);
}

#[test]
fn filters_keep_to_their_memory_and_are_made_when_there_is_some() {
    let (_folder, space) = space(2 << 20);
    let share = space.share();
    assert!(share.reserve(1_200_000));
    let mut ids = RecentIds::new(Some(Micros::MAX), &space);
    for i in 0..200_000 {
        ids.remember(&i.to_string(), i, i).unwrap();
    }
    flush(&mut ids);
    let missing = |ids: &RecentIds| ids.0.as_ref().unwrap().runs.iter().map(|run| run.filters().missing().count()).sum::<usize>();
    assert!(missing(&ids) > 0);
    assert!(!ids.admit("17", 200_000, 200_000).unwrap() && ids.admit("new", 200_000, 200_000).unwrap());
    share.release(1_200_000);
    maybe_merge(&mut ids, 200_000);
    let left: Vec<_> = ids.0.as_ref().unwrap().runs.iter().map(|run| (run.len(), run.filters().missing().count())).collect();
    assert_eq!(missing(&ids), 0, "{left:?}");
    assert!(!ids.admit("17", 200_000, 200_000).unwrap() && ids.admit("newer", 200_000, 200_000).unwrap());
}

#[test]
fn runs_of_one_level_are_merged_when_they_cannot_become_more() {
    let window = Window(800);
    let level = |newest: &[i64]| newest.iter().map(|newest| (0, *newest)).collect::<Vec<_>>();
    assert_eq!(merge::due(&level(&[1, 2, 3, 4, 5]), window), None);
    assert_eq!(merge::due(&level(&[1, 2, 3, 4, 5, 6]), window), Some(0..6));
    assert_eq!(merge::due(&level(&[1, 50, 102, 103]), window), Some(0..2), "the third is too far from the first");
    assert_eq!(merge::due(&level(&[1, 200, 400]), window), None);
    assert_eq!(merge::due(&[(2, 1), (1, 2), (1, 3), (0, 4), (0, 5)], window), None);
}

#[test]
fn a_window_costs_memory_up_to_the_setting_and_then_disk() {
    let small = DedupCost::estimate(600_000, 256 << 20);
    assert_eq!((small.memory_bytes, small.disk_bytes), (21_600_000, 0));
    assert!(small.is_full_speed(2 << 20));
    let large = DedupCost::estimate(1_728_000_000, 256 << 20);
    assert_eq!((large.memory_bytes, large.disk_bytes), (256 << 20, 51_840_000_000));
    assert!(large.full_speed_memory_bytes > 3_600_000_000 && large.full_speed_memory_bytes < 4_000_000_000);
    let enough = DedupCost::estimate(1_728_000_000, large.full_speed_memory_bytes);
    assert!(enough.memory_bytes <= large.full_speed_memory_bytes);
}
