use std::time::SystemTime;

use super::*;

fn begin(folder: &LockFolder, instance: &str, holders: &[&str]) -> LiveInstance {
    folder.begin(instance, &holders.iter().map(|holder| (*holder).to_owned()).collect()).unwrap()
}

#[test]
fn an_instance_is_dead_once_its_lock_is_released_and_not_without_a_file() {
    let temp = tempfile::tempdir().unwrap();
    let folder = LockFolder::new(temp.path().join("made"));
    assert!(!folder.is_dead("a") && !folder.is_alive("a"), "it never began");
    let a = begin(&folder, "a", &[]);
    assert!(!folder.is_dead("a") && !a.is_dead("a") && folder.is_alive("a"));
    let b = begin(&folder, "b", &[]);
    drop(a);
    assert!(folder.is_dead("a") && b.is_dead("a") && !folder.is_alive("a"));
    assert!(!b.is_dead("b"));
    b.forget("a").unwrap();
    assert!(!b.is_dead("a"), "nobody knows of it any more");
}

#[test]
fn old_files_that_nobody_holds_are_swept_unless_they_are_of_holders() {
    let temp = tempfile::tempdir().unwrap();
    let folder = LockFolder::of_this_machine(temp.path());
    let alive = begin(&folder, "alive", &[]);
    let unlocked = ["left", "holder", "young"];
    for instance in unlocked {
        drop(begin(&folder, instance, &unlocked));
    }
    // The file system may have another clock.
    let now = SystemTime::now();
    for (instance, age) in [("alive", 2 * SWEEP_AFTER), ("left", 2 * SWEEP_AFTER), ("holder", 2 * SWEEP_AFTER), ("young", SWEEP_AFTER / 2)]
    {
        File::options().write(true).open(folder.file_of(instance)).unwrap().set_modified(now - age).unwrap();
    }
    let newest = begin(&folder, "newest", &["holder"]);
    let left = |instance: &&str| folder.file_of(instance).exists();
    let left: Vec<&str> = ["alive", "left", "holder", "young", "newest"].into_iter().filter(left).collect();
    assert_eq!(left, ["alive", "holder", "young", "newest"]);
    assert!(newest.is_dead("holder") && newest.is_dead("young") && !newest.is_dead("alive"));
    drop(alive);
}

#[test]
fn an_instance_of_another_machine_is_not_dead() {
    let temp = tempfile::tempdir().unwrap();
    let there = LockFolder { path: temp.path().into(), prefix: "there.".into() };
    // Its lock is held on the other machine, where this one does not see it.
    drop(begin(&there, "a", &[]));
    assert!(there.is_dead("a"));
    assert!(!LockFolder::of_this_machine(temp.path()).is_dead("a"));
}
