use std::path::Path;
use std::time::Duration;

use catalog::Role;
use definitions::settings::{Settings, Variables};
use engine::functions::Functions;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use types::ErrorKind;

use super::*;
use crate::now;
use crate::tokens::{self, AskedToken};
use crate::up::{UpOptions, scheduler, serve, speed, up};

async fn installation(folder: &Path, text: &str) -> Installation {
    let settings = Settings::parse(text, &folder.join("basestream.toml"), &Variables::default()).unwrap();
    Installation::open(&settings, Functions::standard()).await.unwrap()
}

fn admin(name: &str) -> AskedToken {
    AskedToken { name: name.to_owned(), role: Role::Admin, views: Vec::new(), streams: Vec::new(), expires: None }
}

/// Asks with a token until the status is as expected.
async fn until(url: &str, token: &str, expected: impl Fn(u16) -> bool) {
    let client = reqwest::Client::new();
    let asking = async {
        while !expected(client.get(url).bearer_auth(token).send().await.unwrap().status().as_u16()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("timed out: the process does not follow the catalog");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_runs_learns_what_another_creates_and_revokes() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[scheduler]\nhttp = '127.0.0.1:0'\n[serving.auth]\nrequired = true";
    let installation = installation(folder.path(), text).await;
    let (sender, ready) = oneshot::channel();
    let options = UpOptions { ready: Some(sender), quiet: true, ..UpOptions::default() };
    let stop = CancellationToken::new();
    let task = tokio::spawn(scheduler(installation.clone(), options, stop.clone()));
    let url = ready.await.unwrap().url();
    let metrics = format!("{url}/metrics");
    assert_eq!(reqwest::get(&metrics).await.unwrap().status().as_u16(), 401);
    assert_eq!(reqwest::get(format!("{url}/healthz")).await.unwrap().status().as_u16(), 200);

    let another = installation.catalog.apart();
    let created = tokens::create(&another, admin("ops"), now()).await.unwrap();
    until(&metrics, &created.token, |status| status != 401).await;
    tokens::revoke(&another, "ops", now()).await.unwrap();
    until(&metrics, &created.token, |status| status == 401).await;
    stop.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_starts_at_an_address_of_others_without_a_word_on_who_may_do_what() {
    let folder = tempfile::tempdir().unwrap();
    let open = |setting: &str, auth: &str| {
        let (section, key) = setting.split_once('.').unwrap();
        installation_of(folder.path(), format!("[{section}]\n{key} = '0.0.0.0:0'\n[serving.auth]\n{auth}"))
    };
    for setting in ["serving.http", "speed.http", "scheduler.http"] {
        let opened = open(setting, "").await;
        let stop = CancellationToken::new();
        let outcomes = match setting {
            "serving.http" => {
                vec![up(opened.clone(), UpOptions::default(), stop.clone()).await, serve(opened, UpOptions::default(), stop.clone()).await]
            }
            "speed.http" => vec![speed(opened, UpOptions::default(), stop.clone()).await],
            _ => vec![scheduler(opened, UpOptions::default(), stop.clone()).await],
        };
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!((error.kind(), error.fact("setting")), (ErrorKind::Input, Some("serving.auth.required")), "{setting}: {error}");
            assert!(error.message().starts_with(setting), "{error}");
        }
    }
    // Said plainly, it starts.
    for auth in ["required = false", "required = true"] {
        let (opened, stop) = (open("scheduler.http", auth).await, CancellationToken::new());
        stop.cancel();
        scheduler(opened, UpOptions { quiet: true, ..UpOptions::default() }, stop).await.unwrap();
    }
}

async fn installation_of(folder: &Path, text: String) -> Installation {
    installation(folder, &text).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_protected_as_configured_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cert.pem"), "no certificate").unwrap();
    let cases = [
        ("[serving.tls]\ncert = 'cert.pem'", "[serving.tls] is incomplete"),
        ("[serving.tls]\nclient_ca = 'cert.pem'", "[serving.tls] is incomplete"),
        ("[serving.tls]\ncert = 'missing.pem'\nkey = 'missing.pem'", "the file cannot be read"),
        ("[serving.tls]\ncert = 'cert.pem'\nkey = 'cert.pem'", "there is no certificate in the file"),
        ("[serving.auth]\nissuer = 'https://issuer.example'", "[serving.auth] is incomplete"),
        ("[serving.auth]\naudience = 'basestream'", "[serving.auth] is incomplete"),
        ("[serving.auth]\nissuer = 'http://issuer.example'\naudience = 'basestream'", "is not encrypted"),
    ];
    for (text, message) in cases {
        let opened = installation(folder.path(), &format!("[serving]\nhttp = '127.0.0.1:0'\n{text}")).await;
        let error = up(opened, UpOptions::default(), CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{text}: {error}");
        assert!(error.message().contains(message), "{text}: {error}");
    }
}
