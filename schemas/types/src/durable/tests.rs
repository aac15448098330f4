use super::*;

#[test]
fn all_missing_folders_are_made_and_the_path_has_no_links() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    assert_eq!(make_folder(&root.join("a/b/c")).unwrap(), root.join("a/b/c"));
    std::os::unix::fs::symlink(root.join("a"), root.join("link")).unwrap();
    assert_eq!(make_folder(&root.join("link/b/d")).unwrap(), root.join("a/b/d"));
    assert_eq!(make_folder(&root.join("a/b/d")).unwrap(), root.join("a/b/d"), "one that is there");
}

#[test]
fn a_file_in_the_way_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("file"), "").unwrap();
    assert!(make_folder(&place.path().join("file/b")).is_err());
}
