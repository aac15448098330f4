use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use types::ErrorKind;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// With something that runs in the place of a node and its alerts.
async fn keeping(folder: &std::path::Path, open: Open) -> (Keeping, watch::Receiver<Option<Node>>) {
    let settings = Settings::parse("", &folder.join("basestream.toml"), &Variables::default()).unwrap();
    let installation = Installation::open(&settings, Functions::standard()).await.unwrap();
    let (shown, node) = watch::channel(None);
    let (fresh, stalled) = (Fresh::unread(), StalledAlerts::default());
    (Keeping { installation, fresh, stalled, shown: Arc::new(shown), open: Some(open) }, node)
}

#[tokio::test]
async fn where_the_node_or_the_alerts_panic_the_process_ends() {
    let folder = tempfile::tempdir().unwrap();
    let open = Open { stop: CancellationToken::new(), runs: tokio::spawn(async { panic!("on purpose") }) };
    let (keeping, _node) = keeping(folder.path(), open).await;
    let outcome = tokio::time::timeout(PATIENCE, keeping.run(CancellationToken::new())).await;
    let error = outcome.expect("timed out: it goes on as if nothing had happened").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
}

#[tokio::test]
async fn a_stop_closes_the_node_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (stop, of_node) = (CancellationToken::new(), CancellationToken::new());
    let open = Open { stop: of_node.clone(), runs: tokio::spawn(async move { of_node.cancelled().await }) };
    let (keeping, _node) = keeping(folder.path(), open).await;
    stop.cancel();
    tokio::time::timeout(PATIENCE, keeping.run(stop)).await.expect("timed out: it does not stop").unwrap();
}
