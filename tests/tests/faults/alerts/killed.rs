//! The binary, killed beside the commit of a begin: after the catalog has it and before its record is in the topic, and
//! after that, before the catalog notes it. The next process puts out what is left, also of an alert that has changed
//! or is gone.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use basestream_tests::Harness;
use basestream_tests::process::Project;

use super::{MUCH, PARTITIONS, STREAM, VIEW, append, put_out, state, until};

const SIGKILL: i32 = 9;

/// A project with the alert `much`, in the folders of a harness, that is applied.
async fn project(harness: &Harness) -> Project {
    harness.log.create_topic("in", PARTITIONS).await.unwrap();
    let at = |name: &str| harness.path().join(name).display().to_string();
    let settings = format!(
        "[storage]\nurl = \"file://{}\"\n[catalog]\nurl = \"sqlite://{}\"\n[log]\nurl = \"file://{}\"\npartitions = {PARTITIONS}\n",
        at("storage"),
        at("catalog.db"),
        at("log"),
    );
    let files = [
        ("basestream.toml", settings),
        ("streams/s.sql", STREAM.to_owned()),
        ("views/v.sql", VIEW.to_owned()),
        ("alerts/much.sql", MUCH.to_owned()),
    ];
    let project = Project::from_files(&files, String::new()).unwrap();
    project.ok(&["apply"]).unwrap();
    project
}

/// Starts `speed`, appends an event with which this key begins, and waits until the process is killed at this step.
async fn killed_at(project: &Project, harness: &Harness, key: u8, step: &str) {
    let mut command = project.command(&["speed"]).unwrap();
    command.env("FAILPOINTS", format!("{step}=1*return(kill)"));
    let mut killed = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    append(harness, &[(key, 5)]).await;
    let mut status = None;
    until("a process to be killed at the step", async || {
        status = killed.try_wait().unwrap();
        status.is_some()
    })
    .await;
    assert_eq!(status.unwrap().signal(), Some(SIGKILL), "{step}");
}

/// How many transitions are committed, and how many of them the catalog knows to be in the topic.
async fn committed(harness: &Harness) -> (usize, i64) {
    let transitions = harness.catalog.alert_transitions("much", 1, 0, 100).await.unwrap();
    let progress = harness.catalog.alert_progress().await.unwrap();
    (transitions.len(), progress.first().map_or(0, |progress| progress.published))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_is_put_out_once_however_its_process_dies_beside_the_commit() {
    super::show_logs();
    let harness = Harness::new().await.unwrap();
    let project = project(&harness).await;
    for (key, step, has_record) in [(0, "alert.after_commit", false), (1, "alert.after_append", true)] {
        killed_at(&project, &harness, key, step).await;
        let before = usize::from(key);
        assert_eq!(committed(&harness).await, (before + 1, before as i64), "{step}");
        // The next process goes on from here, although no renewal of the lease said so.
        let runners = harness.catalog.alert_runners().await.unwrap();
        let progress = harness.catalog.alert_progress().await.unwrap();
        assert_eq!(runners[0].at, Some(progress[0].at), "{step}");
        let name = format!("k{key}");
        assert_eq!(put_out(&harness, "much").await.contains_key(&name), has_record, "{step}");

        let next = project.start("speed").unwrap();
        until("the next process to put it out", async || committed(&harness).await.1 == before as i64 + 1).await;
        assert_eq!(next.terminate().unwrap(), Some(0));
        let found = put_out(&harness, "much").await;
        assert_eq!(found[&name].len(), 1, "{step}: {found:#?}");
        assert_eq!(state(found[&name].first()), "began");
    }
}

/// Of the version that follows, nothing satisfies the condition. Where the alert is dropped, there is no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_is_put_out_also_if_the_alert_is_changed_or_dropped_before_it_is() {
    super::show_logs();
    for next_version in [Some(MUCH.replace("total >= 3", "total >= 100")), None] {
        let harness = Harness::new().await.unwrap();
        let project = project(&harness).await;
        killed_at(&project, &harness, 0, "alert.after_commit").await;
        assert_eq!(committed(&harness).await, (1, 0));
        assert!(put_out(&harness, "much").await.is_empty());

        let file = project.folder.path().join("alerts/much.sql");
        match &next_version {
            Some(sql) => std::fs::write(file, sql).unwrap(),
            None => std::fs::remove_file(file).unwrap(),
        }
        project.ok(&["apply", "--prune"]).unwrap();
        let next = project.start("speed").unwrap();
        until("the next process to put it out", async || put_out(&harness, "much").await.contains_key("k0")).await;
        assert_eq!(next.terminate().unwrap(), Some(0));
        let found = put_out(&harness, "much").await;
        assert_eq!((found["k0"].len(), state(found["k0"].first())), (1, "began"), "{next_version:?}: {found:#?}");
    }
}
