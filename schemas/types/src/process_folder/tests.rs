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
fn an_error_names_the_folder() {
    let parent = tempfile::tempdir().unwrap();
    let blocked = parent.path().join("blocked");
    std::fs::write(&blocked, "not a folder").unwrap();
    let error = ProcessFolder::create(&blocked, "cache-").unwrap_err();
    assert!(error.to_string().contains("blocked"), "{error}");
}
