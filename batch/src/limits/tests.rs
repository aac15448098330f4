use catalog::{DefinitionRecord, DefinitionStatus};
use futures::FutureExt;

use super::*;

fn limits(options: &str) -> RunLimits {
    let record = DefinitionRecord {
        kind: DefinitionKind::View,
        name: "v".into(),
        version: 2,
        sql: format!("CREATE VIEW v WITH ({options}) AS SELECT count(*) AS n FROM s"),
        status: DefinitionStatus::Building,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    };
    let state = CatalogState { definitions: [record].into_iter().collect(), ..CatalogState::default() };
    RunLimits::from_definition(&state, &RunRecord::requested("v".into(), 2), RunMode::ByStrategy)
}

fn settings(memory_limit_bytes: usize) -> RunSettings {
    RunSettings {
        memory_limit_bytes,
        threads: 1,
        temp_dir: None,
        lease: Duration::from_secs(30),
        report_every: crate::REPORT_EVERY,
        events_per_bucket: crate::EVENTS_PER_BUCKET,
        events_per_slice: 16,
    }
}

#[test]
fn a_views_memory_limit_lowers_the_processs_and_never_raises_it() {
    let limited = limits("memory_limit = '64MiB'");
    assert_eq!(limited.memory_limit_bytes(&settings(1 << 30)), 64 << 20);
    assert_eq!(limited.memory_limit_bytes(&settings(32 << 20)), 32 << 20);
    assert_eq!(limits("every = '1h'").memory_limit_bytes(&settings(1 << 30)), 1 << 30);
}

#[test]
fn the_help_names_the_limit_that_was_reached() {
    let help = |options: &str| limits(options).with_help(Error::new(ErrorKind::Limit, "full"), &settings(1 << 30)).to_string();
    assert!(
        help("memory_limit = '64MiB'").contains("raise `memory_limit` in the view's options, which is 64MiB"),
        "{}",
        help("memory_limit = '64MiB'")
    );
    assert!(help("every = '1h'").contains("raise `memory_limit` in [batch]: this run may take 1GiB of it"), "{}", help("every = '1h'"));
    let other = limits("every = '1h'").with_help(Error::conflict("other"), &settings(1 << 30));
    assert!(!other.to_string().contains("memory_limit"), "{other}");
}

#[tokio::test]
async fn a_step_has_as_much_time_as_its_run() {
    let error = limits("timeout = '1s'").in_time(std::future::pending::<Result<()>>()).await.unwrap_err();
    assert!(error.to_string().starts_with("timed out after 1s: "), "{error}");
    assert_eq!(limits("every = '1h'").in_time(async { Ok(1) }).await.unwrap(), 1);
}

#[tokio::test]
async fn a_run_times_out_after_the_views_timeout_and_not_at_all_without_one() {
    let began = std::time::Instant::now();
    let error = limits("timeout = '1s'").time_out(&AtomicBool::new(false)).await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().starts_with("timed out after 1s: "), "{error}");
    // What is made is to be published.
    let made = AtomicBool::new(true);
    assert!(tokio::time::timeout(Duration::from_millis(1_200), limits("timeout = '1s'").time_out(&made)).await.is_err());
    assert!(limits("every = '1h'").time_out(&AtomicBool::new(false)).now_or_never().is_none());
}
