use std::time::SystemTime;

use super::*;

/// What a process leaves behind that was killed.
fn leave(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join(LOCK), "").unwrap();
    std::fs::write(folder.join("copy"), "of a dead process").unwrap();
    folder
}

#[test]
fn folders_of_processes_that_are_gone_are_removed_and_those_of_others_stay() {
    let parent = tempfile::tempdir().unwrap();
    let suffix = suffix_of_this_machine();
    let alive = ProcessFolder::create(parent.path(), "cache-").unwrap();
    let dead = leave(parent.path(), &format!("cache-1{suffix}"));
    let elsewhere = leave(parent.path(), "cache-1@another machine");
    let another_kind = leave(parent.path(), &format!("spill-1{suffix}"));
    let unlocked = parent.path().join(format!("cache-2{suffix}"));
    std::fs::create_dir(&unlocked).unwrap();
    File::create(unlocked.join(NEW_LOCK)).unwrap();
    // The file system may have another clock.
    File::open(&unlocked).unwrap().set_modified(std::time::SystemTime::now()).unwrap();

    let next = ProcessFolder::create(parent.path(), "cache-").unwrap();
    assert!(!dead.exists());
    for kept in [alive.path(), next.path(), &elsewhere, &another_kind, &unlocked] {
        assert!(kept.exists(), "{}", kept.display());
    }
    let ended = alive.path().to_path_buf();
    drop(alive);
    assert!(!ended.exists() && next.path().exists());
}

#[test]
fn a_folder_goes_with_its_lock_last() {
    let parent = tempfile::tempdir().unwrap();
    for files in 0..30 {
        let folder = parent.path().join(files.to_string());
        std::fs::create_dir(&folder).unwrap();
        for file in 0..files {
            std::fs::create_dir(folder.join(format!("view {file}"))).unwrap();
            std::fs::write(folder.join(format!("view {file}")).join("copy"), "").unwrap();
        }
        std::fs::write(folder.join(LOCK), "").unwrap();
        let order = lock_last(&folder).unwrap();
        assert_eq!((order.len(), order.last()), (files + 1, Some(&folder.join(LOCK))));
        remove(&folder).unwrap();
        assert!(!folder.exists());
    }
}

#[test]
fn a_folder_that_has_no_lock_for_long_is_removed() {
    let parent = tempfile::tempdir().unwrap();
    let unlocked = parent.path().join(format!("cache-1{}", suffix_of_this_machine()));
    std::fs::create_dir(&unlocked).unwrap();
    std::fs::write(unlocked.join("copy"), "of a dead process").unwrap();
    let changed_before = |age: Duration| File::open(&unlocked).unwrap().set_modified(SystemTime::now() - age).unwrap();
    changed_before(LOCKED_WITHIN / 2);
    let _next = ProcessFolder::create(parent.path(), "cache-").unwrap();
    assert!(unlocked.exists(), "its process may be about to lock it");
    changed_before(LOCKED_WITHIN * 2);
    let _one_after = ProcessFolder::create(parent.path(), "cache-").unwrap();
    assert!(!unlocked.exists());
}

/// As where a cleaner of temporary files deletes what was not changed for weeks.
#[test]
fn a_folder_in_use_stays_though_its_lock_file_is_gone() {
    let parent = tempfile::tempdir().unwrap();
    let alive = ProcessFolder::create(parent.path(), "cache-").unwrap();
    std::fs::write(alive.path().join("copy"), "of a live process").unwrap();
    std::fs::remove_file(alive.path().join(LOCK)).unwrap();
    File::open(alive.path()).unwrap().set_modified(SystemTime::now() - LOCKED_WITHIN * 2).unwrap();
    let _next = ProcessFolder::create(parent.path(), "cache-").unwrap();
    assert!(alive.path().join("copy").exists());
    let path = alive.path().to_path_buf();
    drop(alive);
    assert!(!path.exists());
}

#[test]
fn an_error_names_the_folder() {
    let parent = tempfile::tempdir().unwrap();
    let blocked = parent.path().join("blocked");
    std::fs::write(&blocked, "not a folder").unwrap();
    let error = ProcessFolder::create(&blocked, "cache-").unwrap_err();
    assert!(error.to_string().contains("blocked"), "{error}");
}
