//! Runs `basestream demo --once` in this process with little traffic: everything it prints must verify.

use jobs::demo::{DemoOptions, demo};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_verifies_everything_it_shows() {
    let folder = tempfile::tempdir().unwrap();
    let options = DemoOptions { once: true, events: 3_000, seed: 7, dir: Some(folder.path().join("kept")) };
    let outcome = demo(options, CancellationToken::new()).await.unwrap();
    let failed: Vec<String> = outcome.checks.iter().filter(|check| !check.passed).map(ToString::to_string).collect();
    assert!(outcome.is_verified(), "{failed:#?}");
    // One check of the handover, four of the ledger, one each of the log, devices, rings, links and decisions, two of
    // each view.
    assert_eq!(outcome.checks.len(), 20, "{:#?}", outcome.checks);
    assert!(folder.path().join("kept/basestream.toml").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_that_is_stopped_lets_go_and_has_verified_nothing() {
    let stop = CancellationToken::new();
    stop.cancel();
    let outcome = demo(DemoOptions { once: true, events: 1_000, ..DemoOptions::default() }, stop).await.unwrap();
    assert!(!outcome.is_verified());
}

#[tokio::test]
async fn a_folder_with_data_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let options = DemoOptions { dir: Some(folder.path().to_path_buf()), ..DemoOptions::default() };
    let error = demo(options, CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("folder that holds no data"), "{error}");
}
