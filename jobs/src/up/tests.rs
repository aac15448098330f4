use std::path::Path;
use std::time::Duration;

use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use types::{ErrorKind, Result};

use super::*;
use crate::demo::definitions;

async fn installation(folder: &Path, http: &str) -> Installation {
    let text = format!("[serving]\nhttp = \"{http}\"\n");
    let settings = Settings::parse(&text, &folder.join("basestream.toml"), &Variables::default()).unwrap();
    Installation::open(&settings, Functions::standard()).await.unwrap()
}

fn start(installation: Installation, stop: &CancellationToken) -> (tokio::task::JoinHandle<Result<()>>, oneshot::Receiver<Ready>) {
    let (sender, ready) = oneshot::channel();
    let options = UpOptions { definitions: Some(definitions().unwrap()), ready: Some(sender), quiet: true };
    (tokio::spawn(up(installation, options, stop.clone())), ready)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_layers_come_up_and_go_down_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let installation = installation(folder.path(), "127.0.0.1:0").await;
    let stop = CancellationToken::new();
    let (task, ready) = start(installation.clone(), &stop);
    let ready = ready.await.unwrap();
    let answer = reqwest::get(format!("{}/v1/views/device_velocity", ready.url())).await.unwrap();
    assert!(answer.status().is_success());
    stop.cancel();
    let outcome = tokio::time::timeout(Duration::from_secs(20), task).await.expect("it stops by itself");
    outcome.unwrap().unwrap();
    assert!(reqwest::get(ready.url()).await.is_err(), "nobody answers any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_said_before_anything_works() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let installation = installation(folder.path(), &taken.local_addr().unwrap().to_string()).await;
    let (task, _ready) = start(installation.clone(), &CancellationToken::new());
    let error = task.await.unwrap().unwrap_err();
    assert!(installation.catalog.state().await.unwrap().definitions.is_empty(), "definitions were applied");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&taken.local_addr().unwrap().to_string()), "{error}");
}
