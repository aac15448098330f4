use super::*;

fn files_below(folder: &FilePath) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn a_file_that_is_not_published_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalFolder::open(&folder.path().join("a/b")).unwrap();
    let (mut file, partial) = local.create_partial().unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!(files_below(folder.path()).len(), 1);
    drop(partial);
    assert_eq!(files_below(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_name_that_is_taken_is_a_conflict_and_keeps_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalFolder::open(folder.path()).unwrap();
    let target = local.root().join("x/y");
    local.write_new(&target, b"first").unwrap();
    let error = local.write_new(&target, b"second").unwrap_err();
    assert_eq!(error.kind(), types::ErrorKind::Conflict);
    assert_eq!(fs::read(&target).unwrap(), b"first");
    assert_eq!(files_below(local.root()), [target]);
}

#[test]
fn unfinished_files_are_removed_only_when_they_are_old() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalFolder::open(folder.path()).unwrap();
    let (_file, partial) = local.create_partial().unwrap();
    std::mem::forget(partial);
    let age = Duration::from_secs(3600);
    assert_eq!(local.remove_partial_files(SystemTime::now(), age).unwrap(), 0);
    assert_eq!(local.remove_partial_files(SystemTime::now() + 2 * age, age).unwrap(), 1);
}

#[test]
fn a_deleted_files_empty_folder_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalFolder::open(folder.path()).unwrap();
    let (one, two) = (local.root().join("run/1"), local.root().join("run/2"));
    local.write_new(&one, b"1").unwrap();
    local.write_new(&two, b"2").unwrap();
    fs::remove_file(&one).unwrap();
    local.tidy_after_delete(&one);
    assert!(two.exists());
    fs::remove_file(&two).unwrap();
    local.tidy_after_delete(&two);
    assert!(!local.root().join("run").exists() && local.root().exists());
}

#[test]
fn all_folders_that_a_deletion_leaves_empty_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let local = LocalFolder::open(folder.path()).unwrap();
    let run = local.root().join("snapshots/view/1/run");
    let (bucket, merged) = (run.join("00000.parquet"), run.join("merged/00000.parquet"));
    for file in [&bucket, &merged] {
        local.write_new(file, b"rows").unwrap();
    }
    fs::remove_file(&bucket).unwrap();
    local.tidy_after_delete(&bucket);
    assert!(merged.exists());
    fs::remove_file(&merged).unwrap();
    local.tidy_after_delete(&merged);
    let left: Vec<PathBuf> = fs::read_dir(local.root()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [local.root().join(PARTIAL_FOLDER)]);
    local.write_new(&bucket, b"rows").unwrap();
    assert!(bucket.exists());
}
