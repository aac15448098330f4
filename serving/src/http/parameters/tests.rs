use access::{Authenticator, Keyring, NewToken, new_token};
use catalog::{Add, Commit, DefinitionKind, ParameterRecord, Role};
use uuid::Uuid;

use super::*;
use crate::harness::{Harness, NOW, definition};
use crate::http::Protection;
use crate::http::tests::Client;

/// A server that requires a token, over a catalog with one parameter and a sink that uses it.
async fn client(keyring: &Keyring) -> Client {
    let harness = Harness::filled().await;
    let value = ParameterRecord {
        parameter: "most".into(),
        version: 1,
        value_type: "DECIMAL(20,2)".into(),
        value: "20.00".into(),
        set_at: 0,
        set_by: "ann".into(),
    };
    let sink = "CREATE SINK judged WITH (topic = 'judged') AS SELECT param('most') AS most FROM payments";
    let add = vec![
        definition(DefinitionKind::Parameter, "most", "CREATE PARAMETER most DECIMAL(20,2) = 20 WITH (description = 'hourly')"),
        definition(DefinitionKind::Sink, "judged", sink),
        Add::Parameter(value),
    ];
    harness.catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await.unwrap();
    harness.node.refresh().await.unwrap();
    let authenticator = Authenticator { is_required: true, keyring: keyring.clone(), issuer: None, clock: Arc::new(|| NOW) };
    let node = harness.node.clone();
    Client::protected(harness, node, Protection { authenticator, public: Arc::default(), tls: None, hosts: Arc::default() }).await
}

/// Makes this the one token there is, and returns its header.
fn token(keyring: &Keyring, role: Role, views: &[&str]) -> String {
    let views = views.iter().map(|name| (*name).to_owned()).collect();
    let new = NewToken { name: "bob".to_owned(), role, views, streams: Vec::new(), created_by: "me".to_owned(), expires_at: None };
    let (text, record) = new_token(new, 0).unwrap();
    keyring.set(vec![record]);
    format!("authorization: Bearer {text}\r\n")
}

#[tokio::test]
async fn an_operator_sets_a_parameter_and_it_is_listed() {
    let keyring = Keyring::new().unwrap();
    let client = client(&keyring).await;
    let operator = token(&keyring, Role::Operator, &[]);
    let listed = client.send("GET", "/v1/parameters", &operator, b"").await.json();
    let expected = json!({ "parameters": [{
        "parameter": "most", "type": "DECIMAL(20,2)", "value": "20.00", "version": 1, "since": "1970-01-01T00:00:00Z", "set_by": "ann",
        "initial": "20.00", "description": "hourly", "used_by": ["judged"],
    }] });
    assert_eq!(listed, expected);
    // Its digits are more than a float has.
    let set = client.send("PUT", "/v1/parameters/most", &operator, b"{\"value\": 123456789012345678.25}").await;
    let expected = json!({
        "parameter": "most", "type": "DECIMAL(20,2)", "value_before": "20.00", "value": "123456789012345678.25", "version": 2, "changed": true,
    });
    assert_eq!((set.status, set.json()), (200, expected));
    client.harness().node.refresh().await.unwrap();
    let listed = client.send("GET", "/v1/parameters", &operator, b"").await.json();
    assert_eq!((&listed["parameters"][0]["version"], &listed["parameters"][0]["set_by"]), (&json!(2), &json!("bob")));
    let sinks = client.send("GET", "/v1/sinks", &operator, b"").await.json();
    assert_eq!(sinks["sinks"][0]["parameters"], json!({ "most": 2 }));
}

#[tokio::test]
async fn what_is_no_value_or_no_right_changes_nothing() {
    let keyring = Keyring::new().unwrap();
    let client = client(&keyring).await;
    let admin = token(&keyring, Role::Admin, &[]);
    for (path, body, status, message) in [
        ("most", "{\"value\": \"many\"}", 400, "the value 'many' is TEXT: expected DECIMAL(20,2)"),
        ("most", "{\"value\": [1]}", 400, "the value is [1]: expected {\"value\": 30}"),
        ("most", "{\"value\": null}", 400, "the value is null"),
        ("most", "{\"values\": 1}", 400, "the body is not of the expected form"),
        ("moost", "{\"value\": 1}", 404, "did you mean \"most\"?"),
    ] {
        let (found, detail) = client.send("PUT", &format!("/v1/parameters/{path}"), &admin, body.as_bytes()).await.problem();
        assert!(found == status && detail.contains(message), "{body}: {found} {detail}");
    }
    for (role, views, may_list) in [(Role::Reader, &[][..], true), (Role::Writer, &[], false), (Role::Operator, &["velocity"], false)] {
        let header = token(&keyring, role, views);
        let (status, detail) = client.send("PUT", "/v1/parameters/most", &header, b"{\"value\": 1}").await.problem();
        let expected = "may not operate the parameter \"most\": expected the role operator or admin, not limited to views or streams";
        assert!(status == 403 && detail.contains(expected), "{role}: {detail}");
        assert_eq!(client.send("GET", "/v1/parameters", &header, b"").await.status == 200, may_list, "{role}");
    }
    assert_eq!(client.harness().catalog.state().await.unwrap().parameters[0].version, 1);
}
