use std::path::Path;

use super::*;

fn settings(temp_dir: &Path) -> RunSettings {
    RunSettings {
        memory_limit_bytes: 64 << 20,
        threads: 1,
        temp_dir: Some(temp_dir.to_owned()),
        lease: std::time::Duration::from_secs(30),
        report_every: crate::REPORT_EVERY,
        events_per_bucket: crate::EVENTS_PER_BUCKET,
        events_per_slice: 16,
    }
}

fn open(temp_dir: &Path) -> Result<SessionContext> {
    let storage = ObjectStorage::open("memory://")?;
    open_session(&settings(temp_dir), &storage, &Functions::standard(), Arc::new(PeakPool::new(64 << 20)))
}

fn folders(temp_dir: &Path) -> usize {
    std::fs::read_dir(temp_dir).unwrap().count()
}

#[test]
fn a_run_spills_to_a_folder_that_goes_with_its_last_task() {
    let temp = tempfile::tempdir().unwrap();
    let spilled_to = temp.path().join("made");
    let session = open(&spilled_to).unwrap();
    let task = session.task_ctx();
    drop(session);
    let file = task.runtime_env().disk_manager.create_tmp_file("a sort").unwrap();
    assert!(file.path().unwrap().starts_with(&spilled_to), "{:?}", file.path());
    assert_eq!(folders(&spilled_to), 1);
    drop((file, task));
    assert_eq!(folders(&spilled_to), 0);
}

#[test]
fn a_folder_that_cannot_be_made_is_named_with_its_setting() {
    let temp = tempfile::tempdir().unwrap();
    let blocked = temp.path().join("blocked");
    std::fs::write(&blocked, "not a folder").unwrap();
    let error = open(&blocked).err().unwrap();
    assert_eq!(error.fact("setting"), Some("batch.temp_dir"), "{error}");
    assert!(error.fact("folder").is_some_and(|folder| folder.ends_with("blocked")), "{error}");
}
